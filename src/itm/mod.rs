//! The Instrumentation Trace Macrocell and the Data Watchpoint and Trace unit of M-profile
//! cores (ITM, DWT).
//!
//! Sections cited are those of the Armv7-M Architecture Reference Manual, appendix "Debug ITM
//! and DWT Packet Protocol". Independent of frames, buffers and output formats.

mod config;
mod decode;
mod elements;
mod packet;

pub use config::{Config, Registers};
pub use decode::Decoder;
pub use elements::Elements;
pub use packet::Packet;

#[cfg(test)]
mod tests;
