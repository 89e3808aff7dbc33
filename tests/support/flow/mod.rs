//! Helpers for tests of program flow: a snapshot's trace → elements → flow, and
//! the canonical form of the output.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use armsnap::element::{Context, Exception, Mark};
use armsnap::etm::Registers;
use armsnap::flow::{
    Flow, FlowConfig, FlowDriver, FlowSink, Gap, Pieces, QRange, Range, Waypoints,
};
use armsnap::formatter::{Deformatter, Demux, FrameKind};
use armsnap::protocol::{Core, ElementDecoder, PacketDecoder};
use armsnap::quantity::{Address, BufferOffset, TraceId};
use armsnap::snapshot::model::Snapshot;
use armsnap::snapshot::read::OpenOptions;
use armsnap::{etmv3, ptm};

pub const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared");

/// The Cortex-A15 of two captures: return stack, no cycle counts.
pub const CORTEX_A15: Registers = Registers {
    etmcr: 0x2000_0400,
    etmccer: 0x34c0_1ac2,
    etmidr: 0x411c_f312,
    etmtraceidr: 2,
};

/// A source of the capture of five cores, all cycle-accurate: ETMv3.5 below 0x13, then PTM.
pub fn tc2(id: u8) -> Registers {
    let etmtraceidr = id.into();
    if id < 0x13 {
        Registers {
            etmcr: 0x1000_1860,
            etmccer: 0x3440_08f2,
            etmidr: 0x410c_f250,
            etmtraceidr,
        }
    } else {
        Registers {
            etmcr: 0x1000_1000,
            etmtraceidr,
            ..CORTEX_A15
        }
    }
}

/// A listing of the reference, by trace ID; `None` with a warning if it does not exist.
pub fn expected(name: &str) -> Option<BTreeMap<u8, Vec<String>>> {
    let Ok(file) = std::fs::File::open(format!("{SHARED}/parity/expected/{name}.gz")) else {
        crate::support::skip::missing("../shared is not there");
        return None;
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    let mut all: BTreeMap<u8, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let (id, rest) = line.split_once(' ').unwrap();
        let id = u8::from_str_radix(id, 16).unwrap();
        all.entry(id).or_default().push(rest.to_owned());
    }
    Some(all)
}

/// The memory of the first core of a snapshot.
pub fn code(snapshot: &str) -> Pieces {
    let path = format!("{SHARED}/snapshots/{snapshot}");
    let loaded = Snapshot::open(Path::new(&path), &OpenOptions::default()).unwrap();
    let device = &loaded.snapshot.devices[0];
    let mut pieces = Pieces::default();
    for dump in &device.dumps {
        let bytes = loaded.file(Path::new(&device.file), &dump.file).unwrap();
        let offset = dump.offset.unwrap_or(0) as usize;
        let length = dump.length.map_or(usize::MAX, |length| length as usize);
        let bytes = &bytes[offset..];
        pieces.add(
            Address(dump.address),
            bytes[..length.min(bytes.len())].to_vec(),
        );
    }
    pieces
}

/// The bytes of each source of a buffer in CoreSight frames.
pub fn deformatted(snapshot: &str, buffer: &str) -> Demux {
    let bytes = std::fs::read(format!("{SHARED}/snapshots/{snapshot}/{buffer}")).unwrap();
    let mut demux = Demux::new();
    Deformatter::new(FrameKind::Memory).feed(BufferOffset(0), &bytes, true, &mut demux);
    demux
}

fn follow<D, E, S>(
    mut packets: D,
    mut elements: E,
    bytes: &[u8],
    flow: FlowConfig,
    code: Pieces,
    sink: S,
) -> S
where
    D: PacketDecoder,
    E: ElementDecoder<Packet = D::Packet>,
    S: FlowSink,
{
    let mut driver = FlowDriver {
        flow: Flow::new(flow, code),
        sink,
    };
    let mut at = 0;
    while let Some((packet, length)) = packets.next(&bytes[at..]) {
        elements.packet(BufferOffset(at as u64), &packet, &mut driver);
        at += length;
    }
    if at < bytes.len() {
        let packet = packets.finish(&bytes[at..]);
        elements.packet(BufferOffset(at as u64), &packet, &mut driver);
    }
    elements.end(BufferOffset(bytes.len() as u64), &mut driver);
    driver.sink
}

