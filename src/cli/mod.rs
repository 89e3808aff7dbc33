//! The command line, with a file for each subcommand.
//!
//! Results go to standard output, everything else to standard error. Exit status: 0 done, 1 the
//! input is faulty, 2 wrong usage; `record` exits with that of its program, or 125.

mod analysis;
mod arch;
mod around;
mod ask;
mod check;
mod console;
mod convert;
mod dap;
mod decode;
mod demo;
mod diff;
mod doctor;
mod dwt;
mod examples;
mod explain;
mod export;
mod fault;
mod gdb;
mod generate;
mod import;
mod info;
mod listing;
mod may_write;
mod mcp;
mod output;
mod pager;
mod peripherals;
mod progress;
mod quote;
#[cfg(unix)]
mod record;
mod report;
mod serve;
mod shards;
mod signals;
mod software;
mod tool;

use armsnap::import::{Foreign, InputKind, NamedProgram, Note, RawNote};
use armsnap::mapped;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{self, OpenOptions, OpenSnapshot};
use armsnap::text::{self, Form, PlainStream};
use clap::{Args, CommandFactory, Parser, Subcommand};
use listing::{Colored, Lines};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
#[command(version, about, max_term_width = 80, after_help = examples::MAIN)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Check a snapshot against the specification of its format
    #[command(after_help = examples::CHECK)]
    Check(ReportArguments),
    /// Show the contents of a snapshot: devices, registers, memory, trace
    #[command(after_help = examples::INFO)]
    Info(ReportArguments),
    /// Say why cores faulted: their fault registers in words, the instruction, the address
    #[command(after_help = examples::FAULT)]
    Fault(fault::Arguments),
    /// Show registers of peripherals and their fields, by a description in CMSIS-SVD
    #[command(after_help = examples::PERIPHERALS)]
    Peripherals(peripherals::Arguments),
    /// Ask about the whole history: calls, accesses, values, and where a value came from
    ///
    /// The exit status is 0 with answers; 1 with none, and a message that says what is not known and why, or
    /// that the snapshot cannot be opened; 2 for a question that cannot be understood.
    #[command(after_help = examples::ASK)]
    Ask(ask::Arguments),
    /// Find where two recordings of a program first differ, and why
    ///
    /// The exit status is 0 if they are the same; 1 if they differ; 2 if they cannot be compared.
    #[command(after_help = examples::DIFF)]
    Diff(diff::Arguments),
    /// Serve a snapshot to GDB or LLDB
    #[command(after_help = examples::SERVE)]
    Serve(serve::Arguments),
    /// Start GDB on a snapshot
    #[command(after_help = examples::GDB)]
    Gdb(gdb::Arguments),
    /// Print the armsnap commands as a Python file that any GDB can source
    #[command(after_help = examples::GDB_COMMANDS)]
    GdbCommands(gdb::CommandsArguments),
    /// Decode the trace of a snapshot
    #[command(after_help = examples::DECODE)]
    Decode(decode::Arguments),
    /// Show the text that software wrote to an ITM or STM
    #[command(after_help = examples::CONSOLE)]
    Console(console::Arguments),
    /// Show what a DWT reported: exceptions, samples, data and counters
    #[command(after_help = examples::DWT)]
    Dwt(dwt::Arguments),
    /// Write coverage, profiles, timelines or tables of the trace of a snapshot
    #[command(after_help = examples::EXPORT)]
    Export(export::Arguments),
    /// Print as JSON how the trace of a snapshot is divided into shards
    #[command(after_help = examples::SHARDS)]
    Shards(shards::Arguments),
    /// Write a page with coverage, profile and timeline of the trace of a snapshot
    #[command(after_help = examples::REPORT)]
    Report(report::Arguments),
    /// Convert a snapshot into a GDB trace file, or a trace file into a snapshot
    #[command(after_help = examples::CONVERT)]
    Convert(convert::Arguments),
    /// Make a snapshot from a perf.data file, a core file, a minidump, a core dump of Zephyr, or
    /// raw trace buffers
    #[command(after_help = examples::IMPORT)]
    Import(import::Arguments),
    /// Run a program in an emulator and save a snapshot with trace where it stops
    ///
    /// The exit status is that of the program, or of an image that exits by semihosting; 128 plus the number
    /// of the signal that ended it; 0 if the recording ended first (--until, --instructions, Ctrl-C, or a
    /// machine that shut down); 125 if armsnap failed, with a message that says what was recorded and where.
    #[cfg(unix)]
    #[command(after_help = examples::RECORD)]
    Record(record::Arguments),
    /// Debug a snapshot in an editor: Debug Adapter Protocol on standard input and output
    #[command(after_help = examples::DAP)]
    Dap(gdb::Arguments),
    /// Answer an assistant: Model Context Protocol on standard input and output
    #[command(after_help = examples::MCP)]
    Mcp(mcp::Arguments),
    /// Walk backwards through a recorded crash in five steps
    #[command(after_help = examples::DEMO)]
    Demo(demo::Arguments),
    /// List the debuggers and emulators that are installed, and what to install
    #[command(after_help = examples::DOCTOR)]
    Doctor,
    /// Explain a message: what it means, and what to do
    #[command(after_help = examples::EXPLAIN)]
    Explain(explain::Arguments),
    /// Write man pages or completions, for packages
    #[command(hide = true)]
    Generate(generate::Arguments),
    /// Fail if a snapshot or a core file may not be written here, for armsnap's commands in GDB
    #[command(hide = true)]
    MayWrite(may_write::Arguments),
}

