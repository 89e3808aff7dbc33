//! Whether a GDB that the user names can debug Arm, asked before it has the snapshot: without
//! it, the connection fails in words that do not say why.

use super::Failure;
use armsnap::arch::Architecture;
use std::ffi::OsStr;
use std::io::Read;
use std::process::{Command, Stdio};

/// More than any GDB answers.
const ANSWER: u64 = 64 << 10;

/// Fails where the program is no GDB for that architecture. One that cannot be started is none of
/// this concern.
pub fn check(gdb: &OsStr, architecture: Architecture) -> Result<(), Failure> {
    let wanted = match architecture {
        Architecture::AArch64 => "aarch64",
        Architecture::AArch32 | Architecture::MProfile => "arm",
    };
    let asked = format!("complete set architecture {wanted}");
    let child = Command::new(gdb)
        .args(["-nx", "-batch", "-ex", &asked])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return Ok(());
    };
    let mut answer = Vec::new();
    if let Some(out) = child.stdout.take() {
        out.take(ANSWER).read_to_end(&mut answer)?;
    }
    // It may have more to say.
    let _ = child.kill();
    child.wait()?;
    let known = format!("set architecture {wanted}");
    if String::from_utf8_lossy(&answer)
        .lines()
        .any(|line| line.trim_end() == known)
    {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "{} has no support for {}: install the package gdb-multiarch \
         (apt install gdb-multiarch), or name a GDB for Arm with --gdb",
        gdb.to_string_lossy(),
        architecture.name()
    )))
}
