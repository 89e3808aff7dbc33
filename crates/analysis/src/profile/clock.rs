//! Where in a core's execution something happened.

use armsnap_arch::quantity::BufferOffset;

/// A point in the execution of a core, by every measure of time available there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Instructions executed before it, from the start of the core's first buffer.
    pub instructions: u64,
    /// Cycles counted before it; `None` if the trace has counted none so far. A trace unit sends
    /// counts only from time to time, so several moments may have the same count.
    pub cycles: Option<u64>,
    /// The last timestamp before it.
    pub time: Option<u64>,
    /// Index of the buffer among the core's buffers, in order.
    pub buffer: usize,
    /// Offset in the buffer of the packet that reports it.
    pub at: BufferOffset,
}

impl Moment {
    /// Adds cycles to the count.
    pub(super) fn count(&mut self, cycles: u64) {
        let before = self.cycles.unwrap_or(0);
        self.cycles = Some(before.saturating_add(cycles));
    }
}
