//! The System Trace Macrocell (STM, STM-500): MIPI System Trace Protocol 2 (STPv2).
//!
//! Packets are made of nibbles, the low one of a byte first; numbers have their most significant
//! nibble first. A packet may start in the middle of a byte, which belongs to the previous packet.
//! This module is independent of frames, buffers and output formats.
//!
//! ```
//! use armsnap_trace::element::{Element, Mark};
//! use armsnap_trace::formatter::Demux;
//! use armsnap_trace::stm::{Config, Decoder, Elements, Registers};
//! use armsnap_trace::protocol::{Core, Describe, ElementDecoder};
//! use armsnap_arch::quantity::BufferOffset;
//!
//! let config = Config::read(&Registers { tcsr: 0x10 << 16 }, Core::default());
//! // ASYNC; VERSION 3; D8 with the value 0x41.
//! let bytes = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x0f, 0x30, 0x44, 0x01];
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
//! assert_eq!(names[0], "async");
//! assert!(matches!(out[out.len() - 2], (_, Element::Mark(Mark::Stm(_)))));
//! ```

mod config;
mod decode;
mod elements;
mod packet;

pub use config::{Config, Registers};
pub use decode::Decoder;
pub use elements::Elements;
pub use packet::{Packet, PacketKind, Timestamp, TimestampType};

#[cfg(test)]
mod tests;
