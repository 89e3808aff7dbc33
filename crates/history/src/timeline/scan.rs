//! Fast scan of a stretch of trace: counts places, finds visits of addresses and gaps, stores
//! nothing.

use super::code::Code;
use super::entry::{AddressSet, Gap, Gaps};
use super::part::TraceState;
use super::position::Direction;
use super::stretch::HistorySink;
use armsnap_arch::quantity::BufferOffset;
use armsnap_trace::element::{Exception, Mark};
use armsnap_trace::flow::{BlockId, Blocks, FlowSink, Gap as FlowGap, QRange, Range};
use std::ops;

/// What a scan searches for.
#[derive(Clone, Debug)]
pub(super) struct Query {
    pub addresses: AddressSet,
    pub gaps: Gaps,
    pub direction: Direction,
}

impl Query {
    /// Matches nothing: the scan only counts places.
    pub fn nothing() -> Self {
        Self {
            addresses: AddressSet::default(),
            gaps: Gaps::Pass,
            direction: Direction::Backward,
        }
    }
}

/// A hit: the index of a place in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hit {
    At(u64),
    Gap(u64),
}

/// Caches which blocks contain the addresses. `slots` has one value per block: 0 if the block was
/// not examined, 1 if it contains none of the addresses, otherwise the index in `found` plus 2.
#[derive(Clone, Debug, Default)]
pub(super) struct VisitCache {
    slots: Vec<u32>,
    found: Vec<Box<[u32]>>,
    addresses: AddressSet,
}

impl VisitCache {
    /// Clears the cache if it is for other addresses.
    pub fn prepare(&mut self, addresses: &AddressSet) {
        if self.addresses != *addresses {
            self.clear();
            self.addresses = addresses.clone();
        }
    }

    /// Clears the cache after blocks were renumbered.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.found.clear();
    }
}

/// A scan in progress.
pub(super) struct Scan<'a> {
    query: &'a Query,
    code: &'a Code,
    cache: &'a mut VisitCache,
    known: TraceState,
    places: u64,
    /// The places where hits count.
    within: ops::Range<u64>,
    hit: Option<Hit>,
    done: bool,
}

impl<'a> Scan<'a> {
    /// Starts at place `first` of the segment.
    pub fn new(
        query: &'a Query,
        code: &'a Code,
        cache: &'a mut VisitCache,
        known: TraceState,
        first: u64,
        within: ops::Range<u64>,
    ) -> Self {
        cache.prepare(&query.addresses);
        Self {
            query,
            code,
            cache,
            known,
            places: first,
            within,
            hit: None,
            done: false,
        }
    }

    /// Returns the first hit; going backward, the last.
    pub fn hit(&self) -> Option<Hit> {
        self.hit
    }

    /// Adds the gap at the start of a further buffer, which has no element.
    pub fn start_buffer(&mut self) {
        self.known.pass(true);
        self.gap_here();
    }

    fn take(&mut self, hit: Hit) {
        match self.query.direction {
            Direction::Forward => {
                if self.hit.is_none() {
                    self.hit = Some(hit);
                }
                self.done = true;
            }
            Direction::Backward => self.hit = Some(hit),
        }
    }

    fn gap_here(&mut self) {
        if self.query.gaps == Gaps::Stop && self.within.contains(&self.places) {
            self.take(Hit::Gap(self.places));
        }
        self.pass(1);
    }

    #[inline(always)]
    fn pass(&mut self, places: u64) {
        self.places = self.places.wrapping_add(places);
        self.done |= self.places >= self.within.end;
    }

    #[cold]
    #[inline(never)]
    fn visited(&mut self, visits: &[u32]) {
        for &visit in visits {
            let place = self.places.wrapping_add(visit.into());
            if self.within.contains(&place) {
                self.take(Hit::At(place));
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn examine(&mut self, blocks: &Blocks, id: BlockId) -> u32 {
        let view = self.code.seen(self.known.context.as_ref());
        let range = blocks.range(id, true);
        let visits = self
            .code
            .visits(view, &range, self.query.addresses.addresses());
        if self.cache.slots.len() <= id.index() {
            self.cache.slots.resize(blocks.len().max(id.index() + 1), 0);
        }
        let slot = if visits.is_empty() {
            1
        } else {
            self.cache.found.push(visits.into());
            self.cache.found.len() as u32 + 1
        };
        self.cache.slots[id.index()] = slot;
        slot
    }

    #[cold]
    #[inline(never)]
    fn visited_slot(&mut self, slot: u32) {
        let found = std::mem::take(&mut self.cache.found);
        if let Some(visits) = found.get(slot as usize - 2) {
            self.visited(visits);
        }
        self.cache.found = found;
    }
}

impl FlowSink for Scan<'_> {
    #[inline(always)]
    fn block(
        &mut self,
        _: BufferOffset,
        blocks: &Blocks,
        id: BlockId,
        _: bool,
        cycles: Option<u32>,
    ) {
        let mut slot = self.cache.slots.get(id.index()).copied().unwrap_or(0);
        if slot != 1 {
            if slot == 0 {
                slot = self.examine(blocks, id);
            }
            if slot > 1 {
                self.visited_slot(slot);
            }
        }
        self.known.pass(false);
        self.pass(blocks.instructions(id).into());
        if let Some(cycles) = cycles {
            self.known.count(cycles);
        }
    }

    fn range(&mut self, _: BufferOffset, range: &Range, _: Option<u32>) {
        if range.instructions == 0 {
            return;
        }
        self.known.pass(false);
        let view = self.code.seen(self.known.context.as_ref());
        let visits = self
            .code
            .visits(view, range, self.query.addresses.addresses());
        self.visited(&visits);
        self.pass(range.instructions.into());
    }

    fn q_range(&mut self, _: BufferOffset, _: &QRange) {
        self.known.pass(false);
        self.gap_here();
    }

    fn exception(&mut self, _: BufferOffset, exception: &Exception) {
        self.known.exception = Some(*exception);
    }

    fn gap(&mut self, _: BufferOffset, _: FlowGap) {
        self.known.pass(true);
        self.gap_here();
    }

    fn mark(&mut self, _: BufferOffset, mark: &Mark) {
        let gap: Option<Gap> = self.known.mark(mark);
        if gap.is_some() {
            self.gap_here();
        }
    }

    fn forget(&mut self, _: &Blocks) {
        self.cache.clear();
    }
}

impl HistorySink for Scan<'_> {
    fn places(&self) -> u64 {
        self.places
    }

    fn known(&mut self) -> &mut TraceState {
        &mut self.known
    }

    fn is_done(&self) -> bool {
        self.done
    }
}
