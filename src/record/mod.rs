//! Records programs that run in an emulator as snapshots with trace.
//!
//! ```text
//! QEMU with the plugin → stream (executed blocks) → flow (runs, exceptions) ┬→ tracer, trace unit
//!                                                                           └→ witness, data addresses
//! ```
//!
//! The plugin (`plugin.c`) runs inside the emulator. Everything after the stream is
//! the same for a Linux program and a bare-metal system. Registers and memory are read through the
//! emulator's GDB server. The trace units encode the trace.

pub mod address_files;
pub mod blocks;
pub mod device_state;
mod emulator;
pub mod flow;
mod guest_program;
mod input;
pub mod plugin;
pub mod process;
pub mod protocol;
pub mod register_log;
pub mod remote;
pub mod settings;
pub mod signals;
pub mod snapshot_files;
mod stop;
pub mod stream;
pub mod system;
pub mod trace_store;
pub mod tracing;
mod transport;
pub mod traps;
pub mod until;
pub mod user;
pub mod versions;
pub mod witness;

pub use emulator::{Error, Options, Recorded, Watch};
pub use stop::Reason;
