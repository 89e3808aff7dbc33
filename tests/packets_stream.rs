//! Packets and frames made by hand from the specifications: STM, ITM, the formatter.

mod stream_support;

use armsnap::element::{Element, Itm, Mark};
use armsnap::formatter::{Deformatter, Demux, FrameKind};
use armsnap::protocol::{Describe, ElementDecoder, PacketDecoder};
use armsnap::quantity::{BufferOffset, TraceId};
use armsnap::{itm, stm};
use stream_support::{hex, list_raw};

fn bytes_of(text: &str) -> Vec<u8> {
    text.split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).expect("hex"))
        .collect()
}

/// Lines without comments and empty ones, with their numbers.
fn lines(script: &str) -> impl Iterator<Item = (usize, &str)> {
    script
        .lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// Decodes the bytes of a script and compares the packets and elements with what it says.
/// Returns the names of packets.
fn run<P, E>(script: &str, packets: P, elements: E) -> Vec<&'static str>
where
    P: PacketDecoder,
    E: ElementDecoder<Packet = P::Packet>,
{
    let mut bytes = Vec::new();
    let mut wanted: Vec<(usize, String, Vec<String>)> = Vec::new();
    for (number, line) in lines(script) {
        if let Some(element) = line.strip_prefix("> ") {
            let (_, _, elements) = wanted.last_mut().expect("a packet before its element");
            elements.push(element.to_owned());
            continue;
        }
        let (place, what) = line.split_once('|').expect("a packet");
        let (offset, raw) = place.trim().split_once(' ').expect("an offset and bytes");
        let (shared, raw) = raw.split_once('+').map_or(("", raw), |(s, raw)| (s, raw));
        let raw = bytes_of(raw);
        let shared = if shared.is_empty() {
            String::new()
        } else {
            format!("{}+", shared.trim())
        };
        let packet = format!("{offset} {shared}{} | {}", hex(&raw), what.trim());
        assert_eq!(offset, bytes.len().to_string(), "line {number}: offset");
        wanted.push((number, packet, Vec::new()));
        bytes.extend(raw);
    }
    let listed = list_raw(&bytes, packets, elements);
    for ((number, packet, elements), found) in wanted.iter().zip(&listed) {
        let shown = [vec![found.name.to_owned()], found.fields.clone()].concat();
        let shown = format!("{} {} | {}", found.offset, found.bytes, shown.join(" "));
        assert_eq!(&shown, packet, "line {number}");
        assert_eq!(&found.elements, elements, "line {number}: elements");
    }
    assert_eq!(listed.len(), wanted.len(), "number of packets");
    listed.iter().map(|packet| packet.name).collect()
}

#[track_caller]
fn assert_all(found: &[&str], kinds: &[&str]) {
    for kind in kinds {
        assert!(found.contains(kind), "no {kind}");
    }
    for name in found {
        assert!(kinds.contains(name), "unexpected {name}");
    }
}

#[test]
fn stm_packets() {
    let script = include_str!("../testdata/packets/stm.txt");
    let found = run(script, stm::Decoder::new(), stm::Elements::new());
    assert_all(
        &found,
        &[
            "not_sync",
            "async",
            "version",
            "null",
            "null_ts",
            "m8",
            "m16",
            "c8",
            "c16",
            "merr",
            "gerr",
            "d4",
            "d4ts",
            "d4m",
            "d4mts",
            "d8",
            "d8ts",
            "d8m",
            "d8mts",
            "d16",
            "d16ts",
            "d16m",
            "d16mts",
            "d32",
            "d32ts",
            "d32m",
            "d32mts",
            "d64",
            "d64ts",
            "d64m",
            "d64mts",
            "flag",
            "flag_ts",
            "user",
            "user_ts",
            "trig",
            "trig_ts",
            "freq",
            "freq_ts",
            "xsync",
            "xsync_ts",
            "reserved",
            "bad_sequence",
            "incomplete",
        ],
    );
}

#[test]
fn itm_packets() {
    let script = include_str!("../testdata/packets/itm.txt");
    let config = itm::Config::new(0);
    let found = run(script, itm::Decoder::new(), itm::Elements::new(config));
    assert_all(
        &found,
        &[
            "not_sync",
            "sync",
            "overflow",
            "lts1",
            "lts2",
            "gts1",
            "gts2",
            "stimulus_port_page",
            "extension",
            "instrumentation",
            "event_counter",
            "exception_trace",
            "pc_sample",
            "data_trace_pc_value",
            "data_trace_address",
            "data_trace_data_value",
            "hardware_source",
            "reserved",
            "bad_sequence",
            "incomplete",
        ],
    );
}

/// Packets as (offset, length, name) and the elements after the first, of bytes in pieces.
fn itm_in_pieces(bytes: &[u8], piece: usize) -> (Vec<(usize, usize, &'static str)>, Vec<Element>) {
    let mut decoder = itm::Decoder::new();
    let mut elements = itm::Elements::new(itm::Config::default());
    let (mut packets, mut out) = (Vec::new(), Vec::new());
    let (mut at, mut end) = (0, 0);
    while end < bytes.len() {
        end = (end + piece).min(bytes.len());
        while let Some((packet, length)) = decoder.next(&bytes[at..end]) {
            packets.push((at, length, packet.name()));
            elements.packet(BufferOffset(at as u64), &packet, &mut out);
            at += length;
        }
    }
    assert_eq!(at, bytes.len(), "the last packet is whole");
    (packets, out.into_iter().skip(1).map(|(_, e)| e).collect())
}

#[test]
fn an_stm_async_may_have_more_nibbles_than_it_needs() {
    // ASYNC; VERSION 3; M8 1; ASYNC with so many nibbles F; D8 0xab.
    for ones in [21, 22, 23, 40, 100, 5000] {
        let mut nibbles = [vec![0xf; 21], vec![0], vec![0xf, 0, 0, 3, 1, 1, 0]].concat();
        let begin = nibbles.len();
        nibbles.extend(vec![0xf; ones]);
        nibbles.extend([0, 4, 0xa, 0xb]);
        if nibbles.len() % 2 == 1 {
            nibbles.push(0);
        }
        let bytes: Vec<u8> = nibbles
            .chunks(2)
            .map(|pair| pair[0] | pair[1] << 4)
            .collect();
        for piece in [bytes.len(), 3] {
            let mut decoder = stm::Decoder::new();
            let mut names = Vec::new();
            let mut taken = Vec::new();
            let (mut at, mut end) = (0, 0);
            while end < bytes.len() {
                end = (end + piece).min(bytes.len());
                while at < end
                    && let Some((packet, length)) = decoder.next(&bytes[at..end])
                {
                    names.push(packet.name());
                    at += length;
                    taken.push(at);
                }
            }
            assert_eq!(
                names[..5],
                ["async", "version", "m8", "async", "d8"],
                "{ones}"
            );
            assert_eq!(taken[3], (begin + ones + 1).div_ceil(2));
        }
    }
    // A run that does not end with 0 is none.
    let mut bytes = vec![0xff; 10];
    bytes.extend([0x0f, 0xff, 0xff]);
    bytes.extend(vec![0xff; 20]);
    bytes.extend([0x05, 0x00]);
    let listed = list_raw(&bytes, stm::Decoder::new(), stm::Elements::new());
    assert_eq!(listed[0].name, "async");
    assert_eq!(listed[1].name, "bad_sequence");
    assert!(listed[2..].iter().all(|p| p.name != "async"));
}

#[test]
fn an_itm_synchronization_may_have_any_number_of_zeros() {
    let stimulus = |value: u32| {
        Element::Mark(Mark::Itm(Itm::Stimulus {
            port: 1,
            bytes: 1,
            value,
        }))
    };
    for zeros in [5, 63, 64, 65, 500, 65_535] {
        let sync = [vec![0; zeros], vec![0x80]].concat();
        let bytes = [&sync[..], &[0x09, 0xab], &sync, &[0x09, 0xcd]].concat();
        let length = sync.len();
        let want = vec![
            (0, length, "sync"),
            (length, 2, "instrumentation"),
            (length + 2, length, "sync"),
            (2 * length + 2, 2, "instrumentation"),
        ];
        for piece in [bytes.len(), 1000] {
            let (packets, elements) = itm_in_pieces(&bytes, piece);
            assert_eq!(packets, want, "{zeros} in pieces of {piece}");
            assert_eq!(elements, [stimulus(0xab), stimulus(0xcd)]);
        }
    }
    // So many that one packet does not hold them: nothing is bad, and nothing is lost.
    for zeros in [65_536, 65_537, 200_000] {
        let begin = [0, 0, 0, 0, 0, 0x80, 0x09, 0xab];
        let bytes = [&begin[..], &vec![0; zeros], &[0x80, 0x09, 0xcd]].concat();
        let (packets, elements) = itm_in_pieces(&bytes, 7000);
        assert!(packets[2..].iter().all(|p| p.1 <= 65_536), "{packets:?}");
        let names: Vec<_> = packets[2..].iter().map(|p| p.2).collect();
        let (last, syncs) = names.split_last().unwrap();
        assert!(syncs.iter().all(|&name| name == "sync"), "{names:?}");
        assert_eq!(*last, "instrumentation");
        assert_eq!(elements, [stimulus(0xab), stimulus(0xcd)]);
    }
    // A run that does not end as it must is bad, however long.
    let begin = [0, 0, 0, 0, 0, 0x80];
    let bytes = [&begin[..], &vec![0; 70_000], &[0x81]].concat();
    let (packets, _) = itm_in_pieces(&bytes, bytes.len());
    let names: Vec<_> = packets.iter().map(|p| p.2).collect();
    assert_eq!(names, ["sync", "sync", "bad_sequence"]);
}

#[test]
fn itm_timestamps_count_with_their_prescaler() {
    // ITM_TCR: SWOENA, TSPrescale 16.
    let config = itm::Config::new(1 << 4 | 2 << 8 | 0x13 << 16);
    assert_eq!(config.trace_id(), TraceId(0x13));
    let bytes = bytes_of("00 00 00 00 00 80 10 c0 05");
    let listed = list_raw(&bytes, itm::Decoder::new(), itm::Elements::new(config));
    assert_eq!(listed[1].elements, ["itm local_timestamp 1 sync 10"]);
    assert_eq!(listed[2].elements, ["itm local_timestamp 5 sync 60"]);
}

/// What came out since the last time, and consumes it.
fn taken(demux: &mut Demux) -> Vec<String> {
    let mut out = Vec::new();
    for id in 0..128 {
        let stream = demux.stream_mut(TraceId(id));
        let mut locator = stream.locator();
        let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
        for (index, &byte) in stream.payload().iter().enumerate() {
            let at = locator.locate(index).0;
            match pieces.last_mut() {
                Some((begin, bytes)) if *begin + bytes.len() as u64 == at => bytes.push(byte),
                _ => pieces.push((at, vec![byte])),
            }
        }
        for (at, bytes) in pieces {
            out.push(format!("{id:x}@{at}:{}", hex(&bytes)));
        }
        if stream.loss().is_some() {
            out.push(format!("{id:x}"));
            out.push("lost".to_owned());
        }
        stream.consume(stream.payload().len());
        stream.consume(0);
    }
    out
}

#[test]
fn formatter_frames() {
    let script = include_str!("../testdata/packets/formatter.txt");
    let mut demux = Demux::new();
    let mut deformatter = Deformatter::new(FrameKind::Memory);
    let mut size = 0;
    let mut buffers = 0;
    for (number, line) in lines(script) {
        if let Some(kind) = line.strip_prefix("kind ") {
            let kind = match kind {
                "memory" => FrameKind::Memory,
                "tpiu" => FrameKind::Tpiu,
                other => panic!("line {number}: {other}"),
            };
            deformatter = Deformatter::new(kind);
            demux = Demux::new();
            size = 0;
        } else if let Some(counts) = line.strip_prefix("counts ") {
            deformatter.feed(BufferOffset(size), &[], true, &mut demux);
            let found = deformatter.counts();
            let shown = format!(
                "payload={} overhead={} sync={} blocks={} skipped={}",
                found.payload, found.overhead, found.sync, found.blocks, found.skipped
            );
            assert_eq!(shown, counts, "line {number}");
            assert_eq!(found.sum(), size, "line {number}");
            buffers += 1;
        } else {
            let (place, what) = line.split_once('|').expect("bytes and what comes out");
            let (offset, raw) = place.trim().split_once(' ').expect("an offset and bytes");
            assert_eq!(offset, size.to_string(), "line {number}: offset");
            let bytes = bytes_of(raw);
            deformatter.feed(BufferOffset(size), &bytes, false, &mut demux);
            size += bytes.len() as u64;
            let wanted: Vec<&str> = what.split_whitespace().collect();
            assert_eq!(taken(&mut demux), wanted, "line {number}");
        }
    }
    assert_eq!(buffers, 3);
}
