//! `armsnap gdb`: GDB on a snapshot, through a pipe to `armsnap serve --stdio`.
//!
//! GDB replaces this process, so it owns the exit status, signals and terminal. On Windows it is
//! started alongside this process, which serves it on a socket.

#[cfg_attr(not(unix), path = "gdb/socket.rs")]
mod pipe;
pub mod support;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Args;

use super::quote::from_bytes;
use super::serve::{Selection, only};
use super::{Failure, SnapshotArguments};
use armsnap::server::Endpoint;
use armsnap::snapshot::libraries::LIBRARIES;
use armsnap::snapshot::program::Program;

/// A GDB for all architectures.
pub const DEFAULT_GDB: &str = "gdb-multiarch";

/// The arguments of `gdb`.
#[derive(Args)]
pub struct Arguments {
    /// The snapshot.
    #[command(flatten)]
    pub snapshot: SnapshotArguments,
    /// The GDB to start.
    #[arg(long, value_name = "PROGRAM", default_value = DEFAULT_GDB)]
    pub gdb: OsString,
    /// Let GDB run scripts that come with the snapshot and its programs, if its own `auto-load
    /// safe-path` allows them.
    #[arg(long)]
    pub allow_scripts: bool,
    /// Show C++ containers by their elements: load libstdc++'s printers from GDB's own data directory,
    /// and nothing from the snapshot
    #[arg(long)]
    pub printers: bool,
    /// The selection of what is served.
    #[command(flatten)]
    pub selection: Selection,
    /// Further arguments for GDB
    #[arg(last = true, value_name = "GDB ARGUMENTS")]
    pub arguments: Vec<OsString>,
}

/// The Python files that `armsnap gdb` loads in GDB.
const COMMANDS: [&str; 16] = [
    include_str!("../../gdb/armsnap.py"),
    include_str!("../../gdb/printed.py"),
    include_str!("../../gdb/elf.py"),
    include_str!("../../gdb/registers.py"),
    include_str!("../../gdb/memory.py"),
    include_str!("../../gdb/signals.py"),
    include_str!("../../gdb/save.py"),
    include_str!("../../gdb/core.py"),
    include_str!("../../gdb/history.py"),
    include_str!("../../gdb/past.py"),
    include_str!("../../gdb/entries.py"),
    include_str!("../../gdb/interrupt.py"),
    include_str!("../../gdb/finish.py"),
    include_str!("../../gdb/leave.py"),
    include_str!("../../gdb/quiet.py"),
    include_str!("../../gdb/printers.py"),
];

/// The additional Python files for editors.
const ADAPTER: [&str; 2] = [
    include_str!("../../gdb/adapter.py"),
    include_str!("../../gdb/dap.py"),
];

/// The arguments of `gdb-commands`.
#[derive(Args)]
pub struct CommandsArguments {
    /// Also print what `gdb -i dap` lacks
    #[arg(long, hide = true)]
    adapter: bool,
}

/// The line of the first file at which it begins to load the others.
const BESIDE: &str = "# In a source tree";

/// Prints the commands, for a GDB that armsnap did not start.
pub fn print_commands(arguments: &CommandsArguments) -> Result<ExitCode, Failure> {
    let [first, others @ ..] = COMMANDS;
    let own = first.split_once(BESIDE).map_or(first, |(own, _)| own);
    let mut text = format!("{own}{}", others.join("\n"));
    if arguments.adapter {
        text.push('\n');
        text.push_str(&ADAPTER.join("\n"));
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The user of GDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// A user, or a script.
    Terminal,
    /// An editor, using the Debug Adapter Protocol. It attaches when it is ready.
    Adapter,
}

/// Starts GDB.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    start(arguments, Front::Terminal)
}

/// Starts GDB for a user or an editor.
pub fn start(arguments: &Arguments, front: Front) -> Result<ExitCode, Failure> {
    let mut gdb = prepare(arguments, front)?;
    gdb.args(&arguments.arguments);
    pipe::run(&mut gdb).map_err(|error| cannot_start(&arguments.gdb, &error))
}

/// Returns the command that starts GDB for a user, without the user's arguments.
pub fn command(arguments: &Arguments) -> Result<Command, Failure> {
    prepare(arguments, Front::Terminal)
}

fn prepare(arguments: &Arguments, front: Front) -> Result<Command, Failure> {
    let endpoint = only(arguments.selection.endpoints(&arguments.snapshot)?)?;
    let server = std::env::current_exe()?;
    if arguments.gdb != DEFAULT_GDB {
        support::check(&arguments.gdb, endpoint.architecture())?;
    }
    let mut gdb = Command::new(&arguments.gdb);
    if front == Front::Adapter {
        gdb.args(["-q", "-i", "dap"]);
    }
    gdb.args(gdb_arguments(&server, arguments, endpoint, front)?);
    Ok(gdb)
}

