//! Two cores with timestamps in their traces, and one without.

use super::*;
use armsnap_arch::quantity::{ExceptionLevel, Isa, Security};
use armsnap_trace::encode::{CodeAddress as At, Tracer};
use armsnap_trace::flow::Pieces;

/// `nop; nop; b .-8` at 0x1000 and at 0x2000.
fn code() -> Vec<u8> {
    [0xd503_201f_u32, 0xd503_201f, 0x17ff_fffe]
        .map(u32::to_le_bytes)
        .concat()
}

/// The trace of a loop with a timestamp after every `every` iterations; the clock advances by
/// `tick` per iteration.
fn turns(address: u64, id: u8, turns: u64, every: u64, tick: u64) -> (TraceUnitOptions, Vec<u8>) {
    let options = TraceUnitOptions {
        trace_id: id,
        timestamps: every > 0,
        ..TraceUnitOptions::default()
    };
    let mut pieces = Pieces::default();
    pieces.add(Address(address), code());
    let mut tracer = Tracer::new(etmv4::TraceUnit::new(options), pieces, 60);
    tracer.context(Context {
        isa: Isa::A64,
        el: Some(ExceptionLevel(1)),
        security: Some(Security::NonSecure),
        is_64bit: Some(true),
        ..Context::default()
    });
    let at = At {
        address: Address(address),
        isa: Isa::A64,
    };
    for turn in 1..=turns {
        tracer.run(at, Address(address + 12));
        if every > 0 && turn % every == 0 {
            tracer.mark(Mark::Timestamp(1000 + turn * tick));
        }
    }
    tracer.finish(Some(at));
    let mut bytes = Vec::new();
    tracer.take(&mut bytes);
    (options, bytes)
}

/// Two cores in one buffer.
fn two(sources: [(TraceUnitOptions, Vec<u8>); 2]) -> OpenSnapshot {
    let mut files = InMemory::default();
    let mut encoder = Encoder::new();
    let mut frames = Vec::new();
    let [first, second] = &sources;
    let most = first.1.len().max(second.1.len());
    for from in (0..most).step_by(20) {
        for (options, bytes) in &sources {
            let to = bytes.len().min(from + 20);
            let part = bytes.get(from..to).unwrap_or_default();
            encoder.write(TraceId(options.trace_id), part, &mut frames);
        }
    }
    encoder.finish(&mut frames);
    let mut put = |name: &str, bytes: Vec<u8>| files.0.insert(name.to_owned(), bytes.into());
    put("trace.bin", frames);
    put("code.bin", code());
    for (number, (options, _)) in sources.iter().enumerate() {
        let address = 0x1000 * (1 + number);
        let cpu = format!(
            "[device]\nname=cpu{number}\nclass=core\ntype=Cortex-A57\n[regs]\n\
             PC(size:64)={address:#x}\n[dump]\nfile=code.bin\naddress={address:#x}\n"
        );
        put(&format!("cpu{number}.ini"), cpu.into());
        let mut unit =
            format!("[device]\nname=unit{number}\nclass=trace_source\ntype=ETM4.2\n[regs]\n");
        for (name, value) in options.registers() {
            unit += &format!("{name}={value:#x}\n");
        }
        put(&format!("unit{number}.ini"), unit.into());
    }
    put(
        "snapshot.ini",
        "[snapshot]\nversion=1.0\n[device_list]\na=cpu0.ini\nb=cpu1.ini\nc=unit0.ini\n\
         d=unit1.ini\n[trace]\nmetadata=trace.ini\n"
            .into(),
    );
    put(
        "trace.ini",
        "[trace_buffers]\nbuffers=b\n[b]\nname=b\nfile=trace.bin\nformat=coresight\n\
         [core_trace_sources]\ncpu0=unit0\ncpu1=unit1\n[source_buffers]\nunit0=b\nunit1=b\n"
            .into(),
    );
    OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap()
}

