//! The decoders of one source, run on stretches of its trace.
//!
//! A stretch starts at a synchronisation point, with unknown state, or at a saved decoder state.
//! Until a decoder started at a synchronisation point knows the full state, its output is muted:
//! the previous stretch is decoded beyond that point, up to the packet where both decoders have
//! the same state (the join).

use super::code::Code;
use super::part::TraceState;
use super::saved::Saved;
use super::scan::{Hit, Query, Scan, VisitCache};
use super::trace::Trace;
use crate::decode::ElementStage;
use armsnap_arch::quantity::{Address, BufferOffset};
use armsnap_snapshot::capture::Saved as State;
use armsnap_trace::element::{AtomSink, Element, ElementSink, Exception, Mark};
use armsnap_trace::flow::{BlockId, Blocks, Flow, FlowConfig, FlowSink, Gap, QRange, Range};
use armsnap_trace::formatter::Demux;
use armsnap_trace::protocol::{ElementDecoder, PacketDecoder, PacketSink};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Receives the decoded history of a stretch.
pub(super) trait HistorySink: FlowSink {
    /// Returns the number of places so far.
    fn places(&self) -> u64;
    /// Returns the state traced so far.
    fn known(&mut self) -> &mut TraceState;
    /// Returns whether decoding can stop.
    fn is_done(&self) -> bool {
        false
    }
}

/// A synchronisation point: `skip` bytes of the source lie between the start of the chunk and it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SyncPoint {
    pub chunk: u64,
    pub skip: u64,
}

/// Where a stretch starts.
#[derive(Debug)]
pub(super) enum StartPoint<D, E> {
    /// At the start of the buffer.
    Start,
    /// At a synchronisation point; output is muted before the packet at `join`.
    Sync { at: SyncPoint, join: u64 },
    /// At a saved decoder state.
    Saved(Arc<Saved<D, E>>),
}

/// A stretch to decode.
#[derive(Debug)]
pub(super) struct Job<D, E> {
    pub from: StartPoint<D, E>,
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
    pub seam: Option<Seam<D, E>>,
}

/// The end of a stretch, as recorded in an index.
#[derive(Debug)]
pub(super) struct Seam<D, E> {
    /// Number of places of the segment before it.
    pub places: u64,
    /// The state there; `None` at the end of the segment.
    pub saved: Option<Arc<Saved<D, E>>>,
}

/// Decoding a stretch does not reach the end that an index has recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contradiction;

/// Where execution was at the end of a stretch.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct TraceEnd {
    /// At the end of the trace: the next straight line.
    pub ahead: Option<Range>,
    /// The preferred return address of the exception, if the trace ends with one.
    pub returns_to: Option<Address>,
}

/// What to do between two pieces of trace.
pub(super) enum Between {
    Continue,
    /// Save the decoder state here.
    Save,
    /// Save the decoder state here, and stop.
    SaveAndStop,
    Stop,
}

/// The decoders of one source and a cache of blocks.
#[derive(Debug)]
pub(super) struct Worker<D, E> {
    trace: Arc<Trace>,
    packets: D,
    elements: E,
    flow: Flow<Code>,
    code: Code,
    visits: VisitCache,
    /// How often the flow had cleared its blocks when `visits` was filled.
    emptied: u64,
}

