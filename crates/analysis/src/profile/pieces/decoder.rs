//! The decoder of a source, with a recorder as its last stage.

use super::Recorder;
use armsnap_history::decode::{Resumable, Source};
use armsnap_snapshot::capture::{CaptureSource, Saved, Visitor};
use armsnap_trace::flow::{CodeImage, Flow, FlowConfig};
use armsnap_trace::protocol::{ElementDecoder, PacketDecoder};

/// A decoder that makes pieces.
type Recording<'a, const SUMS: bool> = dyn Resumable<Recorder<'a, SUMS>> + 'a;

/// Makes the decoder of a source that executes the code in an image.
pub(in super::super) fn decoder<'a, C: CodeImage + 'a, const SUMS: bool>(
    source: &CaptureSource,
    image: C,
    recorder: Recorder<'a, SUMS>,
) -> Box<Recording<'a, SUMS>> {
    source.visit(Make { image, recorder })
}

struct Make<'a, C, const SUMS: bool> {
    image: C,
    recorder: Recorder<'a, SUMS>,
}

impl<'a, C: CodeImage + 'a, const SUMS: bool> Visitor for Make<'a, C, SUMS> {
    type Output = Box<Recording<'a, SUMS>>;

    fn visit<D, E>(self, packets: D, elements: E) -> Self::Output
    where
        D: PacketDecoder + Saved + 'static,
        E: ElementDecoder<Packet = D::Packet> + Saved + 'static,
    {
        Box::new(Source::with_elements(packets, elements, self.recorder))
    }

    fn visit_flow<D, E>(self, packets: D, elements: E, flow: FlowConfig) -> Self::Output
    where
        D: PacketDecoder + Saved + 'static,
        E: ElementDecoder<Packet = D::Packet> + Saved + 'static,
    {
        let flow = Flow::new(flow, self.image);
        Box::new(Source::with_flow(packets, elements, flow, self.recorder))
    }
}
