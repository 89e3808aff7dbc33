//! Trace frames as the tracing packets see them, whatever their origin.

use std::io::{self, Write};

use crate::tfile::{Status, Tracepoint};
use armsnap_arch::arch::registers::Bytes;
use armsnap_arch::quantity::{Address, Isa};

/// A condition on a trace frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Belongs to this tracepoint.
    Tracepoint(u64),
    /// Has a program counter in this range, ends included.
    Inside(u64, u64),
    /// Has a known program counter outside this range.
    Outside(u64, u64),
}

impl Wanted {
    pub(super) fn is(self, tracepoint: u16, pc: Option<u64>) -> bool {
        match (self, pc) {
            (Self::Tracepoint(number), _) => number == u64::from(tracepoint),
            (Self::Inside(first, last), Some(pc)) => (first..=last).contains(&pc),
            (Self::Outside(first, last), Some(pc)) => !(first..=last).contains(&pc),
            (_, None) => false,
        }
    }
}

/// The instruction of a trace frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FramePlace {
    /// Its core's index among the endpoint's cores.
    pub core: usize,
    /// Its number in the core's trace.
    pub number: u64,
    /// The number of instructions in the trace.
    pub executed: u64,
    pub pc: Address,
}

/// Trace frames, numbered from 0.
pub(super) trait TraceFrames {
    /// Returns the number of frames.
    fn count(&self) -> usize;

    /// Returns whether a frame exists.
    fn has(&self, frame: usize) -> bool {
        frame < self.count()
    }

    /// Returns the whole trace buffer if it is in memory; otherwise frames are written one by one.
    fn buffer(&self) -> Option<&[u8]> {
        None
    }

    /// Returns the number of a frame's tracepoint as reported to clients.
    fn tracepoint(&self, frame: usize) -> u16;

    /// Returns the first frame from `from` that matches.
    fn find(&self, from: usize, wanted: Wanted) -> Option<usize>;

    /// Returns the variables in a frame.
    fn values(&self, frame: usize) -> Vec<(i32, i64)>;

    /// Returns the instruction set of a frame, if known.
    fn isa(&self, _frame: usize) -> Option<Isa> {
        None
    }

    /// Returns the instruction of a frame, if values that the frame does not contain may be known
    /// at it.
    fn place(&self, _frame: usize) -> Option<FramePlace> {
        None
    }

    /// Returns the memory in a frame: address and bytes of each piece, by address.
    fn memory(&self, frame: usize) -> Vec<(u64, &[u8])>;

    /// Returns the register block of a frame.
    fn registers(&self, frame: usize) -> Bytes;

    /// Returns a register in a frame by its number in the description; `None` if there is no such
    /// register.
    fn register(&self, frame: usize, number: u32) -> Option<Bytes>;

    /// Writes a frame in trace buffer format, if the buffer is not in memory.
    fn write(&self, _frame: usize, out: PieceWriter) -> io::Result<PieceWriter> {
        Ok(out)
    }

    /// Returns how the run ended.
    fn status(&self) -> Status;

    /// Returns the tracepoints as in a trace file.
    fn tracepoints(&self) -> Vec<Tracepoint>;

    /// Returns the hit count of a tracepoint.
    fn hits(&self, tracepoint: u64, address: u64) -> u64;
}

/// Bytes per piece; clients request a few thousand at a time.
pub(super) const PIECE: usize = 64 << 10;

/// Writer that keeps one piece of the stream.
pub(super) struct PieceWriter {
    /// Offset of the next byte.
    pub(super) at: u64,
    /// Offset of the piece.
    pub(super) from: u64,
    pub(super) kept: Vec<u8>,
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let skipped = self.from.saturating_sub(self.at).min(bytes.len() as u64);
        let rest = &bytes[skipped as usize..];
        let room = PIECE.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&rest[..rest.len().min(room)]);
        self.at = self.at.saturating_add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
