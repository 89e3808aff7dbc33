//! Program flow logged by the emulator: its trace, in each protocol and with
//! each option, decodes to the same instructions.

use std::collections::BTreeMap;
use std::process::Stdio;

use crate::support::program::{Beside, Code, Each, Program, all, same, wait};
use armsnap::element::{Context, Mark};
use armsnap::encode::{CodeAddress, TraceUnit, Tracer};
use armsnap::etm::Registers;
use armsnap::flow::{Flow, FlowConfig, FlowDriver, Waypoints};
use armsnap::protocol::{Core, Describe, ElementDecoder, PacketDecoder};
use armsnap::quantity::{Address, BufferOffset, ExceptionLevel, Security};
use armsnap::{etmv3, etmv4, ptm};

/// The addresses that each thread of a user program executed, from the emulator's log.
fn logged(program: &Program) -> Vec<Vec<u64>> {
    let working = tempfile::tempdir().unwrap();
    let log = working.path().join("log");
    let options = ["-singlestep", "-d", "nochain,exec", "-D"];
    let mut command = program.emulator(&[&options[..], &[log.to_str().unwrap()]].concat());
    command.current_dir(&working).stderr(Stdio::null());
    wait(&mut command.spawn().unwrap(), &program.name);
    let mut threads: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in std::fs::read_to_string(log).unwrap().lines() {
        // Trace 0: 0x7ff72b403440 [00000480/00010014/00000000/00000201] on_user
        let Some(rest) = line.strip_prefix("Trace ") else {
            continue;
        };
        let (thread, rest) = rest.split_once(':').unwrap();
        let address = rest.split('/').nth(1).unwrap();
        threads
            .entry(thread.to_owned())
            .or_default()
            .push(u64::from_str_radix(address, 16).unwrap());
    }
    threads.into_values().collect()
}

/// Optional contents of a trace.
#[derive(Clone, Copy, Debug, Default)]
struct Extras {
    cycles: bool,
    timestamps: bool,
    events: bool,
    contexts: bool,
}

/// The trace of these instructions, and the number of gaps.
fn traced<U: TraceUnit>(
    unit: U,
    code: &Code,
    executed: &[u64],
    extras: Extras,
    sync: usize,
) -> (Vec<u8>, u64) {
    let mut tracer = Tracer::new(unit, &code.pieces, sync);
    let mut context = Context {
        el: Some(ExceptionLevel(0)),
        security: Some(Security::NonSecure),
        context_id: Some(1),
        vmid: Some(1),
        ..Context::default()
    };
    tracer.context(context);
    let mut bytes = Vec::new();
    for (index, &address) in (0u64..).zip(executed) {
        let isa = code.isa(address);
        let place = CodeAddress {
            address: Address(address),
            isa,
        };
        if extras.contexts && index % 997 == 996 {
            context.context_id = Some((index >> 3) as u32);
            context.el = Some(ExceptionLevel((index & 1) as u8));
            tracer.context(context);
        }
        tracer.run(place, Address(address + code.length(address, isa)));
        if extras.cycles {
            tracer.cycles((index % 3 + u64::from(index % 41 == 0) * 60) as u32);
        }
        if extras.timestamps && index % 101 == 0 {
            tracer.mark(Mark::Timestamp(index * index));
        }
        if extras.events && index % 89 == 0 {
            tracer.mark(Mark::Event((index % 15) as u8 + 1));
        }
        tracer.take(&mut bytes);
    }
    let last = *executed.last().unwrap();
    let isa = code.isa(last);
    tracer.finish(Some(CodeAddress {
        address: Address(last + code.length(last, isa)),
        isa,
    }));
    tracer.take(&mut bytes);
    (bytes, tracer.gaps())
}

/// The contents of a trace: instructions, marks, and the number of packets of each kind.
struct Record {
    executed: Vec<u64>,
    marks: Vec<Mark>,
    kinds: BTreeMap<String, usize>,
}

