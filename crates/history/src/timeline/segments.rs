//! A track cut into segments at synchronisation points, found from the end backward.
//!
//! Each chunk of the buffer has at most one cut: its first synchronisation point at which a
//! decoder can start without trace beyond the chunk. A cut therefore depends only on the bytes of
//! its chunk. A segment extends from cut to cut; the first one starts with the buffer. A long
//! segment consists of parts. Each part but the first starts from a saved decoder state, made when
//! the segment is first decoded.

mod as_track;
mod cuts;
mod indexed;

use super::index::Store;
use super::kept::Kept;
use super::part::{Recorder, SegmentPart, TraceState};
use super::position::Direction;
use super::saved::Saved;
use super::scan::{Query, Scan, VisitCache};
use super::stretch::{Between, Decoders, HistorySink, Run, StartPoint, SyncPoint, TraceEnd};
use super::trace::Trace;
use super::track::{Cancelled, Limits, PartKey, Placed, Start};
use super::worker::{Contradiction, Job, Worker};
use armsnap_arch::quantity::BufferOffset;
use armsnap_snapshot::stop::Cancel;
use indexed::Indexed;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of synchronisation points tried in a chunk.
const TRIES: usize = 4;

/// Segments of more chunks are split into parts before they are searched.
const LONG: u64 = 8;

/// Maximum number of parts of a long segment, each with a saved decoder state. At the limit every
/// second part is dropped, and the following parts are twice as long.
const MAX_PARTS: usize = if cfg!(test) { 8 } else { 4096 };

/// The start of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cut {
    pub at: SyncPoint,
    /// Offset of the first packet that belongs to this segment.
    pub join: u64,
}

/// The start of a part of a segment.
#[derive(Debug)]
struct PartStart {
    /// Number of places of the segment before it.
    first: u64,
    /// The decoder state that it starts from; `None` for the first part.
    saved: Option<Arc<Saved>>,
}

/// The layout of a segment that was decoded once.
#[derive(Debug)]
struct Layout {
    parts: Vec<PartStart>,
    places: u64,
    ended: TraceEnd,
    /// The state at its end.
    after: TraceState,
}

/// A track cut into segments.
pub(super) struct Segments {
    pub(super) trace: Arc<Trace>,
    pub(super) worker: Worker,
    /// Workers of further threads, while a search is running.
    pub(super) helpers: Vec<Worker>,
    /// Where layouts are kept.
    index: Option<Indexed>,
    /// Whether this is the first buffer of the core.
    is_first: bool,
    counts_cycles: bool,
    alone: bool,
    limits: Limits,
    /// By chunk, for the chunks examined so far.
    cuts: BTreeMap<u64, Option<Cut>>,
    /// By chunk: the next segment, if it is far away.
    after: BTreeMap<u64, Option<u64>>,
    last: Option<u64>,
    /// By chunk.
    layouts: BTreeMap<u64, Layout>,
    /// By chunk: the parts of a segment whose decoding was cancelled.
    begun: BTreeMap<u64, Vec<PartStart>>,
    kept: Kept,
    /// By chunk: cycles of the segments counted so far.
    cycles: BTreeMap<u64, u64>,
}

/// What one search job covers: a part, or a whole segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SearchUnit {
    pub chunk: u64,
    /// Index of the part, if the layout of the segment is known.
    pub part: Option<usize>,
}

