//! The trace of a snapshot as instructions, decoded by the library and by the reference decoder.

use super::{Beside, Code, Each};
use armsnap::capture::{Capture, Visitor};
use armsnap::decode::{Decoding, Image, Source, decode_buffer};
use armsnap::flow::{Flow, FlowConfig};
use armsnap::protocol::{ElementDecoder, PacketDecoder};
use armsnap::quantity::Isa;
use armsnap::snapshot::memory::CoreMemory;
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::read::OpenOptions;
use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Receives the address of each instruction of one core; returns `false` to stop.
pub type Take<'a> = dyn FnMut(u64, Isa) -> bool + 'a;

/// The traced cores of a snapshot: name and trace ID, in their order.
pub fn cores(snapshot: &Path) -> Vec<(String, u8)> {
    let loaded = Snapshot::open(snapshot, &OpenOptions::default()).unwrap();
    let mut cores = Vec::new();
    let (capture, _) = Capture::open(&loaded);
    for source in capture.buffers.iter().flat_map(|buffer| &buffer.sources) {
        let core = &loaded.snapshot.devices[source.core.expect("a core")];
        cores.push((core.name.clone(), source.trace_id.0));
    }
    cores
}

/// Decodes the trace of a core by name; returns what the trace contains besides instructions.
pub fn by_library(snapshot: &Path, core: &str, code: &Code, take: &mut Take) -> Beside {
    let loaded = Snapshot::open(snapshot, &OpenOptions::default()).unwrap();
    let devices = &loaded.snapshot.devices;
    let device = devices.iter().position(|d| d.name == core).expect("a core");
    let memory = CoreMemory::new(&loaded, &devices[device]);
    let (capture, notes) = Capture::open(&loaded);
    assert_eq!(notes, []);
    let mut beside = Beside::default();
    for (buffer, source) in capture.following(&loaded.snapshot, device).0 {
        let make = Make {
            image: Image(Some(&memory)),
            code,
            take,
        };
        let mut decoders = [(source.trace_id, source.config.visit(make))];
        let Ok(_) = decode_buffer(buffer, &mut decoders, 1 << 20, |_, _| {
            Ok::<(), Infallible>(())
        });
        let said = decoders[0].1.output();
        beside.gaps.append(&mut said.gaps);
        beside.marks.append(&mut said.marks);
    }
    beside
}

struct Make<'a, 'b> {
    image: Image<'a>,
    code: &'a Code,
    take: &'a mut Take<'b>,
}

impl<'a> Visitor for Make<'a, '_> {
    type Output = Box<dyn Decoding<Beside> + 'a>;

    fn visit<D, E>(self, _: D, _: E) -> Self::Output {
        panic!("it follows a core")
    }

    fn visit_flow<D, E>(self, packets: D, elements: E, flow: FlowConfig) -> Self::Output
    where
        D: PacketDecoder + 'static,
        E: ElementDecoder<Packet = D::Packet> + 'static,
    {
        let flow = Flow::new(flow, self.image);
        let take = self.take;
        let each = Each::new(self.code, move |address, isa| {
            take(address, isa);
        });
        Box::new(Source::with_flow(packets, elements, flow, each))
    }
}

/// Decodes the trace with this ID with the reference decoder, Debian's `trc_pkt_lister`, up to
/// the instruction at which the sink stops. Returns lines that report problems.
pub fn by_reference(snapshot: &Path, id: u8, code: &Code, take: &mut Take) -> Vec<String> {
    // It writes a log file to the current directory.
    let working = tempfile::tempdir().unwrap();
    let mut child = Command::new("trc_pkt_lister")
        .current_dir(&working)
        .arg("-ss_dir")
        .arg(snapshot)
        .args(["-decode_only", "-logstdout", "-id", &format!("{id:#x}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("trc_pkt_lister, of Debian's libopencsd-bin, runs");
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    // A temporary directory may have any letters in its name.
    let directory = snapshot.to_str().unwrap();
    let mut trouble = Vec::new();
    let mut line = String::new();
    let mut all = true;
    while all && lines.read_line(&mut line).unwrap() > 0 {
        if line.contains("OCSD_GEN_TRC_ELEM_INSTR_RANGE") {
            let isa = match &line[line.find("(ISA=").unwrap() + 5..] {
                isa if isa.starts_with("A64") => Isa::A64,
                isa if isa.starts_with("A32") => Isa::A32,
                isa if isa.starts_with("T32") => Isa::T32,
                other => panic!("{other}"),
            };
            let (mut here, end) = (hex(&line, "exec range=0x"), hex(&line, ":[0x"));
            while all && here < end {
                all = take(here, isa);
                here += code.length(here, isa);
            }
        } else {
            let said = line.replace(directory, "");
            let words = ["OCSD_GEN_TRC_ELEM_ADDR_NACC", "ERROR", "BAD"];
            if words.iter().any(|word| said.contains(word)) {
                trouble.push(said);
            }
        }
        line.clear();
    }
    if !all {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    assert!(!all || status.success(), "{status}");
    trouble
}

/// Parses the hex number after `label`.
fn hex(line: &str, label: &str) -> u64 {
    let rest = &line[line.find(label).unwrap() + label.len()..];
    let end = rest.find(|c: char| !c.is_ascii_hexdigit());
    u64::from_str_radix(&rest[..end.unwrap_or(rest.len())], 16).unwrap()
}
