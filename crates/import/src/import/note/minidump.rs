//! Notes on minidumps.

use armsnap_snapshot::text;

/// A note on a minidump.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MinidumpNote {
    /// The exception is not a signal.
    #[error("{core}: exception {code:#x} at {address:#x}, for which the minidump was written")]
    Exception {
        /// The core with the thread.
        core: String,
        /// Its code.
        code: u32,
        /// Its address.
        address: u64,
    },
    /// Entries of a list are cut off, or beyond the limit.
    #[error("the minidump lists {entries} {what}, of which {used} are read")]
    CutList {
        /// The entries: `threads`, `modules` or `memory`.
        what: &'static str,
        /// Their number by the list.
        entries: u64,
        /// The number of those that are used.
        used: u64,
    },
    /// Parts of the memory are cut off.
    #[error(
        "{} of the memory cut off: the minidump is not whole",
        text::count(*.parts as u64, "part")
    )]
    CutMemory {
        /// Their number.
        parts: usize,
    },
    /// Parts of the memory are left out.
    #[error(
        "{} of the memory left out: there are more, or they have more bytes, than is in proportion",
        text::count(*.parts as u64, "part")
    )]
    MoreMemory {
        /// Their number.
        parts: usize,
    },
    /// There are too many threads and parts of memory.
    #[error(
        "the minidump has {} and {} of memory: the threads after the first {used} are left out",
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
    /// Threads have no registers, or in an unknown layout.
    #[error(
        "{} without known registers, such as thread {first}: they are not saved, or their layout is not known",
        text::count(*.threads as u64, "thread")
    )]
    NoRegisters {
        /// The number of threads.
        threads: usize,
        /// The number of the first of them.
        first: u32,
    },
    /// The modules are no ELF files.
    #[error(
        "{} in formats of another system: their code is known only as far as the minidump has it",
        text::count(*.count as u64, "module")
    )]
    OtherModules {
        /// Their number.
        count: usize,
    },
}
