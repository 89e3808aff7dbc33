//! The decoder of a source whose output a course follows.
//!
//! The decoders do not know the type of the course's listener: they are compiled once for all
//! listeners, and call the course through [`Follower`], once per block or run of blocks.

use super::course::Course;
use super::stack::Listener;
use armsnap_arch::quantity::BufferOffset;
use armsnap_history::decode::{Decoding, Image, Source, SourceSinks};
use armsnap_snapshot::capture::{CaptureSource, Visitor};
use armsnap_trace::element::{AtomSink, Element, ElementSink, Exception, Mark};
use armsnap_trace::flow::{BlockId, Blocks, Flow, FlowConfig, FlowSink, Gap, QRange, Range, Run};
use armsnap_trace::protocol::{ElementDecoder, PacketDecoder};

/// Makes the decoder of a source that executes the code in an image.
pub(super) fn decoder<'c>(
    source: &CaptureSource,
    image: Image<'c>,
    course: &'c mut Course<'_, impl Listener>,
) -> Box<dyn Decoding<()> + 'c> {
    let sink = Sink(course, ());
    source.visit(Make { image, sink })
}

struct Make<'c> {
    image: Image<'c>,
    sink: Sink<'c>,
}

impl<'c> Visitor for Make<'c> {
    type Output = Box<dyn Decoding<()> + 'c>;

    fn visit<D, E>(self, packets: D, elements: E) -> Self::Output
    where
        D: PacketDecoder + 'static,
        E: ElementDecoder<Packet = D::Packet> + 'static,
    {
        Box::new(Source::with_elements(packets, elements, self.sink))
    }

    fn visit_flow<D, E>(self, packets: D, elements: E, flow: FlowConfig) -> Self::Output
    where
        D: PacketDecoder + 'static,
        E: ElementDecoder<Packet = D::Packet> + 'static,
    {
        let flow = Flow::new(flow, self.image);
        Box::new(Source::with_flow(packets, elements, flow, self.sink))
    }
}

/// A block, as [`FlowSink::block`] receives it.
type Block<'b> = (&'b Blocks, BlockId, bool, Option<u32>);

/// What interrupts the flow of a source.
enum Rare<'e> {
    Range(&'e Range, Option<u32>),
    UnknownPath(&'e QRange),
    Exception(&'e Exception),
    Gap(Gap),
    /// The blocks so far are forgotten.
    Forget(&'e Blocks),
}

/// A course with a listener of any type.
trait Follower {
    fn block(&mut self, at: BufferOffset, block: Block<'_>);
    fn run(&mut self, at: BufferOffset, blocks: &Blocks, run: Run<'_>);
    fn mark(&mut self, at: BufferOffset, mark: &Mark);
    fn element(&mut self, at: BufferOffset, element: Element);
    fn rare(&mut self, at: BufferOffset, rare: Rare<'_>);
}

impl<L: Listener> Follower for Course<'_, L> {
    fn block(&mut self, at: BufferOffset, (blocks, id, taken, cycles): Block<'_>) {
        FlowSink::block(self, at, blocks, id, taken, cycles);
    }

    fn run(&mut self, at: BufferOffset, blocks: &Blocks, run: Run<'_>) {
        FlowSink::run(self, at, blocks, run);
    }

    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        FlowSink::mark(self, at, mark);
    }

    fn element(&mut self, at: BufferOffset, element: Element) {
        ElementSink::element(self, at, element);
    }

    fn rare(&mut self, at: BufferOffset, rare: Rare<'_>) {
        match rare {
            Rare::Range(range, cycles) => self.range(at, range, cycles),
            Rare::UnknownPath(range) => self.q_range(at, range),
            Rare::Exception(exception) => self.exception(at, exception),
            Rare::Gap(gap) => self.gap(at, gap),
            Rare::Forget(blocks) => self.forget(blocks),
        }
    }
}

/// A course, borrowed while a buffer is decoded.
struct Sink<'c>(&'c mut dyn Follower, ());

impl FlowSink for Sink<'_> {
    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        self.0.rare(at, Rare::Range(range, cycles));
    }

    #[inline]
    fn block(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        id: BlockId,
        taken: bool,
        cycles: Option<u32>,
    ) {
        self.0.block(at, (blocks, id, taken, cycles));
    }

    #[inline]
    fn run(&mut self, at: BufferOffset, blocks: &Blocks, run: Run<'_>) {
        self.0.run(at, blocks, run);
    }

    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        self.0.rare(at, Rare::UnknownPath(range));
    }

    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.0.rare(at, Rare::Exception(exception));
    }

    fn gap(&mut self, at: BufferOffset, gap: Gap) {
        self.0.rare(at, Rare::Gap(gap));
    }

    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        self.0.mark(at, mark);
    }

    fn forget(&mut self, blocks: &Blocks) {
        self.0.rare(BufferOffset::default(), Rare::Forget(blocks));
    }
}

impl ElementSink for Sink<'_> {
    fn element(&mut self, at: BufferOffset, element: Element) {
        self.0.element(at, element);
    }
}

impl AtomSink for Sink<'_> {}

impl SourceSinks<()> for Sink<'_> {
    fn end(&mut self, _: BufferOffset) {}

    fn output(&mut self) -> &mut () {
        &mut self.1
    }
}
