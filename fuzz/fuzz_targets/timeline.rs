//! Histories of any trace: random moves, and properties that must hold at every position.
#![no_main]

use armsnap::quantity::Address;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::timeline::{
    AddressSet, Direction, Found, Gaps, History, Options, PointKind, Position, Timeline, TracedCore,
};
use armsnap_fuzz::TYPES;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// Makes one move; returns the new position.
fn go(history: &mut History, here: Position, [what, which]: [u8; 2]) -> Position {
    let direction = if what & 1 == 0 {
        Direction::Forward
    } else {
        Direction::Backward
    };
    let back = if what & 1 == 0 {
        Direction::Backward
    } else {
        Direction::Forward
    };
    match what >> 1 & 7 {
        0 | 1 => {
            let Some(next) = history.step(here, direction) else {
                return here;
            };
            assert!(history.place(next).is_some());
            assert_eq!(history.step(next, back), Some(here));
            assert_eq!(next > here, direction == Direction::Forward);
            next
        }
        2 | 3 => {
            let pc = history.place(here).and_then(|place| place.pc());
            let near = Address(0x1000 + 4 * u64::from(which));
            let set: AddressSet = [pc.unwrap_or(near), near].into_iter().collect();
            let gaps = if which & 1 == 0 {
                Gaps::Stop
            } else {
                Gaps::Pass
            };
            match history.search(here, direction, &set, gaps) {
                Found::At(at) => {
                    let pc = history.place(at).and_then(|place| place.pc());
                    assert!(pc.is_some_and(|pc| set.addresses().contains(&pc.0)));
                    assert_eq!(at > here, direction == Direction::Forward);
                    at
                }
                Found::Gap(at) => {
                    let place = history.place(at).unwrap();
                    assert!(matches!(place.kind, PointKind::Gap(_)));
                    at
                }
                Found::End(at) => at,
            }
        }
        4 => match history.waypoint(here, direction) {
            Found::At(at) | Found::Gap(at) | Found::End(at) => at,
        },
        5 => {
            let mut last = None;
            for event in history.entries(here, direction).take(which.into()) {
                if let Some(last) = last {
                    assert!(match direction {
                        Direction::Forward => event.position >= last,
                        Direction::Backward => event.position <= last,
                    });
                }
                last = Some(event.position);
            }
            last.unwrap_or(here)
        }
        6 => {
            let cycles = history.cycles(here).unwrap_or(0);
            let at = history.seek_cycle(cycles).unwrap_or(here);
            assert!(history.cycles(at).unwrap_or(0) >= cycles);
            at
        }
        _ => {
            let time = history.place(here).and_then(|place| place.time);
            let at = time.and_then(|time| history.at_time(time));
            at.unwrap_or(here)
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some(([kind, lengths, values @ ..], rest)) = armsnap_fuzz::registers::<10>(bytes) else {
        return;
    };
    let (code, rest) = rest.split_at((lengths & 0xff) as usize % (rest.len() + 1));
    let (moves, trace) = rest.split_at((lengths >> 8 & 0x7f) as usize % (rest.len() + 1));
    let buffers = if kind & 1 << 20 == 0 { "b" } else { "b,c" };
    let types = TYPES[kind as usize % TYPES.len()];
    let loaded = armsnap_fuzz::snapshot(types, values, (buffers, kind >> 8), code, trace);
    let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
    let core = TracedCore {
        device: 0,
        memory: Arc::new(memory),
    };
    let options = Options {
        chunk_bytes: 512,
        part_bytes: 1 + u64::from(kind >> 21 & 0x3ff),
        part_instructions: 1 + u64::from(kind >> 12 & 0xff),
        cache_bytes: 10_000,
        jobs: 1 + (kind >> 20 & 3) as usize,
    };
    let mut timeline = Timeline::with(&loaded, &[core], &options);
    let Some(history) = timeline.history(0) else {
        return;
    };
    let mut here = history.end();
    assert!(history.contains(here) && history.begin() <= here);
    history.end_agrees();
    for &[what, which] in moves.as_chunks().0 {
        here = go(history, here, [what, which]);
        assert!(history.contains(here));
        assert_eq!(here.to_string().parse(), Ok(here));
    }
});
