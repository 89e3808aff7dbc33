//! Histories of random programs: decoding in many parts gives the same result as decoding in one.

use super::*;
use crate::calls::{OpenCalls, Outside};
use armsnap_arch::quantity::TraceId;
use armsnap_snapshot::snapshot::files::InMemory;
use armsnap_snapshot::stop::Cancel;
use armsnap_trace::element::{Context, Mark};
use armsnap_trace::encode::TraceUnit;
use armsnap_trace::etm;
use armsnap_trace::etmv3;
use armsnap_trace::etmv4;
use armsnap_trace::etmv4::TraceUnitOptions;
use armsnap_trace::formatter::encode::Encoder;
use armsnap_trace::protocol::Core;
use armsnap_trace::ptm;
use programs::{Mix, Program, Sets};
use proptest::prelude::*;

mod index;
#[allow(dead_code, reason = "tests of other crates use the rest")]
#[path = "../../../trace/src/encode/tests/programs.rs"]
mod programs;
mod searches;
mod time;

/// Layout of a trace in its buffer.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// Without frames.
    Raw,
    /// Alone in frames.
    Alone,
    /// In frames with another source.
    Mixed,
    /// In frames with another source, and FSYNC between frames.
    Synchronised,
}

const LAYOUTS: [Layout; 4] = [
    Layout::Raw,
    Layout::Alone,
    Layout::Mixed,
    Layout::Synchronised,
];

