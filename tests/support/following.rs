//! Decoding the trace of a core along its code, into a sink of a test.

use armsnap::capture::Visitor;
use armsnap::decode::{Decoding, Image, Source, SourceSinks};
use armsnap::flow::{Flow, FlowConfig, FlowSink};
use armsnap::protocol::{ElementDecoder, PacketDecoder};

/// Makes the decoders of a source that follows a core.
pub struct Following<'a, S> {
    /// The code.
    pub image: Image<'a>,
    /// What is decoded.
    pub sink: S,
}

impl<'a, S: FlowSink + SourceSinks<S> + 'a> Visitor for Following<'a, S> {
    type Output = Box<dyn Decoding<S> + 'a>;

    fn visit<D, E>(self, _: D, _: E) -> Self::Output {
        panic!("it follows a core")
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
