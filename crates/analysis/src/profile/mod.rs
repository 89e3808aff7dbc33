//! What trace says about a program as a whole: how often each block and branch was executed, and
//! the sequence of calls, exceptions, gaps and events.
//!
//! [`profile`] decodes a snapshot once, on several threads, and returns a [`Profile`] for each core
//! with trace, and for each source without a core (ITM, STM). What happens over time goes to each
//! core's [`Listener`] while the core is decoded; memory use does not grow with the trace.
//!
//! Independent of output formats.

mod clock;
mod code;
mod course;
mod functions;
mod latency;
mod lines;
mod memo;
mod note;
mod owners;
mod parts;
mod pieces;
mod run;
mod runs;
pub mod shards;
mod sink;
mod stack;
mod tree;
mod window;

#[cfg(test)]
mod tests;

pub use clock::Moment;
pub use code::{BlockCount, Edge, EdgeKind, ExecutedCode, PartCount, Spans, last_at};
pub use course::{Course, gap_name};
pub use functions::{Function, FunctionId, FunctionKind, Functions};
pub use latency::{ExceptionStatistics, Exceptions, Spread};
pub use lines::{BranchCoverage, Coverage, FileCoverage, FunctionCoverage, coverage};
pub use note::Note;
pub use run::{Options, Profile, Totals, Track, profile, tracks};
pub use stack::{Call, CallKind, CodeOnly, Ended, GapSeen, LinesOfCalls, Listener, Nothing};
pub use tree::{LineKey, Node, NodeId, Tree};
pub use window::{Bound, Window};
