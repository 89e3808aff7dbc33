//! Instructions with three registers of the same type.

use super::super::word::Word;
use super::form::{Form, d, float, fused, lane, m, n, negated, shuffled_lanes, signs};
use crate::semantics::builder::Builder;
use crate::semantics::operation::{FloatOperation, FloatShape, LaneOperation, Lanes};
use crate::semantics::{Operand, Operation, Width};

pub(super) fn decode(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    let (unsigned, opcode) = (word.bit(29), word.field(11, 5));
    if opcode >= 0b11000 {
        return floating(builder, word, form);
    }
    if opcode == 0b00011 && !form.scalar {
        logical(builder, word, form);
        return Some(());
    }
    let pick = |signed, if_unsigned| if unsigned { if_unsigned } else { signed };
    let lanes = form.lanes(word)?;
    let operation = match opcode {
        0b00001 => pick(
            LaneOperation::AddSaturatingSigned,
            LaneOperation::AddSaturatingUnsigned,
        ),
        0b00101 => pick(
            LaneOperation::SubtractSaturatingSigned,
            LaneOperation::SubtractSaturatingUnsigned,
        ),
        0b00110 => pick(LaneOperation::GreaterSigned, LaneOperation::GreaterUnsigned),
        0b00111 => pick(
            LaneOperation::GreaterEqualSigned,
            LaneOperation::GreaterEqualUnsigned,
        ),
        0b01000 => pick(LaneOperation::ShiftSigned, LaneOperation::Shift),
        0b10000 => pick(LaneOperation::Add, LaneOperation::Subtract),
        0b10001 => pick(LaneOperation::Test, LaneOperation::Equal),
        _ if form.scalar => return None,
        // Of the following, only ADDP has lanes of 64 bits.
        0b10111 if !unsigned => LaneOperation::Add,
        _ if lanes == Lanes::D64 => return None,
        0b01100 | 0b10100 => pick(LaneOperation::MaxSigned, LaneOperation::MaxUnsigned),
        0b01101 | 0b10101 => pick(LaneOperation::MinSigned, LaneOperation::MinUnsigned),
        0b01110 | 0b01111 => pick(
            LaneOperation::DistanceSigned,
            LaneOperation::DistanceUnsigned,
        ),
        0b10010 => LaneOperation::Multiply,
        0b10011 if !unsigned => LaneOperation::Multiply,
        _ => return None,
    };
    match opcode {
        0b10100 | 0b10101 | 0b10111 => pairs(builder, word, form, lanes, |builder, a, b| {
            lane(builder, operation, lanes, a, b)
        }),
        // SABA, UABA; MLA, MLS.
        0b01111 | 0b10010 => form.by_halves(builder, word, |builder, half| {
            let part = lane(builder, operation, lanes, n(word, half), m(word, half));
            let sum = if opcode == 0b10010 && unsigned {
                LaneOperation::Subtract
            } else {
                LaneOperation::Add
            };
            lane(builder, sum, lanes, d(word, half), part)
        }),
        _ => form.by_halves(builder, word, |builder, half| {
            lane(builder, operation, lanes, n(word, half), m(word, half))
        }),
    }
    Some(())
}

/// An operation on each pair of neighbouring lanes of both registers.
pub(super) fn pairs(
    builder: &mut Builder,
    word: Word,
    form: Form,
    lanes: Lanes,
    operation: impl Fn(&mut Builder, Operand, Operand) -> Operand,
) {
    form.across_halves(builder, word, |builder, half| {
        let (a, b) = match (form.full, half) {
            (false, _) => (n(word, 0), m(word, 0)),
            (true, 0) => (n(word, 0), n(word, 1)),
            (true, _) => (m(word, 0), m(word, 1)),
        };
        if lanes == Lanes::D64 {
            return operation(builder, a, b);
        }
        let even = shuffled_lanes(builder, lanes, a, b, |index| 2 * index);
        let odd = shuffled_lanes(builder, lanes, a, b, |index| 2 * index + 1);
        operation(builder, even, odd)
    });
}

