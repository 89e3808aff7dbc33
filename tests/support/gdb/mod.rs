//! Helpers for tests with debuggers: a served snapshot, GDB sessions, paths.

#![allow(dead_code, reason = "each test uses a part of it")]

use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A timeout longer than any session takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program under test.
pub fn armsnap() -> Command {
    Command::new(crate::support::armsnap())
}

/// A snapshot in testdata.
pub fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name)
}

/// A real capture, or `None` if the directory does not exist; `recorded/` is in testdata.
pub fn shared(name: &str) -> Option<PathBuf> {
    if name.starts_with("recorded/") {
        return Some(testdata(name));
    }
    let shared = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared"));
    if !shared.is_dir() {
        crate::support::skip::missing("../shared is not there");
        return None;
    }
    let path = shared.join("snapshots").join(name);
    assert!(path.is_dir(), "{} is missing", path.display());
    Some(path)
}

/// Fails with the name of the package if GDB is not installed.
pub fn need_gdb() {
    let found = Command::new("gdb-multiarch")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    assert!(
        found.is_ok(),
        "gdb-multiarch is not installed: install the package gdb-multiarch"
    );
}

/// Sends a signal to a child process.
pub fn send_signal(id: u32, signal: Signal) {
    let id = rustix::process::Pid::from_raw(id.try_into().unwrap()).unwrap();
    rustix::process::kill_process(id, signal).unwrap();
}

/// Runs a command to its end; fails if it hangs.
pub fn run(command: &mut Command) -> Output {
    run_within(command, PATIENCE)
}

/// Runs a command to its end, with a generous timeout.
pub fn run_within(command: &mut Command, patience: Duration) -> Output {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let id = child.id();
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(child.wait_with_output()));
    match receive.recv_timeout(patience) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            send_signal(id, Signal::KILL);
            panic!("{command:?} hangs");
        }
    }
}

/// Both streams of an output, as text.
pub fn text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

/// The output of a GDB session through `armsnap gdb`.
pub fn session(snapshot: &Path, options: &[&str], commands: &[&str]) -> String {
    text(&session_output(snapshot, options, commands))
}

/// The output and status of a GDB session through `armsnap gdb`.
pub fn session_output(snapshot: &Path, options: &[&str], commands: &[&str]) -> Output {
    need_gdb();
    let mut command = armsnap();
    command.arg("gdb").arg(snapshot).args(options);
    command.args(["--", "-nx", "-batch"]);
    for gdb in commands {
        command.args(["-ex", gdb]);
    }
    run(&mut command)
}

/// The output of a GDB session that attaches to an address.
pub fn attach(address: &str, commands: &[&str]) -> String {
    need_gdb();
    let mut command = Command::new("gdb-multiarch");
    command.args(["-nx", "-batch", "-ex"]);
    command.arg(format!("target remote {address}"));
    for gdb in commands {
        command.args(["-ex", gdb]);
    }
    text(&run(&mut command))
}

/// The output of a GDB session with commands in a file, after some others.
pub fn script(snapshot: &Path, options: &[&str], before: &[&str], text: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    std::fs::write(&script, text).unwrap();
    let source = format!("source {}", script.display());
    session(snapshot, options, &[before, &[&source]].concat())
}

/// The bits that GDB shows for some expressions, after other commands.
pub fn evaluate(snapshot: &Path, before: &[&str], expressions: &[String]) -> Vec<u128> {
    let mut lines = String::new();
    for expression in expressions {
        // GDB 10 converts a floating-point number to an integer for hex output.
        lines += &match expression.strip_prefix('$') {
            Some(register) if is_float(register) => format!("info registers {register}\n"),
            _ => format!("output/x {expression}\necho \\n\n"),
        };
        lines += "echo after:\\n\n";
    }
    let text = script(snapshot, &[], before, &format!("echo after:\\n\n{lines}"));
    let shown: Vec<&str> = text.split("after:\n").collect();
    assert_eq!(shown.len(), expressions.len() + 2, "{text}");
    let shown = shown[1..=expressions.len()].iter().zip(expressions);
    let bits = shown.map(|(shown, expression)| {
        let value = shown.split_once("(raw ").map_or(*shown, |(_, raw)| raw);
        let digits = value.trim_end().trim_end_matches(')');
        let digits = digits.strip_prefix("0x");
        let bits = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
        bits.unwrap_or_else(|| panic!("{expression}: {shown}"))
    });
    bits.collect()
}

