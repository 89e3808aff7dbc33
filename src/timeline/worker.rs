//! One source's decoders at work on stretches of its trace.
//!
//! A stretch begins at a synchronisation point, where nothing is known, or where a decode was
//! saved. What a decode from a synchronisation point does not know yet belongs to the stretch
//! before, which is decoded on beyond that point, up to the packet where both know the same.

use super::code::Code;
use super::part::Known;
use super::scan::{Hit, Query, Scan, VisitCache};
use super::trace::{Feed, Trace};
use crate::element::{Element, ElementSink, Exception, Mark};
use crate::flow::{BlockId, Blocks, Flow, FlowConfig, FlowSink, FlowState, Gap, QRange, Range};
use crate::formatter::{Demux, Stream};
use crate::protocol::{ElementDecoder, PacketDecoder, PacketSink};
use crate::quantity::{Address, BufferOffset};
use std::sync::Arc;

/// What takes a stretch.
pub(super) trait Stretch: FlowSink {
    /// Places so far.
    fn places(&self) -> u64;
    /// What the trace told so far.
    fn known(&mut self) -> &mut Known;
    /// Nothing more is wanted.
    fn is_done(&self) -> bool {
        false
    }
}

/// A decode that was saved.
#[derive(Clone, Debug)]
pub(super) struct Saved<D, E> {
    pub feed: Feed,
    rest: Stream,
    packets: D,
    elements: E,
    flow: FlowState,
    pub known: Known,
    returns_to: Option<Address>,
}

/// A synchronisation point: the bytes of the source before it since the begin of its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sync {
    pub chunk: u64,
    pub skip: u64,
}

/// Where a stretch begins.
#[derive(Debug)]
pub(super) enum From<D, E> {
    /// At the begin of the buffer.
    Begin,
    /// At a synchronisation point; nothing is given out before the packet at `join`.
    Sync { at: Sync, join: u64 },
    /// Where a decode was saved.
    Saved(Arc<Saved<D, E>>),
}

/// A stretch to look through.
#[derive(Debug)]
pub(super) struct Job<D, E> {
    pub from: From<D, E>,
    /// The packet where the next segment begins.
    pub end: Option<u64>,
    /// Where in the buffer the next part of the segment was saved.
    pub until: u64,
    /// Places of the segment before it.
    pub first: u64,
    pub known: Known,
    /// It begins with the gap between two buffers.
    pub begins_buffer: bool,
}

/// How a stretch ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ended {
    /// At the end of the trace: the straight line to come.
    pub ahead: Option<Range>,
    /// The preferred return address of an exception that is the last thing traced.
    pub returns_to: Option<Address>,
}

/// What a worker tells between two pieces.
pub(super) enum Between {
    GoOn,
    /// Save the decode here.
    Save,
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
    /// How often the flow had emptied its blocks when `visits` was filled.
    emptied: u64,
}

