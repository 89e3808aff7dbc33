//! Snapshots with random changes in .ini files, dumps and trace, through everything that armsnap
//! does with one: no panic and no overflow (tests are built with overflow checks).

#[path = "../support/exercise.rs"]
mod exercise;

use crate::support::mutation::{Dice, mutate, mutate_bytes};
use armsnap::snapshot::files::InMemory;
use std::path::{Path, PathBuf};

/// The maximum size of files other than .ini files, so that 10,000 snapshots take minutes.
const LARGEST: usize = 8 << 10;

/// The snapshots in a directory, as files in memory.
fn snapshots(directory: &Path) -> Vec<(PathBuf, InMemory)> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(directory) else {
        return found;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if !path.join("snapshot.ini").is_file() {
            continue;
        }
        let mut files = InMemory::default();
        for file in std::fs::read_dir(&path).unwrap() {
            let file = file.unwrap().path();
            if !file.is_file() {
                continue;
            }
            let mut bytes = std::fs::read(&file).unwrap();
            if file.extension().is_none_or(|extension| extension != "ini") {
                bytes.truncate(LARGEST);
            }
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            files.0.insert(name, bytes.into());
        }
        found.push((path, files));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Exercises `count` changed snapshots, made from each snapshot in turn.
fn run(count: usize, seed: u64) {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut bases = snapshots(&top.join("testdata"));
    let shared = snapshots(&top.join("../shared/snapshots"));
    if shared.is_empty() {
        crate::support::skip::missing("../shared is not there; only testdata is changed");
    }
    bases.extend(shared);
    assert!(!bases.is_empty());
    let mut dice = Dice(seed);
    let mut opened = 0;
    for round in 0..count {
        let (path, base) = &bases[round % bases.len()];
        let names: Vec<&String> = base.0.keys().collect();
        let mut files = base.clone();
        for _ in 0..=dice.below(6) {
            let name = names[dice.below(names.len())];
            let mut bytes = files.0[name].to_vec();
            match name.ends_with(".ini") {
                true => mutate(&mut bytes, &mut dice),
                false => mutate_bytes(&mut bytes, &mut dice),
            }
            files.0.insert(name.clone(), bytes.into());
        }
        let done = std::panic::catch_unwind(|| exercise::snapshot(files));
        match done {
            Ok(there) => opened += usize::from(there),
            Err(_) => panic!("round {round} of seed {seed:#x}: {}", path.display()),
        }
    }
    // Most can be opened: otherwise nothing would be exercised.
    assert!(opened * 2 > count, "{opened} of {count}");
}

#[test]
fn some_changed_snapshots_1() {
    run(60, 0x9E37_79B9_7F4A_7C15);
}

#[test]
fn some_changed_snapshots_2() {
    run(60, 0xBF58_476D_1CE4_E5B9);
}

#[test]
#[ignore = "some minutes: before a release"]
fn ten_thousand_changed_snapshots() {
    std::thread::scope(|scope| {
        let seeds = [1, 2, 3, 4].map(|part| 0x94D0_49BB_1331_11EB + part);
        let parts = seeds.map(|seed| scope.spawn(move || run(2500, seed)));
        for part in parts {
            part.join().unwrap();
        }
    });
}
