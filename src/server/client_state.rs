//! What one client has selected and fetched, including the state of requests that later packets
//! continue.

use std::collections::HashMap;
use std::sync::Arc;

use gdbstub::common::Tid;

use super::trace_buffer::Reading;
use super::trace_values::TraceValues;
use armsnap_history::calls::OpenCalls;
use armsnap_history::recover::Level;
use armsnap_history::timeline::Position;
use armsnap_snapshot::program::landing_pads::LandingPads;

/// A client's position among trace frames.
#[derive(Debug, Default)]
pub(super) struct FrameView {
    /// Index among the cores with trace.
    pub(super) chosen: usize,
    /// The selected frame; `None` for the state at which the snapshot was taken.
    pub(super) frame: Option<usize>,
    /// Whether the client has read the list of tracepoints, as GDB does when it connects. A client
    /// that reads it again is about to save the trace.
    pub(super) connected: bool,
    /// Replies to `qTsP`, the next one last.
    pub(super) tracepoints: Vec<String>,
    /// Replies to `qTsV`, the next one last.
    pub(super) variables: Vec<String>,
    /// The contents of a frame as XML, by its number and the level of values in it.
    pub(super) contents: Option<((usize, Level), String)>,
    pub(super) buffer: Reading,
    /// What is known in the selected frame.
    pub(super) values: TraceValues,
}

/// The branch trace of a core as XML.
#[derive(Debug)]
pub(super) struct BranchTrace {
    pub(super) thread: Tid,
    pub(super) position: Position,
    pub(super) text: String,
}

/// The open calls of each core.
#[derive(Debug, Default)]
pub(super) struct Callers {
    calls: HashMap<Tid, OpenCalls>,
    /// The stack address of the outermost frames whose true address is unknown.
    pub(super) stack: Option<u64>,
    /// The known registers of the caller, by the first position of the call. Kept even when more
    /// become known, because clients compare frames.
    pub(super) registers: HashMap<(Tid, Position), String>,
}

impl Callers {
    /// Returns the open calls of a core.
    pub(super) fn of(&mut self, thread: Tid, landing_pads: Arc<LandingPads>) -> &mut OpenCalls {
        let calls = self.calls.entry(thread);
        calls.or_insert_with(|| OpenCalls::new(landing_pads))
    }
}
