//! ETMv4 and ETE instruction trace: bytes → packets → elements; ETMv4 packets → bytes.
//!
//! One set of packets serves both protocols (ARM IHI 0064H; ARM DDI 0487, part D); where they
//! differ, [`Config`] decides. This module is independent of memory, files and the formatter.
//!
//! ```
//! use armsnap_trace::element::{Atoms, Element};
//! use armsnap_trace::etmv4::{Config, Decoder, Elements, Protocol, Registers};
//! use armsnap_trace::formatter::Demux;
//! use armsnap_trace::protocol::{Core, Describe, ElementDecoder};
//! use armsnap_arch::quantity::{Address, BufferOffset, Isa};
//!
//! // A-sync, trace info, trace on, address 0x1000 (A64) with context, atom E.
//! let bytes = [
//!     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x00, 0x04, // up to trace on
//!     0x85, 0x00, 0x08, 0, 0, 0, 0, 0, 0, 0x31, 0xf7,
//! ];
//! for protocol in [Protocol::Etmv4, Protocol::Ete] {
//!     let registers = Registers::read(protocol, |name| (name == "TRCTRACEIDR").then_some(0x10));
//!     let config = Config::read(&registers, Core::default());
//!     let mut demux = Demux::new();
//!     demux.unformatted(config.trace_id(), BufferOffset(0), &bytes);
//!
//!     let mut decoder = Decoder::new(&config);
//!     let mut elements = Elements::new(&config);
//!     let (mut names, mut out) = (Vec::new(), Vec::new());
//!     demux.stream_mut(config.trace_id()).packets(&mut decoder, true, |at, packet, _| {
//!         names.push(packet.name());
//!         elements.packet(at, packet, &mut out);
//!     });
//!     elements.end(BufferOffset(bytes.len() as u64), &mut out);
//!     assert_eq!((names[0], names.len()), ("async", 5));
//!     let start = Element::Address { address: Address(0x1000), isa: Isa::A64 };
//!     assert!(out.contains(&(BufferOffset(15), start)));
//!     let atom = Element::WaypointAtoms(Atoms { bits: 1, count: 1 });
//!     assert!(out.contains(&(BufferOffset(25), atom)));
//! }
//! ```

mod address;
mod config;
mod decode;
mod describe;
mod elements;
mod encode;
pub mod exceptions;
mod packet;
mod payload;
mod speculation;
mod trace_unit;

pub use config::{Conditional, Config, Protocol, Registers, Version};
pub use decode::Decoder;
pub use elements::Elements;
pub use encode::{Encoder, pack_atoms};
pub use packet::{
    AddressBits, ConditionalInstruction, ConditionalResult, ContextInfo, ExceptionAddress,
    InstructionSet, KeyedResult, Packet, TraceInfo,
};
pub use trace_unit::{TraceUnit, TraceUnitOptions};