impl<D, E> Worker<D, E>
where
    D: PacketDecoder + Clone + State,
    E: ElementDecoder<Packet = D::Packet> + Clone + State,
{
    /// Creates decoders in their initial state.
    pub fn new(trace: Arc<Trace>, packets: D, elements: E, config: FlowConfig, code: Code) -> Self {
        Self {
            trace,
            packets,
            elements,
            flow: Flow::new(config, code.clone()),
            code,
            visits: VisitCache::default(),
            emptied: 0,
        }
    }

    /// Returns the code image.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Returns decoders in their initial state.
    pub fn decoders(&self) -> (D, E) {
        (self.packets.clone(), self.elements.clone())
    }

    /// Returns the flow, for the blocks that it knows.
    pub fn flow(&self) -> &Flow<Code> {
        &self.flow
    }

    /// Creates another worker for the same source, with an empty block cache.
    pub fn another(&self) -> Self {
        let (packets, elements) = self.decoders();
        let trace = Arc::clone(&self.trace);
        Self::new(
            trace,
            packets,
            elements,
            self.flow.config(),
            self.code.clone(),
        )
    }

    /// Searches a stretch, restricted to the places `within` of the segment.
    pub fn scan(
        &mut self,
        stretch: &Job<D, E>,
        query: &Query,
        within: std::ops::Range<u64>,
    ) -> Result<Option<Hit>, Contradiction> {
        let mut visits = std::mem::take(&mut self.visits);
        if self.emptied != self.flow.emptied() {
            visits.clear();
        }
        let code = self.code.clone();
        let mut scan = Scan::new(
            query,
            &code,
            &mut visits,
            stretch.known,
            stretch.first,
            within,
        );
        if stretch.starts_buffer {
            scan.start_buffer();
        }
        let done = self.decode(stretch, &mut scan);
        let hit = scan.hit();
        self.visits = visits;
        self.emptied = self.flow.emptied();
        done.map(|()| hit)
    }

    /// Counts the cycles in a stretch.
    pub fn count_cycles(&mut self, stretch: &Job<D, E>) -> u64 {
        let (query, code) = (Query::nothing(), self.code.clone());
        let mut visits = VisitCache::default();
        let all = 0..u64::MAX;
        let mut scan = Scan::new(
            &query,
            &code,
            &mut visits,
            stretch.known,
            stretch.first,
            all,
        );
        // No end to contradict is recorded for this stretch: indexed segments are counted already.
        let _ = self.decode(stretch, &mut scan);
        scan.known().cycles.unwrap_or(0)
    }

    /// Decodes a stretch, and compares its end with the one recorded in an index.
    pub fn decode<S: HistorySink>(
        &mut self,
        stretch: &Job<D, E>,
        sink: &mut S,
    ) -> Result<(), Contradiction> {
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
        let agrees = |seam: &Seam<D, E>| {
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
        from: &StartPoint<D, E>,
        end: Option<u64>,
        sink: &mut S,
        mut between: impl FnMut(u64, &mut S) -> Between,
        mut saved: impl FnMut(Saved<D, E>, &mut S),
    ) -> TraceEnd {
        let trace = Arc::clone(&self.trace);
        let id = trace.id();
        let mut demux = Demux::only(&[id]);
        let (mut packets, mut elements) = (self.packets.clone(), self.elements.clone());
        let (mut skip, mut join, mut returns_to) = (0, None, None);
        self.flow.restart();
        let mut feed = match from {
            StartPoint::Start => trace.feed(0),
            &StartPoint::Sync { at, join: first } => {
                skip = at.skip;
                join = Some(first);
                trace.feed(at.chunk)
            }
            StartPoint::Saved(saved) => {
                *demux.stream_mut(id) = saved.rest.clone();
                packets = saved.packets.clone();
                elements = saved.elements.clone();
                returns_to = saved.returns_to;
                self.flow.resume(&saved.flow);
                saved.feed.clone()
            }
        };
        let mut stage = Stage {
            stage: ElementStage {
                elements: &mut elements,
                sink: Driver {
                    flow: &mut self.flow,
                    sink,
                    returns_to,
                },
            },
            join,
            end: end.unwrap_or(u64::MAX),
            passed_end: false,
        };
        loop {
            let last = trace.take(&mut feed, &mut demux);
            let stream = demux.stream_mut(id);
            if skip > 0 {
                let skipped = skip.min(stream.payload().len() as u64);
                stream.consume(skipped as usize);
                skip -= skipped;
            }
            stream.decode(&mut packets, last, &mut stage);
            let out = &mut stage.stage.sink;
            if stage.passed_end || out.sink.is_done() {
                break;
            }
            if last {
                return stage.finish(trace.total());
            }
            let then = between(feed.raw, out.sink);
            match then {
                Between::Continue => {}
                Between::Stop => break,
                Between::Save | Between::SaveAndStop => {
                    let state = Saved {
                        feed: feed.clone(),
                        rest: demux.stream(id).rest(),
                        packets: packets.clone(),
                        elements: stage.stage.elements.clone(),
                        flow: out.flow.state(),
                        known: *out.sink.known(),
                        returns_to: out.returns_to,
                    };
                    saved(state, out.sink);
                    if matches!(then, Between::SaveAndStop) {
                        break;
                    }
                }
            }
        }
        TraceEnd::default()
    }

    /// Returns the offset of the first packet at which a decoder started at a synchronisation
    /// point knows the full state. `None` if that is not within its chunk.
    pub fn probe(&mut self, at: SyncPoint) -> Option<u64> {
        let trace = Arc::clone(&self.trace);
        let id = trace.id();
        let mut demux = Demux::only(&[id]);
        let mut packets = self.packets.clone();
        let mut feed = trace.feed(at.chunk);
        self.flow.restart();
        let mut probe = Probe {
            elements: self.elements.clone(),
            flow: &mut self.flow,
            decided: false,
            settled: false,
            join: None,
        };
        let mut skip = at.skip;
        let end = trace.start(at.chunk + 1);
        while feed.raw < end && probe.join.is_none() {
            let last = trace.take(&mut feed, &mut demux);
            let stream = demux.stream_mut(id);
            let skipped = skip.min(stream.payload().len() as u64);
            stream.consume(skipped as usize);
            skip -= skipped;
            stream.decode(&mut packets, last, &mut probe);
            if last {
                break;
            }
        }
        probe.join
    }
}

/// The stages of a stretch, and which packets belong to it.
struct Stage<'a, E, S> {
    stage: ElementStage<&'a mut E, Driver<'a, S>>,
    /// Output is muted before the packet at this offset.
    join: Option<u64>,
    /// The packet at this offset and all later ones belong to the next stretch.
    end: u64,
    passed_end: bool,
}

