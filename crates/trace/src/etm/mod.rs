//! Shared parts of ETMv3 and PTM: registers, compressed addresses, timestamps, synchronisation, and
//! how a trace unit traces the state of its core.
//!
//! PFT (ARM IHI 0035B) inherited these from ETMv3 (ARM IHI 0014Q). The rest of the protocols is in
//! [`crate::etmv3`] and [`crate::ptm`].

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
