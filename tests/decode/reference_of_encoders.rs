//! The reference decoder decodes our trace to the same instructions.
//!
//! The programs exclude what version 1.3.3 decodes differently:
//! - BLX (immediate): if it fails the condition of its IT block, and in ETMv3 before a P-header,
//!   the reference continues in the wrong instruction set. In random programs it also leads into
//!   code of the other instruction set, with unpredictable instructions.
//! - PTM: it decodes a branch with a new security state as an exception.

use crate::random_programs::{Mix, Program, Sets, Step, same};
use armsnap::encode::CodeAddress;
use armsnap::etm::Registers;
use armsnap::flow::{self, Pieces, View};
use armsnap::formatter;
use armsnap::protocol::Core;
use armsnap::quantity::{Address, Isa, TraceId};
use armsnap::snapshot::files::InMemory;
use armsnap::snapshot::model::{
    Buffer, BufferFormat, CoreSource, Device, DeviceClass, Dump, Register, RegisterValue, Snapshot,
    SourceBuffers, Trace,
};
use armsnap::snapshot::write::write;
use armsnap::{etmv3, etmv4, ptm};
use std::path::Path;
use std::process::Command;

const TOOL: &str = "trc_pkt_lister";
const ID: u8 = 0x10;

/// Returns the reference's listing of a snapshot's elements; `None` if it is not installed.
fn listing(snapshot: &Path) -> Option<String> {
    // It writes a log file to the current directory.
    let working = tempfile::tempdir().unwrap();
    let file = working.path().join("listing");
    let run = Command::new(TOOL)
        .current_dir(&working)
        .arg("-ss_dir")
        .arg(snapshot)
        .args(["-decode_only", "-logfilename"])
        .arg(&file)
        .output()
        .ok()?;
    assert!(run.status.success(), "{run:?}");
    Some(String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned())
}

/// Parses the hex number after `label`.
fn hex(line: &str, label: &str) -> u64 {
    let rest = &line[line.find(label).unwrap() + label.len()..];
    let end = rest
        .find(|c: char| !c.is_ascii_hexdigit())
        .unwrap_or(rest.len());
    u64::from_str_radix(&rest[..end], 16).unwrap()
}

/// The instructions of a listing.
fn instructions(listing: &str, code: &Pieces) -> Vec<CodeAddress> {
    let mut places = Vec::new();
    for line in listing
        .lines()
        .filter(|line| line.contains("OCSD_GEN_TRC_ELEM_"))
    {
        if line.contains("INSTR_RANGE") {
            let isa = match &line[line.find("(ISA=").unwrap() + 5..] {
                isa if isa.starts_with("A64") => Isa::A64,
                isa if isa.starts_with("A32") => Isa::A32,
                isa if isa.starts_with("T32") => Isa::T32,
                other => panic!("{other}"),
            };
            let mut address = Address(hex(line, "exec range=0x"));
            let end = Address(hex(line, ":[0x"));
            while address < end {
                places.push(CodeAddress { address, isa });
                address = flow::next(code, View::default(), isa, address);
            }
        }
    }
    places
}

fn registers(values: &[(&str, u32)]) -> Vec<Register> {
    let register = |&(name, value): &(&str, u32)| Register {
        name: name.to_owned(),
        value: RegisterValue(value.to_le_bytes().to_vec()),
        ..Register::default()
    };
    values.iter().map(register).collect()
}

