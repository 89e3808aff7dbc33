//! Operations across lanes, and pairwise operations on a single pair.

use super::super::word::Word;
use super::form::{Form, float, in_lanes, lane, lanes, n};
use crate::semantics::builder::Builder;
use crate::semantics::operation::{FloatOperation, FloatShape, LaneOperation, Width};
use crate::semantics::{Location, Operand, Operation};

pub(super) fn decode(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    let (unsigned, size) = (word.bit(29), word.field(22, 2));
    if size == 3 || size == 2 && !form.full {
        return None;
    }
    let narrow = lanes(size);
    let (operation, widens) = match (unsigned, word.field(12, 5)) {
        (_, 0b00011) => (LaneOperation::Add, true),
        (false, 0b11011) => (LaneOperation::Add, false),
        (false, 0b01010) => (LaneOperation::MaxSigned, false),
        (true, 0b01010) => (LaneOperation::MaxUnsigned, false),
        (false, 0b11010) => (LaneOperation::MinSigned, false),
        (true, 0b11010) => (LaneOperation::MinUnsigned, false),
        _ => return None,
    };
    let mut lanes_of = narrow;
    let mut halves = [n(word, 0), n(word, 1)];
    let count = if form.full { 2 } else { 1 };
    if widens {
        // First pairs of neighbours, in lanes of twice the width.
        lanes_of = lanes(size + 1);
        let bits = i64::from(narrow.bits());
        let (up, down) = (in_lanes(lanes_of, bits), in_lanes(lanes_of, -bits));
        let to_right = if unsigned {
            LaneOperation::Shift
        } else {
            LaneOperation::ShiftSigned
        };
        for half in &mut halves[..count] {
            let odd = lane(builder, to_right, lanes_of, *half, down);
            let even = lane(builder, LaneOperation::Shift, lanes_of, *half, up);
            let even = lane(builder, to_right, lanes_of, even, down);
            *half = lane(builder, LaneOperation::Add, lanes_of, even, odd);
        }
    }
    let mut folded = halves[0];
    if form.full {
        folded = lane(builder, operation, lanes_of, halves[0], halves[1]);
    }
    let mut distance = 32;
    while distance >= lanes_of.bits() {
        let amount = Operand::Constant(u64::from(distance));
        let other = builder.op2(Operation::ShiftRight(Width::W64), folded, amount);
        folded = lane(builder, operation, lanes_of, folded, other);
        distance /= 2;
    }
    let lowest = Operation::Extract {
        low: 0,
        count: lanes_of.bits() as u8,
    };
    builder.set1(Location::vector(word.d(), 0), lowest, folded);
    builder.copy(Location::vector(word.d(), 1), Operand::ZERO);
    Some(())
}

/// ADDP, FADDP, FMAXP and the like to one element.
pub(super) fn pairwise(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    let opcode = word.field(12, 5);
    if !word.bit(29) {
        if opcode != 0b11011 || word.field(22, 2) != 3 {
            return None;
        }
        form.by_halves(builder, word, |builder, _| {
            builder.op2(Operation::Add(Width::W64), n(word, 0), n(word, 1))
        });
        return Some(());
    }
    let operation = match (opcode, word.bit(23)) {
        (0b01101, false) => FloatOperation::Add,
        (0b01100 | 0b01111, false) => FloatOperation::Maximum,
        (0b01100 | 0b01111, true) => FloatOperation::Minimum,
        _ => return None,
    };
    let shape = form.shape(word)?;
    form.by_halves(builder, word, |builder, _| {
        let second = if shape == FloatShape::Double {
            n(word, 1)
        } else {
            builder.op1(Operation::Extract { low: 32, count: 32 }, n(word, 0))
        };
        float(builder, operation, shape, n(word, 0), second)
    });
    Some(())
}
