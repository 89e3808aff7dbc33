//! Serves snapshots to debuggers (GDB, LLDB) over GDB's remote protocol.
//!
//! ```text
//! snapshot → endpoint (cores of one architecture) ← session ← client
//!                                                   framing → table of packets → gdbstub → target
//! ```
//!
//! A snapshot is read-only: registers and memory cannot be written. Each core is a thread, and so
//! is each task of a real-time operating system that does not run.
//! Independent of trace protocols: `positions` holds the current positions, `execution` moves
//! cores.

mod asked;
mod breakpoints;
mod btrace;
mod callers;
mod client_state;
mod cores;
mod endpoint;
mod execution;
mod features;
mod frame_calls;
mod history_registers;
mod inbox;
mod inputs;
mod keepalive;
mod libraries;
pub mod listen;
mod memory;
mod monitor;
mod note;
mod open_files;
mod packets;
mod past_memory;
mod past_values;
mod peer;
mod positions;
mod process_stack;
mod registers;
mod reply;
mod resume;
mod selection;
mod session;
mod shown_memory;
mod stops;
mod stub;
mod target;
mod tasks;
mod threads;
mod trace_buffer;
mod trace_file;
mod trace_file_endpoint;
mod trace_frames;
mod trace_runs;
mod trace_text;
mod trace_values;
mod tracepoints;
mod watched;
mod watchpoints;

pub use asked::{CoreSummary, Histories, NO_HISTORY};
pub use cores::{Core, MemoryDevice};
pub use endpoint::{Endpoint, EndpointError, HistoryMode, Options, endpoints};
pub use note::{CoreNote, Note};
pub use session::{Client, End, Meanwhile, Session};
pub use trace_file::NoProgramCounter;
pub use trace_file_endpoint::{TraceFileError, endpoint as trace_file_endpoint};
