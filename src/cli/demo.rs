//! `armsnap demo`: a bundled recording of a crash, in GDB, with a guided walk of five steps.

use super::{Failure, gdb};
use armsnap::leftovers::{Leftover, Private};
use clap::{Args, Parser};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The arguments of `demo`.
#[derive(Args)]
pub struct Arguments {
    /// Write the recording to this directory, instead of walking through it
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The GDB to start.
    #[arg(long, value_name = "PROGRAM", default_value = gdb::DEFAULT_GDB)]
    gdb: OsString,
}

macro_rules! bundled {
    ($($name:literal)*) => {
        &[$(($name, include_bytes!(concat!("../../testdata/demo/", $name)))),*]
    };
}

/// The recording, with the program and its source.
const FILES: &[(&str, &[u8])] = bundled!(
    "snapshot.ini" "cpu_0.ini" "trace.ini" "trace_0.ini" "trace.bin" "data_addresses_0.bin"
    "memory_400000.bin" "memory_5500001000.bin" "demo.elf" "demo.c"
);

/// The walk, as a command of GDB.
const WALK: &str = include_str!("../../gdb/demo.py");

/// The number of steps of the walk.
const STEPS: usize = 5;

/// The arguments of `armsnap gdb`, to be parsed without the command line around them.
#[derive(Parser)]
struct Words {
    #[command(flatten)]
    gdb: gdb::Arguments,
}

fn write(directory: &Path) -> Result<(), Failure> {
    for (name, bytes) in FILES {
        let path = directory.join(name);
        let written = File::create_new(&path).and_then(|mut file| file.write_all(bytes));
        written.map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

/// Writes the recording, or starts the walk through it.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if let Some(directory) = &arguments.output {
        if let Err(error) = fs::create_dir(directory) {
            let path = directory.display();
            return Err(match error.kind() {
                io::ErrorKind::AlreadyExists => Failure::Usage(format!(
                    "{path}: exists already; -o names another directory"
                )),
                _ => Failure::Input(format!("{path}: {error}")),
            });
        }
        write(directory)?;
        super::say(format_args!(
            "{}: a recording; try armsnap gdb, armsnap info, armsnap decode",
            directory.display()
        ));
        return Ok(ExitCode::SUCCESS);
    }
    // Ctrl-C belongs to GDB, and this process must stay alive to remove the directory.
    let _waits = super::signals::stay_alive()?;
    let private = Private::new().map_err(|error| {
        let place = std::env::temp_dir();
        let place = place.display();
        Failure::Input(format!(
            "{place}: no temporary directory can be made here ({error}); TMPDIR, or -o, names another one"
        ))
    })?;
    // A signal also removes it.
    let _removed = Leftover::new(private.path().to_owned());
    let directory = private.path().join("demo");
    fs::create_dir(&directory)?;
    write(&directory)?;
    let walk = private.path().join("walk.py");
    fs::write(&walk, WALK)?;
    let mut gdb = OsString::from("--gdb=");
    gdb.push(&arguments.gdb);
    let words = [OsString::from("gdb"), directory.into(), gdb];
    let mut command = gdb::command(&Words::parse_from(words).gdb)?;
    command.arg("-q").arg("-x").arg(&walk);
    let interactive = io::stdin().is_terminal() && io::stdout().is_terminal();
    let steps = if interactive { 1 } else { STEPS };
    for _ in 0..steps {
        command.args(["-ex", "armsnap demo"]);
    }
    if !interactive {
        command.arg("-batch");
    }
    let status = command.status();
    let status = status.map_err(|error| gdb::cannot_start(&arguments.gdb, &error))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
