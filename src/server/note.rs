//! Notes on what an endpoint serves.

use crate::tfile;
use armsnap_arch::arch::{Architecture, DefaultRegisters, RegisterNote};
use armsnap_arch::quantity::Address;
use armsnap_history::decode;
use armsnap_snapshot::snapshot::{MemoryNote, ProgramNote, model};
use std::fmt;
use std::path::{Path, PathBuf};

/// An assumption, a contradiction, or a fault in what an endpoint serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A fault of the snapshot.
    Snapshot(model::Note),
    /// A note on its trace.
    Decode(decode::Note),
    /// A note on a core.
    Core {
        /// Its name.
        name: String,
        /// The note.
        note: CoreNote,
    },
    /// How well a program agrees with the dumps.
    Program(ProgramNote),
    /// A program named by the user is for none of the served cores.
    OtherArchitecture {
        /// The program.
        path: PathBuf,
        /// The architecture that it is for.
        found: &'static str,
        /// The architectures of the cores.
        wanted: String,
    },
    /// A program that is not reported to clients, because only one can be.
    FurtherProgram {
        /// The program.
        path: PathBuf,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(note) => note.fmt(f),
            Self::Decode(note) => note.fmt(f),
            Self::Core { name, note } => write!(f, "{name}: {note}"),
            Self::Program(note) => note.fmt(f),
            Self::OtherArchitecture {
                path,
                found,
                wanted,
            } => write!(
                f,
                "{}: it is not used: it is for {found}, and the cores are {wanted}",
                path.display()
            ),
            Self::FurtherProgram { path } => write!(
                f,
                "only one program is reported to clients; for this one type: add-symbol-file {}",
                argument(path)
            ),
        }
    }
}

/// Formats a file name as an argument of a GDB command, quoted if necessary.
fn argument(path: &Path) -> String {
    let path = path.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    if path.chars().all(is_plain) {
        return path.into_owned();
    }
    format!("\"{}\"", path.replace('\\', r"\\").replace('"', "\\\""))
}

/// A note on a core of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreNote {
    /// Its architecture is assumed.
    AssumedArchitecture {
        /// The architecture.
        architecture: Architecture,
        /// The reason.
        from: String,
    },
    /// A note on its registers.
    Registers(RegisterNote),
    /// Its registers are placeholders.
    Placeholders {
        /// The reason.
        reason: String,
    },
    /// A note on its memory.
    Memory(MemoryNote),
    /// What is read from a program.
    Program(ProgramNote),
    /// A dump is an ELF file; the segments of the file are used.
    ElfDump {
        /// What is read, and how to get the file's bytes.
        text: String,
    },
    /// A dump provides no memory.
    EmptyDump {
        /// Its section.
        section: String,
        /// Its file.
        file: String,
    },
    /// Its program counter is not known.
    NoPc,
    /// It has no halted state, and is at the end of its trace.
    NoHaltedState,
    /// Its PSP was determined: that of the task that an exception interrupted.
    ProcessStack {
        /// The address of the exception's frame.
        frame: u64,
        /// Where the task was interrupted.
        returns_to: Address,
    },
    /// It handles an exception that interrupted code on a stack whose pointer is not known.
    NoProcessStack(NoProcessStack),
    /// A note on the trace file.
    TraceFile(tfile::Note),
    /// The registers are GDB's defaults.
    DefaultRegisters(DefaultRegisters),
    /// The trace frame shown while none is selected.
    RestingFrame {
        /// Its number.
        frame: usize,
    },
}

/// Why the stack of the code that an exception interrupted is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoProcessStack {
    /// No trace leads to the exception.
    NoTrace,
    /// Decoding the end of the trace takes too long.
    Unfinished,
    /// Not exactly one exception frame returns to where the code was interrupted.
    Frames {
        /// Their number.
        count: usize,
        /// Where the code was interrupted.
        returns_to: Address,
    },
    /// The interrupted code may also have used the main stack.
    MainStack,
    /// The interrupted code was in the other security state.
    OtherState,
    /// The handler wrote PSP.
    Written,
    /// The dumps are too large to search.
    TooMuchMemory,
    /// Another core has no MSP and PSP, and debuggers use these registers for all cores or none.
    OtherCores,
}

impl From<NoProcessStack> for CoreNote {
    fn from(reason: NoProcessStack) -> Self {
        Self::NoProcessStack(reason)
    }
}

impl fmt::Display for NoProcessStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTrace => f.write_str("no trace leads to the exception"),
            Self::Unfinished => f.write_str("decoding the end of the trace takes too long"),
            Self::Frames { count, returns_to } => write!(
                f,
                "trace says that it was interrupted at {returns_to}, and {count} exception frames \
                 return there"
            ),
            Self::MainStack => f.write_str("it may also have been code on the main stack"),
            Self::OtherState => f.write_str("it ran in the other security state"),
            Self::Written => f.write_str("the handler wrote psp, or may have done so"),
            Self::TooMuchMemory => {
                f.write_str("the dumps are too large to be searched for its exception frame")
            }
            Self::OtherCores => f.write_str(
                "another core has no msp and psp, and debuggers use those of all cores or none",
            ),
        }
    }
}

impl fmt::Display for CoreNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AssumedArchitecture { architecture, from } => {
                write!(f, "{} assumed, {from}", architecture.name())
            }
            Self::Registers(note) => note.fmt(f),
            Self::Placeholders { reason } => write!(
                f,
                "the registers are placeholders, not machine state: {reason}"
            ),
            Self::Memory(note) => note.fmt(f),
            Self::Program(note) => note.fmt(f),
            Self::ElfDump { text } => f.write_str(text),
            Self::EmptyDump { section, file } => write!(
                f,
                "no memory from [{section}] {file}: it holds nothing there"
            ),
            Self::NoPc => f.write_str(
                "its pc is not known: it has no frame, but its memory and other registers can be read",
            ),
            Self::NoHaltedState => f.write_str(
                "there is no halted state: it is at the end of its trace, where no register but \
                 the pc is known",
            ),
            Self::ProcessStack { frame, returns_to } => write!(
                f,
                "psp {frame:#010x} is inferred: trace says that the task was interrupted at \
                 {returns_to}, and only the exception frame there returns to it"
            ),
            Self::NoProcessStack(reason) => write!(
                f,
                "an exception interrupted code on a stack whose pointer was not saved: a back trace \
                 beyond the exception is not that of this code ({reason})"
            ),
            Self::TraceFile(note) => note.fmt(f),
            Self::DefaultRegisters(note) => note.fmt(f),
            Self::RestingFrame { frame } => write!(
                f,
                "where no trace frame is selected, registers and memory are those of trace frame \
                 {frame}"
            ),
        }
    }
}
