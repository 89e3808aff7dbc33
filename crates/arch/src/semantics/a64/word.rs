//! The fields that A64 encodings share.

use crate::semantics::{Location, Operand, Width};

/// An instruction.
#[derive(Clone, Copy)]
pub(super) struct Word(pub(super) u32);

impl Word {
    /// The `count` bits from bit `low` up.
    pub(super) const fn field(self, low: u32, count: u32) -> u32 {
        (self.0 >> low) & (u32::MAX >> (32 - count))
    }

    pub(super) const fn bit(self, bit: u32) -> bool {
        self.field(bit, 1) == 1
    }

    /// The number of a register.
    pub(super) const fn register(self, low: u32) -> u8 {
        self.field(low, 5) as u8
    }

    pub(super) const fn d(self) -> u8 {
        self.register(0)
    }

    pub(super) const fn n(self) -> u8 {
        self.register(5)
    }

    pub(super) const fn m(self) -> u8 {
        self.register(16)
    }

    /// `Ra` of multiplications, `Rt2` of pairs.
    pub(super) const fn a(self) -> u8 {
        self.register(10)
    }

    /// The width from `sf`, bit 31.
    pub(super) const fn width(self) -> Width {
        if self.bit(31) { Width::W64 } else { Width::W32 }
    }
}

/// The value of a general register, where 31 is zero.
pub(super) const fn x(number: u8) -> Operand {
    match number {
        31 => Operand::ZERO,
        _ => Operand::Location(Location::general(number)),
    }
}

/// The value of a general register, where 31 is the stack pointer.
pub(super) const fn x_or_sp(number: u8) -> Operand {
    Operand::Location(to_x_or_sp(number))
}

/// A general register as destination; for 31 nothing is written.
pub(super) const fn to_x(number: u8) -> Location {
    match number {
        31 => Location::NOWHERE,
        _ => Location::general(number),
    }
}

/// A general register as destination, where 31 is the stack pointer.
pub(super) const fn to_x_or_sp(number: u8) -> Location {
    match number {
        31 => Location::SP,
        _ => Location::general(number),
    }
}

/// Half of a vector register.
pub(super) const fn v(number: u8, half: u8) -> Operand {
    Operand::Location(Location::vector(number, half))
}

/// The width from the field `sf`.
pub(super) const fn width(sf: bool) -> Width {
    if sf { Width::W64 } else { Width::W32 }
}
