//! What a history consists of.

use super::position::Position;
use crate::element::{Context, Exception, Mark, NoSyncReason, TraceOnReason};
use crate::flow::{self, QRange, Range};
use crate::quantity::{Address, BufferOffset, Isa};

/// Why what lies before is not connected with what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// The flow could not be followed: code is missing, or contradicts the trace.
    Flow(flow::Gap),
    /// Synchronisation was lost.
    NoSync(NoSyncReason),
    /// Tracing was off.
    TraceOff(TraceOnReason),
    /// Instructions were executed on a path that is not known (ETMv4 Q element).
    UnknownPath(QRange),
    /// Another buffer of the same core begins.
    Buffer,
}

/// What lies at a position or between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Instructions executed in a straight line: as many places.
    Run {
        /// The instructions.
        range: Range,
        /// Cycles that the trace gives to it.
        cycles: Option<u32>,
    },
    /// A gap: one place.
    Gap(Gap),
    /// An exception was taken. No place: it lies before the one that its event names.
    Exception(Exception),
    /// Something else that the trace tells. No place, as an exception.
    Mark(Mark),
    /// The halted state: the place after all others.
    Halted,
}

impl Entry {
    /// How many places it has.
    pub fn places(&self) -> u64 {
        match self {
            Self::Run { range, .. } => range.instructions.into(),
            Self::Gap(_) | Self::Halted => 1,
            Self::Exception(_) | Self::Mark(_) => 0,
        }
    }
}

/// An entry of a history and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its first place; of an entry without places, the place after it.
    pub position: Position,
    /// The packet that told of it.
    pub offset: BufferOffset,
    /// The entry.
    pub entry: Entry,
}

/// What is at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    /// An instruction that was executed next.
    Instruction {
        /// Its address.
        pc: Address,
        /// Its instruction set.
        isa: Isa,
        /// The straight line that it is part of.
        range: Range,
        /// Its number in that line, counted from 0.
        number: u32,
    },
    /// History is not known here.
    Gap(Gap),
    /// The state in which the core halted: nothing was executed after it.
    Halted,
}

/// A place in a history with what the trace tells there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its name.
    pub position: Position,
    /// What is there.
    pub kind: PlaceKind,
    /// The state of the core as last traced. VMID and context ID are not known where neither
    /// this segment of the trace nor the one before tells them.
    pub context: Option<Context>,
    /// The last timestamp before it, in this segment or the one before.
    pub time: Option<u64>,
    /// Cycles counted since the begin of its segment ([`super::History::cycles`] counts from
    /// the begin of history).
    pub segment_cycles: Option<u64>,
    /// The exception that was taken directly before it.
    pub exception_before: Option<Exception>,
    /// The exception that was taken directly after it.
    pub exception_after: Option<Exception>,
    /// Index of the trace buffer in the snapshot's metadata.
    pub buffer: usize,
    /// The packet that told of it.
    pub offset: BufferOffset,
}

impl Place {
    /// The address of the instruction, if there is one.
    pub fn pc(&self) -> Option<Address> {
        match self.kind {
            PlaceKind::Instruction { pc, .. } => Some(pc),
            PlaceKind::Gap(_) | PlaceKind::Halted => None,
        }
    }
}

/// Where a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// At one of the addresses.
    At(Position),
    /// At a gap that it was told not to pass.
    Gap(Position),
    /// At the begin or end of history.
    End(Position),
}

/// What a search does at a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gaps {
    /// It stops.
    #[default]
    Stop,
    /// It goes on behind it.
    Pass,
}

/// Addresses to look for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet(Vec<u64>);

impl AddressSet {
    /// The addresses, ascending.
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

/// Whether the trace leads to where the core halted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndAgrees {
    /// The trace ends at the halted pc, or on a straight line before it.
    Yes,
    /// It ends elsewhere: the state belongs to a later time, or to other trace.
    No {
        /// Where execution goes on after the trace.
        trace_end: Address,
        /// The halted pc.
        halted: Address,
    },
    /// The thread ended: there is no more than its trace.
    Ended,
    /// The trace does not tell where execution went on, or the halted pc is not known.
    Unknown,
}
