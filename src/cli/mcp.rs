//! `armsnap mcp`: the Model Context Protocol on standard input and output, for assistants.

use super::serve::CoresAndPrograms;
use super::{Failure, SnapshotArguments};
use armsnap::mcp::serve;
use armsnap::server::Histories;
use armsnap::text::{Form, PlainStream};
use clap::Args;
use std::io::{self, BufReader, BufWriter, Write};
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

/// Standard output. Once the client has closed it, there is nothing left to do, also if it does not
/// close the input, on which a thread waits.
struct Client(io::Stdout);

impl Client {
    fn ended<T>(result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            std::process::exit(0);
        }
        result
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::ended(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::ended(self.0.flush())
    }
}

/// Answers a client until its input ends, or it closes the output.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let selection = arguments.selection.selection();
    let endpoints = selection.endpoints(&arguments.snapshot)?;
    let mut histories: Vec<Histories> = endpoints.into_iter().map(Histories::new).collect();
    let out = PlainStream::new(BufWriter::new(Client(io::stdout())), Form::Json);
    serve(&mut histories, BufReader::new(io::stdin()), out)?;
    Ok(ExitCode::SUCCESS)
}
