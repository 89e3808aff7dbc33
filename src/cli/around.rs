//! `armsnap` without arguments: what it can do with the files around it.

use super::Failure;
use super::convert::is_trace_file;
use super::quote::shell_quote_os;
use armsnap::import::{self, Kind};
use armsnap::text;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Maximum number of files of the directory that are examined.
const MOST: usize = 10_000;
/// Maximum number of inputs that are shown.
const SHOWN: usize = 6;

/// What a file or directory is to armsnap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Snapshot,
    Imported(Kind),
    TraceFile,
    Program,
}

impl Input {
    /// Recognises an input by its contents. Special files are not opened.
    fn of(path: &Path) -> Option<Self> {
        if path.join("snapshot.ini").is_file() {
            return Some(Self::Snapshot);
        }
        if !path.metadata().ok()?.is_file() {
            return None;
        }
        if let Some(kind) = import::recognise(path) {
            return Some(Self::Imported(kind));
        }
        if path.extension().is_some_and(|name| name == "tf") && is_trace_file(path).ok()? {
            return Some(Self::TraceFile);
        }
        is_program(path).then_some(Self::Program)
    }

    /// What it is, for people.
    const fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "a snapshot",
            Self::Imported(Kind::PerfData) => "a recording of perf",
            Self::Imported(Kind::ZephyrDump) => "a core dump of Zephyr",
            Self::Imported(_) => "a core file",
            Self::TraceFile => "a trace file",
            Self::Program => "a program for Arm",
        }
    }

    /// The commands for it, and what they do. `@` stands for its path.
    const fn commands(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Snapshot | Self::Imported(Kind::PerfData) => &[
                ("gdb @", "debug it, backwards too"),
                ("info @", "what is in it"),
                ("decode @", "list its trace"),
            ],
            Self::Imported(_) => &[("gdb @", "debug it"), ("info @", "what is in it")],
            Self::TraceFile => &[
                ("gdb @", "debug it"),
                ("convert @ snapshot", "make a snapshot of it"),
            ],
            Self::Program => &[("record -- @", "run it, and save all that it executed")],
        }
    }
}

/// Whether a file is an executable ELF file for Arm: header, machine (System V ABI, chapter 4).
fn is_program(path: &Path) -> bool {
    let mut head = [0; 20];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    if read.is_err() || !head.starts_with(b"\x7fELF") {
        return false;
    }
    let half = |at: usize| match head[5] {
        2 => u16::from_be_bytes([head[at], head[at + 1]]),
        _ => u16::from_le_bytes([head[at], head[at + 1]]),
    };
    const ET_EXEC: u16 = 2;
    const ET_DYN: u16 = 3;
    const EM_ARM: u16 = 40;
    const EM_AARCH64: u16 = 183;
    // Of files that can be loaded anywhere, a library is one, too.
    let library = path
        .file_name()
        .is_some_and(|name| name.to_string_lossy().contains(".so"));
    matches!(half(18), EM_ARM | EM_AARCH64)
        && (half(16) == ET_EXEC || half(16) == ET_DYN && !library)
}

/// The inputs in a directory, snapshots first, by name.
fn inputs(directory: &Path) -> Vec<(PathBuf, Input)> {
    let mut found: Vec<(PathBuf, Input)> = Vec::new();
    if let Some(input @ Input::Snapshot) = Input::of(directory) {
        found.push((".".into(), input));
    }
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    for entry in entries.take(MOST).flatten() {
        if let Some(input) = Input::of(&entry.path()) {
            found.push((entry.file_name().into(), input));
        }
    }
    let order = |input: Input| match input {
        Input::Snapshot => 0,
        Input::Imported(_) => 1,
        Input::TraceFile => 2,
        Input::Program => 3,
    };
    found.sort_by(|a, b| (order(a.1), &a.0).cmp(&(order(b.1), &b.0)));
    found
}

/// Returns a path as a word for the shell that is no option; escaped for the terminal.
fn word(path: &Path, program: bool) -> String {
    let option = path.as_os_str().as_encoded_bytes().starts_with(b"-");
    let mut word = OsString::new();
    if program || option {
        word.push("./");
    }
    word.push(path);
    text::one_line(&shell_quote_os(&word).to_string_lossy()).into_owned()
}

fn line(out: &mut String, command: &str, purpose: &str) {
    let command = format!("armsnap {command}");
    // A long name leaves the purpose behind it.
    let _ = writeln!(out, "    {command:<38}  {purpose}");
}

/// Prints the inputs of the current directory, with commands for each.
pub fn run() -> Result<ExitCode, Failure> {
    let found = inputs(Path::new("."));
    let mut out = "armsnap opens saved Arm systems in GDB and decodes their trace.\n\n".to_owned();
    if found.is_empty() {
        out.push_str(
            "This directory contains nothing that armsnap reads: no snapshot, perf.data,\n\
             core file, trace file (.tf), or program for Arm. Other inputs, such as raw\n\
             trace buffers: armsnap import --help\n\n",
        );
    } else {
        out.push_str("In this directory:\n");
    }
    for (path, input) in found.iter().take(SHOWN) {
        let path = word(path, *input == Input::Program);
        let _ = writeln!(out, "  {path}: {}", input.name());
        for (command, purpose) in input.commands() {
            line(&mut out, &command.replace('@', &path), purpose);
        }
    }
    if found.len() > SHOWN {
        let _ = writeln!(out, "  and {} more", found.len() - SHOWN);
    }
    if !found.is_empty() {
        out.push('\n');
    }
    out.push_str("Elsewhere:\n");
    line(&mut out, "demo", "a recorded crash, walked back");
    line(&mut out, "doctor", "what is installed and what is not");
    line(&mut out, "--help", "all commands");
    io::stdout().write_all(out.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
