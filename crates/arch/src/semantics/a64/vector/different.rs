//! Instructions with three registers of different widths.

use super::super::word::Word;
use super::form::{Form, d, in_lanes, lane, lanes, m, n, widened};
use super::two::narrowed_to;
use crate::semantics::builder::Builder;
use crate::semantics::operation::LaneOperation;

pub(super) fn decode(builder: &mut Builder, word: Word) -> Option<()> {
    let (unsigned, opcode, size) = (word.bit(29), word.field(12, 4), word.field(22, 2));
    if size == 3 {
        return None;
    }
    let (narrow, wide) = (lanes(size), lanes(size + 1));
    let part = word.field(30, 1) as u8;
    let (operation, first_is_wide) = match (opcode, unsigned) {
        (0b0000 | 0b1000, _) => (LaneOperation::Add, false),
        (0b0001, _) => (LaneOperation::Add, true),
        (0b0010 | 0b1010, _) => (LaneOperation::Subtract, false),
        (0b0011, _) => (LaneOperation::Subtract, true),
        (0b0101 | 0b0111, false) => (LaneOperation::DistanceSigned, false),
        (0b0101 | 0b0111, true) => (LaneOperation::DistanceUnsigned, false),
        (0b1100, _) => (LaneOperation::Multiply, false),
        (0b0100 | 0b0110, _) => {
            upper_parts(builder, word);
            return Some(());
        }
        _ => return None,
    };
    let whole = Form {
        scalar: false,
        full: true,
    };
    whole.across_halves(builder, word, |builder, half| {
        let a = if first_is_wide {
            n(word, half)
        } else {
            widened(builder, narrow, !unsigned, n(word, part), half).0
        };
        let (b, _) = widened(builder, narrow, !unsigned, m(word, part), half);
        match opcode {
            // SMLAL, SMLSL and the unsigned forms.
            0b1000 | 0b1010 => {
                let product = lane(builder, LaneOperation::Multiply, wide, a, b);
                lane(builder, operation, wide, d(word, half), product)
            }
            // SABAL, UABAL.
            0b0101 => {
                let distance = lane(builder, operation, wide, a, b);
                lane(builder, LaneOperation::Add, wide, d(word, half), distance)
            }
            _ => lane(builder, operation, wide, a, b),
        }
    });
    Some(())
}

/// ADDHN, SUBHN and their rounding forms.
fn upper_parts(builder: &mut Builder, word: Word) {
    let size = word.field(22, 2);
    let (narrow, wide) = (lanes(size), lanes(size + 1));
    let operation = if word.bit(13) {
        LaneOperation::Subtract
    } else {
        LaneOperation::Add
    };
    let bits = i64::from(narrow.bits());
    narrowed_to(builder, word, narrow, |builder, low, high| {
        let mut upper = |half, a| {
            let mut sum = lane(builder, operation, wide, a, m(word, half));
            if word.bit(29) {
                let half = in_lanes(wide, 1 << (bits - 1));
                sum = lane(builder, LaneOperation::Add, wide, sum, half);
            }
            lane(
                builder,
                LaneOperation::Shift,
                wide,
                sum,
                in_lanes(wide, -bits),
            )
        };
        (upper(0, low), upper(1, high))
    });
}