fn open_two(loaded: &OpenSnapshot) -> Timeline {
    let cores = [0, 1].map(|device| TracedCore {
        device,
        memory: Arc::new(CoreMemory::new(loaded, &loaded.snapshot.devices[device])),
    });
    Timeline::with(loaded, &cores, &options(400, 500))
}

/// All positions except the halted state, with their times.
fn times(history: &mut History) -> Vec<(Position, Option<u64>)> {
    let places = places(history);
    let timed = places[..places.len() - 1].iter().map(|&(position, _)| {
        let time = history.place(position).unwrap().time;
        (position, time)
    });
    timed.collect()
}

#[test]
fn timestamps_relate_the_positions_of_cores() {
    let loaded = two([
        turns(0x1000, 0x10, 3000, 3, 2),
        turns(0x2000, 0x11, 2000, 5, 3),
    ]);
    let mut timeline = open_two(&loaded);
    let all = [0, 1].map(|core| times(timeline.history(core).unwrap()));
    assert_eq!((all[0].len(), all[1].len()), (9000, 6000));
    for (from, to) in [(0, 1), (1, 0)] {
        for &(position, time) in all[from].iter().step_by(97) {
            // The last place of the other core before a later timestamp.
            let wanted = time.and_then(|time| {
                let others = &all[to];
                let later = others.partition_point(|other| other.1.is_none_or(|at| at <= time));
                let last = later.checked_sub(1)?;
                if later == others.len() {
                    let end = timeline.history(to).unwrap().end();
                    return Some(end);
                }
                others[last].1.map(|_| others[last].0)
            });
            let found = timeline.at_same_time(from, position, to);
            assert_eq!(found, wanted, "{from} {position} {time:?}");
        }
        let end = timeline.history(from).unwrap().end();
        let other = timeline.history(to).unwrap().end();
        assert_eq!(timeline.at_same_time(from, end, to), Some(other));
    }
    let history = timeline.history(0).unwrap();
    for time in [0, 1006, 1007, 3000, 6999, 7000, 7001] {
        let wanted = all[0]
            .iter()
            .find(|place| place.1.is_some_and(|at| at >= time));
        let end = (time <= 7000).then(|| history.end());
        let wanted = wanted.map(|place| place.0).or(end);
        assert_eq!(history.seek_time(time), wanted, "{time}");
    }
}

#[test]
fn without_timestamps_each_core_has_its_own_history() {
    let loaded = two([
        turns(0x1000, 0x10, 500, 3, 2),
        turns(0x2000, 0x11, 500, 0, 0),
    ]);
    let mut timeline = open_two(&loaded);
    assert!(timeline.history(0).unwrap().is_timed());
    let history = timeline.history(1).unwrap();
    assert!(!history.is_timed());
    let (begin, end) = (history.begin(), history.end());
    assert_eq!(history.seek_time(0), None);
    assert_eq!(history.cycles(end), None);
    assert_eq!(timeline.at_same_time(1, begin, 0), None);
    let middle = timeline.history(0).unwrap().seek_time(1300).unwrap();
    assert_eq!(timeline.at_same_time(0, middle, 1), None);
}

#[test]
fn waypoints_are_the_branches_of_the_loop() {
    let loaded = two([turns(0x1000, 0x10, 300, 3, 2), turns(0x2000, 0x11, 1, 0, 0)]);
    let mut timeline = open_two(&loaded);
    let history = timeline.history(0).unwrap();
    let places = places(history);
    let is_waypoint = |place: &&(Position, Option<Address>)| place.1 == Some(Address(0x1008));
    for index in (0..places.len()).step_by(7) {
        let here = places[index].0;
        let next = places[index + 1..].iter().find(is_waypoint);
        let end = history.end();
        assert_eq!(
            history.waypoint(here, Direction::Forward),
            next.map_or(Found::End(end), |place| Found::At(place.0))
        );
        let before = places[..index].iter().rfind(is_waypoint);
        let begin = history.begin();
        assert_eq!(
            history.waypoint(here, Direction::Backward),
            before.map_or(Found::End(begin), |place| Found::At(place.0))
        );
    }
}
