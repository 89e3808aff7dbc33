//! Notes on a conversion.

use crate::tfile;
use armsnap_arch::arch::{Architecture, DefaultRegisters, RegisterNote};
use armsnap_arch::quantity::Address;
use armsnap_history::decode;
use armsnap_history::recover::Limit;
use armsnap_snapshot::program::symbols::SymbolsError;
use armsnap_snapshot::snapshot::{MemoryNote, ProgramNote, model};
use armsnap_snapshot::text;
use std::fmt;
use std::path::PathBuf;

/// What a conversion assumed, left out, or created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A note on the snapshot or its trace.
    Snapshot(model::Note),
    /// A note on the decoded trace.
    Decode(decode::Note),
    /// A note on what is read from a program.
    Program(ProgramNote),
    /// A note on the description of the trace file.
    TraceFile(tfile::Note),
    /// The last trace frame is truncated.
    Cut(tfile::Error),
    /// The registers are GDB's defaults.
    DefaultRegisters(DefaultRegisters),
    /// A note on a core.
    Core {
        /// Its name.
        name: String,
        /// The note.
        note: CoreNote,
    },
    /// A block of a trace frame cannot be read, so the rest of the frame is left out.
    UnreadableBlock {
        /// The number of the frame, from 0.
        frame: usize,
        /// The type of the block.
        kind: u8,
        /// Its offset in the frame.
        at: usize,
    },
    /// A trace frame has no registers.
    NoRegisters {
        /// The number of the frame, from 0.
        frame: usize,
        /// Whether the tracepoint's address is known, which is then the PC.
        has_address: bool,
    },
    /// The register block of a trace frame is too short.
    ShortRegisters {
        /// The number of the frame, from 0.
        frame: usize,
        /// The number of registers that are missing.
        missing: usize,
        /// The number of all registers.
        registers: usize,
    },
    /// A program provides no symbols.
    Symbols {
        /// The program's file.
        program: PathBuf,
        /// The reason.
        error: SymbolsError,
    },
    /// A file of the snapshot is left out of the trace file.
    FileLeftOut {
        /// The file as written.
        file: String,
        /// The reason.
        fault: FileFault,
    },
    /// The snapshot has no core, so the trace file contains no state.
    NoCore,
    /// The snapshot has no trace.
    NoTrace,
    /// No program is known, so perf will not find any code.
    NoProgram,
    /// There are more parts of memory than a core file can contain; the remaining ones are left
    /// out.
    ManyParts {
        /// The maximum number of parts.
        limit: usize,
    },
    /// A 32-bit core file has no space for the memory from an address on.
    Memory32 {
        /// The address.
        at: u64,
    },
    /// No frame contains the exception level; one is assumed.
    AssumedLevel {
        /// The level.
        level: u8,
    },
    /// The carried trace is left out, because trace is generated from the frames.
    CarriedTrace,
    /// Frames were traced.
    Traced {
        /// The number of frames.
        frames: u64,
        /// The number of gaps between them.
        gaps: u64,
    },
    /// Frames have no program counter or code.
    Lost {
        /// Their number.
        frames: u64,
    },
    /// The search for paths between frames reached its limit.
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

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(note) => note.fmt(f),
            Self::Decode(note) => note.fmt(f),
            Self::Program(note) => note.fmt(f),
            Self::TraceFile(note) => note.fmt(f),
            Self::Cut(error) => error.fmt(f),
            Self::DefaultRegisters(note) => note.fmt(f),
            Self::Core { name, note } => write!(f, "{name}: {note}"),
            Self::UnreadableBlock { frame, kind, at } => write!(
                f,
                "trace frame {frame}: a block of type {:?} at byte {at} cannot be read: the rest of \
                 the frame is left out",
                char::from(*kind)
            ),
            Self::NoRegisters {
                frame,
                has_address: true,
            } => write!(
                f,
                "trace frame {frame} has no registers: pc is its tracepoint's address"
            ),
            Self::NoRegisters {
                frame,
                has_address: false,
            } => write!(f, "trace frame {frame} has no registers"),
            Self::ShortRegisters {
                frame,
                missing,
                registers,
            } => write!(
                f,
                "trace frame {frame}: its register block ends before {missing} of {registers} \
                 registers"
            ),
            Self::Symbols { program, error } => write!(f, "{}: {error}", program.display()),
            Self::FileLeftOut { file, fault } => {
                write!(f, "{file}: {fault}: it is left out of the trace file")
            }
            Self::NoCore => f.write_str(
                "no device of class core: the trace file carries the snapshot but contains no \
                 state for GDB",
            ),
            Self::NoTrace => f.write_str("the snapshot has no trace"),
            Self::NoProgram => f.write_str("no program is known: perf will not find any code"),
            Self::ManyParts { limit } => {
                write!(f, "more than {limit} parts of memory: the rest is left out")
            }
            Self::Memory32 { at } => write!(
                f,
                "memory from {at:#x} on is left out: a 32-bit core file has no room for it"
            ),
            Self::AssumedLevel { level } => write!(
                f,
                "no frame contains the exception level: the trace assumes EL{level}"
            ),
            Self::CarriedTrace => {
                f.write_str("the carried trace is left out: the trace is made from the frames")
            }
            Self::Traced { frames, gaps } => {
                let (frames, gaps) = (text::count(*frames, "frame"), text::count(*gaps, "gap"));
                write!(f, "trace of {frames}, with {gaps} between them")
            }
            Self::Lost { frames } => write!(
                f,
                "{frames} frames have no program counter or no code: --elf names a program"
            ),
            Self::SearchLimit => {
                f.write_str("the search for paths between frames reached its limit")
            }
        }
    }
}