fn decoded<D, E>(
    mut packets: D,
    mut elements: E,
    flow: FlowConfig,
    code: &Code,
    bytes: &[u8],
    kind: impl Fn(&D::Packet) -> String,
) -> Record
where
    D: PacketDecoder,
    E: ElementDecoder<Packet = D::Packet>,
{
    let mut executed = Vec::new();
    let mut kinds = BTreeMap::new();
    let mut driver = FlowDriver {
        flow: Flow::new(flow, &code.pieces),
        sink: Each::new(code, |address, isa| {
            assert_eq!(isa, code.isa(address), "{address:#x}");
            executed.push(address);
        }),
    };
    let mut at = 0;
    while let Some((packet, length)) = packets.next(&bytes[at..]) {
        *kinds.entry(kind(&packet)).or_default() += 1;
        elements.packet(BufferOffset(at as u64), &packet, &mut driver);
        at += length;
    }
    assert_eq!(at, bytes.len(), "the last packet is whole");
    elements.end(BufferOffset(at as u64), &mut driver);
    let Beside { gaps, marks } = driver.sink.beside;
    assert_eq!(gaps, []);
    Record {
        executed,
        marks,
        kinds,
    }
}

/// The number of timestamps and events.
fn times(marks: &[Mark]) -> usize {
    let told = |mark: &&Mark| matches!(mark, Mark::Timestamp(_) | Mark::Event(_));
    marks.iter().filter(told).count()
}

/// The number of gaps allowed: where a signal interrupts the program, and where it returns.
fn breaks(program: &Program) -> std::ops::RangeInclusive<u64> {
    match program.name.split('-').next().unwrap() {
        "signals" => 4..=4,
        // The emulator reuses the number of a thread that ended.
        "threads" => 0..=3,
        _ => 0..=0,
    }
}

/// The programs whose flow is logged: short user programs.
fn logged_programs() -> impl Iterator<Item = &'static Program> {
    all()
        .iter()
        .filter(|program| program.machine.is_none() && !program.name.starts_with("sieve"))
}

fn etmv4_said(
    options: &etmv4::TraceUnitOptions,
    code: &Code,
    executed: &[u64],
    extras: Extras,
    sync: usize,
) -> (Record, u64) {
    let unit = etmv4::TraceUnit::new(*options);
    let (bytes, gaps) = traced(unit, code, executed, extras, sync);
    let config = options.config();
    let flow = FlowConfig {
        return_stack: options.return_stack,
        ..FlowConfig::default()
    };
    let (packets, elements) = (etmv4::Decoder::new(&config), etmv4::Elements::new(&config));
    let kind = |packet: &etmv4::Packet| match packet {
        etmv4::Packet::Atoms { format, .. } => format!("atoms {format}"),
        etmv4::Packet::Address(etmv4::AddressBits::Match(entry)) => format!("match {entry}"),
        etmv4::Packet::Address(etmv4::AddressBits::Low { bits, is, .. }) => {
            format!("address {bits} {is:?}")
        }
        etmv4::Packet::AddressWithContext { bits, is, .. } => {
            format!("context address {bits} {is:?}")
        }
        etmv4::Packet::CycleCount { format, .. } => format!("cycles {format}"),
        other => other.name().to_owned(),
    };
    (decoded(packets, elements, flow, code, &bytes, kind), gaps)
}

const KINDS: &[&str] = &[
    "async",
    "trace_info",
    "trace_on",
    "exception",
    "context",
    "timestamp",
    "event",
    "cycles 1",
    "cycles 3",
    "atoms 1",
    "atoms 2",
    "atoms 3",
    "atoms 4",
    "atoms 5",
    "atoms 6",
    "match 0",
    "match 1",
    "match 2",
    "address 9 Is0",
    "address 17 Is0",
    "address 32 Is0",
    "address 64 Is0",
    "address 8 Is1",
    "address 16 Is1",
    "address 32 Is1",
    "context address 32 Is0",
    "context address 32 Is1",
    "context address 64 Is0",
];

#[test]
fn etmv4_decodes_to_what_the_emulator_executed() {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for program in logged_programs() {
        let code = program.code();
        let threads = logged(program);
        assert_eq!(threads.len() > 1, program.name.starts_with("threads"));
        for (number, switches) in (0..).zip([0u8, 1, 2, 4, 8, 16, 6, 31, 27]) {
            let switch = |bit: u8| switches >> bit & 1 == 1;
            let options = etmv4::TraceUnitOptions {
                cycles: switch(0).then_some(4 + 40 * number),
                timestamps: switch(1),
                return_stack: switch(2),
                branch_broadcast: switch(3),
                context_ids: switch(4),
                vmids: switch(4),
                ..etmv4::TraceUnitOptions::default()
            };
            let extras = Extras {
                cycles: switch(0),
                timestamps: switch(1),
                events: switch(2),
                contexts: switch(4),
            };
            let mut gaps = 0;
            for executed in &threads {
                let sync = [0, 100, 1000][number as usize % 3];
                let (said, more) = etmv4_said(&options, &code, executed, extras, sync);
                let what = format!("{} {options:?}", program.name);
                same(&said.executed, executed, &what);
                let every = |step: usize| executed.len().div_ceil(step);
                let told = usize::from(extras.timestamps) * every(101)
                    + usize::from(extras.events) * every(89);
                assert_eq!(times(&said.marks), told, "{what}");
                gaps += more;
                for (kind, count) in said.kinds {
                    *kinds.entry(kind).or_default() += count;
                }
            }
            assert!(breaks(program).contains(&gaps), "{}: {gaps}", program.name);
        }
    }
    // Features of hardware for compact trace. Exceptions occur on machines without Linux.
    for kind in KINDS {
        assert!(kinds.contains_key(*kind), "no {kind}: {kinds:#?}");
    }
}