impl Segments {
    pub fn new(
        trace: Arc<Trace>,
        worker: Worker,
        is_first: bool,
        counts_cycles: bool,
        alone: bool,
        limits: Limits,
        store: Option<Store>,
    ) -> Self {
        Self {
            trace,
            worker,
            helpers: Vec::new(),
            index: store.map(Indexed::new),
            is_first,
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

    /// Returns the number of threads to use.
    pub fn threads(&self) -> usize {
        self.limits.jobs.max(1)
    }

    /// Returns workers for at most `most` threads, at least one.
    pub fn workers(&mut self, most: usize) -> Vec<&mut Worker> {
        let helpers = most.min(self.threads()).saturating_sub(1);
        while self.helpers.len() < helpers {
            self.helpers.push(self.worker.another());
        }
        let helpers = self.helpers.iter_mut().take(helpers);
        std::iter::once(&mut self.worker).chain(helpers).collect()
    }

    fn state_at_start(&self, chunk: u64) -> TraceState {
        TraceState {
            open: chunk == 0,
            alone: self.alone,
            ..TraceState::default()
        }
    }

    fn starts_buffer(&self, chunk: u64) -> bool {
        chunk == 0 && !self.is_first
    }

    fn from(&mut self, chunk: u64) -> StartPoint {
        match self.cuts.get(&chunk) {
            Some(Some(cut)) => StartPoint::Sync {
                at: cut.at,
                join: cut.join,
            },
            _ => StartPoint::Start,
        }
    }

    /// Returns the offset of the first packet of the next segment.
    fn end_of(&mut self, chunk: u64) -> Option<u64> {
        let after = self.segment_after(chunk)?;
        self.cut(after).map(|cut| cut.join)
    }

    pub fn segment(&self, chunk: u64) -> u64 {
        self.trace.start(chunk)
    }

    /// Returns the layout of a segment; decodes the segment the first time.
    fn layout(&mut self, chunk: u64) -> &Layout {
        while !self.lays_out(chunk, &Cancel::default()) {}
        &self.layouts[&chunk]
    }

    /// Decodes a segment unless it is known already; returns whether it was decoded to its end
    /// without being cancelled.
    fn lays_out(&mut self, chunk: u64, cancel: &Cancel) -> bool {
        // Whether it is long may come from an index, with its layout.
        if self.layouts.contains_key(&chunk)
            || self.is_long(chunk) && self.layouts.contains_key(&chunk)
        {
            return true;
        }
        let Some(layout) = self.lay_out(chunk, cancel) else {
            return false;
        };
        self.layouts.insert(chunk, layout);
        if self.is_long(chunk) {
            self.keep_index(chunk);
        }
        true
    }

    /// Returns whether a segment is too long to be searched or cached as a whole.
    fn is_long(&mut self, chunk: u64) -> bool {
        let end = self.segment_after(chunk);
        end.unwrap_or(self.trace.count()) - chunk > LONG
    }

    /// Decodes a segment once. The parts of a short one are cached.
    fn lay_out(&mut self, chunk: u64, cancel: &Cancel) -> Option<Layout> {
        let known = self.state_at_start(chunk);
        if self.is_long(chunk) {
            let parts = self.begun.remove(&chunk).unwrap_or_default();
            let last = parts
                .last()
                .and_then(|part| Some((part.saved.as_ref()?.known, part.first)));
            let (known, first) = last.unwrap_or((known, 0));
            let (query, code) = (Query::nothing(), self.worker.code().clone());
            let mut visits = VisitCache::default();
            let mut scan = Scan::new(&query, &code, &mut visits, known, first, 0..u64::MAX);
            if last.is_none() && self.starts_buffer(chunk) {
                scan.start_buffer();
            }
            return self.pass(chunk, parts, &mut scan, cancel, |_, _, _| {});
        }
        let mut recorder = Recorder::new(known, 0);
        if self.starts_buffer(chunk) {
            recorder.start_buffer(BufferOffset(0));
        }
        let segment = self.segment(chunk);
        let most = self.limits.cache_bytes;
        let on = &Cancel::default();
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

    /// Decodes a segment, or the rest of it after `parts`, and saves the decoder state at the start
    /// of each part. If cancelled, it stops at the end of a part. `ended` is called with the number
    /// of each part at its end.
    fn pass<S: HistorySink>(
        &mut self,
        chunk: u64,
        mut parts: Vec<PartStart>,
        sink: &mut S,
        cancel: &Cancel,
        mut ended: impl FnMut(&mut S, &mut Kept, usize),
    ) -> Option<Layout>
    where
        dyn Decoders: Run<S>,
    {
        let (mut from, end) = (self.from(chunk), self.end_of(chunk));
        let mut begin = self.segment(chunk);
        match parts.last().and_then(|part| part.saved.as_ref()) {
            Some(saved) => {
                begin = saved.feed.raw;
                from = StartPoint::Saved(Arc::clone(saved));
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
                    return Between::Continue;
                }
                trace.release(begin, raw);
                since.set((raw, sink.places()));
                given_up = cancel.is_requested();
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
                if is_long && parts.len() >= MAX_PARTS {
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

    /// Returns the job that decodes a unit.
    fn job(&mut self, unit: SearchUnit) -> Job {
        let chunk = unit.chunk;
        let (from, end) = (self.from(chunk), self.end_of(chunk));
        let whole = Job {
            from,
            end,
            until: u64::MAX,
            first: 0,
            known: self.state_at_start(chunk),
            starts_buffer: self.starts_buffer(chunk),
            seam: unit.part.and_then(|number| self.seam(chunk, number)),
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
                from: StartPoint::Saved(Arc::clone(saved)),
                first: *first,
                until,
                starts_buffer: false,
                ..whole
            },
            _ => Job { until, ..whole },
        }
    }

    /// Returns a decoded part of a segment.
    fn placed(&mut self, chunk: u64, number: usize) -> Placed {
        let parts = &self.layout(chunk).parts;
        // The number may be that of a part in an index that was removed.
        let number = number.min(parts.len() - 1);
        let first = parts[number].first;
        let key = PartKey {
            segment: self.segment(chunk),
            number: number as u32,
        };
        if let Some(part) = self.kept.get(key) {
            return Placed { key, first, part };
        }
        let part = Some(number);
        let job = self.job(SearchUnit { chunk, part });
        let Ok(part) = self.record(&job) else {
            // Without the index, there are other parts.
            self.distrust();
            let parts = &self.layout(chunk).parts;
            let after = parts.partition_point(|part| part.first <= first);
            return self.placed(chunk, after.saturating_sub(1));
        };
        let part = Arc::new(part);
        let most = self.limits.cache_bytes;
        self.kept.insert(key, Arc::clone(&part), most);
        Placed { key, first, part }
    }

    fn record(&mut self, job: &Job) -> Result<SegmentPart, Contradiction> {
        let mut recorder = Recorder::new(job.known, job.first);
        if job.starts_buffer {
            recorder.start_buffer(BufferOffset(0));
        }
        self.worker.decode(job, &mut recorder)?;
        let begin = match &job.from {
            StartPoint::Start => 0,
            StartPoint::Sync { at, .. } => self.trace.start(at.chunk),
            StartPoint::Saved(saved) => saved.feed.raw,
        };
        let end = job.end.unwrap_or(self.trace.total()).min(job.until);
        self.trace.release(begin, end);
        Ok(recorder.cut())
    }

    /// Returns the first unit of a search, and the places in it that count.
    pub fn first_unit(
        &mut self,
        start: Start,
        direction: Direction,
    ) -> Option<(SearchUnit, std::ops::Range<u64>)> {
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
                Some((SearchUnit { chunk, part }, within))
            }
        }
    }

    /// Returns the first unit of a segment in a direction.
    fn unit(&self, chunk: u64, direction: Direction) -> SearchUnit {
        let parts = self.layouts.get(&chunk).map(|layout| layout.parts.len());
        SearchUnit {
            chunk,
            part: parts.map(|parts| match direction {
                Direction::Forward => 0,
                Direction::Backward => parts - 1,
            }),
        }
    }

    /// Returns the next unit in a direction.
    pub fn unit_beside(&mut self, unit: SearchUnit, direction: Direction) -> Option<SearchUnit> {
        let chunk = unit.chunk;
        if let (Some(number), Some(layout)) = (unit.part, self.layouts.get(&chunk)) {
            let next = match direction {
                Direction::Forward => Some(number + 1).filter(|&next| next < layout.parts.len()),
                Direction::Backward => number.checked_sub(1),
            };
            if let Some(next) = next {
                let part = Some(next);
                return Some(SearchUnit { chunk, part });
            }
        }
        let chunk = match direction {
            Direction::Forward => self.segment_after(chunk),
            Direction::Backward => self.segment_before(chunk),
        }?;
        Some(self.unit(chunk, direction))
    }

    pub fn jobs(&mut self, units: &[SearchUnit]) -> Vec<Job> {
        units.iter().map(|&unit| self.job(unit)).collect()
    }

    /// Releases the memory that holds the bytes of some units.
    pub fn release(&mut self, units: &[SearchUnit]) {
        let chunks = units.iter().map(|unit| unit.chunk);
        if let (Some(first), Some(last)) = (chunks.clone().min(), chunks.max()) {
            let end = self.segment_after(last);
            let end = end.map_or(self.trace.total(), |end| self.segment(end));
            self.trace.release(self.segment(first), end);
        }
    }

    /// Decodes the layout of a segment that is too long for one search job, and returns its first
    /// part.
    pub fn split(
        &mut self,
        unit: SearchUnit,
        direction: Direction,
        cancel: &Cancel,
    ) -> Result<SearchUnit, Cancelled> {
        if unit.part.is_some() {
            return Ok(unit);
        }
        if self.is_long(unit.chunk) && !self.lays_out(unit.chunk, cancel) {
            return Err(Cancelled);
        }
        Ok(self.unit(unit.chunk, direction))
    }
}
