//! Runs of the program, and snapshots to export.

use crate::support::convert::captures;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs a command with an end: `timeout`.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("120").arg(program).args(arguments);
    command.output().unwrap()
}

/// Runs armsnap.
pub fn armsnap(arguments: &[&str]) -> Output {
    run(crate::support::armsnap(), arguments)
}

/// Records a program, whatever its exit status, with options of `record`.
pub fn record(options: &[&str], snapshot: &Path, program: &Path, arguments: &[&str]) {
    let start = ["record", "--exit-zero"];
    let rest = ["-o", arg(snapshot), "--", arg(program)];
    let output = armsnap(&[&start, options, &rest, arguments].concat());
    assert!(output.status.success(), "{}", said(&output));
}

/// A path as an argument.
pub fn arg(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What a run printed on standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Exports a snapshot; returns the contents of the file.
#[track_caller]
pub fn export(snapshot: &Path, format: &str, options: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("out");
    let mut arguments = vec!["export", arg(snapshot), "--as", format, "-o", arg(&file)];
    arguments.extend(options);
    let output = armsnap(&arguments);
    assert!(
        output.status.success(),
        "{}: {format}: {}",
        snapshot.display(),
        said(&output)
    );
    std::fs::read(file).unwrap()
}

/// The same as text.
#[track_caller]
pub fn export_text(snapshot: &Path, format: &str, options: &[&str]) -> String {
    String::from_utf8(export(snapshot, format, options)).unwrap()
}

/// What `decode --stats` counts.
#[track_caller]
pub fn stats(snapshot: &Path, options: &[&str]) -> Value {
    let mut arguments = vec!["decode", arg(snapshot), "--format", "none", "--stats"];
    arguments.extend(options);
    let output = armsnap(&arguments);
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A number of `decode --stats`.
#[track_caller]
pub fn number(stats: &Value, name: &str) -> u64 {
    stats[name].as_u64().unwrap()
}

/// A snapshot in `testdata/recorded`.
pub fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/recorded")
        .join(name)
}

/// The recorded snapshots and the real captures.
pub fn snapshots() -> Vec<PathBuf> {
    let mut all = vec![recorded("etmv3"), recorded("etmv4"), recorded("ptm")];
    all.extend(captures().into_iter().filter(|path| has_trace(path)));
    all
}

fn has_trace(snapshot: &Path) -> bool {
    let text = std::fs::read_to_string(snapshot.join("snapshot.ini")).unwrap_or_default();
    text.contains("metadata")
}
