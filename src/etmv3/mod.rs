//! ETMv3.0 to ETMv3.5 (ARM IHI 0014Q): bytes → packets → elements, and back.
//!
//! Atoms count instructions; the flow finds them in the code.

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
    Branch, DataAddress, DataValue, ISync, Information, Packet, PartAddress, Place, Timing,
};

/// Writes the packets of one ETMv3.
pub type Encoder = crate::etm::Encoder<Config>;
/// Traces the instructions of one core.
pub type TraceUnit = crate::etm::TraceUnit<Config>;

#[cfg(test)]
mod tests;
