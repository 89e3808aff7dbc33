//! The index of a track, kept in a cache between runs: the layouts of its long segments.
//!
//! An index is named by a hash of the trace and of everything else that its decoding depends on,
//! other than code. The code that was executed is in the index, as a hash: it comes from dumps,
//! programs and other cores, most of which the trace never reaches.

use super::code::Code;
use super::part::TraceState;
use super::saved::Saved;
use super::segments::Cut;
use super::stretch::TraceEnd;
use super::trace::{Chunks, Trace};
use crate::decode::bounded_json;
use armsnap_arch::quantity::Address;
use armsnap_snapshot::cache::{Cache, Fields, Name};
use armsnap_trace::flow::{Blocks, CodeImage, View};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The version of the contents of an index.
const FORMAT: &str = "history 2";
/// Bytes after a block, whose absence may have ended it.
const AFTER: u64 = 4;
/// Maximum number of bytes of code in an index.
const MAX_CODE: u64 = 64 << 20;
/// Maximum number of bytes that are absent.
const MAX_ABSENT: u64 = 1 << 20;

/// Where the index of a track is kept.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub cache: Arc<Cache>,
    /// Everything that decoding depends on, other than the trace and the code.
    pub settings: Fields,
    /// Layouts with fewer parts are not kept: decoding is as fast.
    pub least_parts: usize,
}

impl Store {
    /// Starts with the settings that all tracks share.
    pub fn new(cache: Arc<Cache>, least_parts: usize) -> Self {
        let mut settings = Fields::of_this_program();
        settings.add(FORMAT.as_bytes());
        Self {
            cache,
            settings,
            least_parts,
        }
    }

    /// Adds a setting.
    pub fn add(&mut self, setting: &impl std::fmt::Debug) {
        self.settings.add(format!("{setting:?}").as_bytes());
    }

    /// Returns the name of the index of a trace. Reads all of it.
    pub fn name(&self, trace: &Trace, jobs: usize) -> Name {
        let mut fields = self.settings.clone();
        fields.add(&trace.total().to_le_bytes());
        fields.add(&trace.start(1).to_le_bytes());
        fields.add(format!("{:?}", trace.frame_kind()).as_bytes());
        fields.add(trace.hash(jobs).as_bytes());
        fields.name()
    }
}

/// The contents of an index.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Index {
    pub executed: Executed,
    pub segments: Vec<LongSegment>,
}

/// A segment with its layout.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LongSegment {
    pub chunk: u64,
    /// Its start; `None` at the start of the buffer.
    pub cut: Option<Cut>,
    /// The start of the next segment.
    pub next: Option<Cut>,
    pub parts: Vec<IndexedPart>,
    pub places: u64,
    pub ended: TraceEnd,
    pub after: TraceState,
}

/// The start of a part other than the first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct IndexedPart {
    /// Number of places of the segment before it.
    pub first: u64,
    pub state: Saved,
}

impl LongSegment {
    /// Returns whether it may be a segment of a trace.
    pub fn is_sound(&self, trace: &Chunks) -> bool {
        let end = self.next.map_or(trace.count(), |next| next.at.chunk);
        let starts = (self.chunk == 0) == self.cut.is_none()
            && self.cut.is_none_or(|cut| cut.at.chunk == self.chunk);
        let in_chunk = |cut: &Cut| {
            let start = trace.start(cut.at.chunk);
            let size = trace.start(cut.at.chunk + 1) - start;
            cut.at.skip < size && (start..=start + size).contains(&cut.join)
        };
        let cuts = || self.cut.iter().chain(&self.next).all(in_chunk);
        let mut before = (trace.start(self.chunk), 0);
        let mut ascending = |part: &IndexedPart| {
            let here = (part.state.feed.raw, part.first);
            let follows = here.0 > before.0 && here.1 >= before.1;
            before = here;
            follows
        };
        starts
            && self.chunk < end
            && end <= trace.count()
            && cuts()
            && self.parts.iter().all(&mut ascending)
            && before.0 <= trace.total()
            && before.1 <= self.places
    }
}

/// The code that was executed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Executed {
    /// By view: addresses, from and to.
    ranges: Vec<(u32, u64, u64)>,
    hash: String,
}

impl Executed {
    /// The code of all blocks, and more; `None` if it is too much.
    pub fn of(blocks: &Blocks, more: &Self, code: &Code) -> Option<Self> {
        let known = blocks.ids().skip(2).map(|id| {
            let range = blocks.range(id, true);
            let end = range.end.0.saturating_add(AFTER);
            (blocks.view(id).0, range.start.0, end)
        });
        let mut ranges: Vec<(u32, u64, u64)> = known.chain(more.ranges.iter().copied()).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, last| {
            let joins = next.0 == last.0 && next.1 <= last.2;
            if joins {
                last.2 = last.2.max(next.2);
            }
            joins
        });
        let hash = is_bounded(&ranges).then(|| hash(&ranges, code))??;
        Some(Self { ranges, hash })
    }

    /// Returns whether the same code is present now.
    pub fn is_in(&self, code: &Code) -> bool {
        is_bounded(&self.ranges) && hash(&self.ranges, code).as_ref() == Some(&self.hash)
    }
}

/// Returns whether the ranges are short enough to examine all of them.
fn is_bounded(ranges: &[(u32, u64, u64)]) -> bool {
    let bytes = ranges.iter().try_fold(0_u64, |sum, &(_, from, to)| {
        sum.checked_add(to.checked_sub(from)?)
    });
    bytes.is_some_and(|bytes| bytes <= MAX_CODE)
}

/// Returns a hash of code, and of where there is none; `None` if too much is absent.
fn hash(ranges: &[(u32, u64, u64)], code: &Code) -> Option<String> {
    /// The unit in which absent code is skipped.
    const STEP: u64 = 2;
    let (mut fields, mut absent) = (Fields::default(), 0);
    for &(view, from, to) in ranges {
        let mut at = from;
        while at < to {
            let bytes = code.slice(View(view), Address(at));
            let most = usize::try_from(to - at).unwrap_or(usize::MAX);
            let bytes = &bytes[..bytes.len().min(most)];
            fields.add(bytes);
            if bytes.is_empty() {
                fields.add(&[u8::from(code.is_straight(View(view), Address(at)))]);
                absent += STEP;
            }
            if absent > MAX_ABSENT {
                return None;
            }
            let passed = match bytes.len() {
                0 => STEP,
                length => length as u64,
            };
            at = at.saturating_add(passed);
        }
    }
    Some(fields.name().to_string())
}

/// Writes an index, unless it has more than `most` bytes.
pub(super) fn written(index: &Index, most: u64) -> Option<Vec<u8>> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    bounded_json(index, most)
}
