//! `armsnap check`: what is wrong, missing or odd in a snapshot.

use super::{Failure, SnapshotArguments};
use armsnap::snapshot::check::check;
use armsnap::snapshot::model::Severity;
use clap::Args;
use std::io::{BufWriter, Write, stdout};
use std::process::ExitCode;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    snapshot: SnapshotArguments,
    /// Print the findings as a JSON array
    #[arg(long)]
    json: bool,
}

/// Prints a line for every finding. Errors make it fail, warnings alone do not.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let loaded = arguments.snapshot.load()?;
    let findings = check(&loaded);
    let mut out = BufWriter::new(stdout().lock());
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &findings).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        for finding in &findings {
            writeln!(out, "{finding}")?;
        }
    }
    out.flush()?;
    let errors = findings.iter().any(|f| f.severity == Severity::Error);
    Ok(ExitCode::from(u8::from(errors)))
}