/// Follows the bytes of a PTM.
pub fn ptm<S: FlowSink>(registers: Registers, bytes: &[u8], code: Pieces, sink: S) -> S {
    let config = ptm::Config::read(&registers, Core::default());
    let flow = FlowConfig {
        waypoints: Waypoints {
            barriers: config.barriers_are_waypoints,
            ..Waypoints::default()
        },
        return_stack: config.return_stack,
        ..FlowConfig::default()
    };
    let elements = ptm::Elements::new(&config);
    follow(
        ptm::Decoder::new(&config),
        elements,
        bytes,
        flow,
        code,
        sink,
    )
}

/// Follows the bytes of an ETMv3 of a core other than a Cortex-M.
pub fn etmv3<S: FlowSink>(registers: Registers, bytes: &[u8], code: Pieces, sink: S) -> S {
    let config = etmv3::Config::read(&registers, Core::default());
    let flow = FlowConfig::default();
    let elements = etmv3::Elements::new(&config);
    follow(
        etmv3::Decoder::new(&config),
        elements,
        bytes,
        flow,
        code,
        sink,
    )
}

/// Follows a source of the capture of five cores.
pub fn tc2_source<S: FlowSink>(demux: &Demux, id: u8, code: Pieces, sink: S) -> S {
    let bytes = demux.stream(TraceId(id)).payload();
    if id < 0x13 {
        etmv3(tc2(id), bytes, code, sink)
    } else {
        ptm(tc2(id), bytes, code, sink)
    }
}

/// The canonical form: adjacent ranges without a branch between them are joined.
#[derive(Debug, Default)]
pub struct Canonical {
    pub lines: Vec<String>,
    run: Option<(u64, u64, &'static str)>,
}

fn optional(value: Option<u32>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:x}"))
}

fn context(context: &Context) -> String {
    let security = match context.security.map(armsnap::quantity::Security::name) {
        None => "-",
        Some("secure") => "S",
        Some("non-secure") => "N",
        Some(other) => other,
    };
    format!(
        "context {} {} {security} {} {} {}",
        context.isa.name(),
        context.el.map_or("-".to_owned(), |el| el.0.to_string()),
        context
            .is_64bit
            .map_or("-", |is_64bit| if is_64bit { "64" } else { "32" }),
        optional(context.vmid),
        optional(context.context_id),
    )
}

impl Canonical {
    fn flush(&mut self) {
        if let Some((start, end, isa)) = self.run.take() {
            self.lines.push(format!("run {start:x} {end:x} {isa}"));
        }
    }

    fn line(&mut self, line: String) {
        self.flush();
        self.lines.push(line);
    }
}

impl FlowSink for Canonical {
    fn range(&mut self, _: BufferOffset, range: &Range, cycles: Option<u32>) {
        let (start, end, isa) = (range.start.0, range.end.0, range.isa.name());
        match &mut self.run {
            Some(run) if run.1 == start && run.2 == isa => run.1 = end,
            _ => {
                self.flush();
                self.run = Some((start, end, isa));
            }
        }
        if let Some(cycles) = cycles {
            self.line(format!("cycles {cycles}"));
        }
    }

    fn q_range(&mut self, _: BufferOffset, range: &QRange) {
        self.line(format!("q {:x} {:x}", range.start.0, range.end.0));
    }

    fn exception(&mut self, _: BufferOffset, exception: &Exception) {
        let to = exception.return_address;
        let to = to.map_or("-".to_owned(), |to| format!("{:x}", to.0));
        self.line(format!("exception {:x} {to}", exception.number));
    }

    fn gap(&mut self, _: BufferOffset, gap: Gap) {
        self.line(match gap {
            Gap::MemoryMissing(address) => format!("nacc {:x}", address.0),
            other => format!("{other:?}"),
        });
    }

    fn mark(&mut self, _: BufferOffset, mark: &Mark) {
        self.line(match mark {
            Mark::NoSync(_) => "no_sync".to_owned(),
            Mark::TraceOn(reason) => format!("trace_on {}", reason.name()),
            Mark::Context(told) => context(told),
            Mark::ExceptionReturn => "exception_return".to_owned(),
            Mark::Cycles(cycles) => format!("cycles {cycles}"),
            Mark::Timestamp(value) => format!("timestamp {value:x}"),
            Mark::Trigger => "event trigger".to_owned(),
            Mark::End => return self.flush(),
            other => format!("{other:?}"),
        });
    }
}
