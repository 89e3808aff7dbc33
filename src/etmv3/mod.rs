//! ETMv3.0 to ETMv3.5 (ARM IHI 0014Q): bytes → packets → elements, and back.
//!
//! Atoms count instructions. Knows no memory: which instructions they are is the flow's part.

pub mod config;
pub mod decode;
pub mod elements;
mod encode;
pub mod packet;
mod trace_unit;

pub use crate::etm::Registers;
pub use config::{Config, Profile};
pub use decode::Decoder;
pub use elements::Elements;
pub use packet::Packet;

/// Writes the packets of one ETMv3.
pub type Encoder = crate::etm::Encoder<Config>;
/// Traces the instructions of one core.
pub type TraceUnit = crate::etm::TraceUnit<Config>;

#[cfg(test)]
mod tests;
