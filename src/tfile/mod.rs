//! GDB trace files: the format GDB's `tsave` writes and `target tfile` reads.
//!
//! A file is a line `\x7fTRACE0`, a description in lines of text up to an empty line, then trace
//! frames in the target's byte order up to a tracepoint number 0 or the end of the file (Debugging
//! with GDB, "Trace File Format"; where GDB differs from its manual, this module follows GDB).
//!
//! [`File`] reads, [`Writer`] writes. Independent of snapshots and trace protocols.

mod description;
mod note;
pub(crate) mod read;
mod tracepoint;
mod write;

pub use description::{Description, Status, StopReason, Variable};
pub use note::{LineFault, Note};
pub use read::{Block, Blocks, ByteOrder, Error, File, Frames, TraceFrame};
pub use tracepoint::{SourceString, Tracepoint};
pub use write::{Writer, memory_length, memory_size};

/// The size of a frame's header in bytes: tracepoint number and data size.
const HEADER: usize = 6;

/// The first line of a trace file.
pub const MAGIC: &[u8] = b"\x7fTRACE0\n";

/// The longest line of the description that GDB reads, in bytes, without its end.
pub const LINE_LIMIT: usize = 999;

/// The highest number of a tracepoint: the frames' numbers are signed 16 bits, and 0 ends them.
pub const TRACEPOINT_LIMIT: u16 = 0x7fff;

#[cfg(test)]
mod tests;
