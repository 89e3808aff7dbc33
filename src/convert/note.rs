//! Notes on a conversion.

use crate::tfile;
use armsnap_arch::arch::{Architecture, DefaultRegisters, RegisterNote};
use armsnap_arch::quantity::Address;
use armsnap_history::decode;
use armsnap_history::recover::Limit;
use armsnap_snapshot::program::symbols::SymbolsError;
use armsnap_snapshot::snapshot::{MemoryNote, ProgramNote, model};
use armsnap_snapshot::text;
use std::path::PathBuf;

/// What a conversion assumed, left out, or created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// A note on the snapshot or its trace.
    #[error("{0}")]
    Snapshot(model::Note),
    /// A note on the decoded trace.
    #[error("{0}")]
    Decode(decode::Note),
    /// A note on what is read from a program.
    #[error("{0}")]
    Program(ProgramNote),
    /// A note on the description of the trace file.
    #[error("{0}")]
    TraceFile(tfile::Note),
    /// The last trace frame is truncated.
    #[error("{0}")]
    Cut(tfile::Error),
    /// The registers are GDB's defaults.
    #[error("{0}")]
    DefaultRegisters(DefaultRegisters),
    /// A note on a core.
    #[error("{name}: {note}")]
    Core {
        /// Its name.
        name: String,
        /// The note.
        note: CoreNote,
    },
    /// A block of a trace frame cannot be read.
    #[error(
        "trace frame {frame}: a block of type {:?} at byte {at} cannot be read: the rest of the \
         frame is left out",
        char::from(*.kind)
    )]
    UnreadableBlock {
        /// The number of the frame, from 0.
        frame: usize,
        /// The type of the block.
        kind: u8,
        /// Its offset in the frame.
        at: usize,
    },
    /// A trace frame has no registers.
    #[error(
        "trace frame {frame} has no registers{}",
        match .pc {
            None => "",
            Some(PcSource::Tracepoint) => ": pc is its tracepoint's address",
            Some(PcSource::Variable) => ": pc is $address",
        }
    )]
    NoRegisters {
        /// The number of the frame, from 0.
        frame: usize,
        /// What tells the PC.
        pc: Option<PcSource>,
    },
    /// The register block of a trace frame is too short.
    #[error(
        "trace frame {frame}: its register block ends before {missing} of {registers} registers"
    )]
    ShortRegisters {
        /// The number of the frame, from 0.
        frame: usize,
        /// The number of registers that are missing.
        missing: usize,
        /// The number of all registers.
        registers: usize,
    },
    /// A program provides no symbols.
    #[error("{program}: {error}")]
    Symbols {
        /// The program's file.
        program: PathBuf,
        /// The reason.
        error: SymbolsError,
    },
    /// A file of the snapshot is left out of the trace file.
    #[error("{file}: {fault}: it is left out of the trace file")]
    FileLeftOut {
        /// The file as written.
        file: String,
        /// The reason.
        fault: FileFault,
    },
    /// The snapshot has no core.
    #[error(
        "no device of class core: the trace file carries the snapshot but contains no state for GDB"
    )]
    NoCore,
    /// The snapshot has no trace.
    #[error("the snapshot has no trace")]
    NoTrace,
    /// No program is known.
    #[error("no program is known: perf will not find any code")]
    NoProgram,
    /// There are more parts of memory than a core file can contain.
    #[error("more than {limit} parts of memory: the rest is left out")]
    ManyParts {
        /// The maximum number of parts.
        limit: usize,
    },
    /// A 32-bit core file has no space for the memory from an address on.
    #[error("memory from {at:#x} on is left out: a 32-bit core file has no room for it")]
    Memory32 {
        /// The address.
        at: u64,
    },
    /// No frame contains the exception level.
    #[error("no frame contains the exception level: the trace assumes EL{level}")]
    AssumedLevel {
        /// The level.
        level: u8,
    },
    /// The carried trace is left out, because trace is generated from the frames.
    #[error("the carried trace is left out: the trace is made from the frames")]
    CarriedTrace,
    /// Frames were traced.
    #[error(
        "trace of {}, with {} between them",
        text::count(*.frames, "frame"),
        text::count(*.gaps, "gap")
    )]
    Traced {
        /// The number of frames.
        frames: u64,
        /// The number of gaps between them.
        gaps: u64,
    },
    /// Frames have no program counter or code.
    #[error("{frames} frames have no program counter or no code: --elf names a program")]
    Lost {
        /// Their number.
        frames: u64,
    },
    /// The search for paths between frames reached its limit.
    #[error("the search for paths between frames reached its limit")]
    SearchLimit,
}

impl Note {
    /// A note on a core.
    pub(super) fn of_core(name: &str, note: CoreNote) -> Self {
        Self::Core {
            name: name.to_owned(),
            note,
        }
    }
}

/// What tells the PC of a trace frame without registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcSource {
    /// The address of its tracepoint.
    Tracepoint,
    /// A variable.
    Variable,
}

