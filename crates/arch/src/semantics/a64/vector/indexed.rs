//! Operations with one element of a register as operand.

use super::super::word::{Word, v};
use super::form::{Form, d, float, fused, lane, lanes, n, negated, shuffled_lanes, widened};
use crate::semantics::Operand;
use crate::semantics::builder::Builder;
use crate::semantics::operation::{FloatOperation, FloatShape, LaneOperation, Lanes};

pub(super) fn decode(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    let (unsigned, opcode, size) = (word.bit(29), word.field(12, 4), word.field(22, 2));
    match (unsigned, opcode) {
        (false, 0b1001 | 0b0001 | 0b0101) if size >= 2 => return floating(builder, word, form),
        _ if form.scalar => return None,
        _ => {}
    }
    // The index is H:L:M or H:L; in the latter case M is part of the register's number.
    let (h, l, m) = (word.field(11, 1), word.field(21, 1), word.field(20, 1));
    let (number, index) = match size {
        1 => (word.field(16, 4), h << 2 | l << 1 | m),
        2 => (word.field(16, 5), h << 1 | l),
        _ => return None,
    };
    let lanes_of = lanes(size);
    match (unsigned, opcode) {
        (false, 0b1000) | (true, 0b0000 | 0b0100) => {
            let all = element(builder, lanes_of, number as u8, index as u8);
            form.by_halves(builder, word, |builder, half| {
                let product = lane(
                    builder,
                    LaneOperation::Multiply,
                    lanes_of,
                    n(word, half),
                    all,
                );
                let sum = match opcode {
                    0b0000 => LaneOperation::Add,
                    0b0100 => LaneOperation::Subtract,
                    _ => return product,
                };
                lane(builder, sum, lanes_of, d(word, half), product)
            });
        }
        (_, 0b1010 | 0b0010 | 0b0110) => {
            let all = element(builder, lanes_of, number as u8, index as u8);
            let (all, wide) = widened(builder, lanes_of, !unsigned, all, 0);
            let from = n(word, word.field(30, 1) as u8);
            let whole = Form {
                scalar: false,
                full: true,
            };
            whole.across_halves(builder, word, |builder, half| {
                let (a, _) = widened(builder, lanes_of, !unsigned, from, half);
                let product = lane(builder, LaneOperation::Multiply, wide, a, all);
                let sum = match opcode {
                    0b0010 => LaneOperation::Add,
                    0b0110 => LaneOperation::Subtract,
                    _ => return product,
                };
                lane(builder, sum, wide, d(word, half), product)
            });
        }
        _ => return None,
    }
    Some(())
}

/// The selected element, replicated to all lanes of 64 bits.
fn element(builder: &mut Builder, lanes: Lanes, register: u8, index: u8) -> Operand {
    let count = (64 / lanes.bits()) as u8;
    let from = v(register, index / count);
    if lanes == Lanes::D64 {
        // The register may be overwritten before the element's second use.
        return builder.kept(from);
    }
    shuffled_lanes(builder, lanes, from, Operand::ZERO, |_| index % count)
}

/// FMUL, FMLA, FMLS.
fn floating(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    let shape = form.shape(word)?;
    let (lanes, index) = match shape {
        FloatShape::Double if word.bit(21) => return None,
        FloatShape::Double => (Lanes::D64, word.field(11, 1)),
        _ => (Lanes::S32, word.field(11, 1) << 1 | word.field(21, 1)),
    };
    let all = element(builder, lanes, word.m(), index as u8);
    form.by_halves(builder, word, |builder, half| {
        let mut factor = n(word, half);
        if word.field(12, 4) == 0b1001 {
            return float(builder, FloatOperation::Multiply, shape, factor, all);
        }
        if word.bit(14) {
            factor = negated(builder, shape, factor);
        }
        fused(builder, shape, [factor, all, d(word, half)])
    });
    Some(())
}