/// The stages with muted output.
type MutedStage<'a, E> = ElementStage<&'a mut E, Driver<'a, Muted<'a>>>;

impl<E: ElementDecoder, S: HistorySink> Stage<'_, E, S> {
    #[cold]
    #[inline(never)]
    fn muted(&mut self, take: impl FnOnce(&mut MutedStage<'_, E>)) {
        let Driver {
            flow,
            sink,
            returns_to,
        } = &mut self.stage.sink;
        let mut stage = MutedStage {
            elements: self.stage.elements,
            sink: Driver {
                flow,
                sink: &mut Muted::new(sink.known()),
                returns_to: *returns_to,
            },
        };
        take(&mut stage);
        let forgot = stage.sink.sink.forgot;
        *returns_to = stage.sink.returns_to;
        if forgot {
            sink.forget(flow.blocks());
        }
    }

    /// Returns whether output at `at` is muted, as before the join.
    #[inline(always)]
    fn is_muted(&mut self, at: BufferOffset) -> bool {
        match self.join {
            Some(join) if at.0 < join => true,
            Some(_) => {
                self.unmute();
                false
            }
            None => false,
        }
    }

    #[cold]
    fn unmute(&mut self) {
        self.join = None;
        self.stage.sink.sink.known().cycles = None;
    }

    #[inline(always)]
    fn is_over(&mut self, at: BufferOffset) -> bool {
        self.passed_end |= at.0 >= self.end;
        self.passed_end
    }

    fn finish(mut self, total: u64) -> TraceEnd {
        let at = BufferOffset(total);
        self.stage.elements.end(at, &mut self.stage.sink);
        let out = self.stage.sink;
        let ahead = out.flow.ahead();
        out.flow.element(at, Element::Mark(Mark::End), out.sink);
        TraceEnd {
            ahead,
            returns_to: out.returns_to,
        }
    }
}

impl<E: ElementDecoder, S: HistorySink> PacketSink<E::Packet> for Stage<'_, E, S> {
    #[inline(always)]
    fn packet(&mut self, at: BufferOffset, packet: &E::Packet, bytes: &[u8]) {
        if self.is_muted(at) {
            return self.muted(|stage| stage.packet(at, packet, bytes));
        }
        if !self.is_over(at) {
            self.stage.packet(at, packet, bytes);
        }
    }

    fn lost(&mut self, at: BufferOffset) {
        if self.is_muted(at) {
            return self.muted(|stage| stage.lost(at));
        }
        if !self.is_over(at) {
            self.stage.lost(at);
        }
    }
}

