//! Recorded snapshots with longer trace.

use std::path::Path;
use tempfile::TempDir;

/// Copies a snapshot of `testdata/recorded`, with its trace repeated until it has at least `bytes`.
pub fn repeated(name: &str, bytes: usize) -> TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/recorded")
        .join(name);
    let to = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    let trace = std::fs::read(to.path().join("trace.bin")).unwrap();
    let trace = trace.repeat(bytes / trace.len() + 1);
    std::fs::write(to.path().join("trace.bin"), trace).unwrap();
    to
}
