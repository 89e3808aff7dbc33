//! `armsnap mcp`: the Model Context Protocol on standard input and output, for assistants.

use super::serve::CoresAndPrograms;
use super::{Failure, SnapshotArguments};
use armsnap::mcp::serve;
use armsnap::server::Histories;
use armsnap::text::{Form, PlainStream};
use clap::Args;
use std::io::{self, BufReader, BufWriter};
use std::process::ExitCode;

/// The arguments of `mcp`.
#[derive(Args)]
pub struct Arguments {
    /// The snapshot. Nothing else is read.
    #[command(flatten)]
    snapshot: SnapshotArguments,
    /// The cores and their programs.
    #[command(flatten)]
    selection: CoresAndPrograms,
}

/// Answers a client until its input ends.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let selection = arguments.selection.selection();
    let endpoints = selection.endpoints(&arguments.snapshot)?;
    let mut histories: Vec<Histories> = endpoints.into_iter().map(Histories::new).collect();
    let out = PlainStream::new(BufWriter::new(io::stdout()), Form::Json);
    serve(&mut histories, BufReader::new(io::stdin()), out)?;
    Ok(ExitCode::SUCCESS)
}
