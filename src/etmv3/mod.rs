//! ETMv3.0 to ETMv3.5 (ARM IHI 0014Q): bytes → packets → elements, and back.
//!
//! Atoms count instructions. Knows no memory: which instructions they are is the flow's part.

pub(crate) mod address;
pub(crate) mod compress;
pub mod config;
pub mod decode;
pub mod elements;
mod encode;
pub mod packet;
pub mod registers;
pub(crate) mod sync;
pub mod timestamp;
mod trace_unit;

pub use config::{Config, Profile};
pub use decode::Decoder;
pub use elements::Elements;
pub use encode::Encoder;
pub use packet::Packet;
pub use trace_unit::TraceUnit;

#[cfg(test)]
mod tests;
