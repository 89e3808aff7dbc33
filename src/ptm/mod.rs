//! PTM: Program Flow Trace 1.0 and 1.1 (ARM IHI 0035B): bytes → packets → elements.
//!
//! Atoms count waypoints. Knows no memory: where the waypoints are, and the return stack, are
//! the flow's part.

pub mod config;
pub mod decode;
pub mod elements;
pub mod packet;

pub use config::Config;
pub use decode::Decoder;
pub use elements::Elements;
pub use packet::Packet;

#[cfg(test)]
mod tests;
