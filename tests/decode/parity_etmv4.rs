//! ETMv4 and ETE packets compared with the reference's listings: every offset and every byte.

use std::collections::BTreeMap;
use std::io::Read;

use armsnap::etmv4::{Config, Decoder, Packet, Protocol, Registers};
use armsnap::formatter::{Deformatter, Demux, FrameKind};
use armsnap::protocol::{Core, Describe, PacketDecoder};
use armsnap::quantity::{BufferOffset, TraceId};

const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared");

/// The offset and bytes of a packet.
type Place = (u64, String);

/// The packets of each trace ID.
type Listing = BTreeMap<u8, Vec<Place>>;

fn expected(snapshot: &str) -> Option<Listing> {
    let path = format!("{SHARED}/parity/expected/{snapshot}.packets.gz");
    let Ok(file) = std::fs::File::open(path) else {
        crate::support::skip::missing("../shared is not there");
        return None;
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    let mut listing = Listing::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let id = u8::from_str_radix(words[0], 16).unwrap();
        let place = (words[2].parse().unwrap(), words[3].to_owned());
        listing.entry(id).or_default().push(place);
    }
    Some(listing)
}

fn read(snapshot: &str, buffer: &str) -> Vec<u8> {
    std::fs::read(format!("{SHARED}/snapshots/{snapshot}/{buffer}")).unwrap()
}

fn place(at: BufferOffset, packet: &Packet, bytes: &[u8], out: &mut Vec<Place>) {
    if packet.name() != "not_sync" {
        let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        out.push((at.0, hex));
    }
}

fn unformatted(config: &Config, bytes: &[u8], out: &mut Vec<Place>) {
    let mut decoder = Decoder::new(config);
    let mut at = 0;
    while let Some((packet, length)) = decoder.next(&bytes[at..]) {
        let bytes = &bytes[at..at + length];
        place(BufferOffset(at as u64), &packet, bytes, out);
        at += length;
    }
    if at < bytes.len() {
        let packet = decoder.finish(&bytes[at..]);
        place(BufferOffset(at as u64), &packet, &bytes[at..], out);
    }
}

fn same(have: &[Place], want: &[Place]) {
    assert!(!want.is_empty());
    for (have, want) in have.iter().zip(want) {
        assert_eq!(have, want);
    }
    assert_eq!(have.len(), want.len());
}

/// TRCCONFIGR, TRCIDR0, TRCIDR1, TRCIDR2, TRCIDR8, and TRCDEVARCH for ETE.
fn config(values: [u64; 5], devarch: Option<u64>) -> Config {
    let protocol = devarch.map_or(Protocol::Etmv4, |_| Protocol::Ete);
    let registers = Registers::read(protocol, |name| match name {
        "TRCCONFIGR" => Some(values[0]),
        "TRCIDR0" => Some(values[1]),
        "TRCIDR1" => Some(values[2]),
        "TRCIDR2" => Some(values[3]),
        "TRCIDR8" => Some(values[4]),
        "TRCDEVARCH" => devarch,
        _ => None,
    });
    Config::read(&registers, Core::default())
}

fn ete(snapshot: &str, buffers: &[&str], values: [u64; 5], devarch: u64) {
    let Some(want) = expected(snapshot) else {
        return;
    };
    let mut have = Vec::new();
    for buffer in buffers {
        let config = config(values, Some(devarch));
        unformatted(&config, &read(snapshot, buffer), &mut have);
    }
    same(&have, &want[&0]);
}

fn formatted(snapshot: &str, buffer: &str, kind: FrameKind, ids: &[u8], values: [u64; 5]) {
    let Some(want) = expected(snapshot) else {
        return;
    };
    let mut demux = Demux::new();
    let mut bytes = read(snapshot, buffer);
    if kind == FrameKind::Tpiu {
        // A DSTREAM probe ends each block of 512 bytes with 8 bytes of its own, which the listing
        // does not count.
        let trace = bytes
            .chunks(512)
            .flat_map(|block| &block[..block.len().min(504)]);
        bytes = trace.copied().collect();
    }
    Deformatter::new(kind).feed(BufferOffset(0), &bytes, true, &mut demux);
    for &id in ids {
        let mut have = Vec::new();
        let mut decoder = Decoder::new(&config(values, None));
        demux
            .stream_mut(TraceId(id))
            .packets(&mut decoder, true, |at, packet, bytes| {
                place(at, packet, bytes, &mut have);
            });
        same(&have, &want[&id]);
    }
}