/// A snapshot of one core and its trace.
fn snapshot(
    program: &Program,
    core: &str,
    kind: &str,
    values: &[(&str, u32)],
    trace: &[u8],
    dir: &Path,
) {
    let mut frames = Vec::new();
    let mut encoder = formatter::encode::Encoder::new();
    encoder.write(TraceId(ID), trace, &mut frames);
    encoder.finish(&mut frames);
    let mut files = InMemory::default();
    files.0.insert("trace.bin".to_owned(), frames.into());
    let mut dumps = Vec::new();
    for (index, (address, bytes)) in program.regions.iter().enumerate() {
        let file = format!("code{index}.bin");
        // The reference reads four bytes of every instruction, even of a shorter one.
        let bytes = [&bytes[..], &[0; 2]].concat();
        dumps.push(Dump {
            section: format!("dump{index}"),
            file: file.clone(),
            address: *address,
            length: Some(bytes.len() as u64),
            ..Dump::default()
        });
        files.0.insert(file, bytes.into());
    }
    let devices = vec![
        Device {
            key: "device0".to_owned(),
            file: "cpu.ini".to_owned(),
            name: "cpu".to_owned(),
            class: DeviceClass::Core,
            kind: core.to_owned(),
            registers: registers(&[("PC", program.next.address.0 as u32)]),
            dumps,
            ..Device::default()
        },
        Device {
            key: "device1".to_owned(),
            file: "source.ini".to_owned(),
            name: "source".to_owned(),
            class: DeviceClass::TraceSource,
            kind: kind.to_owned(),
            registers: registers(values),
            ..Device::default()
        },
    ];
    let trace = Trace {
        file: "trace.ini".to_owned(),
        buffers: vec![Buffer {
            id: "buffer0".to_owned(),
            name: "ETB".to_owned(),
            files: vec!["trace.bin".to_owned()],
            format: BufferFormat::Coresight,
            ..Buffer::default()
        }],
        core_sources: vec![CoreSource {
            core: "cpu".to_owned(),
            source: "source".to_owned(),
            ..CoreSource::default()
        }],
        source_buffers: Some(vec![SourceBuffers {
            source: "source".to_owned(),
            buffers: vec!["ETB".to_owned()],
            ..SourceBuffers::default()
        }]),
        ..Trace::default()
    };
    let snapshot = Snapshot {
        version: "1.0".to_owned(),
        devices,
        trace: Some(trace),
        ..Snapshot::default()
    };
    let notes = write(&snapshot, &files, dir, false).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
}

/// Compares the reference's instructions with those executed. Returns false, with a warning, if the
/// reference is not installed.
fn compare(
    what: &str,
    program: &Program,
    core: &str,
    kind: &str,
    values: &[(&str, u32)],
    trace: &[u8],
) -> bool {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("snapshot");
    snapshot(program, core, kind, values, trace, &dir);
    let Some(listing) = listing(&dir) else {
        eprintln!("SKIPPED: {TOOL} is not installed");
        return false;
    };
    let decoded = instructions(&listing, &program.code);
    same(&decoded, &program.executed, what);
    true
}

#[test]
fn the_reference_reads_our_etmv4() {
    for seed in 0..24 {
        let bit = |n: u64| seed >> n & 1 == 1;
        let options = etmv4::TraceUnitOptions {
            cycles: bit(0).then_some(8),
            timestamps: bit(1),
            context_ids: bit(2),
            vmids: bit(2),
            return_stack: bit(1) ^ bit(3),
            branch_broadcast: seed == 7,
            ..etmv4::TraceUnitOptions::default()
        };
        let sets = [Sets::AArch64, Sets::AArch32, Sets::Both][seed as usize % 3];
        let program = Program::random(
            0x1234_5678 * (seed + 1),
            Mix {
                exchanges: false,
                ..Mix::all(sets)
            },
            3000,
        );
        let trace = program.trace(etmv4::TraceUnit::new(options), if bit(0) { 200 } else { 0 });
        let registers = options.registers();
        let what = format!("seed {seed} {options:?}");
        if !compare(&what, &program, "Cortex-A57", "ETM4.2", &registers, &trace) {
            return;
        }
    }
}

