//! ETMv3.0 to ETMv3.5 (ARM IHI 0014Q): bytes → packets → elements.
//!
//! Atoms count instructions. Knows no memory: which instructions they are is the flow's part.

pub(crate) mod address;
pub mod config;
pub mod decode;
pub mod elements;
pub mod packet;
pub mod registers;
pub(crate) mod sync;
pub mod timestamp;

pub use config::{Config, Profile};
pub use decode::Decoder;
pub use elements::Elements;
pub use packet::Packet;

#[cfg(test)]
mod tests;
