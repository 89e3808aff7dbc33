//! The System Trace Macrocell (STM, STM-500): MIPI System Trace Protocol 2 (STPv2).
//!
//! Packets are made of nibbles, the low one of a byte first; numbers have their most
//! significant nibble first. A packet may begin in the middle of a byte: that byte belongs to
//! the packet before. Independent of frames, buffers and output formats.

mod config;
mod decode;
mod elements;
mod packet;

pub use config::{Config, Registers};
pub use decode::Decoder;
pub use elements::Elements;
pub use packet::{Packet, PacketKind, Timestamp, TimestampType};

#[cfg(test)]
mod tests;
