//! Blocks that are counted alone, on any number of threads, have the counts of those that are counted
//! with the edges of indirect branches.

use super::common::snapshots;
use armsnap::capture::Capture;
use armsnap::decode::{ProgramOptions, Programs};
use armsnap::profile::{self, BlocksOnly, CodeOnly, Listener, Profile, Window};
use armsnap::snapshot::OpenOptions;
use armsnap::snapshot::model::Snapshot;
use std::path::Path;

/// What is known of the code of each track, as text.
fn counts<L: Listener + Send>(snapshot: &Path, jobs: usize, listener: fn() -> L) -> Vec<String> {
    let options = OpenOptions {
        allow_outside: true,
        ..OpenOptions::default()
    };
    let loaded = Snapshot::open(snapshot, &options).unwrap();
    let (capture, _) = Capture::open(&loaded);
    let options = ProgramOptions {
        named: &[],
        as_memory: true,
        symbols: true,
    };
    let (programs, _) = Programs::of(&loaded, &capture, &options).unwrap();
    let options = profile::Options {
        jobs,
        window: &|_| Some(Window::default()),
    };
    let (listener, nothing) = (|_: &_| listener(), |_| ());
    let decoded = profile::profile(
        &loaded,
        &capture,
        &programs,
        &options,
        listener,
        nothing,
        |_, _| (),
    );
    let tracks = decoded.unwrap().into_iter();
    tracks
        .map(|(track, profile, _)| format!("{}: {}", track.name, said(&profile)))
        .collect()
}

fn said(profile: &Profile) -> String {
    let mut text = format!("{:?}\n{:?}\n", profile.totals, profile.gaps);
    let name = |function| &profile.functions.get(function).name;
    for mut block in profile.code.blocks() {
        let name = name(std::mem::take(&mut block.function));
        text += &format!("{block:?} {name}\n");
    }
    for mut part in profile.code.parts() {
        let name = name(std::mem::take(&mut part.function));
        text += &format!("{part:?} {name}\n");
    }
    text
}

#[test]
fn blocks_alone_have_the_same_counts() {
    let mut blocks = 0;
    for snapshot in snapshots() {
        let known = counts(&snapshot, 1, CodeOnly::default);
        for jobs in [1, 2, 3] {
            let alone = counts(&snapshot, jobs, BlocksOnly::default);
            assert_eq!(alone.len(), known.len());
            for (alone, known) in alone.iter().zip(&known) {
                let differs = alone.lines().zip(known.lines()).find(|(a, b)| a != b);
                assert_eq!(differs, None, "{}, {jobs} jobs", snapshot.display());
                assert_eq!(alone.len(), known.len());
                blocks += known.lines().count();
            }
        }
    }
    assert!(blocks > 1000);
}
