//! Captures whose sums are added up from pieces, on any number of threads, equal those followed
//! block by block.

use super::super::course::tests::sums::{Silent, text};
use super::super::run::{Running, decode};
use super::super::stack::{CodeOnly, Listener, Nothing};
use super::super::window::Window;
use super::{sizes, sum};
use armsnap_history::decode::parts::Sizes;
use armsnap_history::decode::{ProgramOptions, Programs};
use armsnap_snapshot::capture::Capture;
use armsnap_snapshot::snapshot::model::Snapshot;
use armsnap_snapshot::snapshot::{OpenOptions, OpenSnapshot};
use std::path::{Path, PathBuf};

fn captures() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("../shared/snapshots")
}

/// The recorded snapshots, and the captures if present.
fn snapshots() -> Vec<PathBuf> {
    let recorded =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("testdata/recorded");
    let directories = [recorded, captures()].into_iter();
    let read = directories.filter_map(|directory| directory.read_dir().ok());
    let paths = read.flatten().map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.join("snapshot.ini").exists())
        .collect()
}

/// Decodes all buffers; returns the counts.
fn counted<L: Listener + Send>(
    (loaded, capture, programs): (&OpenSnapshot, &Capture, &Programs),
    listener: impl FnMut(&super::super::run::Track) -> L,
    threads: Option<(usize, Option<Sizes>)>,
) -> (u64, Vec<String>) {
    let window = |_: &_| Some(Window::default());
    let mut running = Running::all(loaded, capture, programs, &window, listener);
    for buffer in &capture.buffers {
        let mut sources = Vec::new();
        for one in &mut running {
            let mut all = buffer.sources.iter();
            if let Some(source) = all.find(|source| source.device == one.track.source) {
                sources.push((source, one));
            }
        }
        match threads {
            _ if sources.is_empty() => {}
            None => {
                decode(buffer, &mut sources, programs, 1, &mut |_| {}).unwrap();
            }
            Some((jobs, chosen)) => {
                let threads = (jobs, chosen.unwrap_or(sizes(buffer.bytes(), jobs)));
                sum(buffer, &mut sources, programs, threads, &mut |_| {}).unwrap();
            }
        }
    }
    let accepted = running.iter().map(|one| one.course.accepted).sum();
    let texts = running.into_iter().map(|one| {
        // Bytes without synchronisation count as one packet in each piece.
        let (name, bytes) = (&one.track.name, one.bytes);
        format!("{name} {bytes} {}", text(&one.course.finish().1))
    });
    (accepted, texts.collect())
}

#[test]
fn captures_add_up_to_the_same() {
    let small = |piece, part| Sizes {
        piece,
        part,
        output: 1 << 20,
        lead_in: None,
    };
    let all = [
        (1, None),
        (1, Some(small(300, 0))),
        (2, Some(small(1000, 4000))),
        (3, Some(small(100, 1500))),
    ];
    let mut some = 0;
    let mut accepted = [0; 4];
    for path in snapshots() {
        let loaded = Snapshot::open(&path, &OpenOptions::default()).unwrap();
        let (capture, _) = Capture::open(&loaded);
        let options = ProgramOptions {
            named: &[],
            as_memory: true,
            symbols: true,
        };
        let (programs, _) = Programs::of(&loaded, &capture, &options).unwrap();
        let input = (&loaded, &capture, &programs);
        let (_, calls) = counted(input, |_| Silent::<true>, None);
        let (_, code) = counted(input, |_| Silent::<false>, None);
        for (threads, accepted) in all.iter().zip(&mut accepted) {
            let what = format!("{}: {threads:?}", path.display());
            let (pieces, sums) = counted(input, |_| Nothing, Some(*threads));
            assert!(sums == calls, "{what}");
            *accepted += pieces;
            let (_, sums) = counted(input, |_| CodeOnly, Some(*threads));
            assert!(sums == code, "{what}, without calls");
        }
        some += usize::from(!capture.buffers.is_empty());
    }
    assert!(some > 2);
    if !captures().is_dir() {
        return;
    }
    let expected = [10, 500, 50, 50];
    let enough = accepted.iter().zip(expected).all(|(some, few)| *some > few);
    assert!(enough, "{accepted:?}");
}
