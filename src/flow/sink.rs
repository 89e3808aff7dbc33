//! What comes out of the flow.

use super::blocks::{BlockId, Blocks};
use crate::element::{Exception, Mark};
use crate::quantity::{Address, BufferOffset, Isa};

/// What kind of instruction ends a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LastKind {
    /// A direct branch.
    Branch,
    /// An indirect branch.
    Indirect,
    /// ISB.
    Isb,
    /// DSB or DMB, where they are waypoints.
    Barrier,
    /// WFI or WFE, where they are waypoints.
    Wfi,
    /// TSTART.
    Transaction,
    /// Any other instruction.
    #[default]
    Other,
}

impl LastKind {
    /// The name in the element stream.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::Indirect => "indirect",
            Self::Isb => "isb",
            Self::Barrier => "barrier",
            Self::Wfi => "wfi",
            Self::Transaction => "transaction",
            Self::Other => "other",
        }
    }
}

/// The last instruction of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Last {
    /// What it is.
    pub kind: LastKind,
    /// An E atom: a branch was taken, another instruction executed.
    pub taken: bool,
    /// It is a branch with link.
    pub link: bool,
    /// By convention it returns from a function, or it returns from an exception.
    pub returns: bool,
    /// It is conditional, by itself or by an IT block.
    pub conditional: bool,
}

/// Instructions executed in a straight line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first one.
    pub start: Address,
    /// The first address after the last one.
    pub end: Address,
    /// Instruction set.
    pub isa: Isa,
    /// How many they are.
    pub instructions: u32,
    /// The last one.
    pub last: Last,
}

/// Instructions executed on an unknown path (ETMv4 Q element).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QRange {
    /// The first one; or, where that is not known, how far execution was followed before.
    pub start: Address,
    /// Where execution goes on after them.
    pub end: Address,
    /// Instruction set at `end`.
    pub isa: Isa,
    /// How many they are, if the trace says so.
    pub instructions: Option<u32>,
}

/// Why the flow cannot be followed until the next address in the trace, be it of a target or (ETE)
/// of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gap {
    /// The trace ran into code that the image does not hold.
    MemoryMissing(Address),
    /// Code in an instruction set that is not followed (ThumbEE, Jazelle).
    NotFollowed {
        /// First instruction.
        address: Address,
        /// Its set.
        isa: Isa,
    },
    /// The trace says to take a return address that was never stacked: trace is lost, or
    /// the image is not the code that ran.
    ReturnStackEmpty,
    /// An atom follows an indirect branch whose target the trace does not tell, though the trace
    /// unit leaves none out. Listings and histories pass over it, as the reference does: it is told
    /// once for a source.
    TargetNotTraced {
        /// The first address behind the branch.
        behind: Address,
    },
    /// The trace tells of an address that a straight line from `from` does not reach: the image
    /// is not the code that ran, or the trace is damaged.
    NotReached {
        /// Where the line begins.
        from: Address,
        /// The address that should lie on it.
        to: Address,
    },
}

/// Takes what the flow makes, each with the place of the packet that gave rise to it.
pub trait FlowSink {
    /// Instructions were executed in a straight line: a whole block, or a part of one up to an
    /// exception, to missing memory, or to an address that the trace gave. `cycles` belong to
    /// them.
    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>);

    /// A whole block was executed; its last instruction had an E (`taken`) or N atom. For those
    /// who can do with less than its range, or remember what they found by its number.
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

    /// Instructions were executed on an unknown path.
    fn q_range(&mut self, at: BufferOffset, range: &QRange);

    /// An exception was taken.
    fn exception(&mut self, at: BufferOffset, exception: &Exception);

    /// Nothing can be followed from here to the next address in the trace.
    fn gap(&mut self, at: BufferOffset, gap: Gap);

    /// An element that does not steer the flow.
    fn mark(&mut self, at: BufferOffset, mark: &Mark);

    /// The table of blocks is about to be emptied: a [`BlockId`] given before means nothing
    /// afterwards.
    fn forget(&mut self, blocks: &Blocks) {
        let _ = blocks;
    }
}
