//! The decoders of one source, run on stretches of its trace.
//!
//! A stretch starts at a synchronisation point, with unknown state, or at a saved decoder state.
//! Until a decoder started at a synchronisation point knows the full state, its output is muted:
//! the previous stretch is decoded beyond that point, up to the packet where both decoders have
//! the same state (the join).

use super::code::Code;
use super::part::{Recorder, TraceState};
use super::saved::Saved;
use super::scan::Scan;
use super::trace::Trace;
use crate::decode::parts::SourceState;
use crate::decode::{ElementStage, StageStates};
use armsnap_arch::quantity::{Address, BufferOffset};
use armsnap_snapshot::capture::{OtherDecoder, Saved as State};
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
pub(super) enum StartPoint {
    /// At the start of the buffer.
    Start,
    /// At a synchronisation point; output is muted before the packet at `join`.
    Sync { at: SyncPoint, join: u64 },
    /// At a saved decoder state.
    Saved(Arc<Saved>),
}

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

/// Decodes stretches into one kind of sink.
pub(super) trait Run<S> {
    /// Decodes from `from` up to the packet at `end`, or to the end of the trace if `None`.
    /// `between` decides between pieces how to proceed; saved states are passed to `saved`.
    fn run(
        &mut self,
        from: &StartPoint,
        end: Option<u64>,
        sink: &mut S,
        between: &mut dyn FnMut(u64, &mut S) -> Between,
        saved: &mut dyn FnMut(Saved, &mut S),
    ) -> TraceEnd;
}

/// The decoders of one source, of any protocol.
pub(super) trait Decoders: Run<Recorder> + for<'a> Run<Scan<'a>> + Send + Sync {
    /// Creates decoders of the same source, with an empty block cache.
    fn another(&self) -> Box<dyn Decoders>;

    /// Returns the blocks that the flow knows.
    fn blocks(&self) -> &Blocks;

    /// Returns how often the flow has cleared its blocks.
    fn emptied(&self) -> u64;

    /// Checks that a state was saved by decoders of this protocol.
    ///
    /// # Errors
    ///
    /// If it was not.
    fn check(&self, saved: &Saved) -> Result<(), OtherDecoder>;

    /// Returns the offset of the first packet at which a decoder started at a synchronisation
    /// point knows the full state. `None` if that is not within its chunk.
    fn probe(&mut self, at: SyncPoint) -> Option<u64>;
}

/// The decoders of one source of a known protocol.
#[derive(Debug)]
pub(super) struct SourceDecoders<D, E> {
    trace: Arc<Trace>,
    packets: D,
    elements: E,
    flow: Flow<Code>,
    code: Code,
}

impl<D, E> SourceDecoders<D, E> {
    /// Creates decoders. `packets` and `elements` are in their initial state.
    pub fn new(trace: Arc<Trace>, packets: D, elements: E, config: FlowConfig, code: Code) -> Self {
        Self {
            trace,
            packets,
            elements,
            flow: Flow::new(config, code.clone()),
            code,
        }
    }
}

impl<D, E> Decoders for SourceDecoders<D, E>
where
    D: PacketDecoder + Clone + State + Send + Sync + 'static,
    E: ElementDecoder<Packet = D::Packet> + Clone + State + Send + Sync + 'static,
{
    fn another(&self) -> Box<dyn Decoders> {
        Box::new(Self::new(
            Arc::clone(&self.trace),
            self.packets.clone(),
            self.elements.clone(),
            self.flow.config(),
            self.code.clone(),
        ))
    }

    fn blocks(&self) -> &Blocks {
        self.flow.blocks()
    }

    fn emptied(&self) -> u64 {
        self.flow.emptied()
    }

    fn check(&self, saved: &Saved) -> Result<(), OtherDecoder> {
        let stages = &saved.source.stages;
        stages.restore_elements(&mut self.packets.clone(), &mut self.elements.clone())
    }

    fn probe(&mut self, at: SyncPoint) -> Option<u64> {
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

impl<D, E, S> Run<S> for SourceDecoders<D, E>
where
    D: PacketDecoder + Clone + State,
    E: ElementDecoder<Packet = D::Packet> + Clone + State,
    S: HistorySink,
{
    fn run(
        &mut self,
        from: &StartPoint,
        end: Option<u64>,
        sink: &mut S,
        between: &mut dyn FnMut(u64, &mut S) -> Between,
        saved: &mut dyn FnMut(Saved, &mut S),
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
                let source = &saved.source;
                *demux.stream_mut(id) = source.stream.clone();
                // States of other decoders are not kept.
                let restored = source.stages.restore_elements(&mut packets, &mut elements);
                debug_assert!(restored.is_ok());
                if let Some(flow) = source.stages.flow() {
                    self.flow.resume(flow);
                }
                returns_to = saved.returns_to;
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
                    let elements = &*stage.stage.elements;
                    let state = Saved {
                        feed: feed.clone(),
                        source: SourceState {
                            stream: demux.stream(id).rest(),
                            stages: StageStates::of(&packets, elements, out.flow.state()),
                        },
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
