//! Decodes a core's trace into executed instructions.
//!
//! Works directly on the flow: each block is processed once, in order. The timeline keeps blocks in
//! order to move in both directions; walking its entries alone takes as long as the whole decoding
//! here.

use super::Progress;
use super::executed::{FrameSelection, InstructionCollector};
use super::kept::KeptInstructions;
use super::trace_run;
use armsnap_history::decode::{Decoding, Image, Source, decode_buffer};
use armsnap_snapshot::capture::{CaptureBuffer, CaptureSource, Visitor};
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::snapshot::memory::CoreMemory;
use armsnap_trace::flow::{Flow, FlowConfig};
use armsnap_trace::protocol::{ElementDecoder, PacketDecoder};
use std::convert::Infallible;

/// The named source does not trace a core.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}: it does not trace a core")]
pub struct NoFlow(pub String);

/// Bytes of trace decoded at once.
const PIECE: usize = 256 << 10;

/// Decodes the trace of one core, one source per buffer, with the code in `memory`. `progress`
/// receives the number of bytes decoded and the total.
///
/// # Errors
///
/// Fails if a source does not trace a core.
pub fn decode(
    sources: &[(&CaptureBuffer, &CaptureSource)],
    memory: &CoreMemory,
    symbols: Option<&Symbols>,
    options: &trace_run::Options,
    progress: Progress<'_>,
) -> Result<KeptInstructions, NoFlow> {
    let limits = options.limits();
    let mut kept = KeptInstructions::new(limits);
    let total = sources.iter().map(|(buffer, _)| buffer.bytes()).sum();
    let mut done = 0;
    for (buffer, source) in sources {
        let begin = done;
        done += buffer.bytes();
        let Some(decoder) = source.visit(Make {
            kind: options.frames,
            image: Image(Some(memory)),
            symbols,
            kept,
        }) else {
            // Only protocols that do not trace a core have no flow.
            return Err(NoFlow(source.name.clone()));
        };
        let mut decoders = [(source.trace_id, decoder)];
        let mut pieces = 0;
        let Ok(_) = decode_buffer(buffer, &mut decoders, PIECE, |_, _| {
            pieces += PIECE as u64;
            progress((begin + pieces).min(done), total);
            Ok::<(), Infallible>(())
        });
        let [(_, mut decoder)] = decoders;
        kept = std::mem::replace(decoder.output(), KeptInstructions::new(limits));
    }
    Ok(kept)
}

struct Make<'a> {
    kind: FrameSelection,
    image: Image<'a>,
    symbols: Option<&'a Symbols>,
    kept: KeptInstructions,
}

impl<'a> Visitor for Make<'a> {
    type Output = Option<Box<dyn Decoding<KeptInstructions> + 'a>>;

    fn visit<D, E>(self, _: D, _: E) -> Self::Output {
        None
    }

    fn visit_flow<D, E>(self, packets: D, elements: E, flow: FlowConfig) -> Self::Output
    where
        D: PacketDecoder + 'static,
        E: ElementDecoder<Packet = D::Packet> + 'static,
    {
        let config = FlowConfig {
            exceptions_here: true,
            ..flow
        };
        let flow = Flow::new(config, self.image);
        let collector = InstructionCollector::new(self.kind, self.image, self.symbols, self.kept);
        let source = Source::with_flow(packets, elements, flow, collector);
        Some(Box::new(source))
    }
}
