//! Notes on a recording.

use armsnap_snapshot::snapshot::CodeNote;
use armsnap_snapshot::text;
use std::fmt;
use std::ops::Range;

/// What a recording leaves out, or reports about the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Threads were running while the program exited: only the PC is known of their registers.
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
    /// A file of the recording does not have all.
    Cut {
        /// Which, and why.
        reason: String,
    },
    /// Cores or threads ended earlier: only the PC is known of their registers.
    Ended {
        /// Their number.
        count: usize,
        /// The name for them: `cores` or `threads`.
        unit: &'static str,
    },
    /// Cores or threads were not traced, as there are not enough trace IDs.
    Untraced {
        /// Their number.
        count: u64,
        /// The name for them: `cores` or `threads`.
        unit: &'static str,
        /// The most that are traced.
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
    /// Memory is left out, because all would be too much.
    MemoryLimit {
        /// The number of bytes that are left out.
        bytes: u64,
        /// Their addresses, the largest range first; ends are the addresses after them.
        ranges: Vec<Range<u64>>,
        /// The most bytes.
        limit: u64,
    },
    /// Memory is left out, because not all of it belongs to the program.
    MixedMemory {
        /// Its addresses; the end is the address after it.
        range: Range<u64>,
    },
    /// The emulator does not save memory.
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
    /// Where the kernel runs.
    Kernel {
        /// The address of `_text`.
        text: u64,
        /// Its distance from where it was linked.
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
                /// The most ranges that are listed.
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
