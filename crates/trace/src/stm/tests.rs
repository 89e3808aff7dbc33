//! Packets made by hand from MIPI STPv2, "Packet encoding", and their elements.

use super::*;
use crate::element::{Element, Mark, NoSyncReason, Stm};
use crate::protocol::tests::fast_paths_agree;
use crate::protocol::{Core, Describe, ElementDecoder, PacketDecoder};
use armsnap_arch::quantity::{BufferOffset, TraceId};
use proptest::prelude::*;

fn config() -> Config {
    Config::read(&Registers::default(), Core::default())
}

/// Nibbles as bytes, the low half of a byte first; a last odd one is filled with a NULL (0).
fn bytes_of(nibbles: &[u8]) -> Vec<u8> {
    let pairs = nibbles.chunks(2);
    pairs
        .map(|pair| pair[0] | pair.get(1).unwrap_or(&0) << 4)
        .collect()
}

/// ASYNC (21 nibbles F and a 0), VERSION with this value, then `rest`.
fn stream(version: u8, rest: &[u8]) -> Vec<u8> {
    bytes_of(&[&[0xf; 21][..], &[0, 0xf, 0, 0, version], rest].concat())
}

/// The packets of bytes that are fed in pieces, each with its end position.
fn in_pieces(bytes: &[u8], piece: usize) -> Vec<(Packet, usize)> {
    let mut decoder = Decoder::new(&config());
    let (mut at, mut end, mut found) = (0, 0, Vec::new());
    while end < bytes.len() {
        end = (end + piece).min(bytes.len());
        while at < end
            && let Some((packet, length)) = decoder.next(&bytes[at..end])
        {
            at += length;
            found.push((packet, at));
        }
    }
    if at < bytes.len() {
        found.push((decoder.finish(&bytes[at..]), bytes.len()));
    }
    found
}

fn kinds(bytes: &[u8]) -> Vec<PacketKind> {
    let found = in_pieces(bytes, bytes.len());
    found.iter().map(|(packet, _)| packet.kind).collect()
}

/// The elements of `bytes`, without "no synchronisation" at the start and the end of the trace.
fn marks(bytes: &[u8]) -> Vec<Stm> {
    let mut state = Elements::new(&config());
    let mut out: Vec<(BufferOffset, Element)> = Vec::new();
    for (packet, end) in in_pieces(bytes, bytes.len()) {
        state.packet(BufferOffset(end as u64), &packet, &mut out);
    }
    state.end(BufferOffset(bytes.len() as u64), &mut out);
    let (first, rest) = out.split_first().unwrap();
    let (last, rest) = rest.split_last().unwrap();
    assert_eq!(first.1, Element::Mark(Mark::NoSync(NoSyncReason::Start)));
    assert_eq!(last.1, Element::Mark(Mark::End));
    let mark = |&(_, element): &(_, Element)| match element {
        Element::Mark(Mark::Stm(stm)) => stm,
        other => panic!("{other:?}"),
    };
    rest.iter().map(mark).collect()
}

#[test]
fn registers_give_the_trace_id() {
    // STMTCSR.TRACEID, bits 22:16.
    let registers = Registers { tcsr: 0xff20_0001 };
    let config = Config::read(&registers, Core::default());
    assert_eq!(config.trace_id(), TraceId(0x20));
}

#[test]
fn data_belongs_to_the_current_master_and_channel() {
    // M8 1: 0x41. C8 3: 0x02. D8 4: 0xab. D4 C: 0xd. The highest nibble of a number comes first.
    let bytes = stream(3, &[1, 4, 1, 3, 0, 2, 4, 0xa, 0xb, 0xc, 0xd]);
    let data = |bits, value| PacketKind::Data {
        bits,
        value,
        marker: false,
        timestamp: None,
    };
    let want = [
        PacketKind::Async,
        PacketKind::Version(TimestampType::Natural),
        PacketKind::Master8(0x41),
        PacketKind::Channel8(2),
        data(8, 0xab),
        data(4, 0xd),
    ];
    assert_eq!(kinds(&bytes)[..6], want);
    let element = |bits, value| Stm {
        master: Some(0x41),
        channel: Some(2),
        bits,
        value,
        ..Stm::default()
    };
    assert_eq!(marks(&bytes), [element(8, 0xab), element(4, 0xd)]);
}

