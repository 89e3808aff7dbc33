//! A program that is recorded once: loops, branches, recursion, `longjmp`.

use super::common::{arg, record, run, said};
use crate::support::record::installed;
use std::path::PathBuf;
use std::sync::OnceLock;
use tempfile::TempDir;

/// Its source.
pub const SOURCE: &str = include_str!("coverage.c");

/// A recorded program.
pub struct Recorded {
    directory: TempDir,
}

impl Recorded {
    /// A file in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The snapshot.
    pub fn snapshot(&self) -> PathBuf {
        self.path("snapshot")
    }

    /// The program.
    pub fn program(&self) -> PathBuf {
        self.path("coverage")
    }
}

/// Builds and records the program; `None` if the tools are not installed.
pub fn coverage() -> Option<&'static Recorded> {
    static RECORDED: OnceLock<Option<Recorded>> = OnceLock::new();
    RECORDED.get_or_init(make).as_ref()
}

fn make() -> Option<Recorded> {
    if !installed(&["aarch64-linux-gnu-gcc", "qemu-aarch64"]) {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let recorded = Recorded { directory };
    std::fs::write(recorded.path("coverage.c"), SOURCE).unwrap();
    let (source, program) = (recorded.path("coverage.c"), recorded.program());
    let built = run(
        "aarch64-linux-gnu-gcc",
        &["-O0", "-g", "-static", arg(&source), "-o", arg(&program)],
    );
    assert!(built.status.success(), "{}", said(&built));
    let snapshot = recorded.snapshot();
    record(&["--cycles"], &snapshot, &program, &[]);
    Some(recorded)
}
