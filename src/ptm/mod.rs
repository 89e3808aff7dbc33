//! PTM: Program Flow Trace 1.0 and 1.1 (ARM IHI 0035B): bytes → packets → elements, and back.
//!
//! Atoms count waypoints; the flow finds them in the code and keeps the return stack.

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
