//! The Instrumentation Trace Macrocell and the Data Watchpoint and Trace unit of M-profile
//! cores (ITM, DWT).
//!
//! Packets have the names of the Armv7-M Architecture Reference Manual (ARM DDI 0403E), appendix D4
//! "Debug ITM and DWT Packet Protocol". This module is independent of frames, buffers and output
//! formats.
//!
//! ```
//! use armsnap_trace::element::{Element, Mark};
//! use armsnap_trace::formatter::Demux;
//! use armsnap_trace::itm::{Config, Decoder, Elements, Registers};
//! use armsnap_trace::protocol::{Core, Describe, ElementDecoder};
//! use armsnap_arch::quantity::BufferOffset;
//!
//! let config = Config::read(&Registers { tcr: 0x10 << 16 }, Core::default());
//! // Synchronization; one byte, 'A', written to stimulus port 0.
//! let bytes = [0, 0, 0, 0, 0, 0x80, 0x01, 0x41];
//! let mut demux = Demux::new();
//! demux.unformatted(config.trace_id(), BufferOffset(0), &bytes);
//!
//! let mut decoder = Decoder::new(&config);
//! let mut elements = Elements::new(&config);
//! let (mut names, mut out) = (Vec::new(), Vec::new());
//! demux.stream_mut(config.trace_id()).packets(&mut decoder, true, |at, packet, _| {
//!     names.push(packet.name());
//!     elements.packet(at, packet, &mut out);
//! });
//! elements.end(BufferOffset(bytes.len() as u64), &mut out);
//! assert_eq!(names.len(), 2);
//! assert!(matches!(out[out.len() - 2], (BufferOffset(6), Element::Mark(Mark::Itm(_)))));
//! ```

mod config;
mod decode;
mod elements;
mod evidence;
mod likely;
mod packet;
mod parse;
mod search;

pub use config::{Config, Registers};
pub use decode::Decoder;
pub use elements::Elements;
pub use evidence::Evidence;
pub use packet::Packet;

#[cfg(test)]
mod tests;
