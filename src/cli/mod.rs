//! Arguments → one call each; printing. A file for every subcommand.
//!
//! Results go to standard output, everything else to standard error. Exit status: 0 done, 1 the
//! input is at fault, 2 wrong usage.

mod arch;
mod check;
mod convert;
mod decode;
mod gdb;
mod info;
mod output;
mod progress;
mod quote;
mod record;
mod serve;

use armsnap::mapped;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{self, Loaded, OpenOptions};
use armsnap::text::{self, Form, PlainStream};
use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Judge a snapshot by the specification of its format
    Check(ReportArguments),
    /// Tell what a snapshot holds: devices, registers, memory, trace
    Info(ReportArguments),
    /// Serve a snapshot to GDB or LLDB
    Serve(serve::Arguments),
    /// Start GDB on a snapshot
    Gdb(gdb::Arguments),
    /// Print the Python file with GDB's armsnap commands, for `source` in a GDB that runs
    /// already; `armsnap gdb` has them
    GdbCommands,
    /// Decode the trace of a snapshot
    Decode(decode::Arguments),
    /// Convert a snapshot into a GDB trace file, or a trace file into a snapshot
    Convert(convert::Arguments),
    /// Run a program in an emulator, and save how it ends as a snapshot with trace
    Record(record::Arguments),
}

/// The snapshot that a subcommand works on.
#[derive(Args)]
pub struct SnapshotArguments {
    /// A directory that holds snapshot.ini, or the path of a snapshot.ini
    pub snapshot: PathBuf,
    /// Follow paths that lead out of the snapshot's directory
    #[arg(long)]
    pub allow_outside: bool,
    /// Where a core has no dump and no program, do not take the memory of another core of its
    /// architecture
    #[arg(long)]
    pub no_shared_memory: bool,
}

impl SnapshotArguments {
    /// Opens it without telling its notes.
    pub fn load(&self) -> Result<Loaded, Failure> {
        let options = OpenOptions {
            allow_outside: self.allow_outside,
            no_shared_memory: self.no_shared_memory,
        };
        Ok(Snapshot::open(&self.snapshot, &options)?)
    }

    /// Opens it; notes go to standard error.
    pub fn open(&self) -> Result<Loaded, Failure> {
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
    /// Prints a report as asked for.
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

/// Prints a message on standard error. All messages go through here: there may be text from
/// outside in each.
pub fn say(message: impl Display) {
    eprintln!("{}", text::lines(&message.to_string()));
}

/// Prints notes, a line each.
pub fn tell(notes: &[impl std::fmt::Display]) {
    for note in notes {
        say(text::one_line(&note.to_string()));
    }
}

/// Why a subcommand did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The snapshot cannot be used.
    #[error(transparent)]
    Snapshot(#[from] snapshot::Error),
    /// The input does not allow it.
    #[error("{0}")]
    Input(String),
    /// The arguments do not fit the snapshot.
    #[error("{0}")]
    Usage(String),
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The arguments. Wrong usage ends here with status 2.
fn parse() -> Arguments {
    Arguments::try_parse().unwrap_or_else(|error| {
        let shown = error.render().to_string();
        if shown == text::lines(&shown) {
            // In colours, if it likes.
            error.exit();
        }
        say(shown.trim_end());
        std::process::exit(error.exit_code())
    })
}

/// Ctrl-C, termination and hanging up end the program as they would anyway, without leaving
/// files that are not whole.
fn clean_up_on_signals() -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    // What was ignored stays ignored (`nohup`).
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let heeded = |signal: &i32| ignored.unwrap_or(0) >> (signal - 1) & 1 == 0;
    let heeded = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(heeded);
    let mut signals = signal_hook::iterator::Signals::new(heeded)?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            armsnap::leftovers::remove_all();
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
    Ok(())
}

/// Runs the subcommand that the arguments name.
pub fn run() -> ExitCode {
    let command = parse().command;
    if matches!(command, Command::Decode(_) | Command::Convert(_))
        && let Err(error) = clean_up_on_signals()
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
        Command::Record(arguments) => record::run(&arguments),
    };
    // What was told of a file that shrank meanwhile is not to be believed.
    match done.and_then(|status| Ok(mapped::whole().map(|()| status)?)) {
        Ok(status) => status,
        // Who reads our output has seen enough (`armsnap … | head`).
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
