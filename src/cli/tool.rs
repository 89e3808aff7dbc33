//! Other programs: whether they are installed, and what they report about themselves.

use std::ffi::OsStr;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Maximum size of an answer.
const ANSWER: u64 = 256 << 10;
/// Maximum time for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the path of a program in PATH.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(format!("{name}{}", std::env::consts::EXE_SUFFIX)))
        .find(|file| file.is_file())
}

/// Returns what a program prints on standard output; `None` if it cannot be started or takes too
/// long.
pub fn ask(program: impl AsRef<OsStr>, arguments: &[&str]) -> Option<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let out = child.stdout.take()?;
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut answer = Vec::new();
        let read = out.take(ANSWER).read_to_end(&mut answer);
        // The receiver may have stopped waiting.
        let _ = send.send(read.map(|_| answer));
    });
    let answer = receive.recv_timeout(PATIENCE);
    // The program may still be printing.
    let _ = child.kill();
    let _ = child.wait();
    let answer = answer.ok()?.ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}