const SESSION: &[&str] = &["session1.bin"];
const MODEL_IDR2: u64 = 0xd000_1088;

#[test]
fn exceptions_and_returns() {
    let values = [0x1, 0x0800_0aa1, 0x4100_fff0, 0xc000_1088, 0];
    ete("001-ack_test", SESSION, values, 0x4770_5a13);
}

#[test]
fn speculation() {
    let values = [0, 0x2801_cea1, 0x4100_fff0, MODEL_IDR2, 0xff];
    ete("ete_spec_1", SESSION, values, 0x4770_5a13);
}

#[test]
fn events() {
    let values = [0, 0x2801_cea1, 0x4100_fff0, MODEL_IDR2, 0];
    ete("event_test", SESSION, values, 0x4770_5a13);
}

#[test]
fn cycle_counts_that_commit_nothing() {
    let values = [0x8019, 0x2800_0ca1, 0x5100_fff0, 0x4000_1088, 0];
    ete("maxspec0_commopt1", SESSION, values, 0x4770_5a13);
}

#[test]
fn q_elements() {
    let values = [0xa001, 0x2801_cea1, 0x4100_fff0, MODEL_IDR2, 0];
    let buffers = ["session2.bin", "session1.bin"];
    ete("q_elem", &buffers, values, 0x4770_5a13);
}

#[test]
fn vmids() {
    let values = [0x81, 0x2801_cea1, 0x4100_fff0, MODEL_IDR2, 0];
    ete("trace_file_vmid", SESSION, values, 0x4770_5a13);
}

#[test]
fn transactions() {
    let values = [0, 0x2801_cea1, 0x4100_fff0, MODEL_IDR2, 0];
    ete("tme_simple", SESSION, values, 0x4770_5a13);
}

#[test]
fn timestamp_markers() {
    let values = [0x8801, 0x2881_cea1, 0x4100_fff0, MODEL_IDR2, 0];
    ete("ts_marker", SESSION, values, 0x4771_5a13);
}

#[test]
fn instrumentation() {
    let values = [0x8001, 0x28c1_cea1, 0x4100_fff0, MODEL_IDR2, 0];
    let buffers = ["session2.bin", "session1.bin"];
    ete("ete-ite-instr", &buffers, values, 0x4773_5a13);
}

#[test]
fn short_addresses() {
    let snapshot = "init-short-addr";
    let Some(want) = expected(snapshot) else {
        return;
    };
    let config = config([0x1, 0x0800_0ca1, 0x4200_f440, 0x2000_1088, 0], None);
    let mut have = Vec::new();
    unformatted(&config, &read(snapshot, "tracebuffer.bin"), &mut have);
    same(&have, &want[&0]);
}

#[test]
fn one_single_step() {
    let values = [0x1, 0x0800_0ca1, 0x4200_f410, 0x2000_1088, 0];
    let buffer = "CSTMC_TRACE_FIFO.bin";
    formatted(
        "a57_single_step",
        buffer,
        FrameKind::Memory,
        &[0x10],
        values,
    );
}

#[test]
fn six_cores() {
    let values = [0xc1, 0x2800_0ea1, 0x4100_f403, 0x488, 0];
    let ids = [0x10, 0x11, 0x13, 0x15];
    formatted("juno_r1_1", "cstrace.bin", FrameKind::Memory, &ids, values);
}

#[test]
fn a_trace_port() {
    let values = [0x1, 0x0800_0ca1, 0x4200_f410, 0x2000_1088, 0];
    formatted(
        "a55-test-tpiu",
        "DSTREAM_0.bin",
        FrameKind::Tpiu,
        &[1],
        values,
    );
}
