//! A buffer of a snapshot, decoded at a level in a form: as a whole, and in parts.

use std::path::{Path, PathBuf};

use crate::support::skip;
use armsnap::capture::{Capture, CaptureBuffer};
use armsnap::decode::parts::{
    Decoders, Joiner, Output, Page, Part, PartDecoder, PartError, PartState, Sizes, decode_in_parts,
};
use armsnap::decode::{Decoding, ProgramOptions, Programs, Totals, Unsaved, decode_buffer};
use armsnap::quantity::TraceId;
use armsnap::report::listing::{Listed, RunningCounts, decoder};
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::{OpenOptions, OpenSnapshot};
use serde::{Deserialize, Serialize};

pub(super) use armsnap::report::listing::{Level, LineForm};

pub const LEVELS: [Level; 4] = [
    Level::Packets,
    Level::Elements,
    Level::Branches,
    Level::Instructions,
];

/// What a source gives for a piece.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Taken {
    pub(super) text: Vec<u8>,
    #[serde(skip)]
    pub(super) running: RunningCounts,
    pub(super) counts: [u64; 3],
    pub(super) unfollowed: Option<(u64, u64, Option<u64>)>,
    pub(super) packets: u64,
}

impl Output for Taken {
    fn bytes(&self) -> usize {
        self.text.len()
    }
}

fn take(listed: &mut (dyn Listed + '_), packets: u64) -> Taken {
    let counts = listed.counts();
    let unfollowed = listed.unfollowed().map(|unfollowed| {
        let branch = unfollowed.branch.map(|address| address.0);
        (unfollowed.times, unfollowed.first.0, branch)
    });
    let running = listed.running_counts();
    listed.reset();
    Taken {
        text: listed.text().take(),
        running,
        counts: [counts.ranges, counts.instructions, counts.elements],
        unfollowed,
        packets,
    }
}

/// A snapshot and how it is decoded.
pub struct Case<'a> {
    pub loaded: &'a OpenSnapshot,
    pub programs: &'a Programs,
    pub buffer: CaptureBuffer,
    pub level: Level,
    pub form: LineForm,
    pub piece: usize,
}

/// The outputs of all sources for each piece, and the bytes of each trace ID.
pub(super) type Decoded = (Vec<Vec<Taken>>, Totals);

impl Case<'_> {
    /// The decoders of all sources; `apart` if they decode parts.
    fn decoders(&self, apart: bool) -> Decoders<'_, dyn Listed + '_> {
        let sources = self.buffer.sources.iter();
        let wanted = (self.level, self.form);
        sources
            .map(|source| {
                let source_of = (&self.buffer, source);
                let decoder = decoder(self.loaded, self.programs, source_of, wanted);
                let mut decoder = decoder.unwrap();
                if apart {
                    decoder.output().count_later();
                }
                (source.trace_id, decoder)
            })
            .collect()
    }

    /// The decoders of all sources, which only decode.
    pub fn boxed_decoders(&self) -> Vec<(TraceId, Box<dyn Decoding<dyn Listed + '_> + '_>)> {
        let mut decoders = Vec::new();
        for (id, decoder) in self.decoders(false) {
            let decoder: Box<dyn Decoding<_>> = decoder;
            decoders.push((id, decoder));
        }
        decoders
    }

    /// Decodes as a whole.
    pub(super) fn whole(&self) -> Decoded {
        let mut decoders = self.boxed_decoders();
        let mut pieces: Vec<Vec<Taken>> = Vec::new();
        let count = decoders.len();
        let totals = decode_buffer(&self.buffer, &mut decoders, self.piece, |index, listed| {
            if index == 0 {
                pieces.push(vec![Taken::default(); count]);
            }
            pieces.last_mut().unwrap()[index] = take(listed, 0);
            Ok::<(), ()>(())
        });
        // Packets are counted at the end.
        for (index, (_, decoder)) in decoders.iter().enumerate() {
            if let Some(last) = pieces.last_mut() {
                last[index].packets = decoder.packets();
            }
        }
        (pieces, totals.unwrap())
    }

    /// Decodes each part on its own, and joins them. `remote` sends everything through text.
    /// Returns also the number of pages that were taken from parts.
    pub(super) fn joined(&self, parts: &[Part], remote: bool) -> (Decoded, u64) {
        let new = PartDecoder::new(&self.buffer, self.decoders(true), self.piece, &take);
        let mut decoder = new.unwrap();
        let mut joiner = Joiner::new(&self.buffer, self.decoders(true), self.piece, &take).unwrap();
        let mut pieces = Vec::new();
        let mut give = |outputs, _| {
            pieces.push(outputs);
            Ok::<(), PartError>(())
        };
        for part in parts {
            let mut pages: Vec<Page<Taken>> = Vec::new();
            let part: Part = sent(part, remote);
            let exit: Result<PartState, Unsaved> = decoder.decode(&part, |page| {
                pages.push(page);
                true
            });
            joiner.begin(part.start, &mut give).unwrap();
            for page in pages {
                joiner.page(sent(&page, remote), &mut give).unwrap();
            }
            if let Ok(exit) = exit {
                joiner.end(&sent(&exit, remote)).unwrap();
            }
        }
        joiner.decode(self.buffer.bytes(), &mut give).unwrap();
        let taken = joiner.taken();
        let totals = joiner.totals();
        ((completed(pieces), totals), taken)
    }

    /// Decodes on several threads; `None` if that is not worthwhile.
    pub(super) fn on_threads(&self, sizes: Sizes, jobs: usize) -> Option<Decoded> {
        let mut pieces = Vec::new();
        let make = |_| Ok::<_, PartError>(self.decoders(true));
        let mut give = |outputs, _| {
            pieces.push(outputs);
            Ok::<(), PartError>(())
        };
        let totals = decode_in_parts(&self.buffer, sizes, jobs, &make, &take, &mut give).unwrap();
        Some((completed(pieces), totals?))
    }

    pub fn name(&self) -> String {
        let (level, form, piece) = (self.level, self.form, self.piece);
        let buffer = &self.buffer.name;
        format!("{buffer}, {level:?} {form:?}, pieces of {piece}")
    }
}

