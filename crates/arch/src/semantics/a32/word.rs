//! The fields that A32 encodings share.

/// An instruction.
#[derive(Clone, Copy)]
pub(super) struct Word(pub(super) u32);

impl Word {
    pub(super) const fn field(self, low: u32, count: u32) -> u32 {
        (self.0 >> low) & (u32::MAX >> (32 - count))
    }

    pub(super) const fn bit(self, bit: u32) -> bool {
        self.field(bit, 1) == 1
    }

    /// The number of a register.
    pub(super) const fn r(self, low: u32) -> u8 {
        self.field(low, 4) as u8
    }
}