/// The snapshot that a subcommand works on.
#[derive(Args, Clone)]
pub struct SnapshotArguments {
    /// A directory with a snapshot.ini, the path of a snapshot.ini, or an input that `armsnap
    /// import` reads
    pub snapshot: PathBuf,
    /// Follow paths that leave the snapshot's directory
    #[arg(long)]
    pub allow_outside: bool,
    /// Do not use memory of another core of the same architecture where a core has neither dump nor
    /// program
    #[arg(long)]
    pub no_shared_memory: bool,
    /// How an input that is not a snapshot is read.
    #[command(flatten)]
    pub import: import::ImportArguments,
}

impl SnapshotArguments {
    /// Opens the snapshot without printing its notes.
    pub fn load(&self) -> Result<OpenSnapshot, Failure> {
        Ok(self.load_with(&[])?.0)
    }

    /// Like [`Self::load`], for a command that names programs. Also returns the programs that are
    /// still to be placed: an input of another format records where its own programs were loaded.
    pub fn load_with(&self, programs: &[PathBuf]) -> Result<(OpenSnapshot, Vec<PathBuf>), Failure> {
        let options = OpenOptions {
            allow_outside: self.allow_outside,
            no_shared_memory: self.no_shared_memory,
        };
        if let Some(kind) = there_is_an_input(&self.snapshot)? {
            let mut reading = self.import.options();
            reading.elf = programs.iter().cloned().map(NamedProgram::from).collect();
            let imported = armsnap::import::import_as(kind, &self.snapshot, &reading)?;
            // Opened files have absolute paths.
            let is_placed = |path: &&PathBuf| {
                let absolute = dunce::canonicalize(path);
                let opened = absolute.as_ref().unwrap_or(path);
                imported.origins.values().any(|used| used == opened)
            };
            let left = programs.iter().filter(|path| !is_placed(path)).cloned();
            let left = left.collect();
            return Ok((imported.open(&self.snapshot, &options)?, left));
        }
        // Faults in the input are more important than an option for other inputs.
        let loaded = Snapshot::open(&self.snapshot, &options)?;
        if let Some(option) = self.import.given() {
            return Err(Failure::Usage(format!("{option}: the input is a snapshot")));
        }
        Ok((loaded, programs.to_vec()))
    }

