//! The current T32 IT block, and IT blocks interrupted by exceptions.

use crate::encode::CodeAddress;
use armsnap_arch::arch::branch::{Instruction, ItBlock};
use armsnap_arch::quantity::Isa;

/// Maximum number of interrupted blocks kept.
const MOST: usize = 64;

/// The current IT block, and interrupted ones that execution may return to.
#[derive(Debug, Default)]
pub(super) struct ItBlocks {
    here: ItBlock,
    /// Interrupted blocks with their return addresses, the latest first.
    interrupted: Vec<(CodeAddress, ItBlock)>,
}

impl ItBlocks {
    /// Makes the next instruction conditional if it is in an IT block.
    pub(super) fn step(&mut self, instruction: &mut Instruction) {
        self.here.step(instruction);
    }

    /// Returns whether the next instruction is outside IT blocks.
    pub(super) fn is_outside(&self) -> bool {
        self.here == ItBlock::default()
    }

    /// Keeps the block that an exception with the return address `place` interrupted.
    pub(super) fn interrupt(&mut self, place: CodeAddress) {
        if place.isa == Isa::T32 {
            self.interrupted.insert(0, (place, self.here));
            self.interrupted.truncate(MOST);
        }
    }

    /// Continues elsewhere; in an interrupted block if an exception `returned` to it.
    pub(super) fn go(&mut self, place: CodeAddress, returned: bool) {
        let mut interrupted = self.interrupted.iter();
        let found = interrupted.position(|(at, _)| returned && *at == place);
        self.here = found.map_or_else(ItBlock::default, |index| self.interrupted.remove(index).1);
    }
}
