//! Inputs with damage anywhere: each is read or refused, in time and memory in proportion, and what
//! is read can be opened.

use crate::core_files::core_file;
use crate::perf_generated::every_record;
use crate::support::gdb::testdata;
use armsnap::import::{
    ImportError, Imported, NamedProgram, Options, core_file, import_raw, perf, zephyr,
};
use armsnap::mapped::Mapped;
use armsnap::program::module_file::{ModuleFile, Placement};
use armsnap::program::symbols::Symbols;
use armsnap::snapshot::OpenOptions;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// A change of an input, at a place that is counted modulo its length.
#[derive(Clone, Debug)]
enum Damage {
    Bits(usize, u8),
    /// A number of 2, 4 or 8 bytes, as lengths, counts and addresses are.
    Number(usize, usize, u64),
    Cut(usize),
    /// Bytes of another place.
    Copied(usize, usize, usize),
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len().max(1);
        match *self {
            Self::Bits(at, bits) => {
                if let Some(byte) = bytes.get_mut(at % length) {
                    *byte ^= bits;
                }
            }
            Self::Number(at, size, value) => {
                // Most numbers of these formats are aligned.
                let at = at % length / 2 * 2;
                for (byte, new) in bytes.iter_mut().skip(at).zip(&value.to_le_bytes()[..size]) {
                    *byte = *new;
                }
            }
            Self::Cut(at) => bytes.truncate(at % length),
            Self::Copied(from, to, count) => {
                let from = from % length;
                let copy = bytes[from..(from + count).min(bytes.len())].to_vec();
                for (byte, new) in bytes.iter_mut().skip(to % length).zip(copy) {
                    *byte = new;
                }
            }
        }
    }
}

/// Half of the damage is near the start, where headers are.
fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let at = || prop_oneof![0..600_usize, any::<usize>()];
    let extreme = || {
        prop_oneof![
            Just(0),
            Just(1),
            Just(u64::MAX),
            Just(u64::MAX - 7),
            Just(1 << 63),
            Just(0x7FFF_FFFF),
            Just(0xFFFF_FFF8),
            0..256_u64,
            any::<u64>(),
        ]
    };
    let size = prop_oneof![Just(2_usize), Just(4), Just(8)];
    let one = prop_oneof![
        3 => (at(), 1..=255_u8).prop_map(|(at, bits)| Damage::Bits(at, bits)),
        6 => (at(), size, extreme()).prop_map(|(at, size, value)| Damage::Number(at, size, value)),
        1 => at().prop_map(Damage::Cut),
        1 => (at(), at(), 1..64_usize).prop_map(|(from, to, count)| Damage::Copied(from, to, count)),
    ];
    prop::collection::vec(one, 1..5)
}

/// Reads `cases` damaged copies of an input.
fn damaged(whole: &[u8], cases: u32, read: impl Fn(Mapped) -> Result<Imported, ImportError>) {
    let input = Path::new("input");
    let undamaged = read(whole.to_vec().into()).expect("the input is read without damage");
    undamaged.open(input, &OpenOptions::default()).unwrap();
    damaged_by(whole, cases, |bytes| {
        if let Ok(imported) = read(bytes) {
            let opened = imported.open(input, &OpenOptions::default());
            opened.expect("what is imported can be opened");
        }
    });
}

/// Reads `cases` damaged copies of bytes, within a time and in memory in proportion.
fn damaged_by(whole: &[u8], cases: u32, read: impl Fn(Mapped)) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let before = peak_memory();
    let slowest = std::cell::Cell::new(Duration::ZERO);
    let test = |all: Vec<Damage>| {
        let start = Instant::now();
        let mut bytes = whole.to_vec();
        for one in &all {
            one.apply(&mut bytes);
        }
        read(bytes.into());
        slowest.set(slowest.get().max(start.elapsed()));
        assert!(slowest.get() < PATIENCE, "{:?}: {all:?}", slowest.get());
        Ok(())
    };
    runner.run(&damage(), test).unwrap();
    let memory = peak_memory().saturating_sub(before);
    let most = MEMORY + MEMORY_PER_BYTE * whole.len() as u64;
    assert!(
        memory < most,
        "{memory} bytes of memory: expected less than {most}"
    );
    eprintln!(
        "{cases} of {} bytes: {memory} bytes of memory, {:?}",
        whole.len(),
        slowest.get()
    );
}

/// Much longer than reading any of these small inputs takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most memory for an input, and further bytes for each of its bytes.
const MEMORY: u64 = 256 << 20;
const MEMORY_PER_BYTE: u64 = 64;

/// The peak of this process's memory in bytes; 0 where the system does not say.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let size = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    size.unwrap_or(0_u64) << 10
}

