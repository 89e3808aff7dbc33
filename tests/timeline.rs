//! Histories of real captures beside the continuous decode of the same trace.

mod timeline_support;

use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::{DeviceClass, Snapshot};
use armsnap::snapshot::{Loaded, OpenOptions};
use armsnap::timeline::{Direction, Entry, Event, Timeline, TracedCore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use timeline_support::{continuous, merged};

fn captures() -> Vec<PathBuf> {
    let shared = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/snapshots"));
    let Ok(entries) = std::fs::read_dir(shared) else {
        println!("SKIPPED: ../shared is not there");
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

fn cores(loaded: &Loaded) -> Vec<TracedCore> {
    let devices = loaded.snapshot.devices.iter().enumerate();
    devices
        .filter(|(_, device)| device.class == DeviceClass::Core)
        .map(|(index, device)| TracedCore {
            device: index,
            memory: Arc::new(CoreMemory::new(loaded, device)),
        })
        .collect()
}

fn plain(events: &[Event]) -> Vec<(u64, Entry)> {
    let entries = events.iter().map(|event| (event.offset.0, event.entry));
    merged(entries.collect())
}

/// Shows the first difference, not all there is.
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

#[test]
fn histories_are_what_the_decoder_makes() {
    let mut histories = 0;
    for path in captures() {
        let loaded = Snapshot::open(&path, &OpenOptions::default()).unwrap();
        let cores = cores(&loaded);
        let mut timeline = Timeline::open(&loaded, &cores);
        for core in &cores {
            let wanted = merged(continuous(&loaded, core.device, &core.memory));
            let Some(history) = timeline.history(core.device) else {
                assert_eq!(wanted, [], "{}", path.display());
                continue;
            };
            let begin = history.begin();
            let mut events: Vec<Event> = history.entries(begin, Direction::Forward).collect();
            let end = events.pop().unwrap();
            assert_eq!((end.entry, end.position), (Entry::Halted, history.end()));
            let places = |entries: &[(u64, Entry)]| -> Vec<(u64, Entry)> {
                let mut entries = entries.to_vec();
                let begin = entries.iter().position(|(_, entry)| entry.places() > 0);
                entries.drain(..begin.unwrap_or(entries.len()));
                entries
            };
            let name = format!("{}: core {}", path.display(), core.device);
            same(&places(&plain(&events)), &places(&wanted), &name);
            let mut back: Vec<Event> = history.entries(end.position, Direction::Backward).collect();
            assert_eq!(back.remove(0), end, "{name}");
            back.reverse();
            let before = back.len() - events.len();
            assert_eq!(back[before..], events, "{name}");
            assert!(back[..before].iter().all(|event| event.entry.places() == 0));
            histories += 1;
        }
    }
    println!("{histories} histories");
}

#[test]
fn steps_pass_every_place_both_ways() {
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
