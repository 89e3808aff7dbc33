//! `perf.data` of perf and simpleperf, with CoreSight or TRBE trace.
//!
//! `file` splits the file into records, `recording` collects their contents, `aux_traces` finds
//! the trace between each start and stop of a trace unit, and `snapshot` makes a snapshot of it.

mod aux_traces;
mod bytes;
mod contexts;
mod etm_info;
mod file;
mod inflate;
mod memory;
mod modules;
mod processes;
mod recording;
mod slices;
mod snapshot;
mod switches;
mod trace_ids;
mod units;

pub use file::is_perf_data;

use super::{ImportError, Imported, Options, imported};
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::paths::{self, PathError};
use bytes::Bytes;
use file::PerfFile;
use recording::Recording;
use std::path::{Path, PathBuf};

/// The first file in a directory that perf wrote; the names of the others have a number appended.
pub const DATA: &str = "data";
/// The kernel's memory in the same directory (`perf record --kcore`).
const KCORE: &str = "kcore_dir/kcore";
/// The maximum number of files: one for each CPU.
const MAX_FILES: usize = 1 << 13;

/// Reads a `perf.data` file.
///
/// # Errors
///
/// If the file is faulty, or contains no usable trace.
pub fn import(path: &Path, options: &Options) -> Result<Imported, ImportError> {
    if !path.is_dir() {
        return import_bytes(path, imported::map_unpacked(path)?, options);
    }
    let mut files = Vec::new();
    let others = (0..MAX_FILES).map(|number| format!("{DATA}.{number}"));
    for name in std::iter::once(DATA.to_owned()).chain(others) {
        let Some(file) = within(path, &name)? else {
            break;
        };
        files.push((file.clone(), imported::map(&file)?));
    }
    if files.is_empty() {
        imported::map(&path.join(DATA))?;
    }
    let kcore = within(path, KCORE)?;
    let kcore = kcore.map(|kcore| Elf::open(&kcore)).transpose()?;
    import_files(path, files, kcore, options)
}

/// The file with this name in the directory of a recording, if there is one. perf creates no links;
/// a link that points outside the directory would put any file of the user into the snapshot.
fn within(directory: &Path, name: &str) -> Result<Option<PathBuf>, ImportError> {
    let path = directory.join(name);
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    match paths::resolve(directory, name, false) {
        Ok(_) => Ok(Some(path)),
        Err(PathError::Outside) => Err(ImportError::input(
            &path,
            "is a link that leads out of the recording's directory: replace it with a copy of that file if you trust it",
        )),
        Err(error) => Err(ImportError::input(&path, error)),
    }
}

/// Reads a `perf.data` file from its bytes; `path` is its name.
///
/// # Errors
///
/// If the file is faulty, or contains no usable trace.
pub fn import_bytes(
    path: &Path,
    bytes: Mapped,
    options: &Options,
) -> Result<Imported, ImportError> {
    import_files(path, vec![(path.to_owned(), bytes)], None, options)
}

/// Reads files, the first of which contains the header; `kcore` is the kernel's memory.
fn import_files(
    path: &Path,
    files: Vec<(PathBuf, Mapped)>,
    kcore: Option<Elf>,
    options: &Options,
) -> Result<Imported, ImportError> {
    let mut opened: Vec<(PathBuf, PerfFile)> = Vec::new();
    for (path, bytes) in files {
        let file = match opened.first() {
            None => PerfFile::open(bytes).map_err(|error| ImportError::input(&path, error))?,
            Some((_, first)) => first.with_records(bytes),
        };
        opened.push((path, file));
    }
    let mut bytes = Bytes::default();
    let recording = Recording::read(&mut opened, &mut bytes)?;
    let piped = opened.iter().any(|(_, file)| file.piped);
    snapshot::Snapshots::new(path, (&bytes, piped), &recording, kcore, options)?.imported()
}