#[test]
fn the_reference_reads_our_etmv4_of_microcontrollers() {
    for seed in 0..8 {
        let bit = |n: u64| seed >> n & 1 == 1;
        let (core, version) = match bit(0) {
            true => ("ARMv8-M", 8),
            false => ("ARMv7-M", 7),
        };
        let options = etmv4::TraceUnitOptions {
            core: Core::microcontroller(version),
            cycles: bit(1).then_some(8),
            timestamps: bit(1),
            return_stack: bit(2),
            ..etmv4::TraceUnitOptions::default()
        };
        let mix = Mix {
            contexts: false,
            ..Mix::all(Sets::Microcontroller)
        };
        let program = Program::random(0x1234_5678 * (seed + 1), mix, 3000);
        let chained = |step: &&Step| matches!(step, Step::TailChain(_));
        assert!(program.steps.iter().filter(chained).count() > 5);
        let trace = program.trace(etmv4::TraceUnit::new(options), if bit(0) { 200 } else { 0 });
        let what = format!("seed {seed} {options:?}");
        if !compare(
            &what,
            &program,
            core,
            "ETM4.2",
            &options.registers(),
            &trace,
        ) {
            return;
        }
    }
}

#[test]
fn the_reference_reads_our_etmv3_of_microcontrollers() {
    for (seed, etmcr) in (1..).zip([0, 0x1000, 0, 0x1000]) {
        let (registers, named) = legacy(etmcr, 0x1854_1800, 0x4114_f250);
        let config = etmv3::Config::read(&registers, Core::microcontroller(7));
        let mix = Mix {
            contexts: false,
            ..Mix::all(Sets::Microcontroller)
        };
        let mut program = Program::random(0x1357_9bdf * seed, mix, 3000);
        program.most_cycles = 0x3f;
        let chained = |step: &&Step| matches!(step, Step::TailChain(_));
        assert!(program.steps.iter().filter(chained).count() > 5);
        let trace = program.trace(etmv3::TraceUnit::new(config), 200);
        let what = format!("ETMCR {etmcr:#x}");
        if !compare(&what, &program, "Cortex-M4", "ETM3.5", &named, &trace) {
            return;
        }
    }
}

/// ETMCR, ETMCCER and ETMIDR of PTM and ETMv3.
fn legacy(etmcr: u32, etmccer: u32, etmidr: u32) -> (Registers, [(&'static str, u32); 4]) {
    let registers = Registers {
        etmcr,
        etmccer,
        etmidr,
        etmtraceidr: ID.into(),
    };
    let named = [
        ("ETMCR", etmcr),
        ("ETMCCER", etmccer),
        ("ETMIDR", etmidr),
        ("ETMTRACEIDR", ID.into()),
    ];
    (registers, named)
}

#[test]
fn the_reference_reads_our_ptm() {
    for (seed, etmcr) in (1..).zip([0, 0x1000, 0xc000, 0x2000_0000, 0x2000_d000, 0x100]) {
        let (registers, named) = legacy(etmcr, 0x34c0_1ac2, 0x411c_f312);
        let config = ptm::Config::read(&registers, Core::default());
        let program = Program::random(
            0x2468_ace1 * seed,
            Mix {
                exchanges: false,
                contexts: false,
                ..Mix::all(Sets::AArch32)
            },
            3000,
        );
        let trace = program.trace(ptm::TraceUnit::new(config), 200);
        let what = format!("ETMCR {etmcr:#x}");
        if !compare(&what, &program, "Cortex-A15", "PTM1.1", &named, &trace) {
            return;
        }
    }
}

#[test]
fn the_reference_reads_our_etmv3() {
    for (seed, etmcr) in (1..).zip([0, 0x1000, 0xc000, 0xd100]) {
        for etmidr in [0x410c_f250, 0x411c_f250] {
            let (registers, named) = legacy(etmcr, 0x3440_08f2, etmidr);
            let config = etmv3::Config::read(&registers, Core::default());
            let mut program = Program::random(
                0x1357_9bdf * seed,
                Mix {
                    exchanges: false,
                    contexts: false,
                    ..Mix::all(Sets::AArch32)
                },
                3000,
            );
            program.most_cycles = 0x3f;
            let trace = program.trace(etmv3::TraceUnit::new(config), 200);
            let what = format!("ETMCR {etmcr:#x} ETMIDR {etmidr:#x}");
            if !compare(&what, &program, "Cortex-A7", "ETM3.5", &named, &trace) {
                return;
            }
        }
    }
}
