//! A worker decodes stretches of one source's trace, and keeps what it learned about the code.

use super::code::Code;
use super::part::TraceState;
use super::saved::Saved;
use super::scan::{Hit, Query, Scan, VisitCache};
use super::stretch::{Between, Decoders, HistorySink, Run, StartPoint, SyncPoint, TraceEnd};
use std::ops::Range;
use std::sync::Arc;

/// A stretch to decode.
#[derive(Debug)]
pub(super) struct Job {
    pub from: StartPoint,
    /// Offset of the first packet of the next segment.
    pub end: Option<u64>,
    /// Offset in the buffer where the next part of the segment starts.
    pub until: u64,
    /// Number of places of the segment before it.
    pub first: u64,
    pub known: TraceState,
    /// Whether it starts with the gap between two buffers.
    pub starts_buffer: bool,
    /// Its end, as recorded in an index.
    pub seam: Option<Seam>,
}

/// The end of a stretch, as recorded in an index.
#[derive(Debug)]
pub(super) struct Seam {
    /// Number of places of the segment before it.
    pub places: u64,
    /// The state there; `None` at the end of the segment.
    pub saved: Option<Arc<Saved>>,
}

/// Decoding a stretch does not reach the end that an index has recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contradiction;

/// The decoders of one source, and a cache for searches.
pub(super) struct Worker {
    decoders: Box<dyn Decoders>,
    code: Code,
    visits: VisitCache,
    /// How often the flow had cleared its blocks when `visits` was filled.
    emptied: u64,
}

impl Worker {
    /// Creates a worker with decoders that follow `code`.
    pub fn new(decoders: Box<dyn Decoders>, code: Code) -> Self {
        Self {
            decoders,
            code,
            visits: VisitCache::default(),
            emptied: 0,
        }
    }

    /// Returns the code image.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Returns the decoders.
    pub fn decoders(&self) -> &dyn Decoders {
        &*self.decoders
    }

    /// Creates another worker for the same source, with an empty block cache.
    pub fn another(&self) -> Self {
        Self::new(self.decoders.another(), self.code.clone())
    }

    /// Searches a stretch, restricted to the places `within` of the segment.
    pub fn scan(
        &mut self,
        stretch: &Job,
        query: &Query,
        within: Range<u64>,
    ) -> Result<Option<Hit>, Contradiction> {
        let mut visits = std::mem::take(&mut self.visits);
        if self.emptied != self.decoders.emptied() {
            visits.clear();
        }
        let code = self.code.clone();
        let (known, first) = (stretch.known, stretch.first);
        let mut scan = Scan::new(query, &code, &mut visits, known, first, within);
        if stretch.starts_buffer {
            scan.start_buffer();
        }
        let done = self.decode(stretch, &mut scan);
        let hit = scan.hit();
        self.visits = visits;
        self.emptied = self.decoders.emptied();
        done.map(|()| hit)
    }

    /// Counts the cycles in a stretch.
    pub fn count_cycles(&mut self, stretch: &Job) -> u64 {
        let (query, code) = (Query::nothing(), self.code.clone());
        let mut visits = VisitCache::default();
        let (known, first) = (stretch.known, stretch.first);
        let mut scan = Scan::new(&query, &code, &mut visits, known, first, 0..u64::MAX);
        // No end to contradict is recorded for this stretch: indexed segments are counted already.
        let _ = self.decode(stretch, &mut scan);
        scan.known().cycles.unwrap_or(0)
    }

    /// Decodes a stretch, and compares its end with the one recorded in an index.
    pub fn decode<S: HistorySink>(
        &mut self,
        stretch: &Job,
        sink: &mut S,
    ) -> Result<(), Contradiction>
    where
        dyn Decoders: Run<S>,
    {
        let between = |raw, _: &mut S| {
            if raw < stretch.until {
                Between::Continue
            } else if stretch.seam.is_some() {
                Between::SaveAndStop
            } else {
                Between::Stop
            }
        };
        let mut end = None;
        let saved = |state, _: &mut S| end = Some(state);
        self.run(&stretch.from, stretch.end, sink, between, saved);
        let agrees = |seam: &Seam| {
            let same = match (&seam.saved, &end) {
                (None, None) => true,
                (Some(saved), Some(end)) => saved.agrees(end),
                _ => false,
            };
            same && sink.places() == seam.places
        };
        match &stretch.seam {
            Some(seam) if !sink.is_done() && !agrees(seam) => Err(Contradiction),
            _ => Ok(()),
        }
    }

    /// Decodes from `from` up to the packet at `end`, or to the end of the trace if `None`.
    /// `between` decides between pieces how to proceed; saved states are passed to `saved`.
    pub fn run<S: HistorySink>(
        &mut self,
        from: &StartPoint,
        end: Option<u64>,
        sink: &mut S,
        mut between: impl FnMut(u64, &mut S) -> Between,
        mut saved: impl FnMut(Saved, &mut S),
    ) -> TraceEnd
    where
        dyn Decoders: Run<S>,
    {
        self.decoders.run(from, end, sink, &mut between, &mut saved)
    }

    /// See [`Decoders::probe`].
    pub fn probe(&mut self, at: SyncPoint) -> Option<u64> {
        self.decoders.probe(at)
    }
}
