//! Notes on a recording.

use armsnap_snapshot::snapshot::CodeNote;
use armsnap_snapshot::text;
use std::ops::Range;

/// What a recording leaves out, or reports about the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// Threads were running while the program exited.
    #[error(
        "{} running while the program exited: of their registers only PC is known",
        were_threads(*.threads)
    )]
    RunningThreads {
        /// Their number.
        threads: usize,
    },
    /// Not all threads could be stopped.
    #[error("not all threads could be stopped: their registers may be from another moment")]
    NotAllStopped,
    /// The emulator failed while the program ran, or before its state was read.
    #[error(
        "{reason}: the recording has what was traced until then, and the code that was executed; \
         registers and memory at the end are missing, except PC at the last traced instruction"
    )]
    Lost {
        /// How it failed.
        reason: String,
    },
    /// A file of the recording is incomplete.
    #[error("{reason}: the end of the recording is missing")]
    Cut {
        /// Which file, and why.
        reason: String,
    },
    /// Cores or threads ended earlier.
    #[error(
        "{count} {unit} ended earlier: only PC is known of their registers, at their last \
         instruction"
    )]
    Ended {
        /// Their number.
        count: usize,
        /// The word for them: `cores` or `threads`.
        unit: &'static str,
    },
    /// Cores or threads were not traced because there are not enough trace IDs.
    #[error("{count} {unit} were not traced: there is no trace ID for more than {limit}")]
    Untraced {
        /// Their number.
        count: u64,
        /// The word for them: `cores` or `threads`.
        unit: &'static str,
        /// Maximum number of traced ones.
        limit: u32,
    },
    /// Processes that the program started, which are not recorded.
    #[error(
        "{} that the program started {} not recorded",
        text::count(*.count, "process"),
        if *.count == 1 { "is" } else { "are" }
    )]
    Children {
        /// Their number.
        count: u64,
    },
    /// The program was stopped by SIGILL on a processor without SVE.
    #[error("stopped by SIGILL: the processor has no SVE; `--cpu max` has it")]
    NoSve,
    /// Code changed while the trace was made.
    #[error("{0}")]
    ChangedCode(CodeNote),
    /// Memory was left out because all of it would be too much.
    #[error(
        "{bytes} bytes of memory are left out, at {}: all would be more than --memory {limit}",
        first_ranges(.ranges)
    )]
    MemoryLimit {
        /// The number of bytes left out.
        bytes: u64,
        /// Their addresses, the largest range first; ends are exclusive.
        ranges: Vec<Range<u64>>,
        /// Maximum number of bytes.
        limit: u64,
    },
    /// Memory was left out because not all of it belongs to the program.
    #[error(
        "memory at {:#x}-{:#x} is left out: not all of it belongs to the program",
        .range.start,
        .range.end.saturating_sub(1)
    )]
    MixedMemory {
        /// Its addresses; the end is exclusive.
        range: Range<u64>,
    },
    /// The emulator did not save memory.
    #[error("memory at {address:#x} is not saved: {reason}")]
    UnsavedMemory {
        /// The first address.
        address: u64,
        /// The emulator's message.
        reason: String,
    },
    /// The kernel has no symbols of its own.
    #[error("the kernel has no symbols of its own (kallsyms): names are not known")]
    NoKernelSymbols,
    /// The kernel did not start.
    #[error("the kernel did not start: where it would run is not known")]
    KernelNotStarted,
    /// The address at which the kernel runs.
    #[error(
        "the kernel runs at {text:#x}, {moved:#x} from where it was linked (KASLR); {symbols} \
         symbols from its own kallsyms"
    )]
    Kernel {
        /// The address of `_text`.
        text: u64,
        /// Its distance from the address at which it was linked.
        moved: u64,
        /// The number of its symbols.
        symbols: usize,
    },
    /// The names of modules are from their own symbol tables.
    #[error(
        "{functions} functions of {modules} modules are named by the modules' own symbol tables"
    )]
    ModuleNames {
        /// The number of modules.
        modules: usize,
        /// The number of their functions.
        functions: usize,
    },
    /// Names of modules are missing.
    #[error("names of the kernel's modules are missing: {reason}")]
    NoModules {
        /// The reason.
        reason: String,
    },
}

/// The number of threads, with a verb.
fn were_threads(threads: usize) -> String {
    match threads {
        1 => "1 thread was".to_owned(),
        more => format!("{more} threads were"),
    }
}

/// Lists the first ranges.
fn first_ranges(ranges: &[Range<u64>]) -> String {
    /// Maximum number of ranges listed.
    const LISTED: usize = 3;
    let listed = ranges.iter().take(LISTED);
    let listed =
        listed.map(|range| format!("{:#x}-{:#x}", range.start, range.end.saturating_sub(1)));
    let mut listed: Vec<String> = listed.collect();
    listed.extend((ranges.len() > LISTED).then(|| "…".to_owned()));
    listed.join(", ")
}