fn is_float(register: &str) -> bool {
    let digits = register.strip_prefix(['d', 's']).unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The major version of GDB.
pub fn gdb_version() -> u32 {
    let output = run(Command::new("gdb-multiarch").args([
        "-nx",
        "-batch",
        "-ex",
        "python print(gdb.VERSION)",
    ]));
    let text = text(&output);
    let number = text.split('.').next().unwrap();
    number.parse().unwrap_or_else(|_| panic!("{text}"))
}

/// GDB's command that makes it read registers again.
pub fn forget_registers() -> &'static str {
    match gdb_version() {
        ..11 => "flushregs",
        11.. => "maintenance flush register-cache",
    }
}

/// The number of GDB's messages that an end of history was reached, whose text changed in version 16.
pub fn ends_of_history(text: &str) -> usize {
    let words = [
        "No more reverse-execution history.",
        "Reached end of recorded history; stopping.",
    ];
    words.iter().map(|words| text.matches(words).count()).sum()
}

/// `armsnap serve`, ended when dropped.
pub struct Server {
    child: Child,
    /// The argument of `target remote` for each endpoint.
    pub addresses: Vec<String>,
    /// The lines of the endpoints.
    pub lines: Vec<String>,
}

impl Server {
    /// Serves a snapshot; waits for the lines of `endpoints` endpoints.
    pub fn start(snapshot: &Path, options: &[&str], endpoints: usize) -> Self {
        let mut command = armsnap();
        command.arg("serve").arg(snapshot).args(options);
        Self::of(&mut command, endpoints)
    }

    /// Runs a command that serves a snapshot; waits for the lines of `endpoints` endpoints.
    pub fn of(command: &mut Command, endpoints: usize) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut lines = Vec::new();
        while lines.len() < endpoints {
            let mut line = String::new();
            let count = errors.read_line(&mut line).unwrap();
            assert_ne!(count, 0, "serve ended after {lines:?}");
            lines.push(line.trim_end().to_owned());
        }
        // The rest is read so that the server never blocks.
        thread::spawn(move || {
            let mut rest = String::new();
            let _ = errors.read_to_string(&mut rest);
        });
        let addresses = lines
            .iter()
            .map(|line| {
                let (_, rest) = line.split_once("target remote ").expect(line);
                rest.trim_end_matches(['\'', ')']).to_owned()
            })
            .collect();
        Self {
            child,
            addresses,
            lines,
        }
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal and waits for the end.
    pub fn end_by(&mut self, signal: Signal) {
        send_signal(self.id(), signal);
        let start = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE, "serve does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether it is still running.
    pub fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The peak memory use of a process in KiB.
pub fn peak_memory(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let digits: String = line.unwrap().chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Writes a snapshot: device files with their text, and dumps with their bytes.
pub fn write_snapshot(devices: &[(&str, &str)], dumps: &[(&str, &[u8])]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut list = "[snapshot]\nversion=1.0\n[device_list]\n".to_owned();
    for (index, (name, device)) in devices.iter().enumerate() {
        list += &format!("device{index}={name}.ini\n");
        let text = format!("[device]\nname={name}\n{device}");
        std::fs::write(directory.path().join(format!("{name}.ini")), text).unwrap();
    }
    std::fs::write(directory.path().join("snapshot.ini"), list).unwrap();
    for (name, bytes) in dumps {
        std::fs::write(directory.path().join(name), bytes).unwrap();
    }
    directory
}
