//! Listings of decoded trace: for programs (JSON Lines) and for people (text).
//!
//! Everything is formatted by hand into one large buffer. Independent of the protocols that produce
//! the elements.

pub mod branches;
mod decoder;
pub mod elements;
pub mod instructions;
pub mod jsonl;
pub mod nothing;
pub mod packets;
pub mod records;
mod rendered;
mod running_counts;
mod stretches;
pub mod text;
pub mod text_buffer;

pub use decoder::{Level, LineForm, ListingDecoder, decoder};
pub use running_counts::RunningCounts;
pub use stretches::Stretch;

use armsnap_arch::quantity::{Address, BufferOffset};
use armsnap_trace::element::{Atoms, Exception, Mark};
use armsnap_trace::flow::{Executed, Gap, QRange, Range, Run};
use armsnap_trace::protocol::Describe;
use instructions::Instruction;
use text_buffer::TextBuffer;

/// The output of a listing between two pieces of trace.
pub trait Listed {
    /// The text so far; cleared by the writer.
    fn text(&mut self) -> &mut TextBuffer;

    /// Statistics of the listing.
    fn counts(&self) -> Counts;

    /// The first indirect branch that could not be followed.
    fn unfollowed(&self) -> Option<Unfollowed> {
        None
    }

    /// From here on, running counts of cycles start from the last [`reset`](Self::reset), and the
    /// cycles before it are added to the text later: so parts of a trace can be listed separately.
    fn count_later(&mut self) {}

    /// Takes the running counts that the text so far waits for.
    fn running_counts(&mut self) -> RunningCounts {
        RunningCounts::default()
    }

    /// Resets the counts and the branches that could not be followed.
    fn reset(&mut self);
}

/// Indirect branches after which the trace continues without a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfollowed {
    /// The number of occurrences.
    pub times: u64,
    /// The first offset in the buffer.
    pub first: BufferOffset,
    /// The address after that branch, if known.
    pub branch: Option<Address>,
}

impl Unfollowed {
    /// Adds what was counted later.
    pub fn add(counted: &mut Option<Self>, later: Option<Self>) {
        match (counted.as_mut(), later) {
            (Some(counted), Some(later)) => counted.times += later.times,
            (None, later) => *counted = later,
            (Some(_), None) => {}
        }
    }

    /// Counts a gap of this kind.
    fn count(counted: &mut Option<Self>, at: BufferOffset, gap: Gap) {
        let branch = match gap {
            Gap::TargetNotTraced { after } => Some(after),
            Gap::ReturnStackEmpty => None,
            Gap::MemoryMissing(_) | Gap::NotFollowed { .. } | Gap::NotReached { .. } => {
                return;
            }
        };
        let first = Self {
            times: 0,
            first: at,
            branch,
        };
        counted.get_or_insert(first).times += 1;
    }
}

/// Counts of what was listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ranges of executed instructions.
    pub ranges: u64,
    /// Instructions executed.
    pub instructions: u64,
    /// Elements, including the ranges.
    pub elements: u64,
}

impl Counts {
    #[inline]
    fn executed(&mut self, instructions: u32) {
        self.ranges += 1;
        self.elements += 1;
        self.instructions += u64::from(instructions);
    }

    #[inline]
    fn executed_run(&mut self, run: Run<'_>) {
        self.ranges += run.len() as u64;
        self.elements += run.len() as u64;
        self.instructions += u64::from(run.instructions());
    }

    #[inline]
    fn add(&mut self, executed: Executed) {
        self.ranges += executed.blocks as u64;
        self.instructions += executed.instructions as u64;
        self.elements += (executed.blocks + executed.cycle_counts) as u64;
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.ranges += other.ranges;
        self.instructions += other.instructions;
        self.elements += other.elements;
    }
}

/// A form of the listing of branches.
pub trait BranchLines {
    /// Whether nothing is written.
    const SILENT: bool = false;

    /// Writes a line, with the running count of cycles if the trace counts them.
    fn branch_line(&mut self, at: BufferOffset, line: &branches::Line, cycle: Option<u64>);

    /// From here on, the running counts of lines are completed later.
    fn count_later(&mut self);

    /// Takes the counts in the text so far that are completed later; their cycles are 0.
    fn take_counts(&mut self) -> RunningCounts;

    /// The text so far.
    fn out(&mut self) -> &mut TextBuffer;
}

/// A listing format: each call writes one line.
pub trait Lines: BranchLines {
    /// A packet and its bytes.
    fn packet(&mut self, at: BufferOffset, packet: &impl Describe, bytes: &[u8]);

    /// An element that does not affect the flow.
    fn mark(&mut self, at: BufferOffset, mark: &Mark);

    /// An exception.
    fn exception(&mut self, at: BufferOffset, exception: &Exception);

    /// Executed instructions, with the cycles that belong to them.
    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>);

    /// One executed instruction.
    fn instruction(&mut self, at: BufferOffset, instruction: &Instruction, cycles: Option<u32>);

    /// Instructions executed on an unknown path.
    fn q_range(&mut self, at: BufferOffset, range: &QRange);

    /// Execution cannot be followed from here on.
    fn gap(&mut self, at: BufferOffset, gap: Gap);

    /// The column at which an offset of this many digits starts in a line for a range or an
    /// instruction.
    fn offset_column(&self, digits: usize) -> usize;
}

/// The name of a mark's kind in the element stream.
pub const fn kind(mark: &Mark) -> &'static str {
    match mark {
        Mark::NoSync(_) => "no_sync",
        Mark::TraceOn(_) => "trace_on",
        Mark::Context(_) => "context",
        Mark::ExceptionReturn => "exception_return",
        Mark::Cycles(_) => "cycles",
        Mark::Timestamp(_) => "timestamp",
        Mark::Event(_) | Mark::Trigger => "event",
        Mark::Marker(_) => "marker",
        Mark::Transaction(_) => "transaction",
        Mark::Instrumentation { .. } => "instrumentation",
        Mark::Data { .. } => "data",
        Mark::Stm(_) => "stm",
        Mark::Itm(_) => "itm",
        Mark::End => "end",
    }
}

/// Atoms as letters, oldest first.
pub fn atoms(out: &mut TextBuffer, atoms: Atoms) {
    for i in 0..atoms.count.min(32) {
        out.byte(if atoms.bits >> i & 1 == 1 { b'E' } else { b'N' });
    }
}