#[test]
fn a_new_master_starts_at_channel_0() {
    // M16 F 1: 0x1234. C16 F 3: 0xabcd. D4 C. M8 1: the low byte. D4 C.
    let bytes = stream(
        3,
        &[
            0xf, 1, 1, 2, 3, 4, 0xf, 3, 0xa, 0xb, 0xc, 0xd, 0xc, 1, 1, 5, 6, 0xc, 2,
        ],
    );
    let element = |master, channel, value| Stm {
        master: Some(master),
        channel: Some(channel),
        bits: 4,
        value,
        ..Stm::default()
    };
    let want = [element(0x1234, 0xabcd, 1), element(0x1256, 0, 2)];
    assert_eq!(marks(&bytes), want);
}

#[test]
fn timestamps_follow_the_encoding_that_version_announces() {
    // D4MTS D with the data 1: a length of 2 nibbles, then 0x12; again with 1 nibble, 0x5.
    let data = [0xd, 1, 2, 1, 2, 0xd, 1, 1, 5];
    let times = |version| -> Vec<Option<u64>> {
        let found = marks(&stream(version, &data));
        assert!(found.iter().all(|stm| stm.marker && stm.value == 1));
        found.iter().map(|stm| stm.timestamp).collect()
    };
    // STPv2NATDELTA: the time since the last one. STPv2NAT: the low nibbles of the time.
    assert_eq!(times(2), [Some(0x12), Some(0x17)]);
    assert_eq!(times(3), [Some(0x12), Some(0x15)]);
    // STPv2GRAY: 0x12 is 0x1c, 0x15 is 0x19.
    assert_eq!(times(4), [Some(0x1c), Some(0x19)]);
}

#[test]
fn an_unknown_version_is_a_bad_sequence() {
    assert_eq!(kinds(&stream(9, &[]))[1], PacketKind::BadSequence);
}

#[test]
fn an_async_may_have_more_nibbles_than_it_needs() {
    // ASYNC; VERSION 3; M8 1; ASYNC with `ones` nibbles F; D8 0xab.
    for ones in [21, 22, 23, 40, 100, 5000] {
        let start = [&[0xf; 21][..], &[0, 0xf, 0, 0, 3, 1, 1, 0]].concat();
        let rest = [&vec![0xf; ones][..], &[0, 4, 0xa, 0xb]].concat();
        let bytes = bytes_of(&[&start[..], &rest].concat());
        for piece in [bytes.len(), 3] {
            let found = in_pieces(&bytes, piece);
            let names: Vec<_> = found.iter().map(|(packet, _)| packet.name()).collect();
            let want = ["async", "version", "m8", "async", "d8"];
            assert_eq!(names[..5], want, "{ones}");
            assert_eq!(found[3].1, (start.len() + ones + 1).div_ceil(2));
        }
    }
    // A run of nibbles F that does not end with 0 is not an ASYNC.
    let start = [&[0xff; 10][..], &[0x0f, 0xff, 0xff]].concat();
    let bytes = [&start[..], &[0xff; 20], &[0x05, 0x00]].concat();
    let found = kinds(&bytes);
    assert_eq!(found[..2], [PacketKind::Async, PacketKind::BadSequence]);
    assert!(found[2..].iter().all(|&kind| kind != PacketKind::Async));
}

/// Some nibble, or part of an ASYNC, or more than a whole one.
fn nibbles() -> impl Strategy<Value = Vec<u8>> {
    let ones = (15usize..25).prop_map(|ones| [&vec![0xf; ones][..], &[0]].concat());
    prop_oneof![40 => (0u8..15).prop_map(|nibble| vec![nibble]), 4 => Just(vec![0xf]), 1 => ones]
}

proptest! {
    #[test]
    fn several_packets_at_once_are_those_one_by_one(
        rest in prop::collection::vec(nibbles(), 0..400),
        piece in 1usize..200,
    ) {
        let bytes = stream(3, &rest.concat());
        fast_paths_agree(|| Decoder::new(&config()), &bytes, piece);
    }

    #[test]
    fn any_bytes_are_packets_end_to_end(
        rest in prop::collection::vec(0u8..16, 0..400),
        piece in 1usize..20,
    ) {
        let bytes = stream(3, &rest);
        for piece in [piece, bytes.len()] {
            let found = in_pieces(&bytes, piece);
            prop_assert_eq!(found.last().unwrap().1, bytes.len());
            let ends = found.windows(3);
            prop_assert!(ends.into_iter().all(|three| three[0].1 < three[2].1));
        }
    }
}