    /// Returns whether the input is a file that may hold nothing but trace: it is of no kind that is
    /// known by its contents or its name.
    pub fn is_raw(&self) -> bool {
        let path = &self.snapshot;
        let is_file = path.is_file() && path.extension().is_none_or(|extension| extension != "ini");
        is_file && armsnap::import::recognise(path).is_none() && Foreign::of(path).is_none()
    }

    /// Opens the snapshot without printing its notes, or a file that holds nothing but trace, of
    /// which only what was found is noted. Also returns the number of bytes before its first frame,
    /// which are left out.
    pub fn load_or_raw(&self) -> Result<(OpenSnapshot, usize), Failure> {
        if !self.is_raw() {
            return Ok((self.load()?, 0));
        }
        let buffers = [self.snapshot.clone()];
        let mut imported = armsnap::import::import_raw(None, &buffers, &self.import.options())?;
        let is_found = |note: &Note| matches!(note, Note::Raw(RawNote::Found { .. }));
        imported.notes.retain(is_found);
        print_notes(&imported.notes);
        let skipped = imported.notes.iter().find_map(|note| match note {
            Note::Raw(RawNote::Found { from, .. }) => Some(*from),
            _ => None,
        });
        let options = OpenOptions {
            allow_outside: self.allow_outside,
            no_shared_memory: self.no_shared_memory,
        };
        imported.notes.clear();
        let loaded = imported.open(&self.snapshot, &options)?;
        Ok((loaded, skipped.unwrap_or(0)))
    }

    /// Opens the snapshot like [`Self::load_with`] and prints its notes on standard error.
    pub fn open_with(&self, programs: &[PathBuf]) -> Result<(OpenSnapshot, Vec<PathBuf>), Failure> {
        let (loaded, left) = self.load_with(programs)?;
        for note in &loaded.notes {
            say(note);
        }
        Ok((loaded, left))
    }
}

/// The kind of an input that is recognised by its contents; `None` for a snapshot. Fails for a path
/// that cannot be an input, or that cannot be read.
fn there_is_an_input(path: &Path) -> Result<Option<InputKind>, Failure> {
    const ALONE: &str = "armsnap without arguments lists the inputs of the current directory";
    let shown = path.display();
    let input = |text: &str| Failure::Input(format!("{shown}: {text}"));
    let is_directory = match path.metadata() {
        Ok(there) => there.is_dir(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(input(&format!("no such file or directory; {ALONE}")));
        }
        Err(error) => return Err(input(&error.to_string())),
    };
    if let Some(kind) = armsnap::import::recognise(path) {
        return Ok(Some(kind));
    }
    let is_snapshot = is_directory && path.join("snapshot.ini").symlink_metadata().is_ok();
    if let Some(foreign) = Foreign::of(path).filter(|_| !is_snapshot) {
        return Err(input(&foreign.to_string()));
    }
    if !is_directory {
        return match around::elf(path) {
            Some(true) => Err(input(&format!(
                "is a program, not a recording of one: armsnap record -- {} makes one",
                quote::word(path, true)
            ))),
            Some(false) => Err(input(
                "is an ELF file, but neither a core file nor a program for Arm",
            )),
            None => Ok(None),
        };
    }
    match path.join("snapshot.ini").symlink_metadata() {
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(input(&format!(
            "no such file in this directory: snapshot.ini; {ALONE}"
        ))),
        Err(error) => Err(input(&error.to_string())),
    }
}

/// The arguments of a subcommand that reports on a snapshot.
#[derive(Args)]
pub struct ReportArguments {
    #[command(flatten)]
    snapshot: SnapshotArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// How a report is printed.
#[derive(Args)]
pub struct OutputArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listing: listing::ListingArguments,
}

