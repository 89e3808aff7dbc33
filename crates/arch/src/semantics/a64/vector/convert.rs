//! Conversions between integers and floating point, and between precisions, of vectors.

use super::super::word::Word;
use super::form::{Form, float, n};
use crate::semantics::builder::Builder;
use crate::semantics::operation::{FloatOperation, FloatShape, Rounding, Width};
use crate::semantics::{Location, Operand, Operation};

pub(super) const LOW: Operation = Operation::Extract { low: 0, count: 32 };
const HIGH: Operation = Operation::Extract { low: 32, count: 32 };

/// The rounding of FRINTN and the like. FRINTX and FRINTI round as FPCR selects; of its modes, only
/// ties to even is modelled.
pub(super) fn rounding(word: Word) -> Option<Rounding> {
    Some(match (word.bit(29), word.bit(23), word.bit(12)) {
        (false, false, false) | (true, _, true) => Rounding::TiesToEven,
        (false, false, true) => Rounding::Down,
        (false, true, false) => Rounding::Up,
        (false, true, true) => Rounding::Zero,
        (true, false, false) => Rounding::TiesAway,
        (true, true, false) => return None,
    })
}

/// FCVTNS and the like, SCVTF, UCVTF.
pub(super) fn integers(
    builder: &mut Builder,
    word: Word,
    form: Form,
    shape: FloatShape,
) -> Option<()> {
    let unsigned = word.bit(29);
    let rounding = match (word.field(12, 5), word.bit(23)) {
        (0b11010, false) => Some(Rounding::TiesToEven),
        (0b11010, true) => Some(Rounding::Up),
        (0b11011, false) => Some(Rounding::Down),
        (0b11011, true) => Some(Rounding::Zero),
        (0b11100, false) => Some(Rounding::TiesAway),
        (0b11101, false) => None,
        _ => return None,
    };
    let width = if shape == FloatShape::Double {
        Width::W64
    } else {
        Width::W32
    };
    let operation = match (rounding, unsigned) {
        (Some(rounding), false) => FloatOperation::ToSigned(rounding, width),
        (Some(rounding), true) => FloatOperation::ToUnsigned(rounding, width),
        (None, false) => FloatOperation::FromSigned,
        (None, true) => FloatOperation::FromUnsigned,
    };
    form.by_halves(builder, word, |builder, half| {
        let mut from = n(word, half);
        if shape == FloatShape::Single && rounding.is_none() {
            let extended = if unsigned {
                LOW
            } else {
                Operation::ExtractSigned { low: 0, count: 32 }
            };
            from = builder.op1(extended, from);
        }
        float(builder, operation, shape, from, Operand::ZERO)
    });
    Some(())
}

/// FCVTN, FCVTL between single and double precision.
pub(super) fn precision(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    if word.bit(29) || form.scalar || word.bit(23) || !word.bit(22) {
        return None;
    }
    let (low, high) = (Location::vector(word.d(), 0), Location::vector(word.d(), 1));
    if word.bit(12) {
        let from = n(word, word.field(30, 1) as u8);
        let upper = builder.op1(HIGH, from);
        let lower = builder.op1(LOW, from);
        let lower = float(
            builder,
            FloatOperation::Widen,
            FloatShape::Double,
            lower,
            Operand::ZERO,
        );
        builder.move_to(low, lower);
        let upper = float(
            builder,
            FloatOperation::Widen,
            FloatShape::Double,
            upper,
            Operand::ZERO,
        );
        builder.move_to(high, upper);
    } else {
        let (single, narrow) = (FloatShape::Single, FloatOperation::Narrow);
        let lower = float(builder, narrow, single, n(word, 0), Operand::ZERO);
        let upper = float(builder, narrow, single, n(word, 1), Operand::ZERO);
        let both = builder.op2(Operation::Insert { low: 32, count: 32 }, lower, upper);
        if form.full {
            builder.move_to(high, both);
        } else {
            builder.move_to(low, both);
            builder.copy(high, Operand::ZERO);
        }
    }
    Some(())
}
