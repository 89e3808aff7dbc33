//! Histories of real captures, compared with continuous decoding of the same trace.

use crate::support::timeline::{continuous, merged};
use armsnap::quantity::Address;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::{DeviceClass, Snapshot};
use armsnap::snapshot::{OpenOptions, OpenSnapshot};
use armsnap::timeline::{
    AddressSet, Direction, Entry, Event, Found, Gaps, History, Options, Position, Timeline,
    TracedCore,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn captures() -> Vec<PathBuf> {
    let shared = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/snapshots"));
    let Ok(entries) = std::fs::read_dir(shared) else {
        crate::support::skip::missing("../shared is not there");
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("snapshot.ini").exists())
        .collect();
    found.sort();
    assert!(found.len() > 10);
    found
}

fn cores(loaded: &OpenSnapshot) -> Vec<TracedCore> {
    let devices = loaded.snapshot.devices.iter().enumerate();
    devices
        .filter(|(_, device)| device.class == DeviceClass::Core)
        .map(|(index, device)| TracedCore {
            device: index,
            memory: Arc::new(CoreMemory::new(loaded, device)),
        })
        .collect()
}

/// Fails with the first difference.
fn same(have: &[(u64, Entry)], wanted: &[(u64, Entry)], name: &str) {
    let differs = have.iter().zip(wanted).position(|(a, b)| a != b);
    if let Some(at) = differs {
        let around = at.saturating_sub(2)..at + 2;
        panic!(
            "{name}: {at}: {:#?} {:#?}",
            &have[around.clone()],
            &wanted[around]
        );
    }
    assert_eq!(have.len(), wanted.len(), "{name}");
}

/// Sizes that cut short captures into many pieces, and the usual ones.
fn sizes() -> [Options; 4] {
    let usual = Options::default();
    [
        usual,
        Options {
            chunk_bytes: 512,
            part_bytes: 1 << 10,
            jobs: 3,
            ..usual
        },
        Options {
            chunk_bytes: 2 << 10,
            part_instructions: 300,
            jobs: 1,
            ..usual
        },
        Options {
            chunk_bytes: 1 << 30,
            part_bytes: 512,
            cache_bytes: 1,
            ..usual
        },
    ]
}

/// The part of events that does not depend on where history is cut.
fn plain(events: &[Event]) -> Vec<(u64, Entry)> {
    let entries = events.iter().map(|event| (event.offset.0, event.entry));
    merged(entries.collect())
}

fn from_first_place(mut entries: Vec<(u64, Entry)>) -> Vec<(u64, Entry)> {
    let begin = entries.iter().position(|(_, entry)| entry.places() > 0);
    entries.drain(..begin.unwrap_or(entries.len()));
    entries
}

/// The segments that a history was cut into.
fn segments(events: &[Event]) -> usize {
    let mut all: Vec<String> = events
        .iter()
        .map(|event| event.position.to_string())
        .map(|name| name.split('+').next().unwrap().to_owned())
        .collect();
    all.dedup();
    all.len()
}

/// Compares everything in a history with the continuous decode. Returns the number of its segments.
fn check(history: &mut History, wanted: &[(u64, Entry)], name: &str) -> usize {
    let begin = history.begin();
    let mut events: Vec<Event> = history.entries(begin, Direction::Forward).collect();
    let end = events.pop().unwrap();
    assert_eq!((end.entry, end.position), (Entry::Halted, history.end()));
    same(&from_first_place(plain(&events)), wanted, name);
    assert!(events.is_sorted_by_key(|event| event.position), "{name}");
    let mut back: Vec<Event> = history.entries(end.position, Direction::Backward).collect();
    assert_eq!(back.remove(0), end, "{name}");
    back.reverse();
    let before = back.len() - events.len();
    assert!(back[before..] == events, "{name}");
    assert!(back[..before].iter().all(|event| event.entry.places() == 0));
    segments(&events)
}

#[test]
fn histories_equal_the_continuous_decode() {
    let mut cut = [0; 4];
    for path in captures() {
        let loaded = Snapshot::open(&path, &OpenOptions::default()).unwrap();
        let cores = cores(&loaded);
        for (index, options) in sizes().iter().enumerate() {
            let mut timeline = Timeline::with(&loaded, &cores, options);
            for core in &cores {
                let wanted = merged(continuous(&loaded, core.device, &core.memory));
                let wanted = from_first_place(wanted);
                let Some(history) = timeline.history(core.device) else {
                    assert_eq!(wanted, [], "{}", path.display());
                    continue;
                };
                let name = format!("{}: core {}, {index}", path.display(), core.device);
                cut[index] += check(history, &wanted, &name);
            }
        }
    }
    if cut[0] > 0 {
        assert!(cut[1] > 100 && cut[2] > 50, "{cut:?} segments");
    }
}

/// Every instruction of a history and every gap, in order.
fn places(history: &mut History) -> Vec<(Position, Option<u64>)> {
    let begin = history.begin();
    let events: Vec<Event> = history.entries(begin, Direction::Forward).collect();
    let mut places = Vec::new();
    for event in events {
        match event.entry {
            Entry::Run { .. } => {
                let mut here = event.position;
                for (address, _) in history.instructions(event.position) {
                    places.push((here, Some(address.0)));
                    here = history.step(here, Direction::Forward).unwrap();
                }
            }
            Entry::Gap(_) => places.push((event.position, None)),
            Entry::Exception(_) | Entry::Mark(_) | Entry::Halted => {}
        }
    }
    places
}

#[test]
fn searches_find_the_same_as_a_walk() {
    for path in captures() {
        let loaded = Snapshot::open(&path, &OpenOptions::default()).unwrap();
        let cores = cores(&loaded);
        for options in &sizes()[1..] {
            let mut timeline = Timeline::with(&loaded, &cores, options);
            for core in &cores {
                let Some(history) = timeline.history(core.device) else {
                    continue;
                };
                let places = places(history);
                if places.is_empty() {
                    assert_eq!(history.begin(), history.end());
                    continue;
                }
                let (begin, end) = (history.begin(), history.end());
                let step = (places.len() / 7).max(1);
                for target in places.iter().skip(step / 2).step_by(step) {
                    let Some(target) = target.1 else { continue };
                    let addresses: AddressSet = [Address(target), Address(target ^ 0x8000)]
                        .into_iter()
                        .collect();
                    for gaps in [Gaps::Stop, Gaps::Pass] {
                        let hit = |place: &&(Position, Option<u64>)| match place.1 {
                            Some(pc) => pc == target || pc == target ^ 0x8000,
                            None => gaps == Gaps::Stop,
                        };
                        let found = |place: Option<&(Position, Option<u64>)>, end| match place {
                            Some((at, Some(_))) => Found::At(*at),
                            Some((at, None)) => Found::Gap(*at),
                            None => Found::End(end),
                        };
                        for from in (0..places.len()).step_by(step) {
                            let here = places[from].0;
                            let forward = places[from + 1..].iter().find(hit);
                            let backward = places[..from].iter().rfind(hit);
                            assert_eq!(
                                history.search(here, Direction::Forward, &addresses, gaps),
                                found(forward, end)
                            );
                            assert_eq!(
                                history.search(here, Direction::Backward, &addresses, gaps),
                                found(backward, begin)
                            );
                        }
                        let last = places.iter().rfind(hit);
                        assert_eq!(
                            history.search(end, Direction::Backward, &addresses, gaps),
                            found(last, begin)
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn steps_visit_every_place_in_both_directions() {
    for path in captures() {
        let loaded = Snapshot::open(&path, &OpenOptions::default()).unwrap();
        let cores = cores(&loaded);
        let mut timeline = Timeline::open(&loaded, &cores);
        for core in &cores {
            let Some(history) = timeline.history(core.device) else {
                continue;
            };
            let begin = history.begin();
            let wanted: u64 = history
                .entries(begin, Direction::Forward)
                .map(|event| event.entry.places())
                .sum();
            let mut passed = vec![begin];
            while let Some(next) = history.step(passed[passed.len() - 1], Direction::Forward) {
                passed.push(next);
                if passed.len() > 50_000 {
                    break;
                }
            }
            if passed.len() <= 50_000 {
                assert_eq!(passed.len() as u64, wanted);
                assert_eq!(passed.last(), Some(&history.end()));
            }
            assert!(passed.is_sorted());
            for pair in passed.windows(2) {
                assert_eq!(history.step(pair[1], Direction::Backward), Some(pair[0]));
                let place = history.place(pair[0]).unwrap();
                assert_eq!(place.position, pair[0]);
                assert_eq!(pair[0].to_string().parse(), Ok(pair[0]));
            }
            assert_eq!(history.step(begin, Direction::Backward), None);
        }
    }
}
