//! Packets and frames made by hand from the specifications: STM, ITM, the formatter.

use crate::support::packet_script::{bytes_of, lines, scripts};
use crate::support::stream::{hex, list_raw};
use armsnap::formatter::{Deformatter, Demux, FrameKind};
use armsnap::protocol::{Core, ElementDecoder, PacketDecoder};
use armsnap::quantity::{BufferOffset, TraceId};
use armsnap::{itm, stm};

fn stm() -> stm::Config {
    stm::Config::read(&stm::Registers::default(), Core::default())
}

fn itm() -> itm::Config {
    itm::Config::read(&itm::Registers::default(), Core::default())
}

/// Decodes the bytes of a script and compares the packets and elements with the script.
/// Returns the names of packets.
fn run<P, E>(script: &str, packets: P, elements: E) -> Vec<&'static str>
where
    P: PacketDecoder,
    E: ElementDecoder<Packet = P::Packet>,
{
    let script = &scripts(script)[0];
    let bytes = script.bytes();
    let mut offset = 0;
    let listed = list_raw(&bytes, packets, elements);
    for (line, found) in script.packets.iter().zip(&listed) {
        assert_eq!(line.offset, offset, "line {}: offset", line.number);
        offset += line.bytes.len();
        let shared = line
            .shared
            .map_or(String::new(), |shared| format!("{shared}+"));
        let packet = format!(
            "{} {shared}{} | {}",
            line.offset,
            hex(&line.bytes),
            line.text
        );
        let shown = [vec![found.name.to_owned()], found.fields.clone()].concat();
        let shown = format!("{} {} | {}", found.offset, found.bytes, shown.join(" "));
        assert_eq!(shown, packet, "line {}", line.number);
        assert_eq!(
            found.elements, line.elements,
            "line {}: elements",
            line.number
        );
    }
    assert_eq!(listed.len(), script.packets.len(), "number of packets");
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
    let script = include_str!("../../testdata/packets/stm.txt");
    let found = run(
        script,
        stm::Decoder::new(&stm()),
        stm::Elements::new(&stm()),
    );
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
    let script = include_str!("../../testdata/packets/itm.txt");
    let found = run(
        script,
        itm::Decoder::new(&itm()),
        itm::Elements::new(&itm()),
    );
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

/// Takes the payload since the last call.
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
    let script = include_str!("../../testdata/packets/formatter.txt");
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
