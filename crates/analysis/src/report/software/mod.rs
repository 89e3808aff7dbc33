//! What ITM, DWT and STM sources say: text of software, and events that hardware reports.
//!
//! These sources need no code: their elements go straight to a sink, [`Console`] for text,
//! [`dwt::Dwt`] for events.

mod clock;
mod console;
pub mod dwt;
mod lines;

pub use clock::{Clock, Time};
pub use console::{Console, Port, Said, What, lost};
pub use lines::{label, shown, text_line};

use armsnap_history::decode::{Decoding, Source, SourceSinks};
use armsnap_snapshot::capture::{CaptureSource, Config, Protocol, Visitor};
use armsnap_trace::element::AtomSink;
use armsnap_trace::protocol::{ElementDecoder, PacketDecoder};

/// Returns whether a source is an ITM, which also traces the DWT's packets, or an STM.
pub fn is_software(source: &CaptureSource) -> bool {
    matches!(source.protocol, Protocol::Itm | Protocol::Stm)
}

/// Returns the number of clock cycles in a tick of a source's local timestamps.
pub fn prescaler(source: &CaptureSource) -> u32 {
    match &source.config {
        Config::Itm(config) => config.prescaler,
        _ => 1,
    }
}

/// Makes the decoder of a source whose elements go to `sink`.
pub fn decoder<S>(source: &CaptureSource, sink: S) -> Box<dyn Decoding<S>>
where
    S: AtomSink + SourceSinks<S> + 'static,
{
    source.visit(Make(sink))
}

struct Make<S>(S);

impl<S: AtomSink + SourceSinks<S> + 'static> Visitor for Make<S> {
    type Output = Box<dyn Decoding<S>>;

    fn visit<D, E>(self, packets: D, elements: E) -> Self::Output
    where
        D: PacketDecoder + 'static,
        E: ElementDecoder<Packet = D::Packet> + 'static,
    {
        Box::new(Source::with_elements(packets, elements, self.0))
    }
}
