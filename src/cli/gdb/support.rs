//! Checks that a GDB named by the user supports Arm. Otherwise the connection would fail with an
//! unrelated message.

use super::Failure;
use crate::cli::tool::ask;
use armsnap::arch::Architecture;
use std::ffi::OsStr;

/// Fails if the program is not a GDB for this architecture. A program that cannot be started is
/// reported elsewhere.
pub fn check(gdb: &OsStr, architecture: Architecture) -> Result<(), Failure> {
    let wanted = match architecture {
        Architecture::AArch64 => "aarch64",
        Architecture::AArch32 | Architecture::MProfile => "arm",
    };
    if knows(gdb, wanted) != Some(false) {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "{} has no support for {}: install the package gdb-multiarch \
         (apt install gdb-multiarch), or name a GDB for Arm with --gdb",
        gdb.to_string_lossy(),
        architecture.name()
    )))
}

/// Returns whether a GDB has Python; the GDB of a toolchain may not.
pub fn has_python(gdb: &OsStr) -> bool {
    let answer = run_command(gdb, "python print(6 * 7)");
    answer.is_some_and(|answer| answer.starts_with("42"))
}

/// Returns whether a GDB supports an architecture, by GDB's name; `None` if GDB does not answer.
pub fn knows(gdb: &OsStr, architecture: &str) -> Option<bool> {
    let answer = run_command(gdb, &format!("complete set architecture {architecture}"))?;
    let known = format!("set architecture {architecture}");
    Some(answer.lines().any(|line| line.trim_end() == known))
}

/// Returns the output of a GDB command, or `None` if GDB does not answer.
pub fn run_command(gdb: &OsStr, command: &str) -> Option<String> {
    ask(gdb, &["-nx", "-batch", "-ex", command])
}
