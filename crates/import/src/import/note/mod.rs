//! Notes on an import: what was assumed, inferred, or left out.

mod core_file;
mod perf;
mod raw;
mod zephyr;

pub use core_file::CoreFileNote;
pub use perf::{PerfNote, TraceOf};
pub use raw::{CrashNote, FoundSource, MtbNote, RawNote};
pub use zephyr::ZephyrNote;

use super::wanted::Wanted;
use armsnap_snapshot::text;
use std::fmt;
use std::path::PathBuf;

/// A note on an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A file that was mapped is missing, or another one was found.
    Image(ImageNote),
    /// A note on a core file.
    CoreFile(CoreFileNote),
    /// A note on `perf.data`.
    Perf(PerfNote),
    /// A note on raw trace.
    Raw(RawNote),
    /// Memory from a file that the user names.
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
    AtZero {
        /// The program.
        path: PathBuf,
    },
    /// A file of records has no end record.
    NoEndRecord {
        /// The file.
        path: PathBuf,
        /// Its form.
        form: MemoryForm,
    },
    /// A file of records has lines after its end record.
    AfterEndRecord {
        /// The file.
        path: PathBuf,
        /// The line of the end record.
        line: usize,
    },
    /// A note on a core dump of Zephyr.
    Zephyr(ZephyrNote),
}

impl From<ImageNote> for Note {
    fn from(note: ImageNote) -> Self {
        Self::Image(note)
    }
}

impl From<CoreFileNote> for Note {
    fn from(note: CoreFileNote) -> Self {
        Self::CoreFile(note)
    }
}

impl From<PerfNote> for Note {
    fn from(note: PerfNote) -> Self {
        Self::Perf(note)
    }
}

impl From<RawNote> for Note {
    fn from(note: RawNote) -> Self {
        Self::Raw(note)
    }
}

impl From<ZephyrNote> for Note {
    fn from(note: ZephyrNote) -> Self {
        Self::Zephyr(note)
    }
}

impl From<MtbNote> for Note {
    fn from(note: MtbNote) -> Self {
        Self::Raw(RawNote::Mtb(note))
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(note) => note.fmt(f),
            Self::CoreFile(note) => note.fmt(f),
            Self::Perf(note) => note.fmt(f),
            Self::Raw(note) => note.fmt(f),
            Self::Memory {
                path,
                form,
                bytes,
                runs,
            } => write!(
                f,
                "{}: {}: {} of memory in {}",
                path.display(),
                form.name(),
                text::count(*bytes as u64, "byte"),
                text::count(*runs as u64, "run")
            ),
            Self::AtZero { path } => write!(
                f,
                "{0}: is position-independent, and the input does not say where it was loaded: \
                 assumed at 0x0; armsnap import --elf {0}@ADDRESS gives the address of its \
                 lowest page",
                path.display()
            ),
            Self::NoEndRecord { path, form } => write!(
                f,
                "{}: {} without an end record: the file may be cut short",
                path.display(),
                form.name()
            ),
            Self::AfterEndRecord { path, line } => write!(
                f,
                "{}: line {line} is the end record: the lines after it are left out",
                path.display()
            ),
            Self::Zephyr(note) => note.fmt(f),
        }
    }
}

/// The form of a file with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryForm {
    /// Intel HEX.
    IntelHex,
    /// LiME.
    SRecords,
    /// LiME.
    Lime,
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
            Self::Raw => "raw bytes",
        }
    }
}

/// A note on files that were mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageNote {
    /// A file was not found.
    Missing(Wanted),
    /// More files were not found.
    MoreMissing {
        /// Their number.
        count: usize,
    },
    /// The contents of missing files are not known; follows the missing files.
    Consequence,
    /// The kernel's program that the user names cannot be read.
    UnreadableKernel {
        /// The file and the reason.
        reason: String,
    },
    /// The kernel's program that the user names is not the one that ran, and is not used.
    OtherKernel {
        /// The program.
        path: PathBuf,
        /// The kernel that ran.
        wanted: Wanted,
    },
    /// A file that was found is not the one that was mapped, and is not used.
    OtherFile {
        /// The file that was found.
        path: PathBuf,
        /// The one that was mapped.
        wanted: Wanted,
    },
    /// A compressed file that was found cannot be decompressed, and is not used.
    Packed {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A program that the user named has a name other than that of the file that was mapped at its
    /// addresses.
    OtherName {
        /// The program.
        path: PathBuf,
        /// The file that was mapped.
        wanted: Wanted,
    },
    /// No mapping belongs to a program that the user named.
    Unused {
        /// The program.
        path: PathBuf,
    },
}

impl fmt::Display for ImageNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(wanted) => write!(f, "missing image: {wanted}"),
            Self::MoreMissing { count } => write!(f, "missing images: {count} more"),
            Self::Consequence => f.write_str(
                "what missing images hold is not known, and their code is not decoded: --symfs DIR \
                 names a directory that holds them",
            ),
            Self::UnreadableKernel { reason } => f.write_str(reason),
            Self::OtherKernel { path, wanted } => write!(
                f,
                "{}: is not the kernel that ran, {wanted}: it is not used",
                path.display()
            ),
            Self::OtherFile { path, wanted } => write!(
                f,
                "{}: is not the file that was mapped as {wanted}: it is not used",
                path.display()
            ),
            Self::Packed { path, reason } => write!(
                f,
                "{}: cannot be unpacked: {reason}: it is not used",
                path.display()
            ),
            Self::OtherName { path, wanted } => write!(
                f,
                "{}: used as {wanted}, which was mapped at its addresses",
                path.display()
            ),
            Self::Unused { path } => write!(
                f,
                "{}: no mapping of the threads in the snapshot has its name or its build-id, so that \
                 the input does not say where it was loaded; --elf takes a copy or a link with the \
                 name of the file that was mapped",
                path.display()
            ),
        }
    }
}
