//! Assigns parts of the buffers to shards, and decodes one shard.

use super::super::pieces::{Piece, Wanted, decoder};
use super::super::run::{Track, tracks};
use super::file::{Header, Record};
use armsnap_history::decode::parts::{Decoders, Part, PartDecoder};
use armsnap_history::decode::{Image, Programs};
use armsnap_snapshot::capture::{Capture, CaptureBuffer};
use armsnap_snapshot::mapped;
use armsnap_snapshot::snapshot::OpenSnapshot;
use serde::{Deserialize, Serialize};
use std::io;

/// The maximum and minimum number of bytes of trace in a page.
const PAGE: (u64, u64) = (64, 64 << 10);
/// The minimum number of pages in a shard, except for short traces.
const PAGES: u64 = 8;
/// The size of a shard divided by this is the maximum length of a lead-in.
const LEAD: u64 = 2;

/// The recorder of a shard's pieces.
pub(super) type Recorder<'a> = super::super::pieces::Recorder<'a, false>;

/// Takes the piece of a source.
pub(super) fn take(recorder: &mut Recorder<'_>, packets: u64) -> Piece {
    recorder.take(packets)
}

/// How the trace of a snapshot is divided into shards.
pub struct Plan<'a> {
    capture: &'a Capture,
    programs: &'a Programs,
    tracks: Vec<Track>,
    shards: u32,
    total: u64,
    page: usize,
}

/// A part of a buffer that belongs to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// Index of the buffer in the snapshot.
    pub buffer: usize,
    /// Its byte range.
    pub part: Part,
}

/// A boundary between two shards: a buffer, the lead-in, and the first byte after the boundary.
type Seam = (usize, u64, u64);

impl<'a> Plan<'a> {
    /// Divides the trace into a number of shards of about the same size.
    pub fn new(
        loaded: &'a OpenSnapshot,
        capture: &'a Capture,
        programs: &'a Programs,
        shards: u32,
    ) -> Self {
        let total: u64 = capture.buffers.iter().map(CaptureBuffer::bytes).sum();
        let shards = shards.max(1);
        let page = (total / u64::from(shards) / PAGES + 1).next_power_of_two();
        Self {
            capture,
            programs,
            tracks: tracks(loaded, capture),
            shards,
            total,
            page: page.clamp(PAGE.0, PAGE.1) as usize,
        }
    }

    /// The number of shards.
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// Bytes of trace in a page.
    pub fn page(&self) -> usize {
        self.page
    }

    /// The tracks.
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// Describes a shard, so that only shards of the same plan are joined.
    pub fn header(&self, shard: u32) -> Header {
        let buffers = self.capture.buffers.iter();
        Header {
            armsnap: env!("CARGO_PKG_VERSION").to_owned(),
            shard,
            shards: self.shards,
            page: self.page as u64,
            tracks: self.tracks.iter().map(|track| track.name.clone()).collect(),
            buffers: buffers.map(fingerprint).collect(),
        }
    }

    /// Makes the decoders of the sources in a buffer.
    pub(super) fn decoders(&self, buffer: usize, lines: bool) -> Decoders<'a, Recorder<'a>> {
        let sources = &self.capture.buffers[buffer].sources;
        let tracks = self.tracks.iter();
        let decoders = tracks.filter_map(|track| {
            let source = sources
                .iter()
                .find(|source| source.device == track.source)?;
            let image = Image(track.core.and_then(|core| self.programs.memory(core)));
            let symbols = track.core.and_then(|core| self.programs.symbols(core));
            let wanted = Wanted {
                lines,
                calls: true,
                each_call: true,
            };
            let recorder = Recorder::new(image, symbols, wanted);
            Some((source.trace_id, decoder(source, image, recorder)))
        });
        decoders.collect()
    }

    /// The tracks with trace in a buffer, by index, in the order of its decoders.
    pub fn tracks_in(&self, buffer: usize) -> Vec<usize> {
        let sources = &self.capture.buffers[buffer].sources;
        let tracks = self.tracks.iter().enumerate();
        tracks
            .filter(|(_, track)| sources.iter().any(|source| source.device == track.source))
            .map(|(index, _)| index)
            .collect()
    }