/// Sends a value to another machine and back.
pub(super) fn sent<T: Serialize + for<'a> Deserialize<'a> + Clone>(value: &T, remote: bool) -> T {
    match remote {
        true => serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap(),
        false => value.clone(),
    }
}

/// Moves the packets to the last piece, and completes running counts.
fn completed(mut pieces: Vec<Vec<Taken>>) -> Vec<Vec<Taken>> {
    let count = pieces.first().map_or(0, Vec::len);
    for index in 0..count {
        let (mut cycles, mut spare) = (0, Vec::new());
        for taken in pieces.iter_mut().map(|piece| &mut piece[index]) {
            let running = std::mem::take(&mut taken.running);
            running.complete(cycles, &mut taken.text, &mut spare);
            cycles += running.cycles();
        }
        let packets = pieces.iter_mut();
        let packets = packets.map(|piece| std::mem::take(&mut piece[index].packets));
        let sum = packets.sum();
        pieces.last_mut().unwrap()[index].packets = sum;
    }
    pieces
}

#[track_caller]
pub(super) fn assert_same(found: &Decoded, wanted: &Decoded, name: &str) {
    for (number, (found, wanted)) in found.0.iter().zip(&wanted.0).enumerate() {
        assert_eq!(found, wanted, "{name}: piece {number}");
    }
    assert_eq!(found.0.len(), wanted.0.len(), "{name}");
    assert!(found.1 == wanted.1, "{name}: totals");
}

/// Cuts `total` bytes into parts of 1 to 4 pieces with lead-ins of any length.
pub(super) fn parts(total: u64, piece: usize, mut random: impl FnMut() -> u64) -> Vec<Part> {
    let (mut parts, mut start) = (Vec::new(), 0);
    while start < total {
        let end = (start + (random() % 4 + 1) * piece as u64).min(total);
        let most = [0, 64, 1 << 10, total][random() as usize % 4];
        parts.push(Part {
            lead_in: start.saturating_sub(random() % (most + 1)),
            start,
            end,
        });
        start = end;
    }
    parts
}

pub fn numbers(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed >> 8
    }
}

/// The snapshots with trace, here and in ../shared.
pub fn snapshots() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for from in [
        "testdata/recorded",
        "../shared/snapshots",
        "../shared/captures",
    ] {
        let Ok(entries) = std::fs::read_dir(root.join(from)) else {
            skip::missing("../shared is not there");
            continue;
        };
        let paths = entries.map(|entry| entry.unwrap().path());
        found.extend(paths.filter(|path| path.join("snapshot.ini").is_file()));
    }
    found.sort();
    found
}

/// Calls `each` for all buffers of a snapshot.
pub fn cases(path: &Path, mut each: impl FnMut(Case<'_>)) {
    let loaded: OpenSnapshot = Snapshot::open(path, &OpenOptions::default()).unwrap();
    let (capture, _) = Capture::open(&loaded);
    let options = ProgramOptions {
        named: &[],
        as_memory: false,
        symbols: false,
    };
    let (programs, _) = Programs::of(&loaded, &capture, &options).unwrap();
    for buffer in &capture.buffers {
        if buffer.sources.is_empty() || buffer.bytes() == 0 {
            continue;
        }
        each(Case {
            loaded: &loaded,
            programs: &programs,
            buffer: buffer.clone(),
            level: Level::Packets,
            form: LineForm::Counts,
            piece: 1,
        });
    }
}

pub fn bytes_of(buffer: &CaptureBuffer) -> Vec<u8> {
    buffer.parts.iter().flat_map(|part| part.to_vec()).collect()
}

/// The buffer of a snapshot with other bytes.
pub(super) fn with_bytes(mut case: Case<'_>, bytes: Vec<u8>) -> Case<'_> {
    case.buffer.parts = vec![bytes.into()];
    case
}