/// Why a file of a snapshot cannot be carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileFault {
    /// It is outside the snapshot.
    Outside,
    /// It cannot be read: the reason.
    Unreadable(String),
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outside => "lies outside the snapshot",
            Self::Unreadable(reason) => reason,
        })
    }
}

/// A note on a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreNote {
    /// A note on its registers.
    Registers(RegisterNote),
    /// A note on its memory.
    Memory(MemoryNote),
    /// Its architecture is assumed.
    AssumedArchitecture {
        /// The architecture.
        architecture: Architecture,
        /// The reason.
        from: String,
    },
    /// Its registers are placeholders, and left out.
    Placeholders {
        /// The reason.
        reason: String,
    },
    /// Registers are unknown, and others are left out because of them.
    Unknown {
        /// The names of unknown registers.
        unknown: Vec<String>,
        /// The names of known ones that the trace file cannot contain.
        left_out: Vec<String>,
    },
    /// Past values are unknown.
    NoValues(NoValues),
    /// A limit on which past values are known.
    Limit(Limit),
    /// Past values are known.
    Values {
        /// The number of trace frames with values.
        frames: usize,
        /// The number of frames examined, counted from the end, if not all.
        last: Option<usize>,
        /// Whether they include inferred values.
        inferred: bool,
    },
    /// There are many tracepoints, so GDB takes long to load them.
    ManyAddresses {
        /// Their number.
        addresses: usize,
    },
    /// Only the last trace frames are written.
    LastFrames {
        /// The number of frames written.
        kept: u64,
        /// The total number of frames.
        total: u64,
        /// The maximum number of frames.
        limit: usize,
        /// The maximum number of distinct addresses in frames.
        addresses: usize,
    },
    /// GDB does not know the instruction set of trace frames.
    InstructionSet,
    /// Memory of its dumps does not fit into trace frame 0.
    DumpsLeftOut {
        /// The number of bytes.
        bytes: usize,
    },
    /// It is not in the core file.
    NotInCoreFile,
    /// The core file contains another core's memory, which differs.
    OtherMemoryInCoreFile {
        /// The first address at which bytes differ or are missing.
        at: Address,
        /// The core that the memory belongs to.
        core: String,
    },
    /// A core file cannot contain some registers.
    NoPlaceInCoreFile {
        /// Their names.
        registers: Vec<String>,
    },
    /// Some registers are unknown, and 0 in the core file.
    ZeroInCoreFile {
        /// Their names.
        registers: Vec<String>,
    },
}

/// Why no past values are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoValues {
    /// The history of the core cannot be followed.
    NoHistory,
    /// The history differs from the trace frames.
    OtherHistory,
}

impl fmt::Display for CoreNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registers(note) => note.fmt(f),
            Self::Memory(note) => note.fmt(f),
            Self::AssumedArchitecture { architecture, from } => {
                write!(f, "{} assumed, {from}", architecture.name())
            }
            Self::Placeholders { reason } => write!(
                f,
                "the registers are placeholders, not machine state, and left out: {reason}"
            ),
            Self::Unknown { unknown, left_out } if left_out.is_empty() => write!(
                f,
                "not known: {}: GDB shows them as unavailable",
                list(unknown)
            ),
            Self::Unknown { unknown, left_out } => write!(
                f,
                "not known: {}: a trace file cannot mark registers in between as unknown, so GDB \
                 shows {} as unavailable too; they are kept for converting back",
                list(unknown),
                list(left_out)
            ),
            Self::Limit(limit) => limit.fmt(f),
            Self::NoValues(NoValues::NoHistory) => {
                f.write_str("no values: its history cannot be followed")
            }
            Self::NoValues(NoValues::OtherHistory) => {
                f.write_str("no values: its history differs from its trace frames")
            }
            Self::Values {
                frames,
                last,
                inferred,
            } => {
                write!(f, "{frames} trace frames have values")?;
                if let Some(last) = last {
                    write!(f, ", among the last {last}")?;
                }
                f.write_str(match inferred {
                    true => "; inferred ones are among them: --values=proved leaves these out",
                    false => "",
                })
            }
            Self::ManyAddresses { addresses } => write!(
                f,
                "{addresses} tracepoints: GDB's time to load them grows quadratically"
            ),
            Self::LastFrames {
                kept,
                total,
                limit,
                addresses,
            } => write!(
                f,
                "the last {kept} of {total} trace frames are written (up to {limit}, at up to \
                 {addresses} addresses): --last, --from, --to choose others, --frames functions \
                 makes fewer"
            ),
            Self::InstructionSet => f.write_str(
                "without symbols GDB disassembles frames of the trace after: set arm \
                 fallback-mode thumb (or arm), according to $thumb",
            ),
            Self::DumpsLeftOut { bytes } => write!(
                f,
                "{bytes} bytes of its dumps are not in trace frame 0: GDB reads frames of up to 2 \
                 GiB; they are kept for converting back"
            ),
            Self::NotInCoreFile => {
                f.write_str("is not in the core file: it has no PC, or another architecture")
            }
            Self::OtherMemoryInCoreFile { at, core } => write!(
                f,
                "its memory at {at} is not in the core file, which has that of {core}"
            ),
            Self::NoPlaceInCoreFile { registers } => write!(
                f,
                "left out, as a core file has no place for them: {}",
                list(registers)
            ),
            Self::ZeroInCoreFile { registers } => {
                write!(f, "unknown, 0 in the core file: {}", registers.join(", "))
            }
        }
    }
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
