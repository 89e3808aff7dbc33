//! Listings of decoded trace: for programs (JSON Lines) and for people (text).
//!
//! Everything is formatted by hand into one big buffer. Knows what elements mean, nothing of
//! the protocols they come from.

pub mod branches;
pub mod jsonl;
pub mod text;
pub mod text_buffer;

use crate::element::{Atoms, Exception, Mark};
use crate::protocol::Describe;
use crate::quantity::BufferOffset;
use text_buffer::TextBuffer;

/// A form of listing: one call, one line.
pub trait Lines {
    /// A packet and its bytes.
    fn packet(&mut self, at: BufferOffset, packet: &impl Describe, bytes: &[u8]);

    /// An element that does not steer the flow.
    fn mark(&mut self, at: BufferOffset, mark: &Mark);

    /// An exception.
    fn exception(&mut self, at: BufferOffset, exception: &Exception);

    /// A line of the listing of branches.
    fn branch_line(&mut self, at: BufferOffset, line: &branches::Line, cycle: Option<u64>);

    /// The text so far.
    fn out(&mut self) -> &mut TextBuffer;
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
