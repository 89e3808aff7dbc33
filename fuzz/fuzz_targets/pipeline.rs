//! The whole way: an .ini file's registers, frames, packets, elements, flow, listing.
#![no_main]

use armsnap::decode::{Buffers, ElementStage, Flowing, Image, Options, Setup, Source, Visitor};
use armsnap::decode::Decoding;
use armsnap::flow::{Flow, FlowConfig};
use armsnap::protocol::{ElementDecoder, PacketDecoder};
use armsnap::quantity::TraceId;
use armsnap::report::listing::elements::ElementListing;
use armsnap::report::listing::jsonl::JsonLines;
use armsnap::report::listing::Listed;
use armsnap::snapshot::Loaded;
use armsnap::snapshot::files::InMemory;
use armsnap::snapshot::memory::CoreMemory;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

struct Make<'a>(Image<'a>, JsonLines);

impl<'a> Visitor for Make<'a> {
    type Output = Box<dyn Decoding<dyn Listed + 'a> + 'a>;

    fn visit<D, E>(self, packets: D, elements: E, flow: Option<FlowConfig>) -> Self::Output
    where
        D: PacketDecoder + 'static,
        E: ElementDecoder<Packet = D::Packet> + 'static,
    {
        let listing = ElementListing::new(self.1);
        match flow {
            Some(flow) => {
                let flow = Flow::new(flow, self.0);
                let sink = Flowing::new(flow, listing);
                Box::new(Source::new(packets, ElementStage::new(elements, sink)))
            }
            None => Box::new(Source::new(packets, ElementStage::new(elements, listing))),
        }
    }
}

const SNAPSHOT: &str = "[snapshot]\nversion=1.0\n[device_list]\na=cpu.ini\nb=etm.ini\n\
                        [trace]\nmetadata=trace.ini\n";
const TYPES: [(&str, &str); 6] = [
    ("ETM3.5", "Cortex-A7"),
    ("PFT1.1", "Cortex-A15"),
    ("ETM4.2", "Cortex-A57"),
    ("ETE", "ARM-AA64"),
    ("ETM4", "Cortex-M33"),
    ("STM", "Cortex-A9"),
];
const NAMES: [&str; 8] = [
    "ETMCR", "ETMCCER", "ETMIDR", "TRCCONFIGR", "TRCIDR0", "TRCIDR1", "TRCIDR2", "TRCIDR8",
];

fuzz_target!(|bytes: &[u8]| {
    let Some(([kind, code_length, values @ ..], rest)) = armsnap_fuzz::registers::<10>(bytes)
    else {
        return;
    };
    let (protocol, core) = TYPES[kind as usize % TYPES.len()];
    let format = ["source_data", "coresight", "dstream_coresight"][(kind >> 8) as usize % 3];
    let (code, trace) = rest.split_at(code_length as usize % (rest.len() + 1));
    let mut etm = format!("[device]\nname=etm\nclass=trace_source\ntype={protocol}\n[regs]\n");
    for (name, value) in NAMES.iter().zip(values) {
        etm += &format!("{name}={value:#x}\n");
    }
    let cpu = format!(
        "[device]\nname=cpu\nclass=core\ntype={core}\n[dump]\nfile=code.bin\naddress=0x1000\n"
    );
    let metadata = format!(
        "[trace_buffers]\nbuffers=b\n[b]\nname=b\nfile=trace.bin\nformat={format}\n\
         [core_trace_sources]\ncpu=etm\n[source_buffers]\netm=b\n"
    );
    let files = [
        ("snapshot.ini", SNAPSHOT.as_bytes()),
        ("cpu.ini", cpu.as_bytes()),
        ("etm.ini", etm.as_bytes()),
        ("trace.ini", metadata.as_bytes()),
        ("code.bin", code),
        ("trace.bin", trace),
    ];
    let files = files.map(|(name, bytes)| (name.to_owned(), bytes.to_vec().into()));
    let loaded = Loaded::from_files(Arc::new(InMemory(files.into())), "snapshot.ini").unwrap();
    let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
    let buffers = Buffers::of(&loaded, &Options::default()).unwrap();
    for sources in &buffers.buffers {
        let source = &sources.sources[0];
        let setup = Setup::of(&loaded, source, &mut Vec::new()).unwrap();
        let lines = JsonLines::new("etm", "b", TraceId(1));
        let decoder = setup.visit(Make(Image(Some(&memory)), lines));
        let mut decoders = vec![(setup.trace_id(), decoder)];
        let mut written = 0;
        sources
            .decode(&mut decoders, 64, |_, listed| {
                written += listed.text().len();
                listed.text().clear();
                Ok::<(), ()>(())
            })
            .unwrap();
        assert!(written <= 4_000 * trace.len() + 4_000, "{written} bytes of text");
    }
});
