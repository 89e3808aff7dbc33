//! Trace buffers as they were read from the hardware, with what is known of the trace units.
//!
//! [`units`] collects the trace units: registers given by the user, or files of Linux' sysfs.
//! [`form`] finds out how a buffer is formatted and which trace is in it. [`snapshot`] joins them.

mod form;
mod snapshot;
mod units;

use super::{ImportError, Imported, Options, imported};
use snapshot::RawSnapshot;
use std::path::PathBuf;

/// Makes a snapshot of raw buffers, or of memory alone.
///
/// # Errors
///
/// If a file cannot be read, or no trace is found in a buffer.
pub fn import(buffers: &[PathBuf], options: &Options) -> Result<Imported, ImportError> {
    let units = units::units(options)?;
    let mut out = RawSnapshot::new(units, options)?;
    for path in buffers {
        out.buffer(path, imported::map(path)?)?;
    }
    out.imported()
}
