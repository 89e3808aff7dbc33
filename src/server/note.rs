//! Notes on what an endpoint serves.

use crate::tfile;
use armsnap_arch::arch::{Architecture, DefaultRegisters, RegisterNote};
use armsnap_arch::quantity::Address;
use armsnap_history::decode;
use armsnap_snapshot::snapshot::{MemoryNote, ProgramNote, model};
use std::path::{Path, PathBuf};

/// An assumption, a contradiction, or a fault in what an endpoint serves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// A fault of the snapshot.
    #[error("{0}")]
    Snapshot(model::Note),
    /// A note on its trace.
    #[error("{0}")]
    Decode(decode::Note),
    /// A note on a core.
    #[error("{name}: {note}")]
    Core {
        /// Its name.
        name: String,
        /// The note.
        note: CoreNote,
    },
    /// How well a program agrees with the dumps.
    #[error("{0}")]
    Program(ProgramNote),
    /// A program named by the user is for none of the served cores.
    #[error("{path}: it is not used: it is for {found}, and the cores are {wanted}")]
    OtherArchitecture {
        /// The program.
        path: PathBuf,
        /// The architecture that it is for.
        found: &'static str,
        /// The architectures of the cores.
        wanted: String,
    },
    /// A program that is not reported to clients, because only one can be.
    #[error(
        "only one program is reported to clients; for this one type: add-symbol-file {}",
        symbol_file(.path, *.offset)
    )]
    FurtherProgram {
        /// The program.
        path: PathBuf,
        /// The offset of its load address from the addresses in its file.
        offset: u64,
    },
}

/// Formats the arguments of add-symbol-file.
fn symbol_file(path: &Path, offset: u64) -> String {
    match offset {
        0 => argument(path),
        _ => format!("{} -o {offset:#x}", argument(path)),
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoreNote {
    /// Its architecture is assumed.
    #[error("{} assumed, {from}", .architecture.name())]
    AssumedArchitecture {
        /// The architecture.
        architecture: Architecture,
        /// The reason.
        from: String,
    },
    /// A note on its registers.
    #[error("{0}")]
    Registers(RegisterNote),
    /// Its registers are placeholders.
    #[error("the registers are placeholders, not machine state: {reason}")]
    Placeholders {
        /// The reason.
        reason: String,
    },
    /// A note on its memory.
    #[error("{0}")]
    Memory(MemoryNote),
    /// What is read from a program.
    #[error("{0}")]
    Program(ProgramNote),
    /// A dump is an ELF file.
    #[error("{text}")]
    ElfDump {
        /// What is read, and how to get the file's bytes.
        text: String,
    },
    /// A dump provides no memory.
    #[error("no memory from [{section}] {file}: it holds nothing there")]
    EmptyDump {
        /// Its section.
        section: String,
        /// Its file.
        file: String,
    },
    /// Its program counter is not known.
    #[error("its pc is not known: it has no frame, but its memory and other registers can be read")]
    NoPc,
    /// It has no halted state, and is at the end of its trace.
    #[error(
        "there is no halted state: it is at the end of its trace, where no register but the pc is \
         known"
    )]
    NoHaltedState,
    /// It is handling a fault.
    #[error("{summary}; monitor fault says more")]
    Fault {
        /// The fault in one line.
        summary: String,
    },
    /// Its PSP was determined.
    #[error(
        "psp {frame:#010x} is inferred: trace says that the task was interrupted at {returns_to}, \
         and only the exception frame there returns to it"
    )]
    ProcessStack {
        /// The address of the exception's frame.
        frame: u64,
        /// Where the task was interrupted.
        returns_to: Address,
    },
    /// It handles an exception that interrupted code on a stack whose pointer is not known.
    #[error(
        "an exception interrupted code on a stack whose pointer was not saved: a back trace \
         beyond the exception is not that of this code ({0})"
    )]
    NoProcessStack(#[from] NoProcessStack),
    /// A note on the trace file.
    #[error("{0}")]
    TraceFile(tfile::Note),
    /// The registers are GDB's defaults.
    #[error("{0}")]
    DefaultRegisters(DefaultRegisters),
    /// The trace frame shown while none is selected.
    #[error(
        "where no trace frame is selected, registers and memory are those of trace frame {frame}"
    )]
    RestingFrame {
        /// Its number.
        frame: usize,
    },
}

/// Why the stack of the code that an exception interrupted is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProcessStack {
    /// No trace leads to the exception.
    #[error("no trace leads to the exception")]
    NoTrace,
    /// Decoding the end of the trace takes too long.
    #[error("decoding the end of the trace takes too long")]
    Unfinished,
    /// Not exactly one exception frame returns to where the code was interrupted.
    #[error(
        "trace says that it was interrupted at {returns_to}, and {count} exception frames return \
         there"
    )]
    Frames {
        /// Their number.
        count: usize,
        /// Where the code was interrupted.
        returns_to: Address,
    },
    /// The interrupted code may also have used the main stack.
    #[error("it may also have been code on the main stack")]
    MainStack,
    /// The interrupted code was in the other security state.
    #[error("it ran in the other security state")]
    OtherState,
    /// The handler wrote PSP.
    #[error("the handler wrote psp, or may have done so")]
    Written,
    /// The dumps are too large to search.
    #[error("the dumps are too large to be searched for its exception frame")]
    TooMuchMemory,
    /// Another core has no MSP and PSP, and debuggers use these registers for all cores or none.
    #[error("another core has no msp and psp, and debuggers use those of all cores or none")]
    OtherCores,
}
