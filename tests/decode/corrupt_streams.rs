//! STM and ITM decoders on corrupt bytes.

use std::sync::OnceLock;

use crate::support::stream::{deformat, list_in_pieces, list_raw, shared};
use armsnap::formatter::FrameKind;
use armsnap::protocol::{Core, PacketDecoder};
use armsnap::quantity::TraceId;
use armsnap::{itm, stm};
use proptest::prelude::*;

/// A trace of each protocol, to be damaged: a capture if there is one, otherwise the packets
/// made by hand.
fn traces() -> &'static [Vec<u8>; 2] {
    static TRACES: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    TRACES.get_or_init(|| {
        let Some(shared) = shared() else {
            let stm = include_str!("../../testdata/packets/stm.txt");
            let itm = include_str!("../../testdata/packets/itm.txt");
            return [by_hand(stm), by_hand(itm)];
        };
        let snapshots = shared.join("snapshots");
        let stm = std::fs::read(snapshots.join("stm_only/cstraceitm.bin")).expect("capture");
        let stm = deformat(FrameKind::Memory, &stm, stm.len());
        let itm = std::fs::read(snapshots.join("itm_only_raw/itm_testdata.bin")).expect("capture");
        [stm.stream(TraceId(0x20)).payload().to_vec(), itm]
    })
}

fn by_hand(script: &str) -> Vec<u8> {
    script
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()))
        .filter_map(|line| line.split_once('|')?.0.split_once(' '))
        .flat_map(|(_, bytes)| {
            let raw = bytes.split_once('+').map_or(bytes, |(_, raw)| raw);
            raw.split_whitespace()
                .filter_map(|byte| u8::from_str_radix(byte, 16).ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

fn stm_config() -> stm::Config {
    stm::Config::read(&stm::Registers::default(), Core::default())
}

fn itm_config() -> itm::Config {
    itm::Config::read(&itm::Registers::default(), Core::default())
}

/// Checks that every byte is in exactly one packet, with pieces of any size.
fn check<P: PacketDecoder + Clone>(packets: P, bytes: &[u8], piece: usize) {
    let whole = list_in_pieces(bytes, packets.clone(), bytes.len());
    assert_eq!(
        whole.iter().map(|&(.., length)| length).sum::<usize>(),
        bytes.len()
    );
    let mut empty = false;
    for &(name, _, length) in &whole {
        assert!(length > 0 || !empty, "{name} of no bytes after another");
        empty = length == 0;
    }
    assert_eq!(list_in_pieces(bytes, packets, piece), whole);
}

fn check_both(bytes: &[u8], piece: usize) {
    let (stm, itm) = (stm_config(), itm_config());
    check(stm::Decoder::new(&stm), bytes, piece);
    check(itm::Decoder::new(&itm), bytes, piece);
    let listed = list_raw(bytes, stm::Decoder::new(&stm), stm::Elements::new(&stm));
    let elements: usize = listed.iter().map(|packet| packet.elements.len()).sum();
    assert!(elements <= 2 * bytes.len() + 1);
    let elements = itm::Elements::new(&itm);
    list_raw(bytes, itm::Decoder::new(&itm), elements);
}

/// Random bytes, often nibbles and bytes of synchronisation packets.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        Just(vec![0]),
        Just(vec![0xff]),
        (8usize..13).prop_map(|count| vec![0xff; count]),
        (3usize..9).prop_map(|count| vec![0; count]),
        Just([[0xff; 10].as_slice(), &[0x0f]].concat()),
        Just(vec![0, 0, 0, 0, 0, 0x80]),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn noise_is_split_into_packets(bytes in noise(), piece in 1usize..40) {
        check_both(&bytes, piece);
    }

    #[test]
    fn long_runs_are_taken_apart(
        byte in prop::sample::select(vec![0u8, 0xff, 0x80, 0x0f, 0xf0]),
        count in 0usize..1000,
        tail in noise(),
        piece in 1usize..100,
    ) {
        let start: [&[u8]; 3] = [&[0xff; 10], &[0x0f], &[0, 0, 0, 0, 0, 0x80]];
        let bytes = [start.concat(), vec![byte; count], tail].concat();
        check_both(&bytes, piece);
    }

    #[test]
    fn cut_and_spliced_traces_are_taken_apart(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..300), 1..6),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0u32..8), 0..6),
        piece in 1usize..60,
    ) {
        for trace in traces() {
            let mut bytes = Vec::new();
            for (begin, length) in &cuts {
                let begin = begin.index(trace.len());
                bytes.extend_from_slice(&trace[begin..trace.len().min(begin + length)]);
            }
            for (at, bit) in &flips {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] ^= 1 << bit;
                }
            }
            check_both(&bytes, piece);
        }
    }

    // Whatever a flipped bit, lost bytes or added ones do to the packets, the ASYNC after them
    // is found.
    #[test]
    fn every_async_synchronises(
        noise in noise(),
        cut in any::<prop::sample::Index>(),
        half in any::<bool>(),
    ) {
        // A packet cut anywhere, then an ASYNC that begins in either half of a byte.
        let trace = &traces()[0];
        let begin = trace.windows(11).position(|bytes| bytes.starts_with(&[0xff; 10]));
        let trace = &trace[begin.expect("an ASYNC")..];
        let cut = cut.index(trace.len().min(400));
        let mut bytes = [&trace[..cut], &noise[..]].concat();
        let tail: &[u8] = &[0xff; 10];
        if half {
            bytes.push(0xf1);
            bytes.extend_from_slice(tail);
            bytes.extend_from_slice(&[0xf0, 0x00, 0x03, 0xef]);
        } else {
            bytes.push(0x11);
            bytes.extend_from_slice(tail);
            bytes.extend_from_slice(&[0x0f, 0x0f, 0x30, 0xef]);
        }
        let stm = stm_config();
        let listed = list_raw(&bytes, stm::Decoder::new(&stm), stm::Elements::new(&stm));
        let names: Vec<&str> = listed.iter().map(|packet| packet.name).collect();
        let end = &names[names.len().saturating_sub(4)..];
        let wanted: &[&str] = if half {
            &["async", "version", "null", "flag"]
        } else {
            &["async", "version", "flag"]
        };
        prop_assert!(end.ends_with(wanted), "{:?}", end);
    }
}
