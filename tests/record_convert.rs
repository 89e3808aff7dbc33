//! Recorded snapshot → trace file of frames → snapshot with trace: what is decoded of the last one
//! is what was executed.
//!
//! The frames are waypoints. Those of ETMv3 are all instructions: each has an atom there, and no
//! waypoint says how far a straight line went before an exception.

mod program_support;

use program_support::decode::{by_library, cores};
use program_support::record::{FIRST_ID, executed, record};
use program_support::{program, same};
use std::path::{Path, PathBuf};
use std::process::Command;

fn convert(options: &[&str], from: &Path, to: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_armsnap"));
    let output = command.arg("convert").args(options).arg(from).arg(to);
    let output = output.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The trace files of a snapshot: one for each core.
fn trace_files(snapshot: &Path, into: &Path, frames: &str) -> Vec<PathBuf> {
    let options = ["--state-only", "--frames", frames];
    convert(&options, snapshot, &into.join("x.tf"));
    let files = std::fs::read_dir(into).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "tf"));
    files.sort();
    files
}

fn there_and_back(name: &str, protocol: &str) {
    let program = program(name);
    let code = program.code();
    let working = tempfile::tempdir().unwrap();
    let snapshot = working.path().join("snapshot");
    let witness = working.path().join("witness");
    let output = record(program, &snapshot, &witness, &["--protocol", protocol]);
    assert!(output.status.success(), "{output:?}");
    let executed = executed(&witness);
    let cores = cores(&snapshot);
    let frames = if protocol == "etmv3" {
        "instructions"
    } else {
        "waypoints"
    };
    let files = trace_files(&snapshot, working.path(), frames);
    assert_eq!(files.len(), cores.len(), "{name}");
    for ((core, id), file) in cores.iter().zip(&files) {
        let back = file.with_extension("back");
        convert(&["--trace"], file, &back);
        let mut decoded = Vec::new();
        let gaps = by_library(&back, core, &code, &mut |address, isa| {
            assert_eq!(isa, code.isa(address), "{name} {core}: {address:#x}");
            decoded.push(address);
            true
        });
        assert_eq!(gaps, [], "{name} {core}");
        let executed = &executed[&u32::from(id - FIRST_ID)];
        same(&decoded, executed, &format!("{name} {core}"));
    }
}

#[test]
fn etmv4_of_linux_programs() {
    for name in [
        "recursion-a64",
        "pac-a64",
        "signals-a64",
        "far-a64",
        "crash-t32",
    ] {
        there_and_back(name, "etmv4");
    }
}

#[test]
fn ptm_of_linux_programs() {
    for name in [
        "interwork-arm",
        "itblocks-arm",
        "tables-t32",
        "switches-a32",
    ] {
        there_and_back(name, "ptm");
    }
}

#[test]
fn etmv3_of_linux_programs() {
    for name in ["deep-a32", "signals-t32", "far-arm-arm"] {
        there_and_back(name, "etmv3");
    }
}

#[test]
fn systems_with_interrupts_and_two_cores() {
    there_and_back("irq-a64-bare-a64", "etmv4");
    there_and_back("irq-m4-bare-m4", "etmv4");
    there_and_back("irq-a15-bare-a15", "ptm");
    there_and_back("cores-a64-bare-a64", "etmv4");
}
