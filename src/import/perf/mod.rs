//! `perf.data` of perf and simpleperf, with trace of CoreSight or TRBE.
//!
//! `file` takes the file apart, `recording` collects what its records say, `pieces` finds the
//! trace between a start and a stop of a trace unit, `snapshot` makes a snapshot of it.

mod contexts;
mod etm_info;
mod file;
mod inflate;
mod memory;
mod pieces;
mod processes;
mod recording;
mod snapshot;
mod units;

pub use file::is_perf_data;

use super::{ImportError, Imported, Options, imported};
use crate::mapped::Mapped;
use file::PerfFile;
use recording::Recording;
use std::path::Path;

/// Reads a `perf.data` file.
///
/// # Errors
///
/// If the file is faulty, or holds no trace that can be used.
pub fn import(path: &Path, options: &Options) -> Result<Imported, ImportError> {
    import_bytes(path, imported::map(path)?, options)
}

/// Reads the bytes of a `perf.data` file named `path`.
///
/// # Errors
///
/// If the file is faulty, or holds no trace that can be used.
pub fn import_bytes(
    path: &Path,
    bytes: Mapped,
    options: &Options,
) -> Result<Imported, ImportError> {
    let fault = |error| ImportError::input(path, error);
    let mut file = PerfFile::open(bytes).map_err(fault)?;
    let recording = Recording::read(&mut file).map_err(fault)?;
    snapshot::Snapshots::new(path, &file, &recording, options)?.imported()
}
