//! Programs that run in an emulator → snapshots with the trace of how they got there.
//!
//! ```text
//! QEMU with our plugin → stream (blocks executed) → flow (runs, exceptions) ┬→ tracer, trace unit
//!                                                                           └→ witness
//! ```
//!
//! The plugin (`plugin.c`) runs inside of the emulator; everything behind the stream is the same
//! for a Linux program and for a bare-metal system. Registers and memory come from the emulator's
//! GDB server. How trace is written is the trace units' affair.

pub mod blocks;
mod emulator;
pub mod flow;
mod input;
pub mod layout;
pub mod plugin;
pub mod process;
pub mod protocol;
pub mod remote;
pub mod signals;
mod sites;
pub mod state;
pub mod states;
mod stop;
pub mod store;
pub mod stream;
pub mod system;
pub mod tracing;
mod transport;
pub mod traps;
pub mod until;
pub mod user;
pub mod versions;
pub mod witness;

pub use emulator::{Error, Options, Recorded, Watch};
pub use stop::Reason;
