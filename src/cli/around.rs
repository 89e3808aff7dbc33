//! `armsnap` without arguments: lists what it can do with the files in the current directory.

use super::Failure;
use super::convert::is_trace_file;
use super::quote;
use armsnap::import::{self, Foreign, InputKind};
use armsnap::mapped;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Maximum number of directory entries examined.
const MOST: usize = 10_000;
/// Maximum number of inputs shown.
const SHOWN: usize = 6;

/// What a file or directory is to armsnap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Snapshot,
    Imported(InputKind),
    TraceFile,
    /// What it is, and the command that makes a snapshot of it.
    Memory(&'static str, &'static str),
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
        let is_named = path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            name.ends_with(".tf") || name.contains(".tf.")
        });
        if is_named && is_trace_file(path).ok()? {
            return Some(Self::TraceFile);
        }
        if let Some((name, command)) = Foreign::of(path).and_then(Foreign::import) {
            return Some(Self::Memory(name, command));
        }
        (elf(path) == Some(true)).then_some(Self::Program)
    }

    /// Returns its description for users.
    const fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "a snapshot",
            Self::Imported(InputKind::PerfData) => "a recording of perf",
            Self::Imported(InputKind::ZephyrDump) => "a core dump of Zephyr",
            Self::Imported(InputKind::CoreFile) => "a core file",
            Self::Imported(InputKind::CrashCatcher) => "a dump of CrashCatcher",
            Self::Imported(InputKind::KernelLog) => "the log of a Linux kernel that failed",
            Self::Imported(InputKind::Minidump) => "a minidump",
            Self::Imported(InputKind::Tombstone) => "a tombstone of Android",
            Self::Imported(InputKind::Tarmac) => "a Tarmac trace",
            Self::Imported(InputKind::Archive) => "a snapshot in an archive",
            Self::Imported(InputKind::CtraceRun) => "a run that CMSIS-Debugger traced",
            Self::TraceFile => "a trace file",
            Self::Memory(name, _) => name,
            Self::Program => "a program for Arm",
        }
    }

    /// Returns the commands for it and their purposes. `@` stands for its path.
    fn commands(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::Snapshot
            | Self::Imported(InputKind::PerfData | InputKind::Tarmac | InputKind::Archive) => vec![
                ("gdb @", "debug it, backwards too"),
                ("info @", "what is in it"),
                ("decode @", "list its trace"),
            ],
            Self::Imported(InputKind::KernelLog) => vec![
                ("gdb @ --vmlinux vmlinux", "debug it"),
                ("info @", "what is in it"),
            ],
            Self::Imported(InputKind::CtraceRun) => vec![
                ("console @", "the text of its software"),
                ("dwt @", "exceptions, samples, data, counters"),
            ],
            Self::Imported(_) => vec![("gdb @", "debug it"), ("info @", "what is in it")],
            Self::TraceFile => vec![
                ("gdb @", "debug it"),
                ("convert @ snapshot", "make a snapshot of it"),
            ],
            Self::Memory(_, command) => vec![(command, "make a snapshot of it")],
            Self::Program => vec![("record -- @", "run it, and save all that it executed")],
        }
    }
}

/// Whether an ELF file is an executable for Arm: header, machine (System V ABI, chapter 4). `None` if
/// it is not an ELF file.
pub fn elf(path: &Path) -> Option<bool> {
    let head: [u8; 20] = mapped::head(path, 20).ok()?.try_into().ok()?;
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    let half = |at: usize| match head[5] {
        2 => u16::from_be_bytes([head[at], head[at + 1]]),
        _ => u16::from_le_bytes([head[at], head[at + 1]]),
    };
    const ET_EXEC: u16 = 2;
    const ET_DYN: u16 = 3;
    const EM_ARM: u16 = 40;
    const EM_AARCH64: u16 = 183;
    // A position-independent executable has the same type as a library.
    let library = path
        .file_name()
        .is_some_and(|name| name.to_string_lossy().contains(".so"));
    let executable = half(16) == ET_EXEC || half(16) == ET_DYN && !library;
    Some(matches!(half(18), EM_ARM | EM_AARCH64) && executable)
}

/// The contents of a directory.
#[derive(Default)]
struct Found {
    /// Inputs, snapshots first, by name.
    inputs: Vec<(PathBuf, Input)>,
    /// The number of files and directories that cannot be read.
    unreadable: usize,
    /// Whether there are more entries than were examined.
    more: bool,
}

/// Examines a directory.
fn examine(directory: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    if let Some(input @ Input::Snapshot) = Input::of(directory) {
        found.inputs.push((".".into(), input));
    }
    for (number, entry) in std::fs::read_dir(directory)?.enumerate() {
        if number == MOST {
            found.more = true;
            break;
        }
        let entry = entry?;
        let path = entry.path();
        if let Some(input) = Input::of(&path) {
            found.inputs.push((entry.file_name().into(), input));
        } else if import::readable(&path).is_err_and(|error| error.kind() != ErrorKind::NotFound) {
            found.unreadable += 1;
        }
    }
    let order = |input: Input| match input {
        Input::Snapshot => 0,
        Input::Imported(_) => 1,
        Input::TraceFile => 2,
        Input::Memory(..) => 3,
        Input::Program => 4,
    };
    found
        .inputs
        .sort_by(|a, b| (order(a.1), &a.0).cmp(&(order(b.1), &b.0)));
    Ok(found)
}

fn line(out: &mut String, command: &str, purpose: &str) {
    let command = format!("armsnap {command}");
    // The purpose follows a long command without alignment.
    let _ = writeln!(out, "    {command:<38}  {purpose}");
}

/// Prints the inputs of the current directory, with commands for each.
pub fn run() -> Result<ExitCode, Failure> {
    let (found, error) = match examine(Path::new(".")) {
        Ok(found) => (found, None),
        Err(error) => (Found::default(), Some(error)),
    };
    let inputs = &found.inputs;
    let mut out = "armsnap opens saved Arm systems in GDB and decodes their trace.\n\n".to_owned();
    if let Some(error) = error {
        let _ = writeln!(out, "This directory cannot be read: {error}\n");
    } else if inputs.is_empty() {
        out.push_str(
            "This directory contains nothing that armsnap reads: no snapshot, perf.data,\n\
             core file, minidump, trace file (.tf), or program for Arm. Other inputs, such\n\
             as raw trace buffers: armsnap import --help\n\n",
        );
    } else {
        out.push_str("In this directory:\n");
    }
    for (path, input) in inputs.iter().take(SHOWN) {
        let path = quote::word(path, *input == Input::Program);
        let _ = writeln!(out, "  {path}: {}", input.name());
        for (command, purpose) in input.commands() {
            line(&mut out, &command.replace('@', &path), purpose);
        }
    }
    if inputs.len() > SHOWN {
        let _ = writeln!(out, "  and {} more", inputs.len() - SHOWN);
    }
    if !inputs.is_empty() {
        out.push('\n');
    }
    if found.more {
        let _ = writeln!(out, "Only {MOST} of its entries were examined.\n");
    }
    if found.unreadable > 0 {
        let count = found.unreadable;
        let _ = writeln!(
            out,
            "Its files that cannot be read, which may be inputs: {count}\n"
        );
    }
    out.push_str("Elsewhere:\n");
    line(&mut out, "demo", "a recorded crash, walked back");
    line(&mut out, "doctor", "what is installed and what is not");
    line(&mut out, "--help", "all commands");
    io::stdout().write_all(out.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
