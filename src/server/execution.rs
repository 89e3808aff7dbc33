//! Where the cores stand and where a move takes them: the one place that knows.
//!
//! A snapshot whose trace is not decoded has one position, the state at which it was taken. That
//! position is both ends of its history: every move stops at once, with the end that it met.

use gdbstub::common::Tid;
use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::base::reverse_exec::ReplayLogPosition;

/// The direction of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Step and continue.
    Forward,
    /// Reverse step and reverse continue.
    Backward,
}

/// What a client asks of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The thread (core) that is moved.
    pub thread: Tid,
    /// Where to.
    pub direction: Direction,
}

/// Why and where a core stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The thread (core) is at the first known position.
    HistoryBegins(Tid),
    /// The thread (core) is at the last known position.
    HistoryEnds(Tid),
}

impl Move {
    /// Moves, and says where that ended.
    pub fn run(self) -> Stop {
        match self.direction {
            Direction::Forward => Stop::HistoryEnds(self.thread),
            Direction::Backward => Stop::HistoryBegins(self.thread),
        }
    }
}

impl Stop {
    /// The reply that tells a client.
    pub fn reply(self) -> MultiThreadStopReason<u64> {
        let (tid, pos) = match self {
            Self::HistoryBegins(tid) => (tid, ReplayLogPosition::Begin),
            Self::HistoryEnds(tid) => (tid, ReplayLogPosition::End),
        };
        MultiThreadStopReason::ReplayLog {
            tid: Some(tid),
            pos,
        }
    }
}
