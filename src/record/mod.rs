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

mod address_files;
pub mod blocks;
mod constants;
mod device_state;
mod emulator;
pub mod flow;
mod guest_program;
mod input;
mod lines;
mod note;
pub mod plugin;
mod process;
pub mod protocol;
pub mod register_log;
mod remote;
mod replay_file;
mod settings;
mod snapshot_files;
mod stop;
pub mod stream;
pub mod system;
mod trace_store;
mod tracing;
mod transport;
mod traps;
pub mod until;
pub mod user;
mod versions;
pub mod witness;

pub use emulator::{Error, Options, Recorded, Watch};
pub use note::Note;
pub use stop::Reason;
