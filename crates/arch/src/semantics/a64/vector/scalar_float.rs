//! Scalar floating point.

use super::super::word::{Word, to_x, v, x};
use super::convert::LOW;
use super::form::{FPCR, float, fused, n, negated, signs};
use crate::semantics::builder::Builder;
use crate::semantics::floating::{immediate_double, immediate_single};
use crate::semantics::operation::{FloatOperation, FloatShape, Rounding};
use crate::semantics::{Location, Operand, Operation, Width};

pub(super) fn decode(builder: &mut Builder, word: Word) -> Option<()> {
    if word.bit(29) {
        return None;
    }
    let shape = match word.field(22, 2) {
        0 => Some(FloatShape::Single),
        1 => Some(FloatShape::Double),
        _ => None,
    };
    let to_vector = |builder: &mut Builder, value| {
        builder.move_to(Location::vector(word.d(), 0), value);
        builder.copy(Location::vector(word.d(), 1), Operand::ZERO);
    };
    let (fixed_point, rest) = (!word.bit(21), word.field(10, 6));
    if word.bit(24) {
        let sum = shape.map(|shape| multiply_add(builder, word, shape));
        to_vector_or_unknown(builder, word, sum);
        return (!word.bit(31)).then_some(());
    }
    if fixed_point {
        // SCVTF, UCVTF; FCVTZS, FCVTZU.
        if word.bit(17) {
            to_vector_or_unknown(builder, word, None);
        } else {
            builder.unknown(to_x(word.d()));
        }
        return Some(());
    }
    if rest == 0 {
        return integers(builder, word, shape);
    }
    if word.bit(31) {
        return None;
    }
    match (rest & 3, shape) {
        (0b00, _)
            if rest & 0b1111 == 0b1000 || rest & 0b111 == 0b100 || rest & 0b11111 == 0b10000 =>
        {
            if rest & 0b11111 == 0b10000 {
                let result = shape.and_then(|shape| one_source(builder, word, shape));
                to_vector_or_unknown(builder, word, result);
            } else if rest & 0b1111 == 0b1000 {
                let Some(shape) = shape else {
                    builder.unknown_flags();
                    return Some(());
                };
                let other = if word.bit(3) {
                    Operand::ZERO
                } else {
                    v(word.m(), 0)
                };
                let flags = float(builder, FloatOperation::Flags, shape, n(word, 0), other);
                set_flags(builder, flags);
            } else {
                let byte = u64::from(word.field(13, 8));
                let value = shape.map(|shape| match shape {
                    FloatShape::Double => Operand::Constant(immediate_double(byte)),
                    _ => Operand::Constant(u64::from(immediate_single(byte))),
                });
                to_vector_or_unknown(builder, word, value);
            }
        }
        (0b01, None) => builder.unknown_flags(),
        // FCCMP
        (0b01, Some(shape)) => {
            let condition = builder.holds(word.field(12, 4) as u8);
            let flags = float(
                builder,
                FloatOperation::Flags,
                shape,
                n(word, 0),
                v(word.m(), 0),
            );
            let otherwise = Operand::Constant(u64::from(word.field(0, 4)));
            let flags = builder.op(Operation::Select, flags, otherwise, condition);
            set_flags(builder, flags);
        }
        (0b10, _) => {
            let result = shape.and_then(|shape| two_sources(builder, word, shape));
            to_vector_or_unknown(builder, word, result);
        }
        // FCSEL
        (0b11, Some(shape)) => {
            let condition = builder.holds(word.field(12, 4) as u8);
            let chosen = builder.op(Operation::Select, n(word, 0), v(word.m(), 0), condition);
            let chosen = cut(builder, shape, chosen);
            to_vector(builder, chosen);
        }
        (0b11, None) => to_vector_or_unknown(builder, word, None),
        _ => return None,
    }
    Some(())
}

fn to_vector_or_unknown(builder: &mut Builder, word: Word, value: Option<Operand>) {
    match value {
        Some(value) => builder.move_to(Location::vector(word.d(), 0), value),
        None => {
            builder.restart();
            builder.unknown(Location::vector(word.d(), 0));
        }
    }
    builder.copy(Location::vector(word.d(), 1), Operand::ZERO);
}

fn set_flags(builder: &mut Builder, flags: Operand) {
    let all = [Location::V, Location::C, Location::Z, Location::N];
    for (low, flag) in (0..).zip(all) {
        builder.set1(flag, Operation::Extract { low, count: 1 }, flags);
    }
}

fn cut(builder: &mut Builder, shape: FloatShape, value: Operand) -> Operand {
    match shape {
        FloatShape::Single => builder.op1(LOW, value),
        _ => value,
    }
}

/// FMADD, FMSUB, FNMADD, FNMSUB.
fn multiply_add(builder: &mut Builder, word: Word, shape: FloatShape) -> Operand {
    let (mut factor, mut addend) = (n(word, 0), v(word.a(), 0));
    if word.bit(21) != word.bit(15) {
        factor = negated(builder, shape, factor);
    }
    if word.bit(21) {
        addend = negated(builder, shape, addend);
    }
    fused(builder, shape, [factor, v(word.m(), 0), addend])
}

