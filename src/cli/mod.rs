//! The command line: a file for each subcommand.
//!
//! Results go to standard output, everything else to standard error. Exit status: 0 done, 1 the
//! input is faulty, 2 wrong usage.

mod arch;
mod check;
mod convert;
mod decode;
mod gdb;
mod import;
mod info;
mod output;
mod progress;
mod quote;
mod record;
mod serve;

use armsnap::mapped;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{self, OpenOptions, OpenSnapshot};
use armsnap::text::{self, Form, PlainStream};
use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(version, about, arg_required_else_help = true, max_term_width = 80)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check a snapshot against the specification of its format
    Check(ReportArguments),
    /// Show the contents of a snapshot: devices, registers, memory, trace
    Info(ReportArguments),
    /// Serve a snapshot to GDB or LLDB
    Serve(serve::Arguments),
    /// Start GDB on a snapshot
    Gdb(gdb::Arguments),
    /// Print the armsnap commands as a Python file for `source` in any GDB
    GdbCommands,
    /// Decode the trace of a snapshot
    Decode(decode::Arguments),
    /// Convert a snapshot into a GDB trace file, or a trace file into a snapshot
    Convert(convert::Arguments),
    /// Make a snapshot of a perf.data file, a core file, or raw trace buffers
    Import(import::Arguments),
    /// Run a program in an emulator and save a snapshot with trace where it stops
    Record(record::Arguments),
}

/// The snapshot that a subcommand works on.
#[derive(Args)]
pub struct SnapshotArguments {
    /// A directory that holds snapshot.ini, the path of a snapshot.ini, or an input that
    /// `armsnap import` reads
    pub snapshot: PathBuf,
    /// Follow paths that leave the snapshot's directory
    #[arg(long)]
    pub allow_outside: bool,
    /// Do not take memory from another core of the same architecture where a core has neither
    /// dump nor program
    #[arg(long)]
    pub no_shared_memory: bool,
    /// How an input that is not a snapshot is read.
    #[command(flatten)]
    pub import: import::ImportArguments,
}

impl SnapshotArguments {
    /// Opens the snapshot without printing its notes.
    pub fn load(&self) -> Result<OpenSnapshot, Failure> {
        let options = OpenOptions {
            allow_outside: self.allow_outside,
            no_shared_memory: self.no_shared_memory,
        };
        if armsnap::import::recognise(&self.snapshot).is_some() {
            let imported = armsnap::import::import(&self.snapshot, &self.import.options())?;
            return Ok(imported.open(&self.snapshot, &options)?);
        }
        if let Some(option) = self.import.given() {
            return Err(Failure::Usage(format!("{option}: the input is a snapshot")));
        }
        Ok(Snapshot::open(&self.snapshot, &options)?)
    }

    /// Opens the snapshot and prints its notes on standard error.
    pub fn open(&self) -> Result<OpenSnapshot, Failure> {
        let loaded = self.load()?;
        for note in &loaded.notes {
            say(note);
        }
        Ok(loaded)
    }
}

/// The arguments of a subcommand that reports on a snapshot.
#[derive(Args)]
pub struct ReportArguments {
    #[command(flatten)]
    snapshot: SnapshotArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ReportArguments {
    /// Prints a report as text or JSON.
    fn print(&self, report: &impl Serialize, text: impl Display) -> Result<(), Failure> {
        let form = if self.json { Form::Json } else { Form::Text };
        let mut out = BufWriter::new(PlainStream::new(io::stdout().lock(), form));
        if self.json {
            serde_json::to_writer_pretty(&mut out, report).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            write!(out, "{text}")?;
        }
        Ok(out.flush()?)
    }
}

/// Prints a message on standard error with control characters escaped. All messages are printed
/// here, because any of them may contain text from an input.
pub fn say(message: impl Display) {
    eprintln!("{}", text::lines(&message.to_string()));
}

/// Prints notes, one line each.
pub fn print_notes(notes: &[impl std::fmt::Display]) {
    for note in notes {
        say(text::one_line(&note.to_string()));
    }
}

/// Why a subcommand failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The snapshot cannot be used.
    #[error(transparent)]
    Snapshot(#[from] snapshot::Error),
    /// The input is faulty.
    #[error("{0}")]
    Input(String),
    /// The arguments do not fit the snapshot.
    #[error("{0}")]
    Usage(String),
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Parses the arguments. Wrong usage exits here with status 2.
fn parse() -> Arguments {
    Arguments::try_parse().unwrap_or_else(|error| {
        let shown = error.render().to_string();
        if shown == text::lines(&shown) {
            // Keeps clap's colours.
            error.exit();
        }
        say(shown.trim_end());
        std::process::exit(error.exit_code())
    })
}

/// Removes incomplete files on SIGINT, SIGTERM and SIGHUP before the signal ends the program.
fn clean_up_on_signals() -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    // Ignored signals stay ignored (`nohup`).
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let handled = |signal: &i32| ignored.unwrap_or(0) >> (signal - 1) & 1 == 0;
    let handled = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(handled);
    let mut signals = signal_hook::iterator::Signals::new(handled)?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            armsnap::leftovers::remove_all();
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
    Ok(())
}

/// Parses the arguments and runs the subcommand.
pub fn run() -> ExitCode {
    let command = parse().command;
    if matches!(
        command,
        Command::Decode(_) | Command::Convert(_) | Command::Import(_)
    ) && let Err(error) = clean_up_on_signals()
    {
        say(&error);
        return ExitCode::FAILURE;
    }
    let done = match command {
        Command::Check(arguments) => check::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Gdb(arguments) => gdb::run(&arguments),
        Command::GdbCommands => gdb::print_commands(),
        Command::Decode(arguments) => decode::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
    };
    // Results read from a file that shrank meanwhile are not valid.
    match done.and_then(|status| Ok(mapped::whole().map(|()| status)?)) {
        Ok(status) => status,
        // The reader of the output has closed it (`armsnap … | head`).
        Err(Failure::Io(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            say(&failure);
            ExitCode::from(match failure {
                Failure::Usage(_) => 2,
                _ => 1,
            })
        }
    }
}
