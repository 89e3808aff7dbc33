//! Entries, events and places of a history.

use super::position::Position;
use armsnap_arch::quantity::{Address, BufferOffset, Isa};
use armsnap_trace::element::{Context, Exception, Mark, NoSyncReason, TraceOnReason};
use armsnap_trace::flow::{self, QRange, Range};

/// Why execution before a gap cannot be connected with execution after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// The flow could not be followed: code is missing or contradicts the trace.
    Flow(flow::Gap),
    /// Synchronisation was lost.
    NoSync(NoSyncReason),
    /// Tracing was off.
    TraceOff(TraceOnReason),
    /// Instructions were executed on an unknown path (ETMv4 Q element).
    UnknownPath(QRange),
    /// Start of another buffer of the same core.
    Buffer,
}

impl Gap {
    /// Returns the address that execution reached, if it cannot be followed further from there.
    pub fn reached(self) -> Option<Address> {
        match self {
            Self::Flow(
                flow::Gap::MemoryMissing(at) | flow::Gap::NotFollowed { address: at, .. },
            ) => Some(at),
            _ => None,
        }
    }
}

/// An entry at one or more positions, or between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Instructions executed in a straight line: one place each.
    Run {
        /// The instructions.
        range: Range,
        /// Cycle count of the run in the trace.
        cycles: Option<u32>,
    },
    /// A gap: one place.
    Gap(Gap),
    /// An exception was taken. It has no place: it lies before the position of its event.
    Exception(Exception),
    /// Other information in the trace. It has no place, like an exception.
    Mark(Mark),
    /// The halted state: the last place.
    Halted,
}

impl Entry {
    /// Returns the number of places.
    pub fn places(&self) -> u64 {
        match self {
            Self::Run { range, .. } => range.instructions.into(),
            Self::Gap(_) | Self::Halted => 1,
            Self::Exception(_) | Self::Mark(_) => 0,
        }
    }
}

/// An entry of a history with its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The first place of the entry; for an entry without places, the place after it.
    pub position: Position,
    /// Offset of the packet that it was decoded from.
    pub offset: BufferOffset,
    /// The entry.
    pub entry: Entry,
}

/// The kind of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointKind {
    /// The next instruction to execute.
    Instruction {
        /// Its address.
        pc: Address,
        /// Its instruction set.
        isa: Isa,
        /// The straight line that contains it.
        range: Range,
        /// Its index in that line.
        number: u32,
    },
    /// The history is unknown here.
    Gap(Gap),
    /// The state in which the core halted: nothing was executed after it.
    Halted,
}

/// A place in a history with the state traced there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryPoint {
    /// Its position.
    pub position: Position,
    /// What is at the position.
    pub kind: PointKind,
    /// The state of the core as last traced. VMID and context ID are `None` if neither this
    /// segment of the trace nor the one before contains them.
    pub context: Option<Context>,
    /// The last timestamp before it, in this segment or the one before.
    pub time: Option<u64>,
    /// Cycles counted since the start of its segment ([`super::History::cycles`] counts from
    /// the start of history).
    pub segment_cycles: Option<u64>,
    /// The exception that was taken directly before it.
    pub exception_before: Option<Exception>,
    /// The exception that was taken directly after it.
    pub exception_after: Option<Exception>,
    /// Index of the trace buffer in the snapshot's metadata.
    pub buffer: usize,
    /// Offset of the packet that it was decoded from.
    pub offset: BufferOffset,
}

impl HistoryPoint {
    /// Returns the address that execution reached: of the instruction, or of code that cannot be
    /// followed further.
    pub fn reached(&self) -> Option<Address> {
        match self.kind {
            PointKind::Gap(gap) => gap.reached(),
            PointKind::Instruction { .. } | PointKind::Halted => self.pc(),
        }
    }

    /// Returns the address of the instruction, if there is one.
    pub fn pc(&self) -> Option<Address> {
        match self.kind {
            PointKind::Instruction { pc, .. } => Some(pc),
            PointKind::Gap(_) | PointKind::Halted => None,
        }
    }
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Reached one of the addresses.
    At(Position),
    /// Reached a gap ([`Gaps::Stop`]).
    Gap(Position),
    /// Reached the start or end of history.
    End(Position),
}

/// How a search handles gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gaps {
    /// Stop at a gap.
    #[default]
    Stop,
    /// Continue after the gap.
    Pass,
}

/// A set of addresses to search for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet(Vec<u64>);

impl AddressSet {
    /// Returns the addresses in ascending order.
    pub fn addresses(&self) -> &[u64] {
        &self.0
    }
}

impl FromIterator<Address> for AddressSet {
    fn from_iter<I: IntoIterator<Item = Address>>(addresses: I) -> Self {
        let mut all: Vec<u64> = addresses.into_iter().map(|address| address.0).collect();
        all.sort_unstable();
        all.dedup();
        Self(all)
    }
}

/// Whether the end of the trace agrees with the halted state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndAgrees {
    /// The trace ends at the halted pc, or in a straight line that contains it.
    Yes,
    /// The trace ends elsewhere: the state is from a later time or another trace.
    No {
        /// Where execution continues after the trace.
        trace_end: Address,
        /// The halted pc.
        halted: Address,
    },
    /// The thread ended: nothing was executed after its trace.
    Ended,
    /// The trace does not contain where execution continued, or the halted pc is unknown.
    Unknown,
}
