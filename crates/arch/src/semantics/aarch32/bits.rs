//! The fields of 32-bit encodings.

/// The `count` bits from bit `low` up.
pub(in crate::semantics) const fn field(word: u32, low: u32, count: u32) -> u32 {
    (word >> low) & (u32::MAX >> (32 - count))
}

/// The number of a register.
pub(in crate::semantics) const fn r(word: u32, low: u32) -> u8 {
    field(word, low, 4) as u8
}

pub(in crate::semantics) const fn bit(word: u32, bit: u32) -> bool {
    field(word, bit, 1) == 1
}
