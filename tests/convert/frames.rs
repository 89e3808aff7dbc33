//! The trace frames that `armsnap convert` writes, compared with the listing of `armsnap decode`.

use crate::support::convert::frames::{FrameInstruction, frames, listed, listings};
use crate::support::convert::{convert, open};
use crate::support::gdb::shared;
use armsnap::tfile::File;
use std::path::Path;

/// The frames of one core.
fn converted(path: &Path, core: &str, options: &[&str]) -> Vec<FrameInstruction> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("out.tf");
    convert(&[&["--core", core], options].concat(), [path, &file]);
    let bytes = std::fs::read(file).unwrap();
    frames(&File::open(&bytes, None).unwrap())
}

/// Every frame of every core equals the listing.
#[test]
fn frames_equal_the_instructions_that_decode_lists() {
    // The two with the largest listings are tested in GDB.
    let names = [
        "recorded/etmv4",
        "recorded/ptm",
        "recorded/etmv3",
        "TC2",
        "maxspec0_commopt1",
        "q_elem",
        "tme_simple",
        "trace_cov_a15",
        "trace_file_vmid",
        "ts_marker",
        "ete-ite-instr",
        "juno_r1_1",
    ];
    for name in names {
        let Some(path) = shared(name) else {
            return;
        };
        let loaded = open(&path);
        let mut all = 0;
        for (core, wanted) in listed(&path, &loaded) {
            let core = &loaded.snapshot.devices[core].name;
            let options = ["--frames", "instructions", "--last", "1000000"];
            let found = converted(&path, core, &options);
            // The path of a Q element is unknown, but its first instruction is known.
            let q = name == "q_elem";
            let found: Vec<FrameInstruction> = if q {
                let mut wanted = wanted.iter().peekable();
                let same = |instruction: &FrameInstruction| {
                    wanted.next_if(|w| *w == instruction).is_some()
                };
                found.into_iter().filter(same).collect()
            } else {
                found
            };
            assert_eq!(found.len(), wanted.len(), "{name} {core}");
            for (number, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                assert_eq!(found, wanted, "{name} {core} {number}");
            }
            all += found.len();
        }
        assert!(all > 0, "{name}");
    }
}

/// By default frames are the last instructions of the ranges that `decode` lists.
#[test]
fn waypoints_end_the_ranges_that_decode_lists() {
    for name in [
        "recorded/etmv4",
        "recorded/ptm",
        "recorded/etmv3",
        "trace_file_vmid",
        "TC2",
        "juno_r1_1",
        "maxspec0_commopt1",
        "ete_spec_1",
    ] {
        let Some(path) = shared(name) else {
            return;
        };
        let loaded = open(&path);
        let mut all = 0;
        for (core, listings) in listings(&path, &loaded, true) {
            let wanted = listings
                .iter()
                .flat_map(|listing| listing.ends.iter().map(|&end| &listing.instructions[end]));
            let wanted: Vec<(u64, i64)> = wanted
                .map(|instruction| (instruction.pc, instruction.variables["offset"]))
                .collect();
            let core = &loaded.snapshot.devices[core].name;
            let found = converted(&path, core, &[]);
            let found: Vec<(u64, i64)> = found
                .iter()
                .map(|instruction| (instruction.pc, instruction.variables["offset"]))
                .collect();
            assert_eq!(found.len(), wanted.len(), "{name} {core}");
            assert!(found == wanted, "{name} {core}");
            all += found.len();
        }
        assert!(all > 0, "{name}");
    }
}
