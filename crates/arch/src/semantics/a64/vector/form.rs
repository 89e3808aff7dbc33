//! The forms that vector instructions have in common.

use super::super::word::{Word, v};
use crate::semantics::builder::Builder;
use crate::semantics::operation::{FloatOperation, FloatShape, LaneOperation, Lanes};
use crate::semantics::{Location, Operand, Operation};

/// Whether an instruction operates on one element, on 64 or on 128 bits.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// It operates on one element.
    pub(super) scalar: bool,
    /// It operates on the upper half as well.
    pub(super) full: bool,
}

pub(super) const FPCR: Operand = Operand::Location(Location::FPCR);

impl Form {
    pub(super) const fn of(word: Word) -> Self {
        let scalar = word.bit(28);
        Self {
            scalar,
            full: word.bit(30) && !scalar,
        }
    }

    /// The lanes of integer operations, from `size`, bits 23:22.
    pub(super) const fn lanes(self, word: Word) -> Option<Lanes> {
        let lanes = lanes(word.field(22, 2));
        match (lanes, self.scalar, self.full) {
            (Lanes::D64, false, false) => None,
            // For operations on one element, only 64-bit elements are modelled.
            (Lanes::D64, true, _) => Some(lanes),
            (_, true, _) => None,
            _ => Some(lanes),
        }
    }

    /// The shape of floating-point operations, from `sz`, bit 22.
    pub(super) const fn shape(self, word: Word) -> Option<FloatShape> {
        match (word.bit(22), self.scalar) {
            (true, false) if !self.full => None,
            (true, _) => Some(FloatShape::Double),
            (false, true) => Some(FloatShape::Single),
            (false, false) => Some(FloatShape::Singles),
        }
    }

    /// Writes the destination; each half of it depends on the same half of the sources.
    pub(super) fn by_halves(
        self,
        builder: &mut Builder,
        word: Word,
        mut half_of: impl FnMut(&mut Builder, u8) -> Operand,
    ) {
        let low = half_of(builder, 0);
        builder.move_to(Location::vector(word.d(), 0), low);
        let high = if self.full {
            half_of(builder, 1)
        } else {
            Operand::ZERO
        };
        builder.move_to(Location::vector(word.d(), 1), high);
    }

    /// Writes the destination; each half of it may depend on both halves of the sources.
    pub(super) fn across_halves(
        self,
        builder: &mut Builder,
        word: Word,
        mut half_of: impl FnMut(&mut Builder, u8) -> Operand,
    ) {
        let low = half_of(builder, 0);
        let low = builder.kept(low);
        if self.full {
            let high = half_of(builder, 1);
            builder.move_to(Location::vector(word.d(), 1), high);
            builder.copy(Location::vector(word.d(), 0), low);
        } else {
            builder.move_to(Location::vector(word.d(), 0), low);
            builder.copy(Location::vector(word.d(), 1), Operand::ZERO);
        }
    }
}

pub(super) const fn lanes(size: u32) -> Lanes {
    match size {
        0 => Lanes::B8,
        1 => Lanes::H16,
        2 => Lanes::S32,
        _ => Lanes::D64,
    }
}

/// The same number in each lane.
pub(super) const fn in_lanes(lanes: Lanes, number: i64) -> Operand {
    let whole = u64::MAX >> (64 - lanes.bits());
    let ones = u64::MAX / whole;
    Operand::Constant((number.cast_unsigned() & whole).wrapping_mul(ones))
}

pub(super) fn lane(
    builder: &mut Builder,
    operation: LaneOperation,
    lanes: Lanes,
    a: Operand,
    b: Operand,
) -> Operand {
    builder.op2(Operation::Lane(operation, lanes), a, b)
}

pub(super) fn float(
    builder: &mut Builder,
    operation: FloatOperation,
    shape: FloatShape,
    a: Operand,
    b: Operand,
) -> Operand {
    builder.op(Operation::Float(operation, shape), a, b, FPCR)
}

/// `a * b + c`, rounded once.
pub(super) fn fused(builder: &mut Builder, shape: FloatShape, [a, b, c]: [Operand; 3]) -> Operand {
    let sum = builder.op(
        Operation::Float(FloatOperation::FusedMultiplyAdd, shape),
        a,
        b,
        c,
    );
    float(builder, FloatOperation::Checked, shape, sum, Operand::ZERO)
}

/// The sign bits of the numbers of a shape.
pub(super) const fn signs(shape: FloatShape) -> u64 {
    match shape {
        FloatShape::Single => 0x8000_0000,
        FloatShape::Singles => 0x8000_0000_8000_0000,
        FloatShape::Double => 1 << 63,
    }
}

pub(super) fn negated(builder: &mut Builder, shape: FloatShape, a: Operand) -> Operand {
    builder.op2(Operation::Xor, a, Operand::Constant(signs(shape)))
}

/// The bytes of `b:a` selected by their numbers.
pub(super) fn shuffled(builder: &mut Builder, a: Operand, b: Operand, bytes: [u8; 8]) -> Operand {
    let mut control = 0;
    let mut index = 8;
    while index > 0 {
        index -= 1;
        control = control << 4 | u64::from(bytes[index]);
    }
    builder.op(Operation::ShuffleBytes, a, b, Operand::Constant(control))
}

/// The lanes of `b:a` selected by their numbers.
pub(super) fn shuffled_lanes(
    builder: &mut Builder,
    lanes: Lanes,
    a: Operand,
    b: Operand,
    number: impl Fn(u8) -> u8,
) -> Operand {
    let bytes = (lanes.bits() / 8) as u8;
    let control = std::array::from_fn(|index| {
        let index = index as u8;
        number(index / bytes) * bytes + index % bytes
    });
    shuffled(builder, a, b, control)
}

/// Extends the lanes in `part` (0: lower, 1: upper) of half a register to lanes of twice the width.
pub(super) fn widened(
    builder: &mut Builder,
    lanes_from: Lanes,
    signed: bool,
    half: Operand,
    part: u8,
) -> (Operand, Lanes) {
    let bytes = (lanes_from.bits() / 8) as u8;
    let wide = match lanes_from {
        Lanes::B8 => Lanes::H16,
        Lanes::H16 => Lanes::S32,
        _ => Lanes::D64,
    };
    // Unsigned lanes are moved to the bottom of the wide lanes; signed ones to the top, and shifted
    // down from there.
    let control = std::array::from_fn(|index| {
        let index = index as u8;
        let (lane, byte) = (index / (2 * bytes), index % (2 * bytes));
        let first = if signed { bytes } else { 0 };
        if byte >= first && byte < first + bytes {
            4 * part + lane * bytes + byte - first
        } else {
            // A byte of the other operand, which is zero.
            8
        }
    });
    let placed = shuffled(builder, half, Operand::ZERO, control);
    if !signed {
        return (placed, wide);
    }
    let down = in_lanes(wide, -i64::from(lanes_from.bits()));
    (
        lane(builder, LaneOperation::ShiftSigned, wide, placed, down),
        wide,
    )
}

pub(super) fn n(word: Word, half: u8) -> Operand {
    v(word.n(), half)
}

pub(super) fn m(word: Word, half: u8) -> Operand {
    v(word.m(), half)
}

pub(super) fn d(word: Word, half: u8) -> Operand {
    v(word.d(), half)
}