/// Why a file of a snapshot cannot be carried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// It is outside the snapshot.
    #[error("lies outside the snapshot")]
    Outside,
    /// It cannot be read, for this reason.
    #[error("{0}")]
    Unreadable(String),
}

/// A note on a core.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoreNote {
    /// A note on its registers.
    #[error("{0}")]
    Registers(RegisterNote),
    /// A note on its memory.
    #[error("{0}")]
    Memory(MemoryNote),
    /// Its architecture is assumed.
    #[error("{} assumed, {from}", .architecture.name())]
    AssumedArchitecture {
        /// The architecture.
        architecture: Architecture,
        /// The reason.
        from: String,
    },
    /// Its registers are placeholders.
    #[error("the registers are placeholders, not machine state, and left out: {reason}")]
    Placeholders {
        /// The reason.
        reason: String,
    },
    /// Registers are unknown, and others are left out because of them.
    #[error("{}", not_known(.unknown, .left_out))]
    Unknown {
        /// The names of unknown registers.
        unknown: Vec<String>,
        /// The names of known ones that the trace file cannot contain.
        left_out: Vec<String>,
    },
    /// Past values are unknown.
    #[error("no values: {0}")]
    NoValues(NoValues),
    /// A limit on which past values are known.
    #[error("{0}")]
    Limit(Limit),
    /// Past values are known.
    #[error(
        "{frames} trace frames have values{}{}",
        among(*.last),
        if *.inferred {
            "; inferred ones are among them: --values=proved leaves these out"
        } else {
            ""
        }
    )]
    Values {
        /// The number of trace frames with values.
        frames: usize,
        /// The number of frames examined, counted from the end, if not all.
        last: Option<usize>,
        /// Whether they include inferred values.
        inferred: bool,
    },
    /// There are many tracepoints.
    #[error("{addresses} tracepoints: GDB's time to load them grows quadratically")]
    ManyAddresses {
        /// Their number.
        addresses: usize,
    },
    /// Only the last trace frames are written.
    #[error(
        "the last {kept} of {total} trace frames are written (up to {limit}{}): \
         --last, --from, --to choose others, --frames functions makes fewer",
        .addresses.map_or_else(String::new, |most| format!(", at up to {most} addresses"))
    )]
    LastFrames {
        /// The number of frames written.
        kept: u64,
        /// The total number of frames.
        total: u64,
        /// The maximum number of frames.
        limit: usize,
        /// The maximum number of distinct addresses in frames, if limited.
        addresses: Option<usize>,
    },
    /// GDB does not know the instruction set of trace frames.
    #[error(
        "without symbols GDB disassembles frames of the trace after: set arm fallback-mode thumb \
         (or arm), according to $thumb"
    )]
    InstructionSet,
    /// Memory of its dumps does not fit into trace frame 0.
    #[error(
        "{bytes} bytes of its dumps are not in trace frame 0: GDB reads frames of up to 2 GiB; \
         they are kept for converting back"
    )]
    DumpsLeftOut {
        /// The number of bytes.
        bytes: usize,
    },
    /// It is not in the core file.
    #[error("is not in the core file: it has no PC, or another architecture")]
    NotInCoreFile,
    /// The core file contains another core's memory, which differs.
    #[error("its memory at {at} is not in the core file, which has that of {core}")]
    OtherMemoryInCoreFile {
        /// The first address at which bytes differ or are missing.
        at: Address,
        /// The core that the memory belongs to.
        core: String,
    },
    /// A core file cannot contain some registers.
    #[error("left out, as a core file has no place for them: {}", list(.registers))]
    NoPlaceInCoreFile {
        /// Their names.
        registers: Vec<String>,
    },
    /// Some registers are unknown, and 0 in the core file.
    #[error("unknown, 0 in the core file: {}", .registers.join(", "))]
    ZeroInCoreFile {
        /// Their names.
        registers: Vec<String>,
    },
}

/// Why no past values are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoValues {
    /// The history of the core cannot be followed.
    #[error("its history cannot be followed")]
    NoHistory,
    /// The history differs from the trace frames.
    #[error("its history differs from its trace frames")]
    OtherHistory,
}

/// Which registers are unknown, and which are therefore left out.
fn not_known(unknown: &[String], left_out: &[String]) -> String {
    let unknown = list(unknown);
    if left_out.is_empty() {
        return format!("not known: {unknown}: GDB shows them as unavailable");
    }
    format!(
        "not known: {unknown}: a trace file cannot mark registers in between as unknown, so GDB \
         shows {} as unavailable too; they are kept for converting back",
        list(left_out)
    )
}

/// The number of frames that were examined, if not all.
fn among(last: Option<usize>) -> String {
    last.map_or_else(String::new, |last| format!(", among the last {last}"))
}

/// The first names, and the number of remaining ones.
fn list(names: &[String]) -> String {
    const LISTED: usize = 8;
    let (listed, more) = names.split_at(names.len().min(LISTED));
    let mut text = listed.join(", ");
    if !more.is_empty() {
        text += &format!(" and {} more", more.len());
    }
    text
}
