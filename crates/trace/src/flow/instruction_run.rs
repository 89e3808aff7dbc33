//! The instructions of several packets, as a sink receives them at once.

use super::blocks::{BlockId, NOWHERE};

/// An executed instruction, or cycles alone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    /// The index of the packet.
    pub packet: u32,
    /// The block, [`NOWHERE`] for cycles alone, and in bit 0 its atom.
    pub block: u32,
    pub cycles: u32,
}

/// Instructions (ETMv3) executed one after another, each a block of its own, and cycles counted
/// between them.
#[derive(Debug)]
pub struct InstructionRun<'a> {
    pub(super) steps: &'a [Step],
    pub(super) executed: usize,
    pub(super) is_timed: bool,
}

impl InstructionRun<'_> {
    /// Returns the number of instructions.
    #[inline]
    #[must_use]
    pub fn executed(&self) -> usize {
        self.executed
    }

    /// Returns the number of cycle counts between instructions.
    #[inline]
    #[must_use]
    pub fn cycle_counts(&self) -> usize {
        self.steps.len() - self.executed
    }

    /// Returns the steps, each with the index of its packet.
    #[inline]
    pub fn steps(&self) -> impl Iterator<Item = (usize, InstructionStep)> {
        self.steps.iter().map(|step| {
            let kind = match step.block >> 1 {
                NOWHERE => InstructionStep::Cycles(step.cycles),
                block => {
                    let cycles = self.is_timed.then_some(step.cycles);
                    InstructionStep::Executed(BlockId(block), step.block & 1 == 1, cycles)
                }
            };
            (step.packet as usize, kind)
        })
    }
}

/// A step of an [`InstructionRun`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionStep {
    /// An instruction passed (`true`) or failed its condition; its cycles, if counted.
    Executed(BlockId, bool, Option<u32>),
    /// Cycles passed.
    Cycles(u32),
}
