//! The CoreSight trace formatter: frames of 16 bytes ⇄ bytes per trace ID.
//!
//! A formatter frame carries bytes of several trace sources (Arm CoreSight Architecture
//! Specification, "Trace Formatter"). [`Deformatter`] reads a buffer in pieces and writes each
//! source's bytes to a [`Demux`]; [`encode`] writes frames. This module does not interpret the
//! bytes.
//!
//! A frame: bytes 0, 2 … 14 hold either a trace ID (bit 0 set, the ID in bits 7:1) or data
//! whose bit 0 is in byte 15, the auxiliary byte (bit n for byte 2n). Bytes 1, 3 … 13 are
//! data. For an ID, the auxiliary bit selects when it takes effect: at once (0), or after the
//! next byte (1). A trace port inserts FSYNC (`ff ff ff 7f`) between frames and HSYNC (`ff 7f`)
//! inside them; both look like the reserved ID 0x7f.
//!
//! ```
//! use armsnap_trace::formatter::{Deformatter, Demux, FrameKind};
//! use armsnap_arch::quantity::{BufferOffset, TraceId};
//!
//! // ID 0x10, then 14 bytes of its data; bit 0 of byte 2 is bit 1 of byte 15.
//! let frame = [0x21, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0b10];
//! let mut demux = Demux::new();
//! let mut deformatter = Deformatter::new(FrameKind::Memory);
//! deformatter.feed(BufferOffset(0), &frame, true, &mut demux);
//! let payload = demux.stream(TraceId(0x10)).payload();
//! assert_eq!(payload, [1, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
//! assert_eq!(deformatter.counts().overhead, 2);
//! ```

mod deformat;
mod demux;
pub mod encode;

pub use deformat::{Counts, Deformatter, FrameKind};
pub use demux::{Demux, Locator, Segment, Stream};

/// Bytes of a formatter frame.
pub const FRAME_BYTES: usize = 16;
/// The full synchronisation packet of a trace port.
pub const FSYNC: [u8; 4] = [0xff, 0xff, 0xff, 0x7f];
/// The halfword synchronisation packet of a trace port.
pub const HSYNC: [u8; 2] = [0xff, 0x7f];
/// The trace ID of padding: its data have no meaning.
pub const ID_NULL: u8 = 0x00;
/// The trace ID whose data report a trigger.
pub const ID_TRIGGER: u8 = 0x7d;

/// Returns whether no source may use `id`: 0x70 to 0x7f, except the trigger.
pub const fn is_reserved(id: u8) -> bool {
    id >= 0x70 && id != ID_TRIGGER
}

#[cfg(test)]
mod tests;
