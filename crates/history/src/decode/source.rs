//! One trace source of any protocol: bytes → packets → sink.
//!
//! The protocol is chosen once, when the source is created; the per-packet code is compiled for it.
//! [`Decoding`] is the only dynamic call, one per piece of the buffer.

use armsnap_arch::quantity::BufferOffset;
use armsnap_trace::element::{AtomPacket, AtomSink};
use armsnap_trace::flow::{CodeImage, Flow, FlowDriver, FlowSink};
use armsnap_trace::formatter::Stream;
use armsnap_trace::protocol::{ElementDecoder, PacketDecoder, PacketSink};

/// A source being decoded; `O` is the output that its sink collects for each piece.
pub trait Decoding<O: ?Sized> {
    /// Decodes the new bytes of the source's stream; `last` marks the end of the stream.
    fn piece(&mut self, stream: &mut Stream, last: bool);

    /// Ends the source; the buffer ends at `at`.
    fn end(&mut self, at: BufferOffset);

    /// The number of decoded packets.
    fn packets(&self) -> u64;

    /// The output that the sink has collected.
    fn output(&mut self) -> &mut O;
}

/// The last sink in a source's pipeline.
pub trait SourceSinks<O: ?Sized> {
    /// Ends the source at `at`.
    fn end(&mut self, at: BufferOffset);

    /// The output that the sink has collected.
    fn output(&mut self) -> &mut O;
}

/// A decoder and the sink of its packets.
pub struct Source<D, S> {
    pub(super) decoder: D,
    pub(super) stage: Counted<S>,
}

/// Counts packets passed on.
pub(super) struct Counted<S> {
    pub(super) sink: S,
    packets: u64,
}

impl<P, S: PacketSink<P>> PacketSink<P> for Counted<S> {
    const LOCATES: bool = S::LOCATES;
    const TAKES_TARGETS: bool = S::TAKES_TARGETS;

    #[inline(always)]
    fn packet(&mut self, at: BufferOffset, packet: &P, bytes: &[u8]) {
        self.packets += 1;
        self.sink.packet(at, packet, bytes);
    }

    #[inline(always)]
    fn atoms(
        &mut self,
        bytes: &[u8],
        atoms: impl Fn(u8) -> Option<AtomPacket>,
        locate: impl FnMut(usize) -> BufferOffset,
    ) -> usize {
        let count = self.sink.atoms(bytes, atoms, locate);
        self.packets += count as u64;
        count
    }

    #[inline(always)]
    fn targets(
        &mut self,
        bytes: &[u8],
        locate: impl FnMut(usize) -> BufferOffset,
    ) -> (usize, usize) {
        let (length, count) = self.sink.targets(bytes, locate);
        self.packets += count as u64;
        (length, count)
    }

    fn lost(&mut self, at: BufferOffset) {
        self.sink.lost(at);
    }
}

impl<D, S> Source<D, S> {
    /// A source at the start of its trace.
    pub fn new(decoder: D, sink: S) -> Self {
        Self {
            decoder,
            stage: Counted { sink, packets: 0 },
        }
    }
}

impl<D, E, S> Source<D, ElementStage<E, S>> {
    /// A source whose elements go to `sink`.
    pub fn with_elements(decoder: D, elements: E, sink: S) -> Self {
        Self::new(decoder, ElementStage { elements, sink })
    }
}

impl<D, E, C, S> Source<D, ElementStage<E, FlowDriver<C, S>>> {
    /// A source whose elements `flow` follows; its output goes to `sink`.
    pub fn with_flow(decoder: D, elements: E, flow: Flow<C>, sink: S) -> Self {
        Self::with_elements(decoder, elements, FlowDriver { flow, sink })
    }
}

impl<O: ?Sized, D, S> Decoding<O> for Source<D, S>
where
    D: PacketDecoder,
    S: PacketSink<D::Packet> + SourceSinks<O>,
{
    fn piece(&mut self, stream: &mut Stream, last: bool) {
        stream.decode(&mut self.decoder, last, &mut self.stage);
    }

    fn end(&mut self, at: BufferOffset) {
        self.stage.sink.end(at);
    }

    fn packets(&self) -> u64 {
        self.stage.packets
    }

    fn output(&mut self) -> &mut O {
        self.stage.sink.output()
    }
}

/// Packets → elements → sink. The elements may be borrowed.
pub struct ElementStage<E, S> {
    /// The decoder of elements.
    pub elements: E,
    /// Receives the elements.
    pub sink: S,
}

impl<E: ElementDecoder, S: AtomSink> PacketSink<E::Packet> for ElementStage<E, S> {
    const LOCATES: bool = S::LOCATES;
    const TAKES_TARGETS: bool = S::IGNORES_WAYPOINT_ATOMS;

    #[inline(always)]
    fn packet(&mut self, at: BufferOffset, packet: &E::Packet, _: &[u8]) {
        self.elements.packet(at, packet, &mut self.sink);
    }

    #[inline(always)]
    fn atoms(
        &mut self,
        bytes: &[u8],
        atoms: impl Fn(u8) -> Option<AtomPacket>,
        locate: impl FnMut(usize) -> BufferOffset,
    ) -> usize {
        if !self.elements.passes_atoms() {
            return 0;
        }
        self.sink.atoms(bytes, atoms, locate)
    }

    #[inline(always)]
    fn targets(
        &mut self,
        bytes: &[u8],
        locate: impl FnMut(usize) -> BufferOffset,
    ) -> (usize, usize) {
        self.elements.targets(bytes, locate, &mut self.sink)
    }

    fn lost(&mut self, at: BufferOffset) {
        self.elements.lost(at, &mut self.sink);
    }
}

impl<O: ?Sized, E: ElementDecoder, S: AtomSink + SourceSinks<O>> SourceSinks<O>
    for ElementStage<E, S>
{
    fn end(&mut self, at: BufferOffset) {
        self.elements.end(at, &mut self.sink);
        self.sink.end(at);
    }

    fn output(&mut self) -> &mut O {
        self.sink.output()
    }
}

impl<O: ?Sized, C: CodeImage, S: FlowSink + SourceSinks<O>> SourceSinks<O> for FlowDriver<C, S> {
    fn end(&mut self, at: BufferOffset) {
        self.sink.forget(self.flow.blocks());
        self.sink.end(at);
    }

    fn output(&mut self) -> &mut O {
        self.sink.output()
    }
}