fn logical(builder: &mut Builder, word: Word, form: Form) {
    let operation = word.field(29, 1) << 2 | word.field(22, 2);
    form.by_halves(builder, word, |builder, half| {
        let (d, n, m) = (d(word, half), n(word, half), m(word, half));
        match operation {
            0 => builder.op2(Operation::And, n, m),
            2 if n == m => n,
            2 => builder.op2(Operation::Or, n, m),
            1 | 3 => {
                let inverted = builder.op1(Operation::Not(Width::W64), m);
                let both = if operation == 1 {
                    Operation::And
                } else {
                    Operation::Or
                };
                builder.op2(both, n, inverted)
            }
            4 => builder.op2(Operation::Xor, n, m),
            // BSL, BIT, BIF.
            5 => builder.op(Operation::SelectBits, n, m, d),
            6 => builder.op(Operation::SelectBits, n, d, m),
            _ => builder.op(Operation::SelectBits, d, n, m),
        }
    });
}

fn floating(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    use FloatOperation as F;
    let shape = form.shape(word)?;
    let key = (word.bit(29), word.bit(23), word.field(11, 5));
    let simple = match key {
        (false, false, 0b11010) => F::Add,
        (false, true, 0b11010) => F::Subtract,
        (false, false, 0b11110) => F::Maximum,
        (false, true, 0b11110) => F::Minimum,
        // FMAXNM, FMINNM: equal to FMAX and FMIN unless an operand is a NaN.
        (false, false, 0b11000) => F::Maximum,
        (false, true, 0b11000) => F::Minimum,
        (false, false, 0b11100) => F::Equal,
        (true, false, 0b11100) => F::GreaterEqual,
        (true, true, 0b11100) => F::Greater,
        (true, false, 0b11011) => F::Multiply,
        (true, false, 0b11111) => F::Divide,
        _ => return others(builder, word, form, shape),
    };
    let compares = matches!(simple, F::Equal | F::GreaterEqual | F::Greater);
    if form.scalar && !compares {
        return None;
    }
    form.by_halves(builder, word, |builder, half| {
        float(builder, simple, shape, n(word, half), m(word, half))
    });
    Some(())
}

fn others(builder: &mut Builder, word: Word, form: Form, shape: FloatShape) -> Option<()> {
    use FloatOperation as F;
    let magnitudes = Operand::Constant(match shape {
        FloatShape::Single => 0x7fff_ffff,
        _ => !signs(shape),
    });
    let paired = |operation| (!form.scalar).then_some(operation);
    match (word.bit(29), word.bit(23), word.field(11, 5)) {
        // FMLA, FMLS
        (false, subtract, 0b11001) if !form.scalar => {
            form.by_halves(builder, word, |builder, half| {
                let mut factor = n(word, half);
                if subtract {
                    factor = negated(builder, shape, factor);
                }
                fused(builder, shape, [factor, m(word, half), d(word, half)])
            });
        }
        // FABD
        (true, true, 0b11010) => form.by_halves(builder, word, |builder, half| {
            let distance = float(builder, F::Subtract, shape, n(word, half), m(word, half));
            builder.op2(Operation::And, distance, magnitudes)
        }),
        // FACGE, FACGT
        (true, greater, 0b11101) => form.by_halves(builder, word, |builder, half| {
            let a = builder.op2(Operation::And, n(word, half), magnitudes);
            let b = builder.op2(Operation::And, m(word, half), magnitudes);
            let operation = if greater { F::Greater } else { F::GreaterEqual };
            float(builder, operation, shape, a, b)
        }),
        (true, minimum, opcode @ (0b11000 | 0b11010 | 0b11110)) => {
            let operation = paired(match (opcode, minimum) {
                (0b11010, false) => F::Add,
                (0b11010, true) => return None,
                (_, false) => F::Maximum,
                (_, true) => F::Minimum,
            })?;
            let lanes = match shape {
                FloatShape::Double => Lanes::D64,
                _ => Lanes::S32,
            };
            pairs(builder, word, form, lanes, |builder, a, b| {
                float(builder, operation, shape, a, b)
            });
        }
        _ => return None,
    }
    Some(())
}
