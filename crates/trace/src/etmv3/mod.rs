//! ETMv3.0 to ETMv3.5 (ARM IHI 0014Q): bytes → packets → elements, and back.
//!
//! Atoms count instructions; the flow finds them in the code.
//!
//! ```
//! use armsnap_trace::element::{Element, Mark};
//! use armsnap_trace::formatter::Demux;
//! use armsnap_trace::protocol::{Core, ElementDecoder};
//! use armsnap_arch::quantity::{Address, BufferOffset, Isa};
//! use armsnap_trace::etmv3;
//!
//! let registers = etmv3::Registers { etmcr: 0, etmccer: 0, etmidr: 0x410c_f250, etmtraceidr: 0x10 };
//! let config = etmv3::Config::read(&registers, Core::default());
//! // A-sync; I-sync at 0x8000 (A32); a P-header with one E atom; ignore.
//! let bytes = [0, 0, 0, 0, 0, 0x80, 0x08, 0x21, 0x00, 0x80, 0x00, 0x00, 0x84, 0x66];
//! let mut demux = Demux::new();
//! demux.unformatted(config.trace_id(), BufferOffset(0), &bytes);
//!
//! let mut decoder = etmv3::Decoder::new(&config);
//! let mut elements = etmv3::Elements::new(&config);
//! let (mut packets, mut out) = (Vec::new(), Vec::new());
//! demux.stream_mut(config.trace_id()).packets(&mut decoder, true, |at, packet, _| {
//!     packets.push(*packet);
//!     elements.packet(at, packet, &mut out);
//! });
//! elements.end(BufferOffset(bytes.len() as u64), &mut out);
//! assert_eq!((packets[0], packets.len()), (etmv3::Packet::ASync, 4));
//! let start = Element::Address { address: Address(0x8000), isa: Isa::A32 };
//! let atom = out.iter().find(|(_, e)| matches!(e, Element::InstructionAtoms(_)));
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
pub use packet::{
    Branch, DataAddress, DataValue, ISync, Information, Packet, PartAddress, SyncAddress, Timing,
};

/// Writes the packets of one ETMv3.
pub type Encoder = crate::etm::Encoder<Config>;
/// Traces the instructions of one core.
pub type TraceUnit = crate::etm::TraceUnit<Config>;

#[cfg(test)]
mod tests;
