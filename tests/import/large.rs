//! Memory in use for perf.data of any size: the trace is mapped, and not kept.

use crate::perf_builder::PerfData;
use crate::perf_generated::{ETMV4, at, etmv4, process, recorded};
use crate::support::gdb::armsnap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The flag of a record of trace without formatter frames (PERF_AUX_FLAG_CORESIGHT_FORMAT_RAW).
const RAW: u64 = 0x100;
/// The size of a piece.
const PIECE: usize = 1 << 20;

/// A recording of a thread, with this many pieces of trace.
fn recording(pieces: u64) -> PerfData {
    let mut file = process();
    file.info(1, &[(ETMV4, 0, etmv4(0x10))]);
    let trace = recorded("etmv4", 0x10);
    let mut piece = trace.repeat(PIECE / trace.len());
    piece.resize(PIECE, 0);
    for number in 0..pieces {
        let offset = number * piece.len() as u64;
        file.aux(offset, piece.len() as u64, RAW, at(100, 10 + number, 0));
        file.trace(offset, u32::MAX, 100, &piece);
    }
    file
}

/// Runs `info`, `check` and `import` with at most this much memory of their own, in KiB: the
/// system refuses more. The mapped file does not count.
fn run_within(limit: u64, file: &Path, into: &Path) {
    for (name, more) in [("info", None), ("check", None), ("import", Some(into))] {
        let mut command = Command::new("sh");
        // A back trace needs memory of its own: without any left it never ends.
        command.env("RUST_BACKTRACE", "0");
        let limited = format!("ulimit -d {limit}; exec \"$0\" \"$@\"");
        command.arg("-c").arg(limited).arg(armsnap().get_program());
        let output = command.arg(name).arg(file).args(more).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}\n{told}", output.status);
    }
}

#[test]
fn memory_in_use_does_not_grow_with_the_recording() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("perf.data");
    // 128 MiB of trace; 4 MiB of memory suffice for it.
    fs::write(&path, recording(128).file()).unwrap();
    let copy = scratch.path().join("copy");
    run_within(16 << 10, &path, &copy);
    assert!(copy.is_dir());
}