/// ETMCR: [8] branch output, [12] cycle-accurate, [15:14] bytes of context IDs, [28] timestamps,
/// [29] return stack.
const LEGACY: [(u32, usize); 8] = [
    (0, 0),
    (0x100, 100),
    (0x1000, 1000),
    (0xc000, 100),
    (0x1000_0000, 0),
    (0x2000_0000, 100),
    (0x3000_d000, 1000),
    (0x1000_1100, 30),
];

/// Compares the contents of a trace with what was executed.
fn legacy_said(said: &Record, executed: &[u64], extras: Extras, what: &str) {
    same(&said.executed, executed, what);
    let told = usize::from(extras.timestamps) * executed.len().div_ceil(101);
    assert_eq!(times(&said.marks), told, "{what}");
}

fn arm_programs() -> impl Iterator<Item = &'static Program> {
    logged_programs().filter(|program| !program.is_64bit())
}

#[test]
fn ptm_decodes_to_what_the_emulator_executed() {
    for program in arm_programs() {
        let code = program.code();
        for executed in logged(program) {
            for (etmcr, sync) in LEGACY {
                let registers = Registers {
                    etmcr,
                    etmccer: 0x34c0_1ac2,
                    etmidr: 0x411c_f312,
                    etmtraceidr: 0x10,
                };
                let config = ptm::Config::read(&registers, Core::default());
                let extras = Extras {
                    cycles: config.cycle_accurate,
                    timestamps: etmcr >> 28 & 1 == 1,
                    contexts: config.context_id_bytes > 0,
                    events: false,
                };
                let unit = ptm::TraceUnit::new(config);
                let (bytes, _) = traced(unit, &code, &executed, extras, sync);
                let flow = FlowConfig {
                    waypoints: Waypoints {
                        barriers: config.barriers_are_waypoints,
                        ..Waypoints::default()
                    },
                    return_stack: config.return_stack,
                    ..FlowConfig::default()
                };
                let (packets, elements) = (ptm::Decoder::new(&config), ptm::Elements::new(&config));
                let kind = |packet: &ptm::Packet| packet.name().to_owned();
                let said = decoded(packets, elements, flow, &code, &bytes, kind);
                let what = format!("{} ETMCR {etmcr:#x}", program.name);
                legacy_said(&said, &executed, extras, &what);
            }
        }
    }
}

#[test]
fn etmv3_decodes_to_what_the_emulator_executed() {
    for program in arm_programs() {
        let code = program.code();
        for executed in logged(program) {
            for (etmcr, sync) in LEGACY {
                let registers = Registers {
                    etmcr,
                    etmccer: 0x3440_08f2,
                    etmidr: 0x410c_f250,
                    etmtraceidr: 0x10,
                };
                let config = etmv3::Config::read(&registers, Core::default());
                let extras = Extras {
                    cycles: config.cycle_accurate,
                    timestamps: etmcr >> 28 & 1 == 1,
                    contexts: config.context_id_bytes > 0,
                    events: false,
                };
                let unit = etmv3::TraceUnit::new(config);
                let (bytes, _) = traced(unit, &code, &executed, extras, sync);
                let (packets, elements) =
                    (etmv3::Decoder::new(&config), etmv3::Elements::new(&config));
                let kind = |packet: &etmv3::Packet| packet.name().to_owned();
                let flow = FlowConfig::default();
                let said = decoded(packets, elements, flow, &code, &bytes, kind);
                let what = format!("{} ETMCR {etmcr:#x}", program.name);
                legacy_said(&said, &executed, extras, &what);
            }
        }
    }
}
