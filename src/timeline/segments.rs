//! A track cut into segments at synchronisation points, found from the end on.
//!
//! Each chunk of the buffer has at most one cut, the first synchronisation point in it that a
//! decoder can begin at without trace beyond the chunk; so what is a cut depends on nothing but
//! the bytes of its chunk. A segment goes from cut to cut; the first one begins with the
//! buffer. A long segment consists of parts, each but the first with a saved decode to begin
//! from; they are made the first time that the segment is looked at.

mod as_track;

use super::kept::Kept;
use super::part::{Known, Part, Recorder};
use super::position::Direction;
use super::scan::{Query, Scan, VisitCache};
use super::trace::Trace;
use super::track::{GaveUp, Limits, PartKey, Placed, Start};
use super::worker::{Between, Ended, From, Job, Saved, Stretch, Sync, Worker};
use crate::protocol::{ElementDecoder, PacketDecoder};
use crate::quantity::BufferOffset;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Synchronisation points of a chunk that are tried.
const TRIES: usize = 4;

/// Chunks that are looked through at once.
const LONG: u64 = 8;

/// Parts of a long segment, each with a saved decode; where there would be more, every second one
/// goes, and those to come are twice as long.
const MOST_PARTS: usize = if cfg!(test) { 8 } else { 4096 };

/// Where a segment begins.
#[derive(Clone, Copy, Debug)]
struct Cut {
    at: Sync,
    /// The packet from which on it is this segment's.
    join: u64,
}

/// A part of a segment, not decoded.
#[derive(Debug)]
struct PartStart<D, E> {
    /// Places of the segment before it.
    first: u64,
    /// The decode that it begins with; that of the first part is the segment's begin.
    saved: Option<Arc<Saved<D, E>>>,
}

/// What is known of a segment once it was looked at.
#[derive(Debug)]
struct Layout<D, E> {
    parts: Vec<PartStart<D, E>>,
    places: u64,
    ended: Ended,
    /// What was known at its end.
    after: Known,
}

/// A track cut into segments.
pub(super) struct Segments<D, E> {
    pub(super) trace: Arc<Trace>,
    pub(super) worker: Worker<D, E>,
    /// The first buffer of the core.
    begins: bool,
    counts_cycles: bool,
    alone: bool,
    limits: Limits,
    /// By chunk, as far as it was looked for.
    cuts: BTreeMap<u64, Option<Cut>>,
    /// The segment after one, where it is far away.
    after: BTreeMap<u64, Option<u64>>,
    last: Option<u64>,
    /// By chunk.
    layouts: BTreeMap<u64, Layout<D, E>>,
    /// By chunk: what was passed of a segment when it was given up.
    begun: BTreeMap<u64, Vec<PartStart<D, E>>>,
    kept: Kept,
    /// Cycles of the segments that were counted, by chunk.
    cycles: BTreeMap<u64, u64>,
}

/// A stretch that is looked through at once: a part, or a whole segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub chunk: u64,
    /// A part of a segment that was looked at before.
    pub part: Option<usize>,
}