/// A trace source and its registers.
#[derive(Clone)]
struct Source {
    core: &'static str,
    kind: &'static str,
    id: u8,
    registers: Vec<(&'static str, u32)>,
    bytes: Vec<u8>,
}

fn etmv4(program: &Program, options: TraceUnitOptions, sync_bytes: usize) -> Source {
    Source {
        core: "Cortex-A57",
        kind: "ETM4.2",
        id: options.trace_id,
        registers: options.registers().to_vec(),
        bytes: program.trace(etmv4::TraceUnit::new(options), sync_bytes),
    }
}

fn legacy<U: TraceUnit>(
    program: &Program,
    (core, kind): (&'static str, &'static str),
    registers: etm::Registers,
    unit: U,
    sync_bytes: usize,
) -> Source {
    Source {
        core,
        kind,
        id: registers.etmtraceidr as u8,
        registers: vec![
            ("ETMCR", registers.etmcr),
            ("ETMCCER", registers.etmccer),
            ("ETMIDR", registers.etmidr),
            ("ETMTRACEIDR", registers.etmtraceidr),
        ],
        bytes: program.trace(unit, sync_bytes),
    }
}

fn buffer(source: &Source, layout: Layout) -> Vec<u8> {
    let mut encoder = match layout {
        Layout::Raw => return source.bytes.clone(),
        Layout::Alone | Layout::Mixed => Encoder::new(),
        Layout::Synchronised => Encoder::with_fsync(7),
    };
    let mut out = Vec::new();
    let alone = matches!(layout, Layout::Alone);
    for (number, bytes) in source.bytes.chunks(37).enumerate() {
        encoder.write(TraceId(source.id), bytes, &mut out);
        if !alone && number % 3 == 0 {
            let other = [number as u8; 11];
            encoder.write(TraceId(0x45), &other[..number % 12], &mut out);
        }
    }
    encoder.finish(&mut out);
    out
}

/// A snapshot of one core with the same trace in `buffers` buffers.
fn snapshot(program: &Program, source: &Source, layout: Layout, buffers: usize) -> OpenSnapshot {
    let mut cpu = format!(
        "[device]\nname=cpu\nclass=core\ntype={}\n[regs]\nPC(size:64)={:#x}\n",
        source.core, program.next.address.0
    );
    let mut files = InMemory::default();
    for (number, (address, bytes)) in program.regions.iter().enumerate() {
        let file = format!("code{number}.bin");
        cpu += &format!("[dump{number}]\nfile={file}\naddress={address:#x}\n");
        files.0.insert(file, bytes.clone().into());
    }
    let mut unit = format!(
        "[device]\nname=unit\nclass=trace_source\ntype={}\n[regs]\n",
        source.kind
    );
    for (name, value) in &source.registers {
        unit += &format!("{name}={value:#x}\n");
    }
    let format = match layout {
        Layout::Raw => "source_data",
        Layout::Alone | Layout::Mixed | Layout::Synchronised => "coresight",
    };
    let names: Vec<String> = (0..buffers).map(|number| format!("b{number}")).collect();
    let names = names.join(",");
    let mut metadata = format!("[trace_buffers]\nbuffers={names}\n");
    for name in names.split(',') {
        metadata += &format!("[{name}]\nname={name}\nfile=trace.bin\nformat={format}\n");
    }
    metadata += &format!("[core_trace_sources]\ncpu=unit\n[source_buffers]\nunit={names}\n");
    let entry = "[snapshot]\nversion=1.0\n[device_list]\na=cpu.ini\nb=unit.ini\n\
                 [trace]\nmetadata=trace.ini\n";
    for (name, text) in [
        ("snapshot.ini", entry.to_owned()),
        ("cpu.ini", cpu),
        ("unit.ini", unit),
        ("trace.ini", metadata),
    ] {
        files.0.insert(name.to_owned(), text.into_bytes().into());
    }
    files
        .0
        .insert("trace.bin".to_owned(), buffer(source, layout).into());
    OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap()
}

fn open(loaded: &OpenSnapshot, options: &Options) -> Timeline {
    let memory = CoreMemory::new(loaded, &loaded.snapshot.devices[0]);
    let core = TracedCore {
        device: 0,
        memory: Arc::new(memory),
    };
    Timeline::with(loaded, &[core], options)
}

/// Options that decode in one part.
const WHOLE: Options = Options {
    chunk_bytes: 1 << 30,
    part_bytes: u64::MAX,
    part_instructions: u64::MAX,
    cache_bytes: 1 << 30,
    jobs: 2,
};

/// Entries with their offsets, independent of position names. Contiguous runs are merged; context
/// marks are omitted.
fn plain(events: &[Event]) -> Vec<(u64, Entry)> {
    let mut out: Vec<(u64, Entry)> = Vec::new();
    for event in events {
        // Repeated, or traced for the first time, after a synchronisation point.
        if matches!(event.entry, Entry::Mark(Mark::Context(_))) {
            continue;
        }
        if let (
            Some((_, Entry::Run { range: before, .. })),
            Entry::Run {
                range,
                cycles: None,
            },
        ) = (out.last_mut(), event.entry)
            && before.last.kind == armsnap_trace::flow::InstructionKind::Other
            && before.last.taken
            && (before.end, before.isa) == (range.start, range.isa)
        {
            before.end = range.end;
            before.instructions += range.instructions;
            before.last = range.last;
            continue;
        }
        out.push((event.offset.0, event.entry));
    }
    out
}

fn events(history: &mut History) -> Vec<Event> {
    let begin = history.begin();
    history.entries(begin, Direction::Forward).collect()
}

/// All positions, with the addresses of instructions.
fn places(history: &mut History) -> Vec<(Position, Option<Address>)> {
    let mut places = Vec::new();
    for event in events(history) {
        match event.entry {
            Entry::Run { .. } => {
                let instructions = history.instructions(event.position);
                places.extend((event.position.index..).zip(instructions).map(
                    |(index, (address, _))| {
                        let position = Position {
                            index,
                            ..event.position
                        };
                        (position, Some(address))
                    },
                ));
            }
            Entry::Gap(_) | Entry::Halted => places.push((event.position, None)),
            Entry::Exception(_) | Entry::Mark(_) => {}
        }
    }
    places
}

/// Compares a history decoded in parts with the same history decoded in one.
fn check(loaded: &OpenSnapshot, program: &Program, buffers: usize, options: &Options) -> usize {
    let mut whole = open(loaded, &WHOLE);
    let whole = whole.history(0).unwrap();
    let mut cut = open(loaded, options);
    let cut = cut.history(0).unwrap();
    // The end comes first, two parts at a time.
    let mut tries = 0;
    loop {
        if cut.reach_end(&Cancel::default().limited_to(2)) {
            break;
        }
        tries += 1;
        assert!(tries < 10_000);
    }
    let end = cut.end();
    assert_eq!(cut.place(end).unwrap().kind, PointKind::Halted);
    let (all, wanted) = (events(cut), events(whole));
    let (have, want) = (plain(&all), plain(&wanted));
    if let Some(at) = (0..have.len().max(want.len())).find(|&at| have.get(at) != want.get(at)) {
        panic!("{at}: {:#?}, wanted {:#?}", have.get(at), want.get(at));
    }
    assert_eq!(cut.end_agrees(), whole.end_agrees());
    let (here, there) = (places(cut), places(whole));
    let addresses = |places: &[(Position, Option<Address>)]| -> Vec<Option<Address>> {
        places.iter().map(|place| place.1).collect()
    };
    assert_eq!(addresses(&here), addresses(&there));
    let executed: Vec<Address> = here.iter().filter_map(|place| place.1).collect();
    let ran = program.executed.iter().map(|place| place.address);
    let ran: Vec<Address> = std::iter::repeat_n(ran, buffers).flatten().collect();
    assert!(executed == ran, "other instructions");
    assert_eq!(cut.end_agrees(), EndAgrees::Yes);
    for index in (0..here.len()).step_by(1 + here.len() / 40) {
        let (position, other) = (here[index].0, there[index].0);
        let (place, wanted) = (cut.place(position).unwrap(), whole.place(other).unwrap());
        assert_eq!(place.pc(), here[index].1);
        let known = |context: &Context| (context.el, context.security, context.is_64bit);
        let contexts = (place.context.as_ref(), wanted.context.as_ref());
        assert_eq!(contexts.0.map(known), contexts.1.map(known), "{position}");
        if let (Some(context), Some(wanted)) = contexts {
            assert!(context.vmid.is_none() || context.vmid == wanted.vmid);
            assert!(context.context_id.is_none() || context.context_id == wanted.context_id);
        }
        assert_eq!(place.exception_before, wanted.exception_before);
        assert_eq!(place.exception_after, wanted.exception_after);
        assert_eq!(cut.cycles(position), whole.cycles(other), "{position}");
        let next = here.get(index + 1).map(|place| place.0);
        assert_eq!(cut.step(position, Direction::Forward), next);
        let before = index.checked_sub(1).map(|before| here[before].0);
        assert_eq!(cut.step(position, Direction::Backward), before);
    }
    let end = whole.end();
    let asked = calls_in_stretches(whole, end);
    assert!(asked > 1 || there.len() < 100, "{asked}");
    let mut segments: Vec<_> = here
        .iter()
        .map(|place| (place.0.session, place.0.segment))
        .collect();
    segments.dedup();
    segments.len()
}

/// Checks that open calls queried one stretch at a time are the same in the end; returns the number
/// of queries.
fn calls_in_stretches(history: &mut History, position: Position) -> usize {
    let all = OpenCalls::default().at(history, position, 0, usize::MAX, &Cancel::default());
    let mut calls = OpenCalls::default();
    for asked in 1..100 {
        let found = calls.at(
            history,
            position,
            0,
            usize::MAX,
            &Cancel::default().limited_to(0),
        );
        if found.1 != Outside::Unfinished {
            assert_eq!(found, all);
            return asked;
        }
    }
    panic!("it does not get on");
}

fn cycles(entry: &Entry) -> u64 {
    match entry {
        Entry::Mark(Mark::Cycles(cycles)) => u64::from(*cycles),
        Entry::Run { cycles, .. } => cycles.unwrap_or(0).into(),
        _ => 0,
    }
}

fn options(part_bytes: u64, part_instructions: u64) -> Options {
    Options {
        chunk_bytes: 512,
        part_bytes,
        part_instructions,
        cache_bytes: 4096,
        jobs: 3,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn etmv4_in_parts_equals_etmv4_in_one(
        seed in any::<u64>(),
        sets in prop::sample::select(vec![Sets::AArch64, Sets::Both]),
        switches in any::<[bool; 4]>(),
        cycles in prop::option::of(4_u32..100),
        sync_bytes in prop::sample::select(vec![0_usize, 100, 300]),
        layout in prop::sample::select(LAYOUTS.to_vec()),
        part in (200_u64..2000, 20_u64..2000),
    ) {
        let program = Program::random(seed, Mix::all(sets), 4000);
        let unit = TraceUnitOptions {
            cycles,
            timestamps: switches[0],
            context_ids: switches[1],
            vmids: switches[2],
            return_stack: switches[3],
            ..TraceUnitOptions::default()
        };
        let source = etmv4(&program, unit, sync_bytes);
        let buffers = 1 + (seed % 5 == 0) as usize;
        let loaded = snapshot(&program, &source, layout, buffers);
        let segments = check(&loaded, &program, buffers, &options(part.0, part.1));
        prop_assert!(sync_bytes == 0 || segments > source.bytes.len() / 1500, "{} segments", segments);
    }

    #[test]
    fn ptm_in_parts_equals_ptm_in_one(
        seed in any::<u64>(),
        etmcr in prop::sample::select(vec![0x4100_u32, 0x2000_c000, 0x2000_1000, 0x1000_4000]),
        sync_bytes in prop::sample::select(vec![0_usize, 100, 300]),
        layout in prop::sample::select(LAYOUTS.to_vec()),
        part in (200_u64..2000, 20_u64..2000),
    ) {
        let registers = etm::Registers {
            etmcr,
            etmccer: 0x34c0_1ac2,
            etmidr: 0x411c_f312,
            etmtraceidr: 2,
        };
        let program = Program::random(seed, Mix::all(Sets::AArch32), 4000);
        let unit = ptm::TraceUnit::new(ptm::Config::read(&registers, Core::default()));
        let source = legacy(&program, ("Cortex-A15", "PFT1.1"), registers, unit, sync_bytes);
        let loaded = snapshot(&program, &source, layout, 1);
        check(&loaded, &program, 1, &options(part.0, part.1));
    }

    #[test]
    fn etmv3_in_parts_equals_etmv3_in_one(
        seed in any::<u64>(),
        etmcr in prop::sample::select(vec![0_u32, 0x1000, 0x4100, 0xc000, 0xd100]),
        sync_bytes in prop::sample::select(vec![0_usize, 100, 300]),
        layout in prop::sample::select(LAYOUTS.to_vec()),
        part in (200_u64..2000, 20_u64..2000),
    ) {
        let registers = etm::Registers {
            etmcr,
            etmccer: 0x3440_08f2,
            etmidr: 0x410c_f250,
            etmtraceidr: 2,
        };
        let mut program = Program::random(seed, Mix::all(Sets::AArch32), 4000);
        program.most_cycles = 0x3f;
        let config = etmv3::Config::read(&registers, Core::default());
        let unit = etmv3::TraceUnit::new(config);
        let source = legacy(&program, ("Cortex-A7", "ETM3.5"), registers, unit, sync_bytes);
        let loaded = snapshot(&program, &source, layout, 1);
        check(&loaded, &program, 1, &options(part.0, part.1));
    }

    #[test]
    fn searches_and_seeks_agree_with_steps(
        seed in any::<u64>(),
        layout in prop::sample::select(LAYOUTS.to_vec()),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 6),
    ) {
        let program = Program::random(seed, Mix::all(Sets::Both), 3000);
        let unit = TraceUnitOptions {
            timestamps: true,
            cycles: Some(4),
            return_stack: true,
            ..TraceUnitOptions::default()
        };
        let source = etmv4(&program, unit, 200);
        let loaded = snapshot(&program, &source, layout, 1 + (seed % 2) as usize);
        let mut timeline = open(&loaded, &options(700, 300));
        let history = timeline.history(0).unwrap();
        let places = places(history);
        let events = events(history);
        for pair in picks.chunks(2) {
            let (from, target) = (pair[0].index(places.len()), pair[1].index(places.len()));
            let Some(target) = places[target].1 else { continue };
            let set: AddressSet = [target].into_iter().collect();
            for gaps in [Gaps::Stop, Gaps::Pass] {
                let end = places.len() - 1;
                let hit = |index: &usize| match places[*index].1 {
                    Some(pc) => pc == target,
                    None => gaps == Gaps::Stop && *index != end,
                };
                let found = |index: Option<usize>, end: usize| match index {
                    Some(index) if places[index].1.is_some() => Found::At(places[index].0),
                    Some(index) => Found::Gap(places[index].0),
                    None => Found::End(places[end].0),
                };
                let here = places[from].0;
                let forward = found((from + 1..places.len()).find(hit), end);
                prop_assert_eq!(history.search(here, Direction::Forward, &set, gaps), forward);
                let backward = found((0..from).rfind(hit), 0);
                prop_assert_eq!(history.search(here, Direction::Backward, &set, gaps), backward);
            }
            // A segment at a time.
            let at = places[from].0;
            let mut asked = 0;
            let cycles_there = loop {
                asked += 1;
                let one = Cancel::default().limited_to(1);
                if let Ok(counted) = history.cycles_unless(at, &one) {
                    break counted;
                }
                prop_assert!(asked < places.len());
            };
            prop_assert_eq!(history.cycles(at), cycles_there);
            // Some cycles were counted before the first place.
            let begun = history.cycles(places[0].0).unwrap_or(0);
            let (mut counted, mut time, mut last) = (begun, None, (None, 0));
            for event in &events {
                if event.position <= places[from].0 {
                    last = (time, counted);
                }
                match event.entry {
                    Entry::Mark(Mark::Timestamp(value)) => time = Some(value),
                    entry => counted += cycles(&entry),
                }
            }
            prop_assert_eq!(history.cycles(places[from].0).unwrap_or(0), last.1);
            let place = history.place(places[from].0).unwrap();
            prop_assert!(place.time.is_none() || last.0.is_none() || place.time == last.0);
            let cycle = counted * (pair[0].index(100) as u64) / 90;
            let mut passed = begun;
            let reached = events.iter().find_map(|event| {
                if passed >= cycle && event.entry.places() > 0 {
                    return Some(event.position);
                }
                passed += cycles(&event.entry);
                None
            });
            prop_assert_eq!(history.seek_cycle(cycle), reached, "cycle {} of {}", cycle, counted);
        }
    }
}

#[test]
fn a_timeline_can_be_sent_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Timeline>();
}