impl<D, E> Worker<D, E>
where
    D: PacketDecoder + Clone,
    E: ElementDecoder<Packet = D::Packet> + Clone,
{
    /// Decoders at the begin of a trace.
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

    /// The code that it follows.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Another one for the same source, with no blocks yet.
    pub fn another(&self) -> Self {
        let (packets, elements) = (self.packets.clone(), self.elements.clone());
        let trace = Arc::clone(&self.trace);
        Self::new(
            trace,
            packets,
            elements,
            self.flow.config(),
            self.code.clone(),
        )
    }

    /// Looks through a stretch for what `query` asks, within some places of the segment.
    pub fn look(
        &mut self,
        stretch: &Job<D, E>,
        query: &Query,
        within: std::ops::Range<u64>,
    ) -> Option<Hit> {
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
        if stretch.begins_buffer {
            scan.begin_buffer();
        }
        self.decode(stretch, &mut scan);
        let hit = scan.hit();
        self.visits = visits;
        self.emptied = self.flow.emptied();
        hit
    }

    /// Cycles counted in a stretch.
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
        self.decode(stretch, &mut scan);
        scan.known().cycles.unwrap_or(0)
    }

    /// Decodes a stretch.
    pub fn decode<S: Stretch>(&mut self, stretch: &Job<D, E>, sink: &mut S) {
        let between = |raw, _: &mut S| {
            if raw >= stretch.until {
                Between::Stop
            } else {
                Between::GoOn
            }
        };
        self.run(&stretch.from, stretch.end, sink, between, |_, _| {});
    }

    /// Decodes from `from` up to the packet at `end`, or to the end of the trace without one.
    /// Between pieces `between` says how to go on; what it saves comes to `saved`.
    pub fn run<S: Stretch>(
        &mut self,
        from: &From<D, E>,
        end: Option<u64>,
        sink: &mut S,
        mut between: impl FnMut(u64, &mut S) -> Between,
        mut saved: impl FnMut(Saved<D, E>, &mut S),
    ) -> Ended {
        let trace = Arc::clone(&self.trace);
        let id = trace.id();
        let mut demux = Demux::only(&[id]);
        let (mut packets, mut elements) = (self.packets.clone(), self.elements.clone());
        let (mut skip, mut join, mut returns_to) = (0, None, None);
        self.flow.restart();
        let mut feed = match from {
            From::Begin => trace.feed(0),
            &From::Sync { at, join: begin } => {
                skip = at.skip;
                join = Some(begin);
                trace.feed(at.chunk)
            }
            From::Saved(saved) => {
                *demux.stream_mut(id) = saved.rest.clone();
                packets = saved.packets.clone();
                elements = saved.elements.clone();
                returns_to = saved.returns_to;
                self.flow.resume(&saved.flow);
                saved.feed.clone()
            }
        };
        let mut stage = Stage {
            elements: &mut elements,
            flow: &mut self.flow,
            sink,
            join,
            end: end.unwrap_or(u64::MAX),
            passed_end: false,
            returns_to,
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
            if stage.passed_end || stage.sink.is_done() {
                break;
            }
            if last {
                return stage.finish(trace.total());
            }
            match between(feed.raw, stage.sink) {
                Between::GoOn => {}
                Between::Stop => break,
                Between::Save => {
                    let state = Saved {
                        feed: feed.clone(),
                        rest: demux.stream(id).rest(),
                        packets: packets.clone(),
                        elements: stage.elements.clone(),
                        flow: stage.flow.state(),
                        known: *stage.sink.known(),
                        returns_to: stage.returns_to,
                    };
                    saved(state, stage.sink);
                }
            }
        }
        Ended::default()
    }

    /// Where a decode from a synchronisation point knows all that one from before it does: the
    /// place of the next packet. `None` if that is not within its chunk.
    pub fn probe(&mut self, at: Sync) -> Option<u64> {
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
        let end = trace.begin(at.chunk + 1);
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

/// Packets → elements → flow → sink, between two packets.
struct Stage<'a, E, S> {
    elements: &'a mut E,
    flow: &'a mut Flow<Code>,
    sink: &'a mut S,
    /// Nothing is given out before the packet there.
    join: Option<u64>,
    /// The packet there and all after it are another stretch's.
    end: u64,
    passed_end: bool,
    returns_to: Option<Address>,
}

impl<E: ElementDecoder, S: Stretch> Stage<'_, E, S> {
    #[cold]
    #[inline(never)]
    fn muted(&mut self, take: impl FnOnce(&mut E, &mut Driver<'_, Muted<'_>>)) {
        let mut muted = Muted::new(self.sink.known());
        let mut driver = Driver {
            flow: self.flow,
            sink: &mut muted,
            returns_to: &mut self.returns_to,
        };
        take(self.elements, &mut driver);
        if muted.forgot {
            self.sink.forget(self.flow.blocks());
        }
    }

    /// Whether what comes at `at` is given out; before the join it is not.
    #[inline(always)]
    fn is_muted(&mut self, at: BufferOffset) -> bool {
        match self.join {
            Some(join) if at.0 < join => true,
            Some(_) => {
                self.begin();
                false
            }
            None => false,
        }
    }

    #[cold]
    fn begin(&mut self) {
        self.join = None;
        self.sink.known().cycles = None;
    }

    #[inline(always)]
    fn is_over(&mut self, at: BufferOffset) -> bool {
        self.passed_end |= at.0 >= self.end;
        self.passed_end
    }

    #[inline(always)]
    fn driver(&mut self) -> (&mut E, Driver<'_, S>) {
        (
            self.elements,
            Driver {
                flow: self.flow,
                sink: self.sink,
                returns_to: &mut self.returns_to,
            },
        )
    }

    fn finish(mut self, total: u64) -> Ended {
        let at = BufferOffset(total);
        let (elements, mut driver) = self.driver();
        elements.end(at, &mut driver);
        let ahead = self.flow.ahead();
        self.flow.element(at, Element::Mark(Mark::End), self.sink);
        Ended {
            ahead,
            returns_to: self.returns_to,
        }
    }
}

