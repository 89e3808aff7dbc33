//! Notes on an import: what was assumed, inferred, or left out.

mod core_file;
mod crash_catcher;
mod kernel_log;
mod minidump;
mod perf;
mod raw;
mod tarmac;
mod tombstone;
mod zephyr;

pub use core_file::CoreFileNote;
pub use crash_catcher::CrashCatcherNote;
pub use kernel_log::KernelLogNote;
pub use minidump::MinidumpNote;
pub use perf::{PerfNote, TraceOf};
pub use raw::{CrashNote, FoundSource, MtbNote, RawNote};
pub use tarmac::TarmacNote;
pub use tombstone::TombstoneNote;
pub use zephyr::ZephyrNote;

use super::wanted::Wanted;
use armsnap_snapshot::text;
use std::path::PathBuf;

/// A note on an import.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// A file that was mapped is missing, or another one was found.
    #[error(transparent)]
    Image(#[from] ImageNote),
    /// A note on a core file.
    #[error(transparent)]
    CoreFile(#[from] CoreFileNote),
    /// A note on a dump of CrashCatcher.
    #[error(transparent)]
    CrashCatcher(#[from] CrashCatcherNote),
    /// A note on the log of a Linux kernel.
    #[error(transparent)]
    KernelLog(#[from] KernelLogNote),
    /// A note on a minidump.
    #[error(transparent)]
    Minidump(#[from] MinidumpNote),
    /// A note on `perf.data`.
    #[error(transparent)]
    Perf(#[from] PerfNote),
    /// A note on raw trace.
    #[error(transparent)]
    Raw(#[from] RawNote),
    /// Memory from a file that the user names.
    #[error(
        "{path}: {}: {} of memory in {}",
        .form.name(),
        text::count(*.bytes as u64, "byte"),
        text::count(*.runs as u64, "run")
    )]
    Memory {
        /// The file.
        path: PathBuf,
        /// Its form.
        form: MemoryForm,
        /// The number of bytes of memory.
        bytes: usize,
        /// The number of runs of addresses without gaps.
        runs: usize,
    },
    /// A position-independent program without an address is assumed to be loaded at 0.
    #[error(
        "{path}: is position-independent, and the input does not say where it was loaded: assumed at \
         0x0; armsnap import --elf {path}@ADDRESS gives the address of its lowest page"
    )]
    AtZero {
        /// The program.
        path: PathBuf,
    },
    /// A file of records has no end record.
    #[error("{path}: {} without an end record: the file may be cut short", .form.name())]
    NoEndRecord {
        /// The file.
        path: PathBuf,
        /// Its form.
        form: MemoryForm,
    },
    /// A file of records has lines after its end record.
    #[error("{path}: line {line} is the end record: the lines after it are left out")]
    AfterEndRecord {
        /// The file.
        path: PathBuf,
        /// The line of the end record.
        line: usize,
    },
    /// A note on a Tarmac trace.
    #[error(transparent)]
    Tarmac(#[from] TarmacNote),
    /// A note on a tombstone of Android.
    #[error(transparent)]
    Tombstone(#[from] TombstoneNote),
    /// A note on a core dump of Zephyr.
    #[error(transparent)]
    Zephyr(#[from] ZephyrNote),
}

impl From<MtbNote> for Note {
    fn from(note: MtbNote) -> Self {
        Self::Raw(RawNote::Mtb(note))
    }
}

/// The form of a file with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryForm {
    /// Intel HEX.
    IntelHex,
    /// Motorola S-records.
    SRecords,
    /// LiME.
    Lime,
    /// The parts of an ELF file.
    Elf,
    /// Raw bytes.
    Raw,
}

impl MemoryForm {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IntelHex => "Intel HEX",
            Self::SRecords => "S-records",
            Self::Lime => "LiME",
            Self::Elf => "ELF",
            Self::Raw => "raw bytes",
        }
    }
}

/// A note on files that were mapped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageNote {
    /// A file was not found.
    #[error("missing image: {0}")]
    Missing(Wanted),
    /// More files were not found.
    #[error("missing images: {count} more")]
    MoreMissing {
        /// Their number.
        count: usize,
    },
    /// The contents of missing files are not known; follows the missing files.
    #[error(
        "what missing images hold is not known, and their code is not decoded: --symfs DIR names \
         a directory that holds them"
    )]
    Consequence,
    /// The kernel's program that the user names cannot be read.
    #[error("{reason}")]
    UnreadableKernel {
        /// The file and the reason.
        reason: String,
    },
    /// The kernel's program that the user names is not the one that ran.
    #[error("{path}: is not the kernel that ran, {wanted}: it is not used")]
    OtherKernel {
        /// The program.
        path: PathBuf,
        /// The kernel that ran.
        wanted: Wanted,
    },
    /// A file that was found is not the one that was mapped.
    #[error("{path}: is not the file that was mapped as {wanted}: it is not used")]
    OtherFile {
        /// The file that was found.
        path: PathBuf,
        /// The one that was mapped.
        wanted: Wanted,
    },
    /// A compressed file that was found cannot be decompressed.
    #[error("{path}: cannot be unpacked: {reason}: it is not used")]
    Packed {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A program that the user named has a name other than that of the file that was mapped at its
    /// addresses.
    #[error("{path}: used as {wanted}, which was mapped at its addresses")]
    OtherName {
        /// The program.
        path: PathBuf,
        /// The file that was mapped.
        wanted: Wanted,
    },
    /// No mapping belongs to a program that the user named.
    #[error(
        "{path}: no mapping of the threads in the snapshot has its name or its build-id, so that \
         the input does not say where it was loaded; --elf takes a copy or a link with the name of \
         the file that was mapped"
    )]
    Unused {
        /// The program.
        path: PathBuf,
    },
}