    /// Returns where a shard starts; `None` if decoding cannot start there.
    fn seam(&self, shard: u32) -> Option<Seam> {
        let (all, number) = (u128::from(self.shards), u128::from(shard));
        let mut at = (u128::from(self.total) * number / all) as u64;
        for (index, buffer) in self.capture.buffers.iter().enumerate() {
            if at == 0 {
                return Some((index, 0, 0));
            }
            if at < buffer.bytes() {
                let decoders = self.decoders(index, false);
                let mut decoder = PartDecoder::new(buffer, decoders, self.page, &take).ok()?;
                let longest = self.total / u64::from(self.shards) / LEAD;
                let (lead_in, start) = decoder.seam(at, longest).ok()??;
                return Some((index, lead_in, start));
            }
            at -= buffer.bytes();
        }
        Some((self.capture.buffers.len(), 0, 0))
    }

    /// Returns the parts of a shard, by its number, which starts at 0. If decoding cannot start at
    /// the shard, it has no parts; they belong to the shard before it.
    pub fn parts(&self, shard: u32) -> Vec<Planned> {
        let Some((first, mut lead_in, mut start)) = self.seam(shard) else {
            return Vec::new();
        };
        let (mut last, mut stop) = (self.capture.buffers.len(), 0);
        for next in shard + 1..self.shards {
            if let Some((buffer, _, at)) = self.seam(next) {
                (last, stop) = (buffer, at);
                break;
            }
        }
        let mut parts = Vec::new();
        for (index, buffer) in self.capture.buffers.iter().enumerate().skip(first) {
            let end = match index.cmp(&last) {
                std::cmp::Ordering::Less => buffer.bytes(),
                std::cmp::Ordering::Equal => stop,
                std::cmp::Ordering::Greater => break,
            };
            if start < end {
                let part = Part {
                    lead_in,
                    start,
                    end,
                };
                parts.push(Planned {
                    buffer: index,
                    part,
                });
            }
            (lead_in, start) = (0, 0);
        }
        parts
    }
}

/// The size of a buffer, and a hash (FNV-1a) of up to 64 KB at its start.
fn fingerprint(buffer: &CaptureBuffer) -> (u64, u64) {
    let first = buffer.parts.iter().flat_map(|file| file.iter());
    let hash = first
        .take(1 << 16)
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
    (buffer.bytes(), hash)
}

/// Decodes a shard, by its number, which starts at 0. `each` receives its records, in order; pieces
/// contain their straight lines if `lines` says so. `progress` receives the number of bytes done.
///
/// # Errors
///
/// Those of `each`, and if a file was truncated while being read.
pub fn decode_shard<X: From<io::Error>>(
    plan: &Plan<'_>,
    shard: u32,
    lines: bool,
    mut each: impl FnMut(Record) -> Result<(), X>,
    mut progress: impl FnMut(u64),
) -> Result<(), X> {
    let mut done = 0;
    for planned in plan.parts(shard) {
        let buffer = &plan.capture.buffers[planned.buffer];
        let decoders = plan.decoders(planned.buffer, lines);
        each(Record::Begin(planned))?;
        let Ok(mut decoder) = PartDecoder::new(buffer, decoders, plan.page, &take) else {
            each(Record::End(None))?;
            continue;
        };
        let mut failed = None;
        let end = decoder.decode(&planned.part, |mut page| {
            page.drop_missed();
            for piece in &mut page.outputs {
                piece.from = Some((shard, page.range.start));
            }
            done += page.range.end - page.range.start;
            progress(done);
            let passed = mapped::whole().map_err(X::from);
            failed = passed
                .and_then(|()| each(Record::Page(Box::new(page))))
                .err();
            failed.is_none()
        });
        if let Some(failed) = failed {
            return Err(failed);
        }
        each(Record::End(end.ok().map(Box::new)))?;
    }
    Ok(())
}
