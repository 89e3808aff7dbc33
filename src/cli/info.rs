//! `armsnap info`: what a snapshot holds.

use super::{Failure, ReportArguments};
use armsnap::report::info::{Info, text};
use std::process::ExitCode;

/// Prints the snapshot's contents; the reader's notes are a part of them.
pub fn run(arguments: &ReportArguments) -> Result<ExitCode, Failure> {
    let info = Info::new(&arguments.snapshot.load()?);
    arguments.print(&info, text::Text(&info))?;
    Ok(ExitCode::SUCCESS)
}
