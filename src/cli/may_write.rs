//! `armsnap may-write`: the rules for overwriting, for armsnap's commands in GDB.

use super::Failure;
use super::output::not_input;
use armsnap::mapped;
use armsnap::snapshot::write;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Snapshot,
    CoreFile,
}

/// Fail if this may not be written
#[derive(Args)]
pub struct Arguments {
    #[arg(value_enum)]
    kind: Kind,
    path: PathBuf,
    /// Replace a snapshot
    #[arg(long)]
    force: bool,
}

/// Checks the destination.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let path = &arguments.path;
    match arguments.kind {
        Kind::Snapshot => write::may_write(path, arguments.force)
            .map_err(|error| Failure::Usage(error.to_string()))?,
        Kind::CoreFile => may_write_core_file(path)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// GDB's own command overwrites any file; a core file is only written over a core file.
fn may_write_core_file(path: &Path) -> Result<(), Failure> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    not_input(path)?;
    const ET_CORE: u8 = 4;
    let head = mapped::head(path, 20).unwrap_or_default();
    // The type is a half-word in the byte order of the file (System V ABI, chapter 4).
    let core = head.starts_with(b"\x7fELF") && head.len() == 20 && head[16] | head[17] == ET_CORE;
    match core {
        true => Ok(()),
        false => Err(Failure::Usage(format!(
            "{}: exists and is not a core file; name another file",
            path.display()
        ))),
    }
}