fn one_source(builder: &mut Builder, word: Word, shape: FloatShape) -> Option<Operand> {
    use FloatOperation as F;
    let (from, signs) = (n(word, 0), signs(shape));
    let rounded = |rounding| F::Round(rounding);
    let operation = match word.field(15, 6) {
        0 => return Some(cut(builder, shape, from)),
        1 | 2 => {
            let from = cut(builder, shape, from);
            let (operation, mask) = if word.bit(15) {
                (Operation::And, !signs)
            } else {
                (Operation::Xor, signs)
            };
            return Some(builder.op2(operation, from, Operand::Constant(mask)));
        }
        3 => F::SquareRoot,
        4 if shape == FloatShape::Double => {
            return Some(float(
                builder,
                F::Narrow,
                FloatShape::Single,
                from,
                Operand::ZERO,
            ));
        }
        5 if shape == FloatShape::Single => {
            return Some(float(
                builder,
                F::Widen,
                FloatShape::Double,
                from,
                Operand::ZERO,
            ));
        }
        8 | 14 | 15 => rounded(Rounding::TiesToEven),
        9 => rounded(Rounding::Up),
        10 => rounded(Rounding::Down),
        11 => rounded(Rounding::Zero),
        12 => rounded(Rounding::TiesAway),
        _ => return None,
    };
    Some(float(builder, operation, shape, from, Operand::ZERO))
}

fn two_sources(builder: &mut Builder, word: Word, shape: FloatShape) -> Option<Operand> {
    use FloatOperation as F;
    let operation = match word.field(12, 4) {
        0 | 8 => F::Multiply,
        1 => F::Divide,
        2 => F::Add,
        3 => F::Subtract,
        4 | 6 => F::Maximum,
        5 | 7 => F::Minimum,
        _ => return None,
    };
    let result = float(builder, operation, shape, n(word, 0), v(word.m(), 0));
    Some(if word.bit(15) {
        negated(builder, shape, result)
    } else {
        result
    })
}

/// Moves and conversions between general and vector registers.
fn integers(builder: &mut Builder, word: Word, shape: Option<FloatShape>) -> Option<()> {
    let (width, rmode, opcode) = (word.width(), word.field(19, 2), word.field(16, 3));
    let long = width == Width::W64;
    let ptype = word.field(22, 2);
    let unsigned = opcode & 1 == 1;
    match (opcode, rmode, ptype) {
        (0b110, 0, 0) if !long => builder.set1(to_x(word.d()), LOW, n(word, 0)),
        (0b110, 0, 1) if long => builder.copy(to_x(word.d()), n(word, 0)),
        (0b110, 1, 2) if long => builder.copy(to_x(word.d()), n(word, 1)),
        (0b111, 0, 0) if !long => {
            builder.set1(Location::vector(word.d(), 0), LOW, x(word.n()));
            builder.copy(Location::vector(word.d(), 1), Operand::ZERO);
        }
        (0b111, 0, 1) if long => to_vector_or_unknown(builder, word, Some(x(word.n()))),
        (0b111, 1, 2) if long => builder.copy(Location::vector(word.d(), 1), x(word.n())),
        // FJCVTZS
        (0b110, 3, 1) if !long => {
            builder.unknown(to_x(word.d()));
            builder.unknown_flags();
        }
        (0b010 | 0b011, 0, _) => {
            let result = shape.map(|shape| {
                let from = match (long, unsigned) {
                    (true, _) => x(word.n()),
                    (false, true) => builder.op1(LOW, x(word.n())),
                    (false, false) => {
                        let signed = Operation::ExtractSigned { low: 0, count: 32 };
                        builder.op1(signed, x(word.n()))
                    }
                };
                let operation = if unsigned {
                    FloatOperation::FromUnsigned
                } else {
                    FloatOperation::FromSigned
                };
                float(builder, operation, shape, from, Operand::ZERO)
            });
            to_vector_or_unknown(builder, word, result);
        }
        (0b000 | 0b001 | 0b100 | 0b101, ..) => {
            let rounding = match (opcode >> 2, rmode) {
                (1, _) => Rounding::TiesAway,
                (_, 0) => Rounding::TiesToEven,
                (_, 1) => Rounding::Up,
                (_, 2) => Rounding::Down,
                _ => Rounding::Zero,
            };
            let operation = if unsigned {
                FloatOperation::ToUnsigned(rounding, width)
            } else {
                FloatOperation::ToSigned(rounding, width)
            };
            match shape {
                Some(shape) if opcode < 4 || rmode == 0 => {
                    let operation = Operation::Float(operation, shape);
                    builder.set(to_x(word.d()), operation, n(word, 0), Operand::ZERO, FPCR);
                }
                _ => builder.unknown(to_x(word.d())),
            }
        }
        // FMOV of half precision.
        (0b111, 0, 3) => to_vector_or_unknown(builder, word, None),
        (0b110, 0, 3) => builder.unknown(to_x(word.d())),
        _ => return None,
    }
    Some(())
}
