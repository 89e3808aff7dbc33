//! A core's trace, decoded into visits.
//!
//! Straight from the flow: each block is looked at once, in order. The timeline keeps them to move
//! both ways; walking its entries alone takes as long as this does to make all visits.

use super::Progress;
use super::trace_run;
use super::visits::{Kind, Visits};
use super::window::Window;
use crate::decode::{
    Buffers, Decoding, ElementStage, Flowing, Image, Options, Setup, Source, Sources, Visitor,
};
use crate::flow::{Flow, FlowConfig};
use crate::protocol::{ElementDecoder, PacketDecoder};
use crate::report::symbols::Symbols;
use crate::snapshot::Loaded;
use crate::snapshot::memory::CoreMemory;
use crate::snapshot::topology::TraceSource;
use std::convert::Infallible;

/// Bytes of trace decoded at once.
const PIECE: usize = 256 << 10;

/// Decodes the trace of the core at `core` in the device list, with the code in `memory`. What
/// is assumed or left out goes to `notes`, and how far it is to `progress`.
pub fn decode(
    loaded: &Loaded,
    core: usize,
    memory: &CoreMemory,
    symbols: Option<&Symbols>,
    options: &trace_run::Options,
    notes: &mut Vec<String>,
    progress: Progress<'_>,
) -> Result<Window, String> {
    let limits = options.limits();
    let mut window = Window::new(limits);
    let buffers = Buffers::of(loaded, &Options::default()).map_err(|error| error.to_string())?;
    notes.extend(buffers.notes);
    let followed =
        |source: &&TraceSource| source.core == Some(core) && source.protocol.needs_core();
    let of = |sources: &Sources| sources.sources.iter().filter(followed).count() as u64;
    let total = buffers.buffers.iter().map(|s| of(s) * s.bytes()).sum();
    let mut done = 0;
    for sources in &buffers.buffers {
        for source in sources.sources.iter().filter(followed) {
            let begin = done;
            done += sources.bytes();
            let setup = match Setup::of(loaded, source, notes) {
                Ok(setup) => setup,
                Err(reason) => {
                    notes.push(reason);
                    continue;
                }
            };
            let Some(decoder) = setup.visit(Make {
                kind: options.frames,
                image: Image(Some(memory)),
                symbols,
                window,
            }) else {
                // Only protocols that follow no core have no flow.
                return Err(format!("{}: its trace follows no core", source.name));
            };
            let mut decoders = [(setup.trace_id(), decoder)];
            let mut pieces = 0;
            let Ok(()) = sources.decode(&mut decoders, PIECE, |_, _| {
                pieces += PIECE as u64;
                progress((begin + pieces).min(done), total);
                Ok::<(), Infallible>(())
            });
            let [(_, mut decoder)] = decoders;
            window = std::mem::replace(decoder.output(), Window::new(limits));
        }
    }
    Ok(window)
}

struct Make<'a> {
    kind: Kind,
    image: Image<'a>,
    symbols: Option<&'a Symbols>,
    window: Window,
}

impl<'a> Visitor for Make<'a> {
    type Output = Option<Box<dyn Decoding<Window> + 'a>>;

    fn visit<D, E>(self, packets: D, elements: E, flow: Option<FlowConfig>) -> Self::Output
    where
        D: PacketDecoder + 'static,
        E: ElementDecoder<Packet = D::Packet> + 'static,
    {
        let config = FlowConfig {
            exceptions_here: true,
            ..flow?
        };
        let flow = Flow::new(config, self.image);
        let visits = Visits::new(self.kind, self.image, self.symbols, self.window);
        let sink = Flowing::new(flow, visits);
        Some(Box::new(Source::new(
            packets,
            ElementStage::new(elements, sink),
        )))
    }
}
