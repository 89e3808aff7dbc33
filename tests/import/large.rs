//! Memory in use for perf.data of any size: the trace is mapped, and not kept.

use crate::perf_builder::PerfData;
use crate::perf_generated::{ETMV4, at, etmv4, process, recorded};
use crate::support::gdb::armsnap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

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

/// The most memory in use, in KiB, without the mapped file.
fn peak(command: &mut Command) -> u64 {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let ended = loop {
        let status = fs::read_to_string(&status).unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let size = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        peak = peak.max(size.unwrap_or(0));
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
    };
    assert!(ended.success(), "{command:?}: {ended}");
    assert!(peak > 0, "no memory in use was seen");
    peak
}

/// In KiB: what `info`, `check` and `import` need.
fn peaks(file: &Path, into: &Path) -> [u64; 3] {
    let of = |name: &str, more: Option<&Path>| {
        let mut command = armsnap();
        command.arg(name).arg(file).args(more);
        peak(&mut command)
    };
    [
        of("info", None),
        of("check", None),
        of("import", Some(into)),
    ]
}

#[test]
fn memory_in_use_does_not_grow_with_the_recording() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("perf.data");
    fs::write(&path, recording(8).file()).unwrap();
    let small = peaks(&path, &scratch.path().join("small"));
    fs::write(&path, recording(128).file()).unwrap();
    let large = peaks(&path, &scratch.path().join("large"));
    let copy = fs::metadata(scratch.path().join("large"));
    assert!(copy.unwrap().is_dir());
    // 8 MiB and 128 MiB of trace.
    for (small, large) in small.into_iter().zip(large) {
        assert!(large < small + (1 << 10), "{small} KiB, {large} KiB");
    }
}
