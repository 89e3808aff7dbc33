//! `armsnap mcp`: the Model Context Protocol on standard input and output, for assistants.

use super::serve::Selection;
use super::{Failure, SnapshotArguments};
use armsnap::mcp::serve;
use armsnap::server::Histories;
use armsnap::text::{Form, PlainStream};
use clap::Args;
use std::io::{self, BufReader, BufWriter};
use std::path::PathBuf;
use std::process::ExitCode;

/// The arguments of `mcp`.
#[derive(Args)]
pub struct Arguments {
    /// The snapshot. Nothing else is read.
    #[command(flatten)]
    snapshot: SnapshotArguments,
    /// Only this core (repeatable). Default: all cores
    #[arg(long, value_name = "NAME")]
    core: Vec<String>,
    /// A program that the cores run. Default: an ELF file in the snapshot's directory that
    /// matches the dumps.
    #[arg(long, value_name = "FILE")]
    elf: Vec<PathBuf>,
}

/// Answers a client until its input ends.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let selection = Selection::of(&arguments.core, &arguments.elf);
    let endpoints = selection.endpoints(&arguments.snapshot)?;
    let mut histories: Vec<Histories> = endpoints.into_iter().map(Histories::new).collect();
    let out = PlainStream::new(BufWriter::new(io::stdout()), Form::Json);
    serve(&mut histories, BufReader::new(io::stdin()), out)?;
    Ok(ExitCode::SUCCESS)
}
