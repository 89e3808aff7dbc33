//! Shifts by immediates.

use super::super::word::Word;
use super::form::{Form, d, in_lanes, lane, lanes, n, widened};
use super::two::narrowed_to;
use crate::semantics::builder::Builder;
use crate::semantics::lanes::each;
use crate::semantics::operation::{LaneOperation, Lanes};
use crate::semantics::{Operand, Operation};

pub(super) fn decode(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    let (unsigned, opcode) = (word.bit(29), word.field(11, 5));
    let size = word.field(19, 4).ilog2();
    let lanes_of = lanes(size);
    let bits = i64::from(lanes_of.bits());
    let immediate = i64::from(word.field(16, 7));
    let (left, right) = (immediate - bits, 2 * bits - immediate);
    // Narrowing and widening shifts are named by the narrower lanes.
    match (unsigned, opcode) {
        (false, 0b10000 | 0b10001) if !form.scalar && size < 3 => {
            let wide = lanes(size + 1);
            narrowed_to(builder, word, lanes_of, |builder, mut a, mut b| {
                if opcode & 1 == 1 {
                    let half = in_lanes(wide, 1 << (right - 1));
                    a = lane(builder, LaneOperation::Add, wide, a, half);
                    b = lane(builder, LaneOperation::Add, wide, b, half);
                }
                let down = in_lanes(wide, -right);
                let a = lane(builder, LaneOperation::Shift, wide, a, down);
                (a, lane(builder, LaneOperation::Shift, wide, b, down))
            });
            return Some(());
        }
        (_, 0b10100) if !form.scalar && size < 3 => {
            let from = n(word, word.field(30, 1) as u8);
            let whole = Form {
                scalar: false,
                full: true,
            };
            whole.across_halves(builder, word, |builder, half| {
                let (value, wide) = widened(builder, lanes_of, !unsigned, from, half);
                if left == 0 {
                    return value;
                }
                lane(
                    builder,
                    LaneOperation::Shift,
                    wide,
                    value,
                    in_lanes(wide, left),
                )
            });
            return Some(());
        }
        _ => {}
    }
    if form.scalar != (lanes_of == Lanes::D64) && !(form.full && lanes_of == Lanes::D64) {
        return None;
    }
    let to_right = if unsigned {
        LaneOperation::Shift
    } else {
        LaneOperation::ShiftSigned
    };
    let (operation, amount) = match (unsigned, opcode) {
        (_, 0b00000 | 0b00010) | (true, 0b01000) => (to_right, -right),
        (_, 0b01010) => (LaneOperation::Shift, left),
        _ => return None,
    };
    let amount = in_lanes(lanes_of, amount);
    let moved_to = match amount {
        Operand::Constant(amount) => each(operation, lanes_of, u64::MAX, amount),
        Operand::Location(_) => return None,
    };
    form.by_halves(builder, word, |builder, half| {
        let shifted = lane(builder, operation, lanes_of, n(word, half), amount);
        match (unsigned, opcode) {
            // SSRA, USRA.
            (_, 0b00010) => lane(
                builder,
                LaneOperation::Add,
                lanes_of,
                d(word, half),
                shifted,
            ),
            // SRI, SLI: the bits to which nothing is shifted stay.
            (true, 0b01000 | 0b01010) => {
                let mask = Operand::Constant(moved_to);
                builder.op(Operation::SelectBits, shifted, d(word, half), mask)
            }
            _ => shifted,
        }
    });
    Some(())
}
