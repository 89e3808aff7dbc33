//! PTM: Program Flow Trace 1.0 and 1.1 (ARM IHI 0035B): bytes → packets → elements, and back.
//!
//! Atoms count waypoints; the flow finds them in the code and keeps the return stack.
//!
//! ```
//! use armsnap_trace::element::{Element, Mark};
//! use armsnap_trace::formatter::Demux;
//! use armsnap_trace::protocol::{Core, ElementDecoder};
//! use armsnap_arch::quantity::{Address, BufferOffset, Isa};
//! use armsnap_trace::ptm;
//!
//! let registers = ptm::Registers { etmcr: 0, etmccer: 0, etmidr: 0x411c_f310, etmtraceidr: 0x10 };
//! let config = ptm::Config::read(&registers, Core::default());
//! // A-sync; I-sync at 0x8000 (A32); one E atom; ignore.
//! let bytes = [0, 0, 0, 0, 0, 0x80, 0x08, 0x00, 0x80, 0x00, 0x00, 0x21, 0x84, 0x66];
//! let mut demux = Demux::new();
//! demux.unformatted(config.trace_id(), BufferOffset(0), &bytes);
//!
//! let mut decoder = ptm::Decoder::new(&config);
//! let mut elements = ptm::Elements::new(&config);
//! let (mut packets, mut out) = (Vec::new(), Vec::new());
//! demux.stream_mut(config.trace_id()).packets(&mut decoder, true, |at, packet, _| {
//!     packets.push(*packet);
//!     elements.packet(at, packet, &mut out);
//! });
//! elements.end(BufferOffset(bytes.len() as u64), &mut out);
//! assert_eq!((packets[0], packets.len()), (ptm::Packet::ASync, 4));
//! let start = Element::Address { address: Address(0x8000), isa: Isa::A32 };
//! let atom = out.iter().find(|(_, e)| matches!(e, Element::WaypointAtoms(_)));
//! assert!(out.contains(&(BufferOffset(6), start)));
//! assert_eq!(atom.map(|(at, _)| *at), Some(BufferOffset(12)));
//! assert!(matches!(out.last(), Some((_, Element::Mark(Mark::End)))));
//! ```

mod config;
mod decode;
mod elements;
mod encode;
mod packet;
mod trace_unit;

pub use crate::etm::Registers;
pub use config::Config;
pub use decode::Decoder;
pub use elements::Elements;
pub use packet::{Branch, ISync, Information, Packet, PartAddress, Timestamp};

/// Writes the packets of one PTM.
pub type Encoder = crate::etm::Encoder<Config>;
/// Traces the instructions of one core.
pub type TraceUnit = crate::etm::TraceUnit<Config>;

#[cfg(test)]
mod tests;