impl<E: ElementDecoder, S: Stretch> PacketSink<E::Packet> for Stage<'_, E, S> {
    #[inline(always)]
    fn packet(&mut self, at: BufferOffset, packet: &E::Packet, _: &[u8]) {
        if self.is_muted(at) {
            return self.muted(|elements, out| elements.packet(at, packet, out));
        }
        if self.is_over(at) {
            return;
        }
        let (elements, mut driver) = self.driver();
        elements.packet(at, packet, &mut driver);
    }

    fn lost(&mut self, at: BufferOffset) {
        if self.is_muted(at) {
            return self.muted(|elements, out| elements.lost(at, out));
        }
        if self.is_over(at) {
            return;
        }
        let (elements, mut driver) = self.driver();
        elements.lost(at, &mut driver);
    }
}

/// Elements → flow → sink.
struct Driver<'a, S> {
    flow: &'a mut Flow<Code>,
    sink: &'a mut S,
    returns_to: &'a mut Option<Address>,
}

impl<S: FlowSink> ElementSink for Driver<'_, S> {
    #[inline(always)]
    fn element(&mut self, at: BufferOffset, element: Element) {
        match &element {
            Element::WaypointAtoms(_) | Element::InstructionAtoms(_) => *self.returns_to = None,
            Element::Mark(Mark::End) => return,
            _ => self.note(&element),
        }
        self.flow.element(at, element, self.sink);
    }
}

impl<S> Driver<'_, S> {
    /// Remembers where an exception returns to, until execution is told of again.
    fn note(&mut self, element: &Element) {
        match element {
            Element::Exception(exception) => *self.returns_to = exception.return_address,
            Element::ExceptionHere(_) => {
                *self.returns_to = self.flow.ahead().map(|range| range.start);
            }
            // The address after an exception is that of its handler; that of a core which goes to
            // debug state is none that it executes at.
            Element::Mark(_) | Element::Address { .. } => {}
            _ => *self.returns_to = None,
        }
    }
}

/// Takes what belongs to the stretch before, but for the state that it tells.
struct Muted<'a> {
    known: &'a mut Known,
    /// It is known whether the last place is a gap.
    decided: bool,
    /// Blocks have other numbers now.
    forgot: bool,
}

impl<'a> Muted<'a> {
    fn new(known: &'a mut Known) -> Self {
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

    fn gap(&mut self, _: BufferOffset, gap: Gap) {
        if matches!(gap, Gap::TargetNotTraced { .. }) {
            return;
        }
        self.decide(true);
    }

    fn mark(&mut self, _: BufferOffset, mark: &Mark) {
        self.known.mark(mark);
    }

    fn forget(&mut self, _: &Blocks) {
        self.forgot = true;
    }
}

/// Looks for the packet from which on everything is known.
struct Probe<'a, E> {
    elements: E,
    flow: &'a mut Flow<Code>,
    decided: bool,
    settled: bool,
    join: Option<u64>,
}

impl<E: ElementDecoder> Probe<'_, E> {
    fn next(&mut self, at: BufferOffset, take: impl FnOnce(&mut E, &mut Driver<'_, Muted<'_>>)) {
        if self.join.is_some() {
            return;
        }
        if self.settled {
            self.join = Some(at.0);
            return;
        }
        let (mut known, mut returns_to) = (Known::default(), None);
        let mut muted = Muted::new(&mut known);
        let mut driver = Driver {
            flow: self.flow,
            sink: &mut muted,
            returns_to: &mut returns_to,
        };
        take(&mut self.elements, &mut driver);
        self.decided |= muted.decided;
        self.settled = self.decided && self.elements.is_settled() && self.flow.is_located();
    }
}

impl<E: ElementDecoder> PacketSink<E::Packet> for Probe<'_, E> {
    fn packet(&mut self, at: BufferOffset, packet: &E::Packet, _: &[u8]) {
        self.next(at, |elements, out| elements.packet(at, packet, out));
    }

    fn lost(&mut self, at: BufferOffset) {
        self.next(at, |elements, out| elements.lost(at, out));
    }
}
