//! Program flow → trace: the part of a trace unit that decides what to trace, given the code.
//!
//! [`Tracer`] walks the executed instructions, finds the waypoints among them and determines which
//! targets a decoder infers by itself. A [`TraceUnit`] of a protocol writes the packets. The tracer
//! is independent of packets and of the origin of the instructions.
//!
//! ```
//! use armsnap_trace::encode::{CodeAddress, Tracer};
//! use armsnap_trace::etmv4;
//! use armsnap_trace::flow::Pieces;
//! use armsnap_arch::quantity::{Address, Isa};
//!
//! // 0x1000: add x0, x0, #1; cbnz x1, 0x1000; nop
//! let mut code = Pieces::default();
//! let words = [0x9100_0400_u32, 0xb5ff_ffe1, 0xd503_201f];
//! code.add(Address(0x1000), words.map(u32::to_le_bytes).concat());
//! let unit = etmv4::TraceUnit::new(etmv4::TraceUnitOptions::default());
//! let mut tracer = Tracer::new(unit, code, 4096);
//! let at = |address| CodeAddress { address: Address(address), isa: Isa::A64 };
//! tracer.run(at(0x1000), Address(0x1008));
//! tracer.run(at(0x1000), Address(0x100c));
//! tracer.finish(Some(at(0x100c)));
//! let mut bytes = Vec::new();
//! tracer.take(&mut bytes);
//! assert_eq!(bytes[..2], [0, 0]);
//! ```

mod tracer;
mod unit;

pub use tracer::Tracer;
pub use tracer::{Edge, Line};
pub use unit::{CodeAddress, Options, TAIL_CHAIN, TakenException, TraceUnit, Waypoint};

#[cfg(test)]
pub(crate) mod tests;
