//! T32 IT blocks, with those that exceptions interrupt.

use crate::arch::branch::{Instruction, ItBlock};
use crate::encode::CodeAddress;
use crate::quantity::Isa;

/// How many interrupted blocks are remembered.
const MOST: usize = 64;

/// The IT block that execution is in, and others that it may come back to.
#[derive(Debug, Default)]
pub(super) struct ItBlocks {
    here: ItBlock,
    /// Where interrupted code goes on, the last first.
    interrupted: Vec<(CodeAddress, ItBlock)>,
}

impl ItBlocks {
    /// Makes the next instruction conditional where an IT before it says so.
    pub fn step(&mut self, instruction: &mut Instruction) {
        self.here.step(instruction);
    }

    /// An exception was taken; execution would have gone on at `place`.
    pub fn interrupt(&mut self, place: CodeAddress) {
        if place.isa == Isa::T32 {
            self.interrupted.insert(0, (place, self.here));
            self.interrupted.truncate(MOST);
        }
    }

    /// Execution goes on elsewhere: in the middle of a block if an exception `returned` there.
    pub fn go(&mut self, place: CodeAddress, returned: bool) {
        let mut interrupted = self.interrupted.iter();
        let found = interrupted.position(|(at, _)| returned && *at == place);
        self.here = found.map_or_else(ItBlock::default, |index| self.interrupted.remove(index).1);
    }
}
