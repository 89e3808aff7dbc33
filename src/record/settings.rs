//! Settings of a recording: what is traced, and how.

use super::blocks::Sets;
use super::protocol::TraceOptions;
use super::replay_file::SharedCalls;
use super::system::numbers::Numbers;
use armsnap_snapshot::snapshot::changed::Carrier;
use armsnap_trace::element::Context;
use armsnap_trace::protocol::{Core, Profile};
use std::path::PathBuf;

/// How the exceptions of a system are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct System {
    /// The numbers of exceptions.
    pub numbers: Numbers,
    /// The core properties that determine the encoding of ETMv4.
    pub core: Core,
}

/// The source of exceptions, and how they are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceptions {
    /// A Linux program: noted exceptions are signals (Linux numbers), others are system calls. The
    /// trace covers EL0 only: it stops at each exception and restarts after it.
    Signals,
    /// A system: exceptions come from the emulator's log, and the trace continues in the handler.
    System(System),
}

/// Settings of a recording.
#[derive(Debug)]
pub struct Settings {
    /// The instruction sets of the cores.
    pub sets: Sets,
    /// The initial state of the cores.
    pub context: Context,
    /// The source of exceptions.
    pub exceptions: Exceptions,
    /// The trace options.
    pub trace: TraceOptions,
    /// What in the trace identifies the version of changed code.
    pub carrier: Carrier,
    /// Whether tracing starts only after the first stop.
    pub late: bool,
    /// The directory for the files of data addresses, if they are recorded.
    pub data_addresses: Option<PathBuf>,
    /// The file of system calls, if they are recorded.
    pub calls: Option<SharedCalls>,
}

/// Returns the core properties that determine the encoding of ETMv4.
pub fn core_of(sets: Sets) -> Core {
    Core {
        profile: match sets {
            Sets::T32 => Profile::M,
            Sets::A64 | Sets::A32AndT32 => Profile::A,
        },
        version: 8,
    }
}
