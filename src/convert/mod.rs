//! Conversion between snapshots and GDB's trace files, in both directions.
//!
//! [`trace_file`] converts a snapshot to a trace file, [`snapshot`] a trace file to a snapshot.
//! `docs/trace-files.md` describes the mapping. Independent of the command line.

pub mod branch_stacks;
mod carrier;
pub mod chosen;
mod code_paths;
pub mod core_file;
pub mod definitions;
mod exceptions;
pub mod executed;
mod frame_values;
mod history;
pub mod kept;
mod note;
mod past;
pub mod perf_data;
mod retrace;
pub mod snapshot;
pub mod state;
mod steps;
pub mod trace_file;
pub mod trace_run;
pub mod with_trace;

use crate::tfile;
pub use armsnap_arch::arch::target::DescriptionError;
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::snapshot::write::WriteError;
use std::io;
use std::path::Path;

pub use carrier::{Carried, CarriedFiles, CarrierError};
pub use history::NoFlow;
pub use note::{CoreNote, FileFault, NoValues, Note, PcSource};

/// Receives progress: bytes done and bytes in total. Each stage of a conversion starts again at 0.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Why a conversion failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The input cannot be converted.
    #[error("{0}")]
    Input(String),
    /// The target description of the input cannot be used.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The carried snapshot is damaged.
    #[error("the carried snapshot cannot be read: {0}; --frame N converts a trace frame")]
    Carrier(#[from] CarrierError),
    /// A source does not trace a core.
    #[error(transparent)]
    NoFlow(#[from] NoFlow),
    /// The file is not a trace file.
    #[error(transparent)]
    TraceFile(#[from] tfile::Error),
    /// The options do not fit the input.
    #[error("{0}")]
    Usage(String),
    /// The snapshot cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Maps a trace file, which may be compressed. Only the accessed pages are read. Files of other kinds are mapped too: the
/// reader reports what is wrong with them.
///
/// # Errors
///
/// If the file cannot be mapped.
pub fn map_trace_file(path: &Path) -> io::Result<Mapped> {
    let bytes = armsnap_import::import::unpacked(path).map_err(io::Error::other)?;
    bytes.read_ahead(false);
    let sparse = tfile::File::open(&bytes, None).is_ok_and(|file| file.is_sparse());
    bytes.read_ahead(!sparse);
    Ok(bytes)
}