/// Returns the failure for a GDB that cannot be started, with advice.
pub fn cannot_start(gdb: &OsStr, error: &std::io::Error) -> Failure {
    let name = gdb.to_string_lossy();
    Failure::Input(match error.kind() {
        std::io::ErrorKind::NotFound => format!(
            "{name} is not installed: install the package gdb-multiarch \
             (apt install gdb-multiarch), or name a GDB for Arm with --gdb"
        ),
        _ => format!("{name} cannot be started: {error}"),
    })
}

/// Returns the arguments of GDB that precede the user's.
fn gdb_arguments(
    server: &Path,
    arguments: &Arguments,
    endpoint: Endpoint,
    front: Front,
) -> Result<Vec<OsString>, Failure> {
    let mut out = Vec::new();
    // An editor attaches later; until then the commands are kept.
    let connects = |command: OsString| match front {
        Front::Terminal => command,
        Front::Adapter => {
            let mut kept = OsString::from("armsnap when-attached ");
            kept.push(command);
            kept
        }
    };
    if !arguments.allow_scripts {
        // After the user's own init files, and before programs and `.gdbinit` in this directory.
        out.push("-iex".into());
        out.push("set auto-load off".into());
    }
    // The server answers once the input is open, which takes more than GDB's 2 seconds for large
    // inputs.
    out.push("-iex".into());
    out.push("set remotetimeout 120".into());
    // Libraries of a recorded program: GDB finds them there by name, and need not ask the server
    // for them.
    let libraries = arguments.snapshot.snapshot.join(LIBRARIES);
    if libraries.is_dir() {
        for setting in ["set sysroot ", "set solib-search-path "] {
            let mut command = OsString::from(setting);
            command.push(&libraries);
            out.push("-iex".into());
            out.push(command);
        }
    }
    // For an input that is opened directly, the user specifies the location of the libraries.
    if let Some(directory) = arguments.snapshot.import.symfs.first() {
        out.push("-iex".into());
        let mut command = OsString::from("set sysroot ");
        command.push(directory);
        out.push(command);
    }
    out.push("-ex".into());
    out.push(python_command(server, front));
    if arguments.printers {
        out.push("-ex".into());
        out.push("armsnap printers".into());
    }
    let mut programs = endpoint.programs();
    // GDB asks the server for a program that is not a file.
    if let Some(program) = programs.next().filter(|program| program.elf.path.is_file()) {
        out.push("-se".into());
        out.push(program.elf.path.clone().into());
        // Sources are often recorded relative to the program.
        if let Some(directory) = program.elf.path.parent() {
            out.push("-d".into());
            out.push(directory.into());
        }
    }
    // Otherwise GDB asks before each step whether tracepoints can be inserted.
    out.push("-ex".into());
    out.push("set may-insert-tracepoints off".into());
    // Reading code takes most of the time of a step: GDB reads it from the program if the dumps
    // agree with it.
    if endpoint.programs().next().is_some() && endpoint.programs().all(read_only_agrees) {
        out.push("-ex".into());
        out.push("set trust-readonly-sections on".into());
    }
    let mut attach = Vec::new();
    for program in programs {
        let mut command = OsString::from("with confirm off -- add-symbol-file ");
        let mut path = OsString::new();
        if !program.elf.path.is_file() {
            // From the server.
            path.push("target:");
        }
        path.push(&program.elf.path);
        command.push(gdb_quote(&path));
        if program.elf.offset != 0 {
            command.push(format!(" -o {:#x}", program.elf.offset));
        }
        attach.push(command);
    }
    let python = arguments.gdb == DEFAULT_GDB || support::has_python(&arguments.gdb);
    attach.insert(
        0,
        pipe::target_command(server, arguments, endpoint, python)?,
    );
    for command in attach {
        out.push("-ex".into());
        out.push(connects(command));
    }
    Ok(out)
}

/// Returns whether the read-only parts of a program are equal in memory and in its file.
fn read_only_agrees(program: &Program) -> bool {
    program.comparison.compared > 0 && program.comparison.differing == 0
}

/// Returns the GDB command that loads the armsnap commands from this program.
fn python_command(server: &Path, front: Front) -> OsString {
    let adapter = match front {
        Front::Terminal => "",
        Front::Adapter => ", '--adapter'",
    };
    let mut path = String::new();
    for &byte in server.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"-_./+".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path += &format!("\\x{byte:02x}");
        }
    }
    format!(
        "python import os, subprocess; a = os.fsdecode(b'{path}'); \
         exec(compile(subprocess.check_output([a, 'gdb-commands'{adapter}]), 'armsnap.py', 'exec'), \
         {{'ARMSNAP': a}})"
    )
    .into()
}

/// Quotes a file name for a GDB command.
fn gdb_quote(path: &OsStr) -> OsString {
    let mut out = vec![b'"'];
    for &byte in path.as_encoded_bytes() {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
    from_bytes(out)
}
