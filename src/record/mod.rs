//! Snapshots with trace from programs that run in an emulator.
//!
//! Knows the emulator by its remote protocol, and what it executes; how trace is written is the
//! trace units' affair.

pub mod remote;
pub mod state;
mod transport;