impl<D, E> Segments<D, E>
where
    D: PacketDecoder + Clone + Send + std::marker::Sync,
    E: ElementDecoder<Packet = D::Packet> + Clone + Send + std::marker::Sync,
{
    pub fn new(
        trace: Arc<Trace>,
        worker: Worker<D, E>,
        begins: bool,
        counts_cycles: bool,
        alone: bool,
        limits: Limits,
    ) -> Self {
        Self {
            trace,
            worker,
            begins,
            counts_cycles,
            alone,
            limits,
            cuts: BTreeMap::new(),
            after: BTreeMap::new(),
            last: None,
            layouts: BTreeMap::new(),
            begun: BTreeMap::new(),
            kept: Kept::default(),
            cycles: BTreeMap::new(),
        }
    }

    /// The cut in a chunk other than the first.
    fn cut(&mut self, chunk: u64) -> Option<Cut> {
        if let Some(&known) = self.cuts.get(&chunk) {
            return known;
        }
        let tried = self.trace.synchronisations(chunk);
        let cut = tried.into_iter().take(TRIES).find_map(|skip| {
            let at = Sync { chunk, skip };
            let join = self.worker.probe(at)?;
            Some(Cut { at, join })
        });
        if cut.is_none() {
            self.trace
                .release(self.trace.begin(chunk), self.trace.begin(chunk + 1));
        }
        self.cuts.insert(chunk, cut);
        cut
    }

    fn is_segment(&mut self, chunk: u64) -> bool {
        chunk == 0 || chunk < self.trace.count() && self.cut(chunk).is_some()
    }

    /// The segment after a chunk.
    pub fn segment_after(&mut self, chunk: u64) -> Option<u64> {
        if let Some(&known) = self.after.get(&chunk) {
            return known;
        }
        let chunks = self.trace.count();
        let after = (chunk + 1..chunks).find(|&chunk| self.is_segment(chunk));
        if after.unwrap_or(chunks) - chunk > LONG {
            self.after.insert(chunk, after);
        }
        after
    }

    /// The segment before a chunk.
    pub fn segment_before(&mut self, chunk: u64) -> Option<u64> {
        (0..chunk).rev().find(|&chunk| self.is_segment(chunk))
    }

    pub fn last_segment(&mut self) -> u64 {
        if let Some(last) = self.last {
            return last;
        }
        let chunks = self.trace.count();
        let last = self.segment_before(chunks).unwrap_or(0);
        self.last = Some(last);
        last
    }

    fn known_at_begin(&self, chunk: u64) -> Known {
        Known {
            open: chunk == 0,
            alone: self.alone,
            ..Known::default()
        }
    }

    fn begins_buffer(&self, chunk: u64) -> bool {
        chunk == 0 && !self.begins
    }

    fn from(&mut self, chunk: u64) -> From<D, E> {
        match self.cuts.get(&chunk) {
            Some(Some(cut)) => From::Sync {
                at: cut.at,
                join: cut.join,
            },
            _ => From::Begin,
        }
    }

    /// The packet where the segment after a chunk begins.
    fn end_of(&mut self, chunk: u64) -> Option<u64> {
        let after = self.segment_after(chunk)?;
        self.cut(after).map(|cut| cut.join)
    }

    pub fn segment(&self, chunk: u64) -> u64 {
        self.trace.begin(chunk)
    }

    /// What is known of a segment; decodes it if it was not looked at.
    fn layout(&mut self, chunk: u64) -> &Layout<D, E> {
        while !self.lays_out(chunk, &mut || true) {}
        &self.layouts[&chunk]
    }

    /// Decodes a segment if it was not looked at, as long as `goes_on` says so; answers whether it
    /// was decoded to its end.
    fn lays_out(&mut self, chunk: u64, goes_on: &mut dyn FnMut() -> bool) -> bool {
        if !self.layouts.contains_key(&chunk) {
            let Some(layout) = self.lay_out(chunk, goes_on) else {
                return false;
            };
            self.layouts.insert(chunk, layout);
        }
        true
    }

    /// Whether a segment has too many parts to be looked through at once, or to be kept.
    fn is_long(&mut self, chunk: u64) -> bool {
        let end = self.segment_after(chunk);
        end.unwrap_or(self.trace.count()) - chunk > LONG
    }

    /// Decodes a segment once. Of a short one the parts are kept.
    fn lay_out(&mut self, chunk: u64, goes_on: &mut dyn FnMut() -> bool) -> Option<Layout<D, E>> {
        let known = self.known_at_begin(chunk);
        if self.is_long(chunk) {
            let parts = self.begun.remove(&chunk).unwrap_or_default();
            let last = parts
                .last()
                .and_then(|part| Some((part.saved.as_ref()?.known, part.first)));
            let (known, first) = last.unwrap_or((known, 0));
            let (query, code) = (Query::nothing(), self.worker.code().clone());
            let mut visits = VisitCache::default();
            let mut scan = Scan::new(&query, &code, &mut visits, known, first, 0..u64::MAX);
            if last.is_none() && self.begins_buffer(chunk) {
                scan.begin_buffer();
            }
            return self.pass(chunk, parts, &mut scan, goes_on, |_, _, _| {});
        }
        let mut recorder = Recorder::new(known, 0);
        if self.begins_buffer(chunk) {
            recorder.begin_buffer(BufferOffset(0));
        }
        let segment = self.segment(chunk);
        let most = self.limits.cache_bytes;
        let on = &mut || true;
        self.pass(
            chunk,
            Vec::new(),
            &mut recorder,
            on,
            |recorder, kept, number| {
                let number = number as u32;
                let part = Arc::new(recorder.cut());
                kept.insert(PartKey { segment, number }, part, most);
            },
        )
    }

    /// Passes a segment, or what is left of it behind `parts`, and saves the decode where its parts
    /// begin; gives up at the end of a part if `goes_on` says so. `ended` is called with each part's
    /// number at its end.
    fn pass<S: Stretch>(
        &mut self,
        chunk: u64,
        mut parts: Vec<PartStart<D, E>>,
        sink: &mut S,
        goes_on: &mut dyn FnMut() -> bool,
        mut ended: impl FnMut(&mut S, &mut Kept, usize),
    ) -> Option<Layout<D, E>> {
        let (mut from, end) = (self.from(chunk), self.end_of(chunk));
        let mut begin = self.segment(chunk);
        match parts.last().and_then(|part| part.saved.as_ref()) {
            Some(saved) => {
                begin = saved.feed.raw;
                from = From::Saved(Arc::clone(saved));
            }
            None => {
                parts = vec![PartStart {
                    first: 0,
                    saved: None,
                }];
            }
        }
        let mut given_up = false;
        let (limits, is_long) = (self.limits, self.is_long(chunk));
        let since = Cell::new((begin, sink.places()));
        let coarse = Cell::new(1_u64);
        let trace = Arc::clone(&self.trace);
        let kept = &mut self.kept;
        let trace_end = self.worker.run(
            &from,
            end,
            sink,
            |raw, sink| {
                let (begin, first) = since.get();
                let reached =
                    |passed: u64, limit: u64| passed >= limit.saturating_mul(coarse.get());
                if !reached(raw.saturating_sub(begin), limits.part_bytes)
                    && !reached(sink.places().saturating_sub(first), limits.part_places)
                {
                    return Between::GoOn;
                }
                trace.release(begin, raw);
                since.set((raw, sink.places()));
                given_up = !goes_on();
                if given_up {
                    return Between::Stop;
                }
                Between::Save
            },
            |saved, sink| {
                ended(sink, kept, parts.len() - 1);
                parts.push(PartStart {
                    first: sink.places(),
                    saved: Some(Arc::new(saved)),
                });
                if is_long && parts.len() >= MOST_PARTS {
                    let mut odd = false;
                    parts.retain(|_| {
                        odd = !odd;
                        odd
                    });
                    coarse.set(coarse.get().saturating_mul(2));
                }
            },
        );
        if given_up {
            self.begun.insert(chunk, parts);
            return None;
        }
        let (places, after) = (sink.places(), *sink.known());
        ended(sink, kept, parts.len() - 1);
        self.cycles.insert(chunk, after.cycles.unwrap_or(0));
        Some(Layout {
            parts,
            places,
            ended: trace_end,
            after,
        })
    }

    /// How to decode a unit.
    fn job(&mut self, unit: Unit) -> Job<D, E> {
        let chunk = unit.chunk;
        let (from, end) = (self.from(chunk), self.end_of(chunk));
        let whole = Job {
            from,
            end,
            until: u64::MAX,
            first: 0,
            known: self.known_at_begin(chunk),
            begins_buffer: self.begins_buffer(chunk),
        };
        let (Some(number), Some(layout)) = (unit.part, self.layouts.get(&chunk)) else {
            return whole;
        };
        let next = layout.parts.get(number + 1);
        let until = next
            .and_then(|next| next.saved.as_ref())
            .map_or(u64::MAX, |saved| saved.feed.raw);
        match layout.parts.get(number) {
            Some(PartStart {
                first,
                saved: Some(saved),
            }) => Job {
                known: saved.known,
                from: From::Saved(Arc::clone(saved)),
                first: *first,
                until,
                begins_buffer: false,
                ..whole
            },
            _ => Job { until, ..whole },
        }
    }

    /// A part of a segment that was looked at.
    fn placed(&mut self, chunk: u64, number: usize) -> Placed {
        let key = PartKey {
            segment: self.segment(chunk),
            number: number as u32,
        };
        let first = self.layout(chunk).parts[number].first;
        let part = match self.kept.get(key) {
            Some(part) => part,
            None => {
                let part = Some(number);
                let job = self.job(Unit { chunk, part });
                let part = Arc::new(self.record(&job));
                let most = self.limits.cache_bytes;
                self.kept.insert(key, Arc::clone(&part), most);
                part
            }
        };
        Placed { key, first, part }
    }

    fn record(&mut self, job: &Job<D, E>) -> Part {
        let mut recorder = Recorder::new(job.known, job.first);
        if job.begins_buffer {
            recorder.begin_buffer(BufferOffset(0));
        }
        self.worker.decode(job, &mut recorder);
        let begin = match &job.from {
            From::Begin => 0,
            From::Sync { at, .. } => self.trace.begin(at.chunk),
            From::Saved(saved) => saved.feed.raw,
        };
        let end = job.end.unwrap_or(self.trace.total()).min(job.until);
        self.trace.release(begin, end);
        recorder.cut()
    }

    /// The unit that a search begins with, and the places in it that count.
    pub fn first_unit(
        &mut self,
        start: Start,
        direction: Direction,
    ) -> Option<(Unit, std::ops::Range<u64>)> {
        match (start, direction) {
            (Start::Outside, Direction::Forward) => Some((self.unit(0, direction), 0..u64::MAX)),
            (Start::Outside, Direction::Backward) => {
                let last = self.last_segment();
                Some((self.unit(last, direction), 0..u64::MAX))
            }
            (Start::At { segment, index }, _) => {
                let chunk = self.trace.chunk_at(segment)?;
                if !self.is_segment(chunk) {
                    return None;
                }
                let parts = &self.layout(chunk).parts;
                let number = parts.partition_point(|part| part.first <= index);
                let part = Some(number.saturating_sub(1));
                let within = match direction {
                    Direction::Forward => index.saturating_add(1)..u64::MAX,
                    Direction::Backward => 0..index,
                };
                Some((Unit { chunk, part }, within))
            }
        }
    }

    /// The first unit of a segment in a direction.
    fn unit(&self, chunk: u64, direction: Direction) -> Unit {
        let parts = self.layouts.get(&chunk).map(|layout| layout.parts.len());
        Unit {
            chunk,
            part: parts.map(|parts| match direction {
                Direction::Forward => 0,
                Direction::Backward => parts - 1,
            }),
        }
    }

    /// The unit after another one in a direction.
    pub fn unit_beside(&mut self, unit: Unit, direction: Direction) -> Option<Unit> {
        let chunk = unit.chunk;
        if let (Some(number), Some(layout)) = (unit.part, self.layouts.get(&chunk)) {
            let next = match direction {
                Direction::Forward => Some(number + 1).filter(|&next| next < layout.parts.len()),
                Direction::Backward => number.checked_sub(1),
            };
            if let Some(next) = next {
                let part = Some(next);
                return Some(Unit { chunk, part });
            }
        }
        let chunk = match direction {
            Direction::Forward => self.segment_after(chunk),
            Direction::Backward => self.segment_before(chunk),
        }?;
        Some(self.unit(chunk, direction))
    }

    pub fn jobs(&mut self, units: &[Unit]) -> Vec<Job<D, E>> {
        units.iter().map(|&unit| self.job(unit)).collect()
    }

    /// Gives back the memory that holds the bytes of some units.
    pub fn release(&mut self, units: &[Unit]) {
        let chunks = units.iter().map(|unit| unit.chunk);
        if let (Some(first), Some(last)) = (chunks.clone().min(), chunks.max()) {
            let end = self.segment_after(last);
            let end = end.map_or(self.trace.total(), |end| self.segment(end));
            self.trace.release(self.segment(first), end);
        }
    }

    /// Lays out a segment that is too long to be looked through at once.
    pub fn split(
        &mut self,
        unit: Unit,
        direction: Direction,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Unit, GaveUp> {
        if unit.part.is_some() {
            return Ok(unit);
        }
        if self.is_long(unit.chunk) && !self.lays_out(unit.chunk, goes_on) {
            return Err(GaveUp);
        }
        Ok(self.unit(unit.chunk, direction))
    }
}