fn options() -> Options {
    Options {
        symfs: vec![testdata("recorded/etmv4")],
        ..Options::default()
    }
}

#[test]
fn damaged_perf_data_is_read_or_refused() {
    damaged_perf_data(400);
}

fn damaged_perf_data(cases: u32) {
    let (file, piped) = every_record();
    let options = options();
    let read = |bytes| perf::import_bytes(Path::new("perf.data"), bytes, &options);
    damaged(&file, cases, read);
    damaged(&piped, cases, read);
    let Some(captures) = crate::capture("perf") else {
        return;
    };
    for name in ["perf_etm.data", "perf_with_unformatted_trace.data"] {
        damaged(&fs::read(captures.join(name)).unwrap(), 200, read);
    }
}

#[test]
fn damaged_core_files_are_read_or_refused() {
    damaged_core_files(600);
}

fn damaged_core_files(cases: u32) {
    let scratch = tempfile::tempdir().unwrap();
    let whole = fs::read(core_file(scratch.path())).unwrap();
    let options = options();
    let read = |bytes| core_file::import_bytes(Path::new("core"), bytes, &options);
    damaged(&whole, cases, read);
}

#[test]
fn damaged_dumps_of_zephyr_are_read_or_refused() {
    damaged_dumps_of_zephyr(1000);
}

/// Takes about an hour with 20,000 cases of each kind without optimisation: `cargo test --release --test import
/// many_damaged -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn many_damaged_inputs_are_read_or_refused() {
    damaged_dumps_of_zephyr(20_000);
    damaged_core_files(20_000);
    damaged_modules(20_000);
    damaged_perf_data(10_000);
}

#[test]
fn damaged_modules_are_read_or_refused() {
    damaged_modules(300);
}

/// Modules as a recording of perf finds them: linked where they were loaded.
fn damaged_modules(cases: u32) {
    let Some(whole) = crate::modules::built() else {
        return;
    };
    damaged_by(&whole, cases, |bytes| {
        if let Some(module) = ModuleFile::read(&bytes) {
            let placement = Placement::of_code(&module, 0xFFFF_8000_0000_0000);
            let linked = module.link(&placement, &|_| Some(0xFFFF_8000_1000_0000));
            // Its names, as of a program that is shown.
            let _ = Symbols::default().add(&linked.file);
        }
    });
}

fn damaged_dumps_of_zephyr(cases: u32) {
    let mut whole = b"ZE\x02\x00\x03\x00\x05\x00\x19\x00\x00\x00A\x02\x00\x44\x00".to_vec();
    whole.extend(1..=68);
    for (start, count) in [(0x2000_0000_u32, 64_u32), (0x2000_1000, 32)] {
        whole.extend(b"M\x01\x00");
        whole.extend(start.to_le_bytes());
        whole.extend((start + count).to_le_bytes());
        whole.extend(vec![7; count as usize]);
    }
    let options = Options::default();
    let read = |bytes| zephyr::import_bytes(Path::new("dump"), bytes, &options);
    damaged(&whole, cases, read);
}

#[test]
fn damaged_buffers_are_read_or_refused() {
    let trace = fs::read(testdata("recorded/etmv4/trace.bin")).unwrap();
    let hex = b":020000040800F2\n:0400100001020304E2\n:0200140005 06DF\n:00000001FF\n";
    let hex: Vec<u8> = hex.iter().copied().filter(|byte| *byte != b' ').collect();
    let records = b"S00600004844521B\nS1051000AABB85\nS205010000CC2D\nS9030000FC\n";
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("buffer");
    let raw = |bytes: Mapped| {
        fs::write(&path, &*bytes).unwrap();
        import_raw(None, std::slice::from_ref(&path), &Options::default())
    };
    damaged(&trace, 40, raw);
    let memory = |bytes: Mapped| {
        fs::write(&path, &*bytes).unwrap();
        let memory = NamedProgram {
            path: path.clone(),
            address: Some(0xFFFF_FFFF_FFFF_FFF0),
        };
        let options = Options {
            memory: vec![memory],
            ..Options::default()
        };
        import_raw(None, &[], &options)
    };
    damaged(&hex, 300, memory);
    damaged(records, 300, memory);
}

#[test]
fn damaged_packets_of_an_mtb_are_read_or_refused() {
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
    let ram: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("ram");
    let options = Options {
        mtb: Some(NamedProgram {
            path: path.clone(),
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
    let read = |bytes: Mapped| {
        fs::write(&path, &*bytes).unwrap();
        import_raw(None, &[], &options)
    };
    damaged(&ram, 300, read);
}
