//! Notes on core files.

use armsnap_snapshot::linux::vmcoreinfo::NoValue;
use armsnap_snapshot::text;
use std::path::PathBuf;

/// A note on a core file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoreFileNote {
    /// The load address of a program was found by its entry point.
    #[error("{path}: loaded at {address:#x}, as its entry point was at {entry:#x}")]
    Loaded {
        /// The program.
        path: PathBuf,
        /// The address at which it was loaded.
        address: u64,
        /// The address of its entry point there.
        entry: u64,
    },
    /// The core file lists no mapped files, and the user names no program.
    #[error("the core file does not list the mapped files: --elf FILE names the program")]
    NoProgram,
    /// There are too many threads and parts of memory.
    #[error(
        "the core file has {} and {} of memory: the threads after the first {used} are left out",
        text::count(*.threads as u64, "thread"),
        text::count(*.parts as u64, "part")
    )]
    ManyThreads {
        /// The number of threads.
        threads: usize,
        /// The number of parts of memory.
        parts: usize,
        /// The number of threads that are used.
        used: usize,
    },
    /// Notes of the file (`PT_NOTE`) are cut short and left out.
    #[error("{} of the core file cut short: left out", text::count(*.count as u64, "note"))]
    CutNotes {
        /// Their number.
        count: usize,
    },
    /// There are too many threads or mapped files in the notes.
    #[error(
        "{} and {} of the core file are left out: the first {limit} of each are used",
        text::count(*.threads, "thread"),
        text::count(*.files, "mapped file")
    )]
    ManyNotes {
        /// The number of threads that are left out.
        threads: u64,
        /// The number of mapped files that are left out.
        files: u64,
        /// The maximum number of each, which are used.
        limit: usize,
    },
    /// SME registers are left out.
    #[error("registers of SME in the core file (streaming vectors, ZA) are left out")]
    NoSme,
    /// Notes with thread state are left out.
    #[error("state of threads in notes of these kinds is left out: {}", hexadecimal(.kinds))]
    UnreadNotes {
        /// Their kinds.
        kinds: Vec<u32>,
    },
    /// The signal that ended the program.
    #[error("{core}: stopped by {signal}")]
    Ended {
        /// The core of the thread.
        core: String,
        /// The signal, and its cause.
        signal: String,
    },
    /// Parts of the memory are cut off.
    #[error(
        "{} of the memory cut off: the core file is not whole",
        text::count(*.parts as u64, "part")
    )]
    CutMemory {
        /// Their number.
        parts: usize,
    },
    /// Parts of the memory are left out because they share their bytes in the file with other
    /// parts.
    #[error(
        "{} of the memory left out: they have the bytes of others in the core file, which is out \
         of proportion",
        text::count(*.parts as u64, "part")
    )]
    SharedMemory {
        /// Their number.
        parts: usize,
    },
    /// Pages were left out when a compressed core file was written.
    #[error(
        "makedumpfile left out {} of memory (dump level {level}): their contents are not known",
        text::count(*.pages, "page")
    )]
    FilteredPages {
        /// Their number.
        pages: u64,
        /// The dump level, which says what is left out.
        level: u32,
    },
    /// A split core file.
    #[error("split core file: {} read", text::count(*.files as u64, "file"))]
    SplitFiles {
        /// The number of its files.
        files: usize,
    },
    /// Files of a split core file are missing.
    #[error(
        "split core file: {} from physical {first:#x} on are in files that are not in this directory",
        text::count(*.pages, "page")
    )]
    PagesElsewhere {
        /// The number of pages.
        pages: u64,
        /// The physical address of the first one.
        first: u64,
    },
    /// Files beside a split core file are left out because their pages overlap.
    #[error(
        "split core file: {} left out, whose pages overlap those of another file in this directory",
        text::count(*.files as u64, "file")
    )]
    SplitOverlap {
        /// The number of files.
        files: usize,
    },
    /// The directory of a split core file has too many files.
    #[error(
        "split core file: the other files are looked for among {limit} files of its directory, \
         which has more"
    )]
    SplitBeside {
        /// The number of files that are looked at.
        limit: usize,
    },
    /// The notes of a compressed core file are too large.
    #[error(
        "{} of notes of the core file left out: the first {} MiB are used",
        text::count(*.left_out as u64, "byte"),
        used >> 20
    )]
    LargeNotes {
        /// The number of bytes that are left out.
        left_out: usize,
        /// The number of bytes that are used.
        used: usize,
    },
    /// Pages of a compressed core file are missing or damaged.
    #[error(
        "{} of memory missing or damaged in the file, the first one at physical {first:#x}: their \
         contents are not known",
        text::count(*.pages, "page")
    )]
    DamagedPages {
        /// Their number.
        pages: u64,
        /// The physical address of the first one.
        first: u64,
    },
    /// Pages of a compressed core file are in too many parts.
    #[error(
        "{} of memory left out, the first one at physical {first:#x}: in too many parts",
        text::count(*.pages, "page")
    )]
    PagesBeyond {
        /// Their number.
        pages: u64,
        /// The physical address of the first one.
        first: u64,
    },
    /// The release of the Linux kernel.
    #[error("{path}: Linux {release}")]
    Release {
        /// The core file.
        path: PathBuf,
        /// The release.
        release: String,
    },
    /// The CPU that panicked.
    #[error("panic_cpu: {core} panicked: debuggers select it")]
    Panicked {
        /// The core.
        core: String,
    },
    /// High addresses are translated by the kernel's table.
    #[error(
        "the kernel's translation table is at physical {address:#x}: high addresses of {bits} \
         bits are translated, addresses of processes are not"
    )]
    KernelTable {
        /// Its physical address.
        address: u64,
        /// The number of address bits that are translated.
        bits: u32,
    },
    /// Virtual addresses are not translated.
    #[error("virtual addresses are not translated: {reason}")]
    NotTranslated {
        /// The reason.
        reason: NoValue,
    },
    /// The offset of the kernel from its link address.
    #[error("KERNELOFFSET: the kernel ran {offset:#x} above its link address")]
    KernelOffset {
        /// The offset.
        offset: u64,
    },
    /// The kernel's names come from its own symbol table.
    #[error(
        "{symbols} symbols of the kernel at {text:#x} are from its own table (kallsyms); \
         --vmlinux FILE gives source lines and types too"
    )]
    KernelNames {
        /// The number of its symbols.
        symbols: usize,
        /// The address of its image.
        text: u64,
    },
    /// The names of modules come from their own symbol tables.
    #[error(
        "the modules' own symbol tables name {} of {}",
        text::count(*.functions as u64, "function"),
        text::count(*.modules as u64, "module")
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
    /// The kernel's program is not named, and its memory has no symbol table that can be read.
    #[error(
        "the kernel's memory has no table of its symbols (kallsyms) that can be read: --vmlinux \
         FILE names its program"
    )]
    NoKernel,
    /// The address of the kernel is not known.
    #[error("where the kernel ran is not known: its program is left out")]
    UnplacedKernel,
}

/// Lists the kinds of notes.
fn hexadecimal(kinds: &[u32]) -> String {
    let kinds: Vec<String> = kinds.iter().map(|kind| format!("{kind:#x}")).collect();
    kinds.join(", ")
}
