//! What ETMv3 and PTM share: registers, compressed addresses, timestamps, synchronisation, and
//! what a trace unit tells of the state of its core.
//!
//! PFT (ARM IHI 0035B) took these over from ETMv3 (ARM IHI 0014Q). Knows no headers and no
//! packet of one of them alone; [`crate::etmv3`] and [`crate::ptm`] do.

pub mod config;
pub(crate) mod decode;
pub(crate) mod elements;
pub(crate) mod encode;
pub mod packet;
mod trace_unit;

pub use config::Registers;
pub use encode::{Encoder, Protocol};
pub use trace_unit::{Change, Common, SecurityState, Settings, TraceUnit, Tracing};

#[cfg(test)]
pub(crate) mod tests;
