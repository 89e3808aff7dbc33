//! Checks that a GDB named by the user supports Arm. Otherwise the connection would fail with an
//! unrelated message.

use super::Failure;
use armsnap::arch::Architecture;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::process::{Command, Stdio};

/// The maximum size of GDB's answer.
const ANSWER: u64 = 64 << 10;

/// Fails if the program is not a GDB for this architecture. A program that cannot be started is
/// reported elsewhere.
pub fn check(gdb: &OsStr, architecture: Architecture) -> Result<(), Failure> {
    let wanted = match architecture {
        Architecture::AArch64 => "aarch64",
        Architecture::AArch32 | Architecture::MProfile => "arm",
    };
    let Some(answer) = ask(gdb, &format!("complete set architecture {wanted}"))? else {
        return Ok(());
    };
    let known = format!("set architecture {wanted}");
    if answer.lines().any(|line| line.trim_end() == known) {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "{} has no support for {}: install the package gdb-multiarch \
         (apt install gdb-multiarch), or name a GDB for Arm with --gdb",
        gdb.to_string_lossy(),
        architecture.name()
    )))
}

/// Returns whether a GDB has Python; a toolchain's may not.
pub fn has_python(gdb: &OsStr) -> bool {
    let answer = ask(gdb, "python print(6 * 7)").ok().flatten();
    answer.is_some_and(|answer| answer.starts_with("42"))
}

/// Returns the output of a GDB command, or `None` if GDB cannot be started.
fn ask(gdb: &OsStr, command: &str) -> io::Result<Option<String>> {
    let child = Command::new(gdb)
        .args(["-nx", "-batch", "-ex", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return Ok(None);
    };
    let mut answer = Vec::new();
    if let Some(out) = child.stdout.take() {
        out.take(ANSWER).read_to_end(&mut answer)?;
    }
    // It may still be printing.
    let _ = child.kill();
    child.wait()?;
    Ok(Some(String::from_utf8_lossy(&answer).into_owned()))
}
