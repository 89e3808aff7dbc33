//! The trace of one core in one buffer, as a history sees it: parts in order.

use super::code::Code;
use super::entry::EndAgrees;
use super::part::{Known, Part};
use super::scan::{Hit, Query};
use super::segments::Segments;
use super::trace::Trace;
use super::worker::{Ended, Worker};
use crate::capture::Visitor;
use crate::flow::{FlowConfig, Range};
use crate::protocol::{ElementDecoder, PacketDecoder};
use crate::quantity::Address;
use std::sync::Arc;

/// A part of a track. Parts of one track are ordered as they were passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PartKey {
    /// Where in the buffer the chunk begins in which decoding begins.
    pub segment: u64,
    /// Which part of that segment.
    pub number: u32,
}

/// A decoded part and where it lies.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub key: PartKey,
    /// Places of its segment before it.
    pub first: u64,
    pub part: Arc<Part>,
}

/// Where a search in a track begins: it does not look at that place itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Outside, before the first or after the last place.
    Outside,
    /// At a place of a segment.
    At { segment: u64, index: u64 },
}

/// A search was not to go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct GaveUp;

/// The trace of one core in one buffer.
pub(super) trait Track: Send {
    /// The first part.
    fn first(&mut self) -> Placed;
    /// The last part.
    fn last(&mut self) -> Placed;
    /// The part before another one.
    fn previous(&mut self, key: PartKey) -> Option<Placed>;
    /// The part after another one.
    fn next(&mut self, key: PartKey) -> Option<Placed>;
    /// The part with a place of a segment; the place after the last one of a segment is in its
    /// last part.
    fn at(&mut self, segment: u64, index: u64) -> Option<Placed>;
    /// Bytes of the buffer.
    fn bytes(&self) -> u64;
    /// Decodes what must be before the last part is known, as long as `goes_on` says so; answers
    /// whether that is done.
    fn reach_end(&mut self, goes_on: &mut dyn FnMut() -> bool) -> bool;
    /// Where the trace ends.
    fn end(&mut self) -> Ended;
    /// Looks for something, as long as `goes_on` says so; gives the segment and what was found.
    fn search(
        &mut self,
        start: Start,
        query: &Query,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<(u64, Hit)>, GaveUp>;
    /// What the segment before a segment told.
    fn known_before(&mut self, segment: u64) -> Option<Known>;
    /// Cycles counted in all segments before one; none of a trace unit that was not set to.
    /// Segments are counted once, as long as `goes_on` says so.
    fn cycles_before(
        &mut self,
        segment: u64,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<u64, GaveUp>;
    /// From where on the first place before which so many cycles were counted is found: the
    /// segment, a place in it, and the cycles before the segment.
    fn before_cycle(
        &mut self,
        cycles: u64,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<(u64, u64, u64)>, GaveUp>;
    /// From where on the first place at which `time` has come is found: the segment, and a place
    /// in it.
    fn before_time(&mut self, time: u64) -> (u64, u64);
    /// Whether the trace has timestamps, as far as its last segments tell.
    fn is_timed(&mut self) -> bool;
}

impl Ended {
    /// Whether it leads to the halted pc.
    pub fn agrees(&self, halted: Option<Address>) -> EndAgrees {
        let Some(halted) = halted else {
            return EndAgrees::Unknown;
        };
        let inside =
            |range: Range| range.start == halted || (range.start < halted && halted < range.end);
        if self.returns_to == Some(halted) || self.ahead.is_some_and(inside) {
            return EndAgrees::Yes;
        }
        match self.ahead.map(|range| range.start).or(self.returns_to) {
            Some(trace_end) => EndAgrees::No { trace_end, halted },
            None => EndAgrees::Unknown,
        }
    }
}

/// How a track is cut and how much of it is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of the buffer after which a part ends.
    pub part_bytes: u64,
    /// Places after which a part ends.
    pub part_places: u64,
    /// Bytes of decoded parts that are kept.
    pub cache_bytes: usize,
}

/// Makes a track.
pub(super) struct Make {
    pub trace: Trace,
    pub code: Code,
    /// The first buffer of the core.
    pub begins: bool,
    /// The trace unit was set to count cycles.
    pub counts_cycles: bool,
    /// A program is traced without its kernel.
    pub alone: bool,
    pub limits: Limits,
}

/// The table of blocks of one worker is emptied when it holds so many.
const MOST_BLOCKS: usize = 1 << 18;

impl Visitor for Make {
    type Output = Option<Box<dyn Track>>;

    fn visit<D, E>(self, packets: D, elements: E, flow: Option<FlowConfig>) -> Self::Output
    where
        D: PacketDecoder + Clone + Send + Sync + 'static,
        E: ElementDecoder<Packet = D::Packet> + Clone + Send + Sync + 'static,
    {
        let config = FlowConfig {
            most_blocks: MOST_BLOCKS,
            ..flow?
        };
        let trace = Arc::new(self.trace);
        let worker = Worker::new(Arc::clone(&trace), packets, elements, config, self.code);
        Some(Box::new(Segments::new(
            trace,
            worker,
            self.begins,
            self.counts_cycles,
            self.alone,
            self.limits,
        )))
    }
}
