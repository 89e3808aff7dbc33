//! Notes on a recording.

use armsnap_snapshot::snapshot::CodeNote;
use armsnap_snapshot::text;
use std::fmt;
use std::ops::Range;

/// What a recording leaves out, or reports about the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Threads were running while the program exited: only their PC is known.
    RunningThreads {
        /// Their number.
        threads: usize,
    },
    /// Not all threads could be stopped.
    NotAllStopped,
    /// The emulator failed while the program ran, or before its state was read.
    Lost {
        /// How it failed.
        reason: String,
    },
    /// A file of the recording is incomplete.
    Cut {
        /// Which file, and why.
        reason: String,
    },
    /// Cores or threads ended earlier: only their PC is known.
    Ended {
        /// Their number.
        count: usize,
        /// The word for them: `cores` or `threads`.
        unit: &'static str,
    },
    /// Cores or threads were not traced because there are not enough trace IDs.
    Untraced {
        /// Their number.
        count: u64,
        /// The word for them: `cores` or `threads`.
        unit: &'static str,
        /// Maximum number of traced ones.
        limit: u32,
    },
    /// Processes that the program started, which are not recorded.
    Children {
        /// Their number.
        count: u64,
    },
    /// The program was stopped by SIGILL on a processor without SVE.
    NoSve,
    /// Code changed while the trace was made.
    ChangedCode(CodeNote),
    /// Memory was left out because all of it would be too much.
    MemoryLimit {
        /// The number of bytes left out.
        bytes: u64,
        /// Their addresses, the largest range first; ends are exclusive.
        ranges: Vec<Range<u64>>,
        /// Maximum number of bytes.
        limit: u64,
    },
    /// Memory was left out because not all of it belongs to the program.
    MixedMemory {
        /// Its addresses; the end is exclusive.
        range: Range<u64>,
    },
    /// The emulator did not save memory.
    UnsavedMemory {
        /// The first address.
        address: u64,
        /// The emulator's message.
        reason: String,
    },
    /// The kernel has no symbols of its own.
    NoKernelSymbols,
    /// The kernel did not start, so its address is not known.
    KernelNotStarted,
    /// The address at which the kernel runs.
    Kernel {
        /// The address of `_text`.
        text: u64,
        /// Its distance from the address at which it was linked.
        moved: u64,
        /// The number of its symbols.
        symbols: usize,
    },
    /// The names of modules are from their own symbol tables.
    ModuleNames {
        /// The number of modules.
        modules: usize,
        /// The number of their functions.
        functions: usize,
    },
    /// Names of modules are missing.
    NoModules {
        /// The reason.
        reason: String,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunningThreads { threads } => {
                let threads = match threads {
                    1 => "1 thread was".to_owned(),
                    more => format!("{more} threads were"),
                };
                write!(
                    f,
                    "{threads} running while the program exited: of their registers only PC is \
                     known"
                )
            }
            Self::NotAllStopped => f.write_str(
                "not all threads could be stopped: their registers may be from another moment",
            ),
            Self::Lost { reason } => write!(
                f,
                "{reason}: the recording has what was traced until then, and the code that was executed; \
                 registers and memory at the end are missing, except PC at the last traced instruction"
            ),
            Self::Cut { reason } => write!(f, "{reason}: the end of the recording is missing"),
            Self::Ended { count, unit } => write!(
                f,
                "{count} {unit} ended earlier: only PC is known of their registers, at their last \
                 instruction"
            ),
            Self::Untraced { count, unit, limit } => write!(
                f,
                "{count} {unit} were not traced: there is no trace ID for more than {limit}"
            ),
            Self::Children { count } => {
                let are = if *count == 1 { "is" } else { "are" };
                let processes = text::count(*count, "process");
                write!(f, "{processes} that the program started {are} not recorded")
            }
            Self::NoSve => {
                f.write_str("stopped by SIGILL: the processor has no SVE; `--cpu max` has it")
            }
            Self::ChangedCode(note) => note.fmt(f),
            Self::MemoryLimit {
                bytes,
                ranges,
                limit,
            } => {
                /// Maximum number of ranges listed.
                const LISTED: usize = 3;
                let listed = ranges.iter().take(LISTED);
                let listed = listed
                    .map(|range| format!("{:#x}-{:#x}", range.start, range.end.saturating_sub(1)));
                let mut listed: Vec<String> = listed.collect();
                listed.extend((ranges.len() > LISTED).then(|| "…".to_owned()));
                write!(
                    f,
                    "{bytes} bytes of memory are left out, at {}: all would be more than --memory \
                     {limit}",
                    listed.join(", ")
                )
            }
            Self::MixedMemory { range } => write!(
                f,
                "memory at {:#x}-{:#x} is left out: not all of it belongs to the program",
                range.start,
                range.end.saturating_sub(1)
            ),
            Self::UnsavedMemory { address, reason } => {
                write!(f, "memory at {address:#x} is not saved: {reason}")
            }
            Self::NoKernelSymbols => {
                f.write_str("the kernel has no symbols of its own (kallsyms): names are not known")
            }
            Self::KernelNotStarted => {
                f.write_str("the kernel did not start: where it would run is not known")
            }
            Self::Kernel {
                text,
                moved,
                symbols,
            } => write!(
                f,
                "the kernel runs at {text:#x}, {moved:#x} from where it was linked (KASLR); \
                 {symbols} symbols from its own kallsyms"
            ),
            Self::ModuleNames { modules, functions } => write!(
                f,
                "{functions} functions of {modules} modules are named by the modules' own symbol \
                 tables"
            ),
            Self::NoModules { reason } => {
                write!(f, "names of the kernel's modules are missing: {reason}")
            }
        }
    }
}
