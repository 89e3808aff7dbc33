//! Checks of a protocol's decoders shared by all fuzz targets, and their input files.

pub mod build;
#[path = "../../tests/support/exercise.rs"]
pub mod exercise;
pub mod tables;

use armsnap::element::{Element, ElementSink};
use armsnap::etmv4::{Config, Decoder, Elements, Protocol, Registers};
use armsnap::protocol::{Core, Describe, ElementDecoder, PacketDecoder, Profile};
use armsnap::quantity::BufferOffset;
use armsnap::snapshot::OpenSnapshot;
use armsnap::snapshot::files::InMemory;
use std::sync::Arc;

/// Counts elements, to detect packets that cause too many.
#[derive(Default)]
struct Count(usize);

impl ElementSink for Count {
    fn element(&mut self, _: BufferOffset, element: Element) {
        std::hint::black_box(element);
        self.0 += 1;
    }
}

/// Decodes `bytes` to their end, in two pieces. Every byte is in exactly one packet, packets
/// without bytes never follow each other, and the number of elements is bounded by the number
/// of bytes.
pub fn decode<D, E>(mut packets: D, mut elements: E, bytes: &[u8])
where
    D: PacketDecoder,
    E: ElementDecoder<Packet = D::Packet>,
{
    let mut count = Count::default();
    let mut at = 0;
    let mut empty = false;
    let mut end = bytes.len() / 2;
    while at < bytes.len() {
        let packet = match packets.next(&bytes[at..end]) {
            Some((packet, length)) => {
                assert!(length <= end - at && (length > 0 || !empty));
                empty = length == 0;
                at += length;
                packet
            }
            None if end < bytes.len() => {
                end = bytes.len();
                continue;
            }
            None => {
                let packet = packets.finish(&bytes[at..]);
                at = bytes.len();
                packet
            }
        };
        packet.fields(&mut |name, field| {
            std::hint::black_box((name, field));
        });
        elements.packet(BufferOffset(at as u64), &packet, &mut count);
        if at == end {
            end = bytes.len();
        }
    }
    elements.end(BufferOffset(at as u64), &mut count);
    assert!(count.0 <= 64 * bytes.len() + 64, "{} elements", count.0);
}

/// The first bytes as `N` register values, and the rest.
pub fn registers<const N: usize>(bytes: &[u8]) -> Option<([u32; N], &[u8])> {
    let (head, rest) = bytes.split_at_checked(4 * N)?;
    let mut numbers = [0; N];
    for (number, four) in numbers.iter_mut().zip(head.chunks_exact(4)) {
        *number = u32::from_le_bytes(four.try_into().ok()?);
    }
    Some((numbers, rest))
}

/// A configuration of an ETMv4 or ETE from the first bytes, and the rest.
pub fn etmv4(protocol: Protocol, bytes: &[u8]) -> Option<(Config, &[u8])> {
    let (&core, bytes) = bytes.split_first()?;
    let ([configr, idr0, idr1, idr2, idr8, devarch], bytes) = registers(bytes)?;
    let values = Registers::read(protocol, |name| {
        Some(u64::from(match name {
            "TRCCONFIGR" => configr,
            "TRCIDR0" => idr0,
            "TRCIDR1" => idr1,
            "TRCIDR2" => idr2,
            "TRCIDR8" => idr8,
            "TRCDEVARCH" => devarch,
            _ => 0,
        }))
    });
    let core = Core {
        profile: [Profile::A, Profile::R, Profile::M][usize::from(core) % 3],
        version: 7 + core % 3,
    };
    Some((Config::read(&values, core), bytes))
}

/// Decodes ETMv4 or ETE trace.
pub fn decode_etmv4(config: &Config, bytes: &[u8]) {
    decode(Decoder::new(config), Elements::new(config), bytes);
}

const SNAPSHOT: &str = "[snapshot]\nversion=1.0\n[device_list]\na=cpu.ini\nb=etm.ini\n\
                        [trace]\nmetadata=trace.ini\n";

/// Types of program flow trace sources, each with the type of a core.
pub const TYPES: [(&str, &str); 5] = [
    ("ETM3.5", "Cortex-A7"),
    ("PFT1.1", "Cortex-A15"),
    ("ETM4.2", "Cortex-A57"),
    ("ETE", "ARM-AA64"),
    ("ETM4", "Cortex-M33"),
];

const NAMES: [&str; 8] = [
    "ETMCR",
    "ETMCCER",
    "ETMIDR",
    "TRCCONFIGR",
    "TRCIDR0",
    "TRCIDR1",
    "TRCIDR2",
    "TRCIDR8",
];

/// A snapshot of a core with code at 0x1000, and a source of a type with these values of
/// its registers. Each buffer (`b`, and optionally `c`) contains the same trace.
pub fn snapshot(
    (source, core): (&str, &str),
    values: [u32; 8],
    (buffers, format): (&str, u32),
    code: &[u8],
    trace: &[u8],
) -> OpenSnapshot {
    let format = ["source_data", "coresight", "dstream_coresight"][format as usize % 3];
    let mut etm = format!("[device]\nname=etm\nclass=trace_source\ntype={source}\n[regs]\n");
    for (name, value) in NAMES.iter().zip(values) {
        etm += &format!("{name}={value:#x}\n");
    }
    let cpu = format!(
        "[device]\nname=cpu\nclass=core\ntype={core}\n[regs]\nPC=0x1000\n\
         [dump]\nfile=code.bin\naddress=0x1000\n"
    );
    let metadata = format!(
        "[trace_buffers]\nbuffers={buffers}\n[b]\nname=b\nfile=trace.bin\nformat={format}\n\
         [c]\nname=c\nfile=trace.bin\nformat={format}\n\
         [core_trace_sources]\ncpu=etm\n[source_buffers]\netm={buffers}\n"
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
    OpenSnapshot::from_files(Arc::new(InMemory(files.into())), "snapshot.ini").unwrap()
}