/// Elements → flow → sink. Keeps the return address of an exception until the next execution.
struct Driver<'a, S> {
    flow: &'a mut Flow<Code>,
    sink: &'a mut S,
    returns_to: Option<Address>,
}

impl<S: FlowSink> ElementSink for Driver<'_, S> {
    #[inline(always)]
    fn element(&mut self, at: BufferOffset, element: Element) {
        match &element {
            Element::WaypointAtoms(_) | Element::InstructionAtoms(_) => self.returns_to = None,
            Element::Mark(Mark::End) => return,
            _ => self.note(&element),
        }
        self.flow.element(at, element, self.sink);
    }
}

impl<S: FlowSink> AtomSink for Driver<'_, S> {}

impl<S> Driver<'_, S> {
    fn note(&mut self, element: &Element) {
        match element {
            Element::Exception(exception) => self.returns_to = exception.return_address,
            Element::ExceptionHere(_) => {
                self.returns_to = self.flow.ahead().map(|range| range.start);
            }
            // The address after an exception is its handler; a core that enters debug state does
            // not execute at it.
            Element::Mark(_) | Element::Address { .. } => {}
            _ => self.returns_to = None,
        }
    }
}

/// Discards output that belongs to the previous stretch, and keeps its state.
struct Muted<'a> {
    known: &'a mut TraceState,
    /// Whether it is known that the last place is a gap or not.
    decided: bool,
    /// Whether blocks were renumbered.
    forgot: bool,
}

impl<'a> Muted<'a> {
    fn new(known: &'a mut TraceState) -> Self {
        Self {
            known,
            decided: false,
            forgot: false,
        }
    }

    fn decide(&mut self, open: bool) {
        self.known.pass(open);
        self.decided = true;
    }
}

impl FlowSink for Muted<'_> {
    fn block(&mut self, _: BufferOffset, _: &Blocks, _: BlockId, _: bool, _: Option<u32>) {
        self.decide(false);
    }

    fn range(&mut self, _: BufferOffset, range: &Range, _: Option<u32>) {
        if range.instructions > 0 {
            self.decide(false);
        }
    }

    fn q_range(&mut self, _: BufferOffset, _: &QRange) {
        self.decide(false);
    }

    fn exception(&mut self, _: BufferOffset, exception: &Exception) {
        self.known.exception = Some(*exception);
    }

    fn gap(&mut self, _: BufferOffset, _: Gap) {
        self.decide(true);
    }

    fn mark(&mut self, _: BufferOffset, mark: &Mark) {
        self.known.mark(mark);
    }

    fn forget(&mut self, _: &Blocks) {
        self.forgot = true;
    }
}

/// Finds the first packet at which the full state is known.
struct Probe<'a, E> {
    elements: E,
    flow: &'a mut Flow<Code>,
    decided: bool,
    settled: bool,
    join: Option<u64>,
}

impl<E: ElementDecoder> Probe<'_, E> {
    fn next(&mut self, at: BufferOffset, take: impl FnOnce(&mut MutedStage<'_, E>)) {
        if self.join.is_some() {
            return;
        }
        if self.settled {
            self.join = Some(at.0);
            return;
        }
        let mut known = TraceState::default();
        let mut stage = MutedStage {
            elements: &mut self.elements,
            sink: Driver {
                flow: self.flow,
                sink: &mut Muted::new(&mut known),
                returns_to: None,
            },
        };
        take(&mut stage);
        self.decided |= stage.sink.sink.decided;
        self.settled = self.decided && self.elements.is_settled() && self.flow.is_located();
    }
}

impl<E: ElementDecoder> PacketSink<E::Packet> for Probe<'_, E> {
    fn packet(&mut self, at: BufferOffset, packet: &E::Packet, bytes: &[u8]) {
        self.next(at, |stage| stage.packet(at, packet, bytes));
    }

    fn lost(&mut self, at: BufferOffset) {
        self.next(at, |stage| stage.lost(at));
    }
}
