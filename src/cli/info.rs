//! `armsnap info`: what a snapshot holds.

use super::{Failure, SnapshotArguments};
use armsnap::report::info::{Info, text};
use clap::Args;
use std::io::{BufWriter, Write, stdout};
use std::process::ExitCode;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    snapshot: SnapshotArguments,
    /// Print everything as a JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the snapshot's contents; the reader's notes are a part of them.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let info = Info::new(&arguments.snapshot.load()?);
    let mut out = BufWriter::new(stdout().lock());
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &info).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", text::Text(&info))?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
