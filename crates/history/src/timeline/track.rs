//! The trace of one core in one buffer as an ordered sequence of parts.

use super::code::Code;
use super::entry::EndAgrees;
use super::index::Store;
use super::part::{SegmentPart, TraceState};
use super::scan::{Hit, Query};
use super::segments::Segments;
use super::stretch::{SourceDecoders, TraceEnd};
use super::trace::Trace;
use super::worker::Worker;
use armsnap_arch::quantity::Address;
use armsnap_snapshot::capture::{Saved as State, Visitor};
use armsnap_snapshot::stop::Cancel;
use armsnap_trace::flow::{FlowConfig, Range};
use armsnap_trace::protocol::{ElementDecoder, PacketDecoder};
use std::sync::Arc;

/// Identifies a part of a track. Keys of one track are ordered by execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PartKey {
    /// Offset in the buffer of the chunk where the segment starts.
    pub segment: u64,
    /// Index of the part in that segment.
    pub number: u32,
}

/// A decoded part with its key.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub key: PartKey,
    /// Number of places of its segment before it.
    pub first: u64,
    pub part: Arc<SegmentPart>,
}

/// Where a search in a track starts, exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Before the first or after the last place.
    Outside,
    /// At a place of a segment.
    At { segment: u64, index: u64 },
}

/// The request was cancelled before it finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// The trace of one core in one buffer.
pub(super) trait Track: Send {
    /// Returns the first part.
    fn first(&mut self) -> Placed;
    /// Returns the last part.
    fn last(&mut self) -> Placed;
    /// Returns the part before another one.
    fn previous(&mut self, key: PartKey) -> Option<Placed>;
    /// Returns the part after another one.
    fn next(&mut self, key: PartKey) -> Option<Placed>;
    /// Returns the part that contains a place of a segment. The place after the last one of a
    /// segment counts as part of the last part.
    fn at(&mut self, segment: u64, index: u64) -> Option<Placed>;
    /// Returns the size of the buffer in bytes.
    fn bytes(&self) -> u64;
    /// Decodes what must be decoded before the last part is known, unless cancelled; returns
    /// whether this is done.
    fn reach_end(&mut self, cancel: &Cancel) -> bool;
    /// Returns where execution was at the end of the trace.
    fn end(&mut self) -> TraceEnd;
    /// Returns the segment of the first hit, and the hit.
    fn search(
        &mut self,
        start: Start,
        query: &Query,
        cancel: &Cancel,
    ) -> Result<Option<(u64, Hit)>, Cancelled>;
    /// Returns the trace state at the end of the segment before `segment`.
    fn known_before(&mut self, segment: u64) -> Option<TraceState>;
    /// Cycles counted in all segments before one; 0 if the trace unit did not count cycles.
    /// Segments are counted once.
    fn cycles_before(&mut self, segment: u64, cancel: &Cancel) -> Result<u64, Cancelled>;
    /// Returns where to start scanning for the first place with at least `cycles` cycles before it:
    /// the segment, a place in it, and the cycles before the segment.
    fn before_cycle(
        &mut self,
        cycles: u64,
        cancel: &Cancel,
    ) -> Result<Option<(u64, u64, u64)>, Cancelled>;
    /// Returns where to start scanning for the first place at or after `time`: the segment and a
    /// place in it.
    fn before_time(&mut self, time: u64) -> (u64, u64);
    /// Returns the last segment that starts at or before an offset of the buffer.
    fn before_offset(&mut self, offset: u64) -> u64;
    /// Returns whether the last segments of the trace contain timestamps.
    fn is_timed(&mut self) -> bool;
}

impl TraceEnd {
    /// Compares the end of the trace with the halted pc.
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

/// Sizes of the parts of a track and of its cache, and the number of threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of the buffer after which a part ends.
    pub part_bytes: u64,
    /// Places after which a part ends.
    pub part_places: u64,
    /// Cache size for decoded parts, in bytes.
    pub cache_bytes: usize,
    /// Number of threads of a search.
    pub jobs: usize,
}

/// Creates the track of a source.
pub(super) struct OpenTrack {
    pub trace: Trace,
    pub code: Code,
    /// Whether this is the first buffer of the core.
    pub is_first: bool,
    /// Whether the trace unit was set to count cycles.
    pub counts_cycles: bool,
    /// Whether a program is traced without its kernel.
    pub alone: bool,
    pub limits: Limits,
    /// Where its index is kept.
    pub store: Option<Store>,
}

/// Maximum number of blocks in a worker's table; a full table is cleared.
const MAX_BLOCKS: usize = 1 << 18;

impl Visitor for OpenTrack {
    type Output = Option<Box<dyn Track>>;

    fn visit<D, E>(self, _: D, _: E) -> Self::Output {
        None
    }

    fn visit_flow<D, E>(self, packets: D, elements: E, flow: FlowConfig) -> Self::Output
    where
        D: PacketDecoder + Clone + State + Send + Sync + 'static,
        E: ElementDecoder<Packet = D::Packet> + Clone + State + Send + Sync + 'static,
    {
        let config = FlowConfig {
            most_blocks: MAX_BLOCKS,
            ..flow
        };
        let trace = Arc::new(self.trace);
        let code = self.code.clone();
        let decoders = SourceDecoders::new(Arc::clone(&trace), packets, elements, config, code);
        let worker = Worker::new(Box::new(decoders), self.code);
        Some(Box::new(Segments::new(
            trace,
            worker,
            self.is_first,
            self.counts_cycles,
            self.alone,
            self.limits,
            self.store,
        )))
    }
}
