//! The joins between snapshots and GDB's trace files, both ways.
//!
//! [`trace_file`] makes a trace file of a snapshot, [`snapshot`] a snapshot of a trace file.
//! `docs/trace-files.md` says what goes where. Knows no command line.

pub mod carrier;
pub mod code_paths;
pub mod exceptions;
pub mod executed;
pub mod frame_values;
pub mod history;
pub mod kept;
pub mod retrace;
pub mod safe_description;
pub mod snapshot;
pub mod state;
pub mod steps;
pub mod target;
pub mod trace_file;
pub mod trace_run;
pub mod with_trace;

use crate::mapped::{self, Mapped};
use crate::snapshot::write::WriteError;
use crate::tfile;
use std::io;
use std::path::Path;

/// Told how far work is: bytes done, and all bytes. Work of several stages begins anew with each.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Why nothing is converted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The input cannot be converted.
    #[error("{0}")]
    Input(String),
    /// What was asked for does not fit the input.
    #[error("{0}")]
    Usage(String),
    /// The snapshot cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Maps a trace file. Of one with large frames only the pages that are looked at are read.
/// What is no trace file is mapped too: reading it says why.
pub fn map_trace_file(path: &Path) -> io::Result<Mapped> {
    let bytes = mapped::map(path)?;
    bytes.read_ahead(false);
    let sparse = tfile::File::open(&bytes, None).is_ok_and(|file| file.is_sparse());
    bytes.read_ahead(!sparse);
    Ok(bytes)
}
