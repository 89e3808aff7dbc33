//! Converts inputs other than snapshots to snapshots: `perf.data`, raw trace buffers, core files.
//!
//! Each reader returns an [`Imported`]: a model and its files, which can be opened in place or
//! written to a directory. Independent of debuggers and listings; trace is decoded only to tell
//! sources apart.

mod archive;
mod archived;
mod build_id;
mod claims;
pub mod core_file;
pub mod crash_catcher;
mod fields;
mod foreign;
mod images;
mod imported;
mod jitdump;
pub mod kernel_log;
mod lime;
mod memory;
pub mod minidump;
mod modules;
mod note;
mod options;
mod packed;
mod paths;
pub mod perf;
mod programs;
mod raw;
mod records;
pub mod tombstone;
mod unpacked;
mod wanted;
pub mod zephyr;

pub use build_id::BuildId;
pub use foreign::Foreign;
pub use imported::{ImportError, Imported};
pub use note::{
    CoreFileNote, CrashCatcherNote, CrashNote, FoundSource, ImageNote, KernelLogNote, MemoryForm,
    MinidumpNote, MtbNote, Note, PerfNote, RawNote, TarmacNote, TombstoneNote, TraceOf, ZephyrNote,
};
pub use options::{NamedProgram, Options};
pub use packed::{Format as PackedFormat, head as unpacked_head, map as unpacked};
pub use raw::import as import_raw;
pub use raw::tarmac::import_bytes as import_tarmac;
pub use wanted::Wanted;

use armsnap_snapshot::mapped::{self, Mapped};
use std::cell::OnceCell;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The number of bytes of a compressed log that are searched.
const SEARCHED: u64 = 64 << 20;

/// A kind of input that is recognised by its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// `perf.data` of perf or simpleperf.
    PerfData,
    /// A core file.
    CoreFile,
    /// A core dump of Zephyr.
    ZephyrDump,
    /// A tar archive of a snapshot.
    Archive,
    /// A minidump.
    Minidump,
    /// A dump of CrashCatcher.
    CrashCatcher,
    /// The log of a Linux kernel that failed.
    KernelLog,
    /// A tombstone of Android.
    Tombstone,
    /// A Tarmac trace.
    Tarmac,
    /// The description of a run that CMSIS-Debugger traced.
    CtraceRun,
}

/// Recognises an input by its contents; `None` if it is not of a kind that can be recognised.
pub fn recognise(path: &Path) -> Option<InputKind> {
    // A directory of `perf record --threads` or `--kcore`.
    let recorded = path.join(perf::DATA);
    let is_directory = path.is_dir() && !path.join(archived::ENTRY).exists();
    let first = if is_directory { &recorded } else { path };
    let (head, format) = packed::head(first, zephyr::HEAD).ok()?;
    if perf::is_perf_data(&head) {
        return Some(InputKind::PerfData);
    }
    if is_directory {
        return None;
    }
    if raw::tarmac::is_tarmac(&head) {
        return Some(InputKind::Tarmac);
    }
    let unpacked = OnceCell::new();
    let whole = || match format {
        None => mapped::map(first).ok(),
        Some(_) => {
            let read = || Mapped::from(packed::head(first, SEARCHED).unwrap_or_default().0);
            Some(unpacked.get_or_init(read).clone())
        }
    };
    if zephyr::is_zephyr_dump(&head) || zephyr::is_log(&head, whole) {
        return Some(InputKind::ZephyrDump);
    }
    if crash_catcher::is_dump(&head, whole) {
        return Some(InputKind::CrashCatcher);
    }
    if kernel_log::is_log(&head, whole) {
        return Some(InputKind::KernelLog);
    }
    if tombstone::is_tombstone(&head, whole) {
        return Some(InputKind::Tombstone);
    }
    if archive::is_tar(&head) {
        return archived::has_snapshot(first).then_some(InputKind::Archive);
    }
    if raw::ctrace::is_ctrace_run(&head) {
        return Some(InputKind::CtraceRun);
    }
    if minidump::is_minidump(&head) {
        return Some(InputKind::Minidump);
    }
    let is_core_file = core_file::is_core_file(&head) || core_file::is_system_file(&head);
    is_core_file.then_some(InputKind::CoreFile)
}

/// Reads an input that [`recognise`] recognises.
///
/// # Errors
///
/// If the input is faulty, or nothing in it can be used.
pub fn import(path: &Path, options: &Options) -> Result<Imported, ImportError> {
    match recognise(path) {
        Some(kind) => import_as(kind, path, options),
        None => Err(ImportError::input(
            path,
            match readable(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    "no such file or directory".to_owned()
                }
                Err(error) => error.to_string(),
                Ok(()) if let Some(foreign) = Foreign::of(path) => foreign.to_string(),
                Ok(()) => "is not an input that is known by its contents (perf.data, core file, \
                           core dump of Zephyr, minidump, dump of CrashCatcher, log of a Linux kernel, tombstone of Android, Tarmac trace, archive of a snapshot): --raw takes a trace buffer, --mtb and --memory an image of memory; a \
                           snapshot needs no import"
                    .to_owned(),
            },
        )),
    }
}

/// Reads an input of a kind that [`recognise`] returned for it: a compressed archive is searched
/// only once.
///
/// # Errors
///
/// If the input is faulty, or nothing in it can be used.
pub fn import_as(kind: InputKind, path: &Path, options: &Options) -> Result<Imported, ImportError> {
    let bytes = || imported::map_unpacked(path);
    match kind {
        InputKind::PerfData => perf::import(path, options),
        InputKind::CoreFile => core_file::import_bytes(path, bytes()?, options),
        InputKind::ZephyrDump => zephyr::import_bytes(path, bytes()?, options),
        InputKind::Archive => archived::import(path),
        InputKind::CrashCatcher => crash_catcher::import_bytes(path, bytes()?, options),
        InputKind::KernelLog => kernel_log::import_bytes(path, bytes()?, options),
        InputKind::Minidump => minidump::import_bytes(path, bytes()?, options),
        InputKind::Tombstone => tombstone::import_bytes(path, bytes()?, options),
        InputKind::Tarmac => raw::tarmac::import_bytes(path, bytes()?, options),
        InputKind::CtraceRun => raw::ctrace::import(path, options),
    }
}

/// Fails for a file or directory that cannot be read. Pipes and devices are not opened.
///
/// # Errors
///
/// If it does not exist, or may not be read.
pub fn readable(path: &Path) -> io::Result<()> {
    let there = path.metadata()?;
    if there.is_dir() {
        return std::fs::read_dir(path).map(|_| ());
    }
    match there.is_file() {
        true => mapped::open(path).map(|_| ()),
        false => Ok(()),
    }
}
