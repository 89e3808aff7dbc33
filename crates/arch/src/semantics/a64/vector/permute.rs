//! UZP, TRN, ZIP, EXT, TBL, TBX.

use super::super::word::{Word, v};
use super::form::{Form, d, in_lanes, lane, lanes, m, n, shuffled, shuffled_lanes};
use crate::semantics::builder::Builder;
use crate::semantics::operation::{LaneOperation, Lanes};
use crate::semantics::{Operand, Operation};

pub(super) fn decode(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    match (word.bit(29), word.field(10, 2)) {
        (true, 0b00 | 0b10) if word.field(22, 2) == 0 => extract(builder, word, form),
        (false, 0b10) => interleave(builder, word, form),
        (false, 0b00) if word.field(22, 2) == 0 => {
            look_up(builder, word, form);
            Some(())
        }
        _ => None,
    }
}

fn extract(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    let first = word.field(11, 4) as u8;
    if !form.full && first >= 8 {
        return None;
    }
    let source = |index: u8| match (form.full, index) {
        (_, 0) => n(word, 0),
        (true, 1) => n(word, 1),
        (true, 3) => m(word, 1),
        _ => m(word, 0),
    };
    form.across_halves(builder, word, |builder, half| {
        let (at, offset) = (half + first / 8, first % 8);
        if offset == 0 {
            return source(at);
        }
        let bytes = std::array::from_fn(|index| index as u8 + offset);
        shuffled(builder, source(at), source(at + 1), bytes)
    });
    Some(())
}

fn interleave(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    let (lanes, opcode) = (lanes(word.field(22, 2)), word.field(12, 3));
    let second = (opcode >> 2) as u8;
    if lanes == Lanes::D64 {
        if !form.full || opcode & 3 == 0 {
            return None;
        }
        form.across_halves(builder, word, |_, half| {
            if half == 0 {
                n(word, second)
            } else {
                m(word, second)
            }
        });
        return Some(());
    }
    let count = (64 / lanes.bits()) as u8;
    match opcode & 3 {
        // UZP
        1 => form.across_halves(builder, word, |builder, half| {
            let (a, b) = match (form.full, half) {
                (false, _) => (n(word, 0), m(word, 0)),
                (true, 0) => (n(word, 0), n(word, 1)),
                (true, _) => (m(word, 0), m(word, 1)),
            };
            shuffled_lanes(builder, lanes, a, b, |index| 2 * index + second)
        }),
        // TRN
        2 => form.by_halves(builder, word, |builder, half| {
            let number = |index| (index & !1) + second + (index & 1) * count;
            shuffled_lanes(builder, lanes, n(word, half), m(word, half), number)
        }),
        // ZIP
        3 => form.across_halves(builder, word, |builder, half| {
            let (from, first) = if form.full {
                (second, half * count / 2)
            } else {
                (0, second * count / 2)
            };
            let number = |index: u8| first + index / 2 + (index & 1) * count;
            shuffled_lanes(builder, lanes, n(word, from), m(word, from), number)
        }),
        _ => return None,
    }
    Some(())
}

fn look_up(builder: &mut Builder, word: Word, form: Form) {
    let registers = word.field(13, 2) as u8 + 1;
    let keeps = word.bit(12);
    form.across_halves(builder, word, |builder, half| {
        let indices = m(word, half);
        let mut found = None;
        for register in 0..registers {
            let number = (word.n() + register) % 32;
            let mut within = indices;
            if register > 0 {
                let first = in_lanes(Lanes::B8, 16 * i64::from(register));
                within = lane(builder, LaneOperation::Subtract, Lanes::B8, indices, first);
            }
            let bytes = builder.op(Operation::LookUpBytes, v(number, 0), v(number, 1), within);
            found = Some(match found {
                None => bytes,
                Some(others) => builder.op2(Operation::Or, others, bytes),
            });
        }
        let found = found.unwrap_or(Operand::ZERO);
        if !keeps {
            return found;
        }
        let end = in_lanes(Lanes::B8, 16 * i64::from(registers));
        let beyond = LaneOperation::GreaterEqualUnsigned;
        let beyond = lane(builder, beyond, Lanes::B8, indices, end);
        builder.op(Operation::SelectBits, d(word, half), found, beyond)
    });
}
