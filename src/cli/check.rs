//! `armsnap check`: reports errors, missing parts and oddities of a snapshot.

use super::listing::Lines;
use super::{Failure, ReportArguments};
use armsnap::check::check;
use armsnap::snapshot::model::Severity;
use std::process::ExitCode;

/// Prints a line for each finding. Fails if there are errors; warnings do not count.
pub fn run(arguments: &ReportArguments) -> Result<ExitCode, Failure> {
    let findings = check(&arguments.snapshot.load()?);
    let text: String = findings.iter().map(|found| format!("{found}\n")).collect();
    arguments.output.print(&findings, text, Lines::Findings)?;
    let errors = findings.iter().any(|f| f.severity == Severity::Error);
    Ok(ExitCode::from(u8::from(errors)))
}
