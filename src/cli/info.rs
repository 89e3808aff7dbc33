//! `armsnap info`: prints the contents of a snapshot.

use super::listing::Lines;
use super::{Failure, ReportArguments};
use armsnap::report::info::{Info, text};
use std::process::ExitCode;

/// Prints the contents of a snapshot, including the reader's notes.
pub fn run(arguments: &ReportArguments) -> Result<ExitCode, Failure> {
    let info = Info::new(&arguments.snapshot.load()?);
    arguments
        .output
        .print(&info, text::Text(&info), Lines::Plain)?;
    Ok(ExitCode::SUCCESS)
}
