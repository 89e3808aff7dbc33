//! The output of the flow: ranges, exceptions, gaps, marks.

use super::blocks::{BlockId, Blocks};
use super::instruction_run::{InstructionRun, InstructionStep};
use super::memo::Run;
use super::range::Range;
use crate::element::{Exception, Mark};
use armsnap_arch::quantity::{Address, BufferOffset, Isa};

/// Instructions executed on an unknown path (ETMv4 Q element).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct QRange {
    /// Address of the first instruction. If it is unknown, the address up to which execution was
    /// followed before.
    pub start: Address,
    /// Address where execution continues after them.
    pub end: Address,
    /// Instruction set at `end`.
    pub isa: Isa,
    /// Number of instructions, if the trace contains it.
    pub instructions: Option<u32>,
}

/// Why execution cannot be followed up to the next address in the trace: a target address or (ETE)
/// a source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Gap {
    /// The code at this address is not in the image.
    MemoryMissing(Address),
    /// Code in an instruction set that is not followed (ThumbEE, Jazelle).
    NotFollowed {
        /// Address of the first instruction.
        address: Address,
        /// Its instruction set.
        isa: Isa,
    },
    /// A return address is needed and the return stack is empty: trace is lost, or the image is not
    /// the code that ran.
    ReturnStackEmpty,
    /// An atom follows an indirect branch whose target was not traced, although the trace unit
    /// omits none. Listings of elements skip it, as the reference decoder does.
    TargetNotTraced {
        /// The address after the branch.
        after: Address,
    },
    /// No straight line leads from `from` to a traced address: the image is not the code that ran,
    /// or the trace is damaged.
    NotReached {
        /// Start of the line.
        from: Address,
        /// The address that should be on it.
        to: Address,
    },
}

/// Numbers of executed blocks and instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// Whole blocks. An instruction with an atom of its own (ETMv3) is a block.
    pub blocks: usize,
    /// Instructions in them.
    pub instructions: usize,
    /// Cycle counts without a block.
    pub cycle_counts: usize,
}

/// Receives the output of the flow. `at` is the buffer offset of the packet that caused it.
pub trait FlowSink {
    /// Whether the sink only counts what is executed: if so, blocks may be reported as numbers
    /// through [`executed`](Self::executed), because passing on each one takes time.
    const COUNTS: bool = false;

    /// Whether a sink that [counts](Self::COUNTS) also counts each run and each block
    /// ([`count_run`](Self::count_run), [`count_block`](Self::count_block)).
    const COUNTS_BLOCKS: bool = false;

    /// Instructions were executed in a straight line: a whole block, or part of one up to an
    /// exception, missing memory, or a traced address. `cycles` is the number of cycles they took,
    /// if counted.
    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>);

    /// A whole block was executed; its last instruction had an E (`taken`) or N atom. Override this
    /// for sinks that need less than the range, or that keep data for each block.
    #[inline]
    fn block(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        id: BlockId,
        taken: bool,
        cycles: Option<u32>,
    ) {
        self.range(at, &blocks.range(id, taken), cycles);
    }

    /// Whole blocks were executed one after another, without cycles. Override this for sinks that
    /// only need their sums.
    #[inline]
    fn run(&mut self, at: BufferOffset, blocks: &Blocks, run: Run<'_>) {
        for (id, taken) in run.blocks() {
            self.block(at, blocks, id, taken, None);
        }
    }

    /// Instructions were executed one after another, each a block of its own. `locate` returns the
    /// offset of a packet, in ascending order. Override this for sinks that only need their number.
    #[inline]
    fn instructions(
        &mut self,
        blocks: &Blocks,
        run: &InstructionRun<'_>,
        mut locate: impl FnMut(usize) -> BufferOffset,
    ) {
        for (packet, step) in run.steps() {
            let at = locate(packet);
            match step {
                InstructionStep::Executed(id, taken, cycles) => {
                    self.block(at, blocks, id, taken, cycles);
                }
                InstructionStep::Cycles(cycles) => self.mark(at, &Mark::Cycles(cycles)),
            }
        }
    }

    /// Blocks were executed, and cycles counted between them. Only for sinks that [count](Self::COUNTS).
    #[inline]
    fn executed(&mut self, executed: Executed) {
        let _ = executed;
    }

    /// A run was executed, which the next call of [`executed`](Self::executed) or
    /// [`arrives`](Self::arrives) includes. `number` is its [number](Run::number).
    #[inline]
    fn count_run<'a>(&mut self, blocks: &Blocks, number: usize, run: impl FnOnce() -> Run<'a>) {
        let _ = (blocks, number, run);
    }

    /// A block was executed; it is reported like a run ([`count_run`](Self::count_run)).
    #[inline]
    fn count_block(&mut self, blocks: &Blocks, id: BlockId, taken: bool) {
        let _ = (blocks, id, taken);
    }

    /// Runs are numbered anew from here on, as they are after [`forget`](Self::forget).
    fn forget_runs(&mut self) {}

    /// Execution arrives at the block `to` from the block `from`, whose atom was E (`true`) or N,
    /// in a step that is [watched](super::CodeImage::WATCHES) or after an indirect branch.
    /// `executed` counts what was executed since the last report. Returns whether what follows may
    /// be only counted.
    #[inline]
    fn arrives(
        &mut self,
        blocks: &Blocks,
        from: (BlockId, bool),
        to: BlockId,
        executed: Executed,
    ) -> bool {
        let _ = (blocks, from, to, executed);
        true
    }

    /// The block counted last, which had an E atom, is followed by a step that
    /// [`arrives`](Self::arrives) does not report: its target is not known yet, or the next block
    /// is passed on with its offset.
    fn leaves(&mut self, id: BlockId) {
        let _ = id;
    }

    /// Returns whether what follows may be only counted. If not, the next block is passed on with
    /// its offset, through [`block`](Self::block) or [`run`](Self::run). `next` is that block, if
    /// it is known yet.
    #[inline]
    fn only_counts(&mut self, blocks: &Blocks, next: Option<BlockId>) -> bool {
        let _ = (blocks, next);
        true
    }

    /// Instructions were executed on an unknown path.
    fn q_range(&mut self, at: BufferOffset, range: &QRange);

    /// An exception was taken.
    fn exception(&mut self, at: BufferOffset, exception: &Exception);

    /// Execution cannot be followed from here to the next address in the trace.
    fn gap(&mut self, at: BufferOffset, gap: Gap);

    /// An element that does not steer the flow.
    fn mark(&mut self, at: BufferOffset, mark: &Mark);

    /// The table of blocks is about to be emptied, or the trace ends, which invalidates every
    /// [`BlockId`] so far.
    fn forget(&mut self, blocks: &Blocks) {
        let _ = blocks;
    }
}
