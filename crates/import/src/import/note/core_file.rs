//! Notes on core files.

use armsnap_snapshot::linux::vmcoreinfo::NoValue;
use armsnap_snapshot::text;
use std::fmt;
use std::path::PathBuf;

/// A note on a core file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreFileNote {
    /// The load address of a program was found by its entry point.
    Loaded {
        /// The program.
        path: PathBuf,
        /// The address at which it was loaded.
        address: u64,
        /// The address of its entry point there.
        entry: u64,
    },
    /// The core file lists no mapped files, and the user names no program.
    NoProgram,
    /// There are too many threads and parts of memory; only the first threads are used.
    ManyThreads {
        /// The number of threads.
        threads: usize,
        /// The number of parts of memory.
        parts: usize,
        /// The number of threads that are used.
        used: usize,
    },
    /// Notes of the file (`PT_NOTE`) are cut short and left out.
    CutNotes {
        /// Their number.
        count: usize,
    },
    /// There are too many threads or mapped files in the notes.
    ManyNotes {
        /// The number of threads that are left out.
        threads: u64,
        /// The number of mapped files that are left out.
        files: u64,
        /// The maximum number of each, which are used.
        limit: usize,
    },
    /// SME registers are left out.
    NoSme,
    /// Notes with thread state are left out.
    UnreadNotes {
        /// Their kinds.
        kinds: Vec<u32>,
    },
    /// The signal that ended the program.
    Ended {
        /// The core of the thread.
        core: String,
        /// The signal, and its cause.
        signal: String,
    },
    /// Parts of the memory are cut off.
    CutMemory {
        /// Their number.
        parts: usize,
    },
    /// Parts of the memory are left out because they share their bytes in the file with other
    /// parts.
    SharedMemory {
        /// Their number.
        parts: usize,
    },
    /// The release of the Linux kernel.
    Release {
        /// The core file.
        path: PathBuf,
        /// The release.
        release: String,
    },
    /// The CPU that panicked.
    Panicked {
        /// The core.
        core: String,
    },
    /// High addresses are translated by the kernel's table.
    KernelTable {
        /// Its physical address.
        address: u64,
        /// The number of address bits that are translated.
        bits: u32,
    },
    /// Virtual addresses are not translated.
    NotTranslated {
        /// The reason.
        reason: NoValue,
    },
    /// The offset of the kernel from its link address.
    KernelOffset {
        /// The offset.
        offset: u64,
    },
    /// The kernel's names come from its own symbol table.
    KernelNames {
        /// The number of its symbols.
        symbols: usize,
        /// The address of its image.
        text: u64,
    },
    /// The names of modules come from their own symbol tables.
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
    /// The kernel's program is not named, and its memory has no symbol table that can be read.
    NoKernel,
    /// The address of the kernel is not known, so its program is left out.
    UnplacedKernel,
}

impl fmt::Display for CoreFileNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loaded {
                path,
                address,
                entry,
            } => write!(
                f,
                "{}: loaded at {address:#x}, as its entry point was at {entry:#x}",
                path.display()
            ),
            Self::NoProgram => f.write_str(
                "the core file does not list the mapped files: --elf FILE names the program",
            ),
            Self::ManyThreads {
                threads,
                parts,
                used,
            } => write!(
                f,
                "the core file has {} and {} of memory: the threads after the first {used} are \
                 left out",
                text::count(*threads as u64, "thread"),
                text::count(*parts as u64, "part")
            ),
            Self::CutNotes { count } => write!(
                f,
                "{} of the core file cut short: left out",
                text::count(*count as u64, "note")
            ),
            Self::ManyNotes {
                threads,
                files,
                limit,
            } => write!(
                f,
                "{} and {} of the core file are left out: the first {limit} of each are used",
                text::count(*threads, "thread"),
                text::count(*files, "mapped file")
            ),
            Self::NoSme => f.write_str(
                "registers of SME in the core file (streaming vectors, ZA) are left out",
            ),
            Self::UnreadNotes { kinds } => {
                let kinds: Vec<String> = kinds.iter().map(|kind| format!("{kind:#x}")).collect();
                write!(
                    f,
                    "state of threads in notes of these kinds is left out: {}",
                    kinds.join(", ")
                )
            }
            Self::Ended { core, signal } => write!(f, "{core}: stopped by {signal}"),
            Self::CutMemory { parts } => write!(
                f,
                "{} of the memory cut off: the core file is not whole",
                text::count(*parts as u64, "part")
            ),
            Self::SharedMemory { parts } => write!(
                f,
                "{} of the memory left out: they have the bytes of others in the core file, which is \
                 out of proportion",
                text::count(*parts as u64, "part")
            ),
            Self::Release { path, release } => {
                write!(f, "{}: Linux {release}", path.display())
            }
            Self::KernelTable { address, bits } => write!(
                f,
                "the kernel's translation table is at physical {address:#x}: high addresses of \
                 {bits} bits are translated, addresses of processes are not"
            ),
            Self::NotTranslated { reason } => {
                write!(f, "virtual addresses are not translated: {reason}")
            }
            Self::KernelOffset { offset } => write!(
                f,
                "KERNELOFFSET: the kernel ran {offset:#x} above its link address"
            ),
            Self::KernelNames { symbols, text } => write!(
                f,
                "{symbols} symbols of the kernel at {text:#x} are from its own table (kallsyms); \
                 --vmlinux FILE gives source lines and types too"
            ),
            Self::ModuleNames { modules, functions } => write!(
                f,
                "the modules' own symbol tables name {} of {}",
                text::count(*functions as u64, "function"),
                text::count(*modules as u64, "module")
            ),
            Self::Panicked { core } => write!(f, "panic_cpu: {core} panicked: debuggers select it"),
            Self::NoModules { reason } => {
                write!(f, "names of the kernel's modules are missing: {reason}")
            }
            Self::NoKernel => f.write_str(
                "the kernel's memory has no table of its symbols (kallsyms) that can be read: \
                 --vmlinux FILE names its program",
            ),
            Self::UnplacedKernel => {
                f.write_str("where the kernel ran is not known: its program is left out")
            }
        }
    }
}
