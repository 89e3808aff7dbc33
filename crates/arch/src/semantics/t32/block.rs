//! IT blocks: up to four instructions, each with a condition.

/// The state of an IT block before an instruction: `PSTATE.IT` (Arm ARM, G1.14).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ItState(u8);

impl ItState {
    /// The state outside IT blocks, which every branch target has. Only an exception return can
    /// enter a block.
    pub const OUTSIDE: Self = Self(0);

    /// The state given by the bits of `PSTATE.IT` or `EPSR.IT`.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(if bits & 15 == 0 { 0 } else { bits })
    }

    /// The bits of `PSTATE.IT`.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether the instruction is in a block.
    #[must_use]
    pub const fn is_inside(self) -> bool {
        self.0 & 15 != 0
    }

    /// The condition of the instruction; 14 outside blocks.
    pub(super) const fn condition(self) -> u8 {
        if self.is_inside() { self.0 >> 4 } else { 14 }
    }

    /// The state before the next instruction in memory, given the first halfword of this one.
    #[must_use]
    pub const fn next(self, first: u16) -> Self {
        if !self.is_inside() && first & 0xff00 == 0xbf00 {
            return Self::from_bits(first as u8);
        }
        if self.0 & 7 == 0 {
            return Self::OUTSIDE;
        }
        Self(self.0 & 0xe0 | self.0 << 1 & 0x1f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ite eq` is 0xbf0c, `itttt ne` is 0xbf1f (F5.1.57); the emulator's assembler agrees.
    #[test]
    fn each_instruction_of_a_block_has_its_condition() {
        let mut state = ItState::OUTSIDE.next(0xbf0c);
        let mut conditions = Vec::new();
        while state.is_inside() {
            conditions.push(state.condition());
            state = state.next(0x2000);
        }
        assert_eq!(conditions, [0, 1]);
        let mut state = ItState::OUTSIDE.next(0xbf1f);
        for _ in 0..4 {
            assert_eq!((state.is_inside(), state.condition()), (true, 1));
            state = state.next(0x2000);
        }
        assert_eq!(state, ItState::OUTSIDE);
        // NOP is not IT.
        assert_eq!(ItState::OUTSIDE.next(0xbf00), ItState::OUTSIDE);
    }
}
