//! Recorded snapshot → trace file of frames → snapshot with trace, which decodes to what was
//! executed, for every program in every protocol.

use crate::support::convert::convert;
use crate::support::program::decode::{by_library, cores};
use crate::support::program::record::{FIRST_ID, Recording, executed};
use crate::support::program::{Code, Program, all, same};
use std::path::{Path, PathBuf};

/// Programs with more instructions than the limit of trace frames.
const LONG: &str = "sieve";

/// The maximum number of instructions for tests with a frame for each, which are slow.
const SHORT: usize = 200_000;

/// The trace files of a snapshot in a new directory: one for each core.
fn trace_files(snapshot: &Path, into: &Path, frames: &str) -> Vec<PathBuf> {
    std::fs::create_dir(into).unwrap();
    let options = ["--state-only", "--frames", frames];
    convert(&options, [snapshot, &into.join("x.tf")]);
    let files = std::fs::read_dir(into).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// The instructions of a core's trace, and the number of starts.
fn decoded(snapshot: &Path, core: &str, code: &Code) -> (Vec<u64>, usize) {
    let mut decoded = Vec::new();
    let beside = by_library(snapshot, core, code, &mut |address, isa| {
        assert_eq!(isa, code.isa(address), "{core}: {address:#x}");
        decoded.push(address);
        true
    });
    assert_eq!(beside.gaps, [], "{core}");
    (decoded, beside.begins())
}

fn there_and_back(program: &Program, protocol: &str) {
    let code = program.code();
    let recording = Recording::of(program, &["--protocol", protocol]);
    let snapshot = recording.snapshot();
    let executed = executed(&recording.witness());
    let cores = cores(&snapshot);
    let length: usize = executed.values().map(Vec::len).sum();
    let kinds = ["waypoints", "instructions"];
    for frames in &kinds[..1 + usize::from(length <= SHORT)] {
        let what = format!("{} {protocol} {frames}", program.name);
        let files = trace_files(&snapshot, &recording.place(frames), frames);
        assert_eq!(files.len(), cores.len(), "{what}");
        for ((core, id), file) in cores.iter().zip(&files) {
            let back = file.with_extension("back");
            convert(&["--trace"], [file, &back]);
            let (found, begins) = decoded(&back, core, &code);
            let executed = &executed[&u32::from(id - FIRST_ID)];
            same(&found, executed, &format!("{what} {core}"));
            // The kernel's handling of a signal is not traced.
            let (_, wanted) = decoded(&snapshot, core, &code);
            assert_eq!(begins, wanted, "{what} {core}");
        }
    }
}

/// Every program of these kinds.
fn all_of(protocol: &str, kinds: &[&str]) {
    for kind in kinds {
        let of_kind = |program: &&Program| program.name.ends_with(&format!("-{kind}"));
        let programs = all().iter().filter(of_kind);
        let programs = programs.filter(|program| !program.name.starts_with(LONG));
        let programs: Vec<&Program> = programs.collect();
        assert!(!programs.is_empty(), "{kind}");
        for program in programs {
            there_and_back(program, protocol);
        }
    }
}

#[test]
fn etmv4_of_64_bits() {
    all_of("etmv4", &["a64"]);
}

#[test]
fn etmv4_of_a32() {
    all_of("etmv4", &["a32", "arm"]);
}

#[test]
fn etmv4_of_t32() {
    all_of("etmv4", &["t32"]);
}

#[test]
fn etmv4_of_systems() {
    all_of("etmv4", &["bare-a15", "bare-m4"]);
}

#[test]
fn ptm_of_a32() {
    all_of("ptm", &["a32", "arm"]);
}

#[test]
fn ptm_of_t32_and_systems() {
    all_of("ptm", &["t32", "bare-a15"]);
}

#[test]
fn etmv3_of_a32() {
    all_of("etmv3", &["a32", "arm"]);
}

#[test]
fn etmv3_of_t32() {
    all_of("etmv3", &["t32"]);
}

#[test]
fn etmv3_of_systems() {
    all_of("etmv3", &["bare-a15", "bare-m4"]);
}
