//! The only way in which tests skip what a machine lacks.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Whether everything that [`missing`] names must be there: in continuous integration, and beside
/// the real captures.
fn is_complete() -> bool {
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared");
    std::env::var_os("CI").is_some() || Path::new(shared).is_dir()
}

/// Expects that a test over all snapshots found enough to compare: `least` things with the real
/// captures, anything at all without them.
#[track_caller]
pub fn found_enough(found: usize, least: usize) {
    let least = if is_complete() { least } else { 1 };
    assert!(found >= least, "{found} found, {least} expected");
}

/// Expects that a test found at least this much in the real captures, if they are there.
#[track_caller]
pub fn found_in_captures(found: usize, least: usize) {
    assert!(
        found >= least || !is_complete(),
        "{found} found, {least} expected"
    );
}

/// The caller skips because of something that a full run has: the real captures, or a program that
/// `scripts/setup` installs. A failure in a full run.
#[track_caller]
pub fn missing(what: &str) {
    assert!(!is_complete(), "a full run needs what is missing: {what}");
    unavailable(what);
}

/// The caller skips because of something that not every machine can have: sparse files, debugging
/// of processes, packages from the network, programs that `scripts/setup` leaves out.
pub fn unavailable(what: &str) {
    eprintln!("SKIPPED: {what}");
    // Test runners hide the output of tests that pass: `scripts/test` prints this file.
    if let Some(path) = std::env::var_os("ARMSNAP_SKIPPED") {
        let file = File::options().create(true).append(true).open(path);
        file.unwrap()
            .write_all(format!("{what}\n").as_bytes())
            .unwrap();
    }
}

/// A real capture, or nothing where the folder is not there.
pub fn capture(name: &str) -> Option<PathBuf> {
    let shared = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared"));
    if !shared.is_dir() {
        missing("../shared is not there");
        return None;
    }
    let path = shared.join("captures").join(name);
    assert!(path.exists(), "{} is missing", path.display());
    Some(path)
}
