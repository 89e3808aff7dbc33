//! Where the cores stand and where a move takes them: the one place that knows.
//!
//! A snapshot whose trace is not decoded has one position, the state at which it was taken. That
//! position is both ends of its history: every move stops at once, with the end that it met.

use gdbstub::common::Tid;

use super::framing::hex_text;

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
    ///
    /// GDB reads `replaylog`. LLDB does not know it and, when a step leaves the pc where it is,
    /// steps again without end; an exception with a description makes it stop and say why.
    pub fn reply(self) -> String {
        let (thread, end, words) = match self {
            Self::HistoryBegins(thread) => (thread, "begin", "beginning of history"),
            Self::HistoryEnds(thread) => (thread, "end", "end of history"),
        };
        let description = hex_text(words);
        format!("T05thread:{thread:x};replaylog:{end};reason:exception;description:{description};")
    }
}

/// What a client is told of a thread that has not moved: it stands where the snapshot was taken.
/// LLDB wants its name, and a reason to stop for no more than the `current` one.
pub fn standing(thread: Tid, name: &str, current: bool) -> String {
    let signal = if current { 5 } else { 0 };
    format!("T{signal:02}thread:{thread:x};hexname:{};", hex_text(name))
}
