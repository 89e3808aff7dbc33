//! The whole pipeline: registers from an .ini file, frames, packets, elements, flow, listing.
#![no_main]

use armsnap::capture::{Capture, Visitor};
use armsnap::decode::{Decoding, Image, Source, decode_buffer};
use armsnap::flow::{Flow, FlowConfig};
use armsnap::protocol::{ElementDecoder, PacketDecoder};
use armsnap::quantity::TraceId;
use armsnap::report::listing::Listed;
use armsnap::report::listing::elements::ElementListing;
use armsnap::report::listing::jsonl::JsonLines;
use armsnap::snapshot::memory::CoreMemory;
use armsnap_fuzz::TYPES;
use libfuzzer_sys::fuzz_target;

struct Make<'a>(Image<'a>, JsonLines);

impl<'a> Visitor for Make<'a> {
    type Output = Box<dyn Decoding<dyn Listed + 'a> + 'a>;

    fn visit<D, E>(self, packets: D, elements: E) -> Self::Output
    where
        D: PacketDecoder + 'static,
        E: ElementDecoder<Packet = D::Packet> + 'static,
    {
        let listing = ElementListing::new(self.1);
        Box::new(Source::with_elements(packets, elements, listing))
    }

    fn visit_flow<D, E>(self, packets: D, elements: E, flow: FlowConfig) -> Self::Output
    where
        D: PacketDecoder + 'static,
        E: ElementDecoder<Packet = D::Packet> + 'static,
    {
        let listing = ElementListing::new(self.1);
        let flow = Flow::new(flow, self.0);
        Box::new(Source::with_flow(packets, elements, flow, listing))
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some(([kind, code_length, values @ ..], rest)) = armsnap_fuzz::registers::<10>(bytes)
    else {
        return;
    };
    let stm = ("STM", "Cortex-A9");
    let types = TYPES.get(kind as usize % (TYPES.len() + 1)).unwrap_or(&stm);
    let (code, trace) = rest.split_at(code_length as usize % (rest.len() + 1));
    let loaded = armsnap_fuzz::snapshot(*types, values, ("b", kind >> 8), code, trace);
    let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
    let (capture, _) = Capture::open(&loaded);
    for buffer in &capture.buffers {
        let Some(source) = buffer.sources.first() else {
            continue;
        };
        let lines = JsonLines::new("etm", "b", TraceId(1));
        let decoder = source.config.visit(Make(Image(Some(&memory)), lines));
        let mut decoders = vec![(source.trace_id, decoder)];
        let mut written = 0;
        decode_buffer(buffer, &mut decoders, 64, |_, listed| {
            written += listed.text().len();
            listed.text().clear();
            Ok::<(), ()>(())
        })
        .unwrap();
        assert!(
            written <= 4_000 * trace.len() + 4_000,
            "{written} bytes of text"
        );
    }
});
