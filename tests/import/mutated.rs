//! Inputs with damage anywhere: each is read or refused, in time and memory in proportion, and what
//! is read can be opened. `tests/long` has many more of those that are recognised.

use crate::support::damaged::{self, Whole, damaged};
use crate::support::gdb::testdata;
use armsnap::import::{NamedProgram, Options, import_raw};
use std::fs;
use std::process::Command;

/// How many inputs of each kind are used.
const INPUTS: usize = 300;

#[test]
fn core_files() {
    // Core files of systems are large.
    damaged(200, damaged::cores::all);
}

#[test]
fn recordings_of_perf() {
    damaged(INPUTS, damaged::perf::all);
}

#[test]
fn core_dumps_of_zephyr() {
    damaged(INPUTS, damaged::zephyr::all);
}

#[test]
fn dumps_of_crash_catcher() {
    damaged(INPUTS, damaged::crash_catcher::all);
}

#[test]
fn logs_of_kernels() {
    damaged(INPUTS, damaged::kernel_log::all);
}

#[test]
fn tarmac_traces() {
    damaged(INPUTS, damaged::tarmac::all);
}

#[test]
fn tombstones() {
    damaged(INPUTS, damaged::tombstone::all);
}

#[test]
fn minidumps() {
    damaged(INPUTS, damaged::minidump::all);
}

#[test]
fn archives_of_snapshots() {
    damaged(60, |directory| {
        let tar = directory.join("board.tar");
        let mut command = Command::new("tar");
        command
            .arg("-cf")
            .arg(&tar)
            .arg("-C")
            .arg(testdata("recorded"));
        assert!(command.arg("etmv4").status().unwrap().success());
        let bytes = fs::read(tar).unwrap();
        let mut packed = Whole::new(
            "packed",
            damaged::gzip(&bytes),
            directory,
            Options::default(),
        );
        packed.unpacked = 256;
        vec![
            Whole::new("archive", bytes, directory, Options::default()),
            packed,
        ]
    });
}

#[test]
fn modules_of_a_kernel() {
    damaged(INPUTS, damaged::modules::all);
}

#[test]
fn buffers_of_trace() {
    damaged(40, |directory| {
        let trace = fs::read(testdata("recorded/etmv4/trace.bin")).unwrap();
        let mut whole = Whole::new("buffer", trace, directory, Options::default());
        whole.read = |path, options| import_raw(None, &[path.to_owned()], options);
        vec![whole]
    });
}

#[test]
fn images_of_memory() {
    damaged(INPUTS, |directory| {
        let hex = b":020000040800F2\n:0400100001020304E2\n:0200140005 06DF\n:00000001FF\n";
        let hex = hex.iter().copied().filter(|byte| *byte != b' ').collect();
        let records = b"S00600004844521B\nS1051000AABB85\nS205010000CC2D\nS9030000FC\n";
        let forms = [("hex", hex), ("records", records.to_vec())];
        let forms = forms.map(|(name, bytes)| {
            let mut whole = Whole::new(name, bytes, directory, Options::default());
            whole.options.memory = vec![NamedProgram {
                path: whole.file.clone(),
                address: Some(0xFFFF_FFFF_FFFF_FFF0),
            }];
            whole.read = |_, options| import_raw(None, &[], options);
            whole
        });
        forms.into()
    });
}

#[test]
fn packets_of_an_mtb() {
    let words: [u32; 10] = [
        0x100,
        0x201,
        0x210,
        0x300,
        0x305,
        0x80,
        0x84,
        0xFFFF_FFF8,
        0xFFFF_FFF9,
        0x304,
    ];
    damaged(INPUTS, |directory| {
        let ram = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut whole = Whole::new("ram", ram, directory, Options::default());
        whole.options = Options {
            mtb: Some(NamedProgram {
                path: whole.file.clone(),
                address: Some(0x2000_0000),
            }),
            elf: vec![NamedProgram {
                path: testdata("mps2-m4/program.elf"),
                address: None,
            }],
            registers: [("POSITION", 0x28), ("MASTER", 0x8000_0002), ("PC", 0x310)]
                .map(|(name, value)| (name.to_owned(), value))
                .to_vec(),
            ..Options::default()
        };
        whole.read = |_, options| import_raw(None, &[], options);
        vec![whole]
    });
}