impl OutputArguments {
    /// Prints a report as text or JSON.
    fn print(
        &self,
        report: &impl Serialize,
        text: impl Display,
        lines: Lines,
    ) -> Result<(), Failure> {
        let (form, lines) = match self.json {
            true => (Form::Json, Lines::Plain),
            false => (Form::Text, self.listing.lines(lines, false)),
        };
        // The pager runs until the user leaves it, after the last line.
        let _pager = self.listing.page()?;
        let out = Colored::new(BufWriter::new(io::stdout().lock()), lines);
        let mut out = PlainStream::new(out, form);
        if self.json {
            serde_json::to_writer_pretty(&mut out, report).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            write!(out, "{text}")?;
        }
        Ok(out.into_inner().into_inner()?.flush()?)
    }
}

/// Prints a message on standard error with control characters escaped. All messages are printed
/// here, because any of them may contain text from an input. Errors are ignored: the reader may be
/// gone, such as a pager that the user left, or a closed terminal.
pub fn say(message: impl Display) {
    let _ = writeln!(io::stderr(), "{}", text::lines(&message.to_string()));
}

/// Prints notes, one line each.
pub fn print_notes(notes: &[impl std::fmt::Display]) {
    for note in notes {
        say(text::one_line(&note.to_string()));
    }
}

/// Parses a number in an argument, decimal or hexadecimal with 0x.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
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

/// Parses the arguments. Wrong usage exits here, with status 2 except for `record`.
fn parse() -> Arguments {
    Arguments::try_parse().unwrap_or_else(|error| {
        let shown = error.render().to_string();
        let mut status = error.exit_code();
        #[cfg(unix)]
        if status != 0 {
            let arguments = std::env::args_os().skip(1);
            status = record::usage_status(arguments).unwrap_or(status);
        }
        if shown == text::lines(&shown) {
            // This keeps clap's colours.
            let printed = error.print().and_then(|()| io::stdout().flush());
            // Help is the requested result.
            if let Err(error) = printed
                && status == 0
                && error.kind() != ErrorKind::BrokenPipe
            {
                say(error);
                status = 1;
            }
        } else {
            say(shown.trim_end());
        }
        std::process::exit(status)
    })
}

/// Parses the arguments and runs the subcommand.
pub fn run() -> ExitCode {
    let Some(command) = parse().command else {
        return ended(around::run());
    };
    if matches!(
        command,
        Command::Check(_)
            | Command::Info(_)
            | Command::Fault(_)
            | Command::Peripherals(_)
            | Command::Ask(_)
            | Command::Diff(_)
            | Command::Mcp(_)
            | Command::Decode(_)
            | Command::Console(_)
            | Command::Dwt(_)
            | Command::Export(_)
            | Command::Report(_)
            | Command::Shards(_)
            | Command::Convert(_)
            | Command::Import(_)
    ) && let Err(error) = signals::clean_up()
    {
        say(&error);
        return ExitCode::FAILURE;
    }
    let done = match command {
        Command::Check(arguments) => check::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Fault(arguments) => fault::run(&arguments),
        Command::Peripherals(arguments) => peripherals::run(&arguments),
        Command::Ask(arguments) => ask::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Gdb(arguments) => gdb::run(&arguments),
        Command::GdbCommands(arguments) => gdb::print_commands(&arguments),
        Command::Decode(arguments) => decode::run(&arguments),
        Command::Console(arguments) => console::run(&arguments),
        Command::Dwt(arguments) => dwt::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Shards(arguments) => shards::run(arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        #[cfg(unix)]
        Command::Record(arguments) => record::run(&arguments),
        Command::Dap(arguments) => dap::run(&arguments),
        Command::Mcp(arguments) => mcp::run(&arguments),
        Command::MayWrite(arguments) => may_write::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Doctor => doctor::run(),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Generate(arguments) => generate::run(&arguments, Arguments::command()),
    };
    ended(done)
}

/// Prints why a subcommand failed, and returns the exit status.
fn ended(done: Result<ExitCode, Failure>) -> ExitCode {
    // Results read from a file that shrank meanwhile are invalid.
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
