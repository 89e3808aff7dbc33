//! Packets made by hand from the Armv7-M Architecture Reference Manual (DDI 0403E), appendix D4,
//! "Debug ITM and DWT Packet Protocol", and their elements.

use super::*;
use crate::element::{Element, Itm, Mark, NoSyncReason, TimestampRelation};
use crate::protocol::tests::{elements, end_to_end, packets, packets_in_pieces};
use crate::protocol::{Core, Describe};
use armsnap_arch::quantity::TraceId;
use proptest::prelude::*;

/// D4.2.1, Synchronization packet.
const SYNC: [u8; 6] = [0, 0, 0, 0, 0, 0x80];

fn config(tcr: u32) -> Config {
    Config::read(&Registers { tcr }, Core::microcontroller(7))
}

/// The packets of `bytes` after a synchronization packet.
fn synchronised(bytes: &[u8]) -> Vec<Packet> {
    let bytes = [&SYNC[..], bytes].concat();
    let found = packets(&mut Decoder::new(&config(0)), &bytes);
    end_to_end(&found, &bytes);
    assert_eq!(found[0].1, Packet::Sync);
    found[1..].iter().map(|&(_, packet, _)| packet).collect()
}

/// The elements of `bytes`, without "no synchronisation" at the start and the end of the trace.
fn marks(config: Config, bytes: &[u8]) -> Vec<Itm> {
    let (mut decoder, mut state) = (Decoder::new(&config), Elements::new(&config));
    let found = elements(&mut decoder, &mut state, bytes);
    let (first, rest) = found.split_first().unwrap();
    let (last, rest) = rest.split_last().unwrap();
    assert_eq!(first.1, Element::Mark(Mark::NoSync(NoSyncReason::Start)));
    assert_eq!(last.1, Element::Mark(Mark::End));
    let mark = |&(_, element): &(_, Element)| match element {
        Element::Mark(Mark::Itm(itm)) => itm,
        other => panic!("{other:?}"),
    };
    rest.iter().map(mark).collect()
}

#[test]
fn registers_give_trace_id_and_prescaler() {
    // TraceBusID 0x13; SWOENA; TSPrescale 0 to 3.
    let prescalers = [0, 1, 2, 3].map(|scale| config(0x13 << 16 | scale << 8 | 1 << 4).prescaler);
    assert_eq!(prescalers, [1, 4, 16, 64]);
    assert_eq!(config(0x13 << 16).trace_id(), TraceId(0x13));
    assert_eq!(
        config(2 << 8).prescaler,
        1,
        "not the clock of the trace port"
    );
}

#[test]
fn source_packets_give_writes_and_hardware_events() {
    // D4.2.8 Instrumentation packet: port 1 with 1 byte, port 2 with 2, port 31 with 4.
    // D4.2.9 Hardware source packet: discriminator 2 (PC sample) with 4 bytes.
    let bytes = [
        0x09, 0xab, 0x12, 0x34, 0x12, 0xfb, 0x78, 0x56, 0x34, 0x12, 0x17, 0x04, 0x80, 0x00, 0x00,
    ];
    let instrumentation = |port, bytes, value| Packet::Instrumentation { port, bytes, value };
    let want = [
        instrumentation(1, 1, 0xab),
        instrumentation(2, 2, 0x1234),
        instrumentation(31, 4, 0x1234_5678),
        Packet::Hardware {
            discriminator: 2,
            bytes: 4,
            value: 0x8004,
        },
    ];
    assert_eq!(synchronised(&bytes), want);
    let stimulus = |port, bytes, value| Itm::Stimulus { port, bytes, value };
    let want = [
        stimulus(1, 1, 0xab),
        stimulus(2, 2, 0x1234),
        stimulus(31, 4, 0x1234_5678),
        Itm::Hardware {
            port: 2,
            bytes: 4,
            value: 0x8004,
        },
    ];
    assert_eq!(marks(config(0), &[&SYNC[..], &bytes].concat()), want);
}

#[test]
fn a_page_selects_the_stimulus_ports_that_follow() {
    // D4.2.6 Extension packet: page 5; then port 3 of it.
    let bytes = [0x58, 0x19, 0x01];
    assert_eq!(synchronised(&bytes)[0], Packet::StimulusPage(5));
    let found = marks(config(0), &[&SYNC[..], &bytes].concat());
    let port = 5 << 5 | 3;
    let want = Itm::Stimulus {
        port,
        bytes: 1,
        value: 1,
    };
    assert_eq!(found, [want]);
}

#[test]
fn local_timestamps_are_summed_with_the_prescaler() {
    // D4.2.4 Local timestamp packets: format 2 with 1 tick, format 1 with 5. SWOENA, prescaler 16.
    let bytes = [&SYNC[..], &[0x10, 0xc0, 0x05]].concat();
    let timestamp = |delta, total| Itm::LocalTimestamp {
        delta,
        relation: TimestampRelation::Sync,
        total,
    };
    let found = marks(config(1 << 4 | 2 << 8), &bytes);
    assert_eq!(found, [timestamp(1, 0x10), timestamp(5, 0x60)]);
}

#[test]
fn global_timestamps_need_their_upper_half_once() {
    // D4.2.5 Global timestamp packets: format 1 (5), format 2 (bits 26 and up: 1), format 1 (6).
    let bytes = [0x94, 0x05, 0xb4, 0x81, 0x80, 0x80, 0x00, 0x94, 0x06];
    let found = marks(config(0), &[&SYNC[..], &bytes].concat());
    let want = [1 << 26 | 5, 1 << 26 | 6].map(Itm::GlobalTimestamp);
    assert_eq!(found, want);
}

/// The packets of `bytes` as (offset, length, name), and the elements.
fn in_pieces(bytes: &[u8], piece: usize) -> (Vec<(usize, usize, &'static str)>, Vec<Itm>) {
    let found = packets_in_pieces(&mut Decoder::new(&config(0)), bytes, piece);
    end_to_end(&found, bytes);
    let named = found
        .iter()
        .map(|(at, packet, length)| (*at, *length, packet.name()));
    (named.collect(), marks(config(0), bytes))
}

#[test]
fn a_synchronization_packet_may_have_any_number_of_zeros() {
    let stimulus = |value| Itm::Stimulus {
        port: 1,
        bytes: 1,
        value,
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
            let (packets, elements) = in_pieces(&bytes, piece);
            assert_eq!(packets, want, "{zeros} in pieces of {piece}");
            assert_eq!(elements, [stimulus(0xab), stimulus(0xcd)]);
        }
    }
    // More zeros than one packet holds: several packets, none of them bad.
    for zeros in [65_536, 65_537, 200_000] {
        let bytes = [
            &SYNC[..],
            &[0x09, 0xab],
            &vec![0; zeros],
            &[0x80, 0x09, 0xcd],
        ]
        .concat();
        let (packets, elements) = in_pieces(&bytes, 7000);
        assert!(packets[2..].iter().all(|p| p.1 <= 65_536), "{packets:?}");
        let names: Vec<_> = packets[2..].iter().map(|p| p.2).collect();
        let (last, syncs) = names.split_last().unwrap();
        assert!(syncs.iter().all(|&name| name == "sync"), "{names:?}");
        assert_eq!(*last, "instrumentation");
        assert_eq!(elements, [stimulus(0xab), stimulus(0xcd)]);
    }
    // A run of zeros that does not end with 0x80 is bad, whatever its length.
    let bytes = [&SYNC[..], &vec![0; 70_000], &[0x81]].concat();
    let found = packets(&mut Decoder::new(&config(0)), &bytes);
    let names: Vec<_> = found.iter().map(|(_, packet, _)| packet.name()).collect();
    assert_eq!(names, ["sync", "sync", "bad_sequence"]);
}

/// The trace of a system: text, timestamps, exceptions, samples and words, in any order.
fn traced() -> impl Strategy<Value = Vec<Vec<u8>>> {
    // D4.2.8, D4.2.4, D4.3.
    let packet = prop_oneof![
        6 => (0x20_u8..0x7f).prop_map(|byte| vec![0x01, byte]),
        2 => (0_u8..0x80).prop_map(|ticks| vec![0xc0, ticks]),
        1 => (0_u8..0x80).prop_map(|number| vec![0x0e, number, 0x10]),
        1 => (0_u8..0x80).prop_map(|number| vec![0x0e, number, 0x20]),
        2 => any::<u16>().prop_map(|at| vec![0x17, at as u8 & 0xfe, (at >> 8) as u8, 0, 0x08]),
        1 => any::<u32>().prop_map(|word| [&[0x0b], &word.to_le_bytes()[..]].concat()),
        1 => Just(vec![0x70]),
    ];
    prop::collection::vec(packet, 60..200)
}

/// The offsets and packets of `bytes`, except those that stand for damage.
fn valid(bytes: &[u8]) -> Vec<(usize, Packet)> {
    let found = packets(&mut Decoder::new(&config(0)), bytes);
    end_to_end(&found, bytes);
    let is_damage = |packet: &Packet| {
        matches!(
            packet,
            Packet::NotSync | Packet::Reserved | Packet::BadSequence | Packet::Incomplete
        )
    };
    let valid = found
        .into_iter()
        .filter(|(_, packet, _)| !is_damage(packet));
    valid.map(|(at, packet, _)| (at, packet)).collect()
}

#[test]
fn packets_need_no_synchronization() {
    let byte = |value| Itm::Stimulus {
        port: 0,
        bytes: 1,
        value,
    };
    let bytes = [0x01, 0x68, 0x01, 0x69];
    assert_eq!(marks(config(0), &bytes), [byte(0x68), byte(0x69)]);
    // From the middle of a word on: the rest of the word is skipped.
    let word = |value: u8| [0x03, value, 0, 0, 0];
    let bytes = [&[0, 0][..], &word(1), &word(2), &word(3)].concat();
    let found = packets(&mut Decoder::new(&config(0)), &bytes);
    let places: Vec<_> = found
        .iter()
        .map(|(at, packet, _)| (*at, packet.name()))
        .collect();
    let instrumentation = [2, 7, 12].map(|at| (at, "instrumentation"));
    assert_eq!(places, [&[(0, "not_sync")][..], &instrumentation].concat());
    // Bytes that no DWT writes do not start the trace: a sample of one byte means that the core
    // sleeps.
    let found = packets(&mut Decoder::new(&config(0)), &[0x15, 0xaa, 0x2e]);
    assert_eq!(found[0].1, Packet::NotSync);
}

#[test]
fn packets_after_damage_need_no_synchronization() {
    let text = [0x01, 0x61].repeat(200);
    let bytes = [&SYNC[..], &text, &[0x04, 0x80, 0xf0], &text].concat();
    let found = packets(&mut Decoder::new(&config(0)), &bytes);
    let names: Vec<_> = found.iter().map(|(_, packet, _)| packet.name()).collect();
    let damage = [&["reserved"][..], &["not_sync"]].concat();
    assert_eq!(names[201..203], damage);
    assert_eq!(
        names
            .iter()
            .filter(|name| **name == "instrumentation")
            .count(),
        400
    );
    // A synchronization packet is certain if it is near.
    let bytes = [&SYNC[..], &[0x04], &text[..100], &SYNC, &text].concat();
    let found = packets(&mut Decoder::new(&config(0)), &bytes);
    let places: Vec<_> = found
        .iter()
        .map(|(at, packet, _)| (*at, packet.name()))
        .collect();
    assert_eq!(
        places[1..4],
        [(6, "reserved"), (7, "not_sync"), (107, "sync")]
    );
}

proptest! {
    /// A trace whose start was cut off has all but a few of its packets.
    #[test]
    fn cut_traces_have_their_packets(traced in traced(), cut in 0_usize..100) {
        let bytes = traced.concat();
        let whole = valid(&[&SYNC[..], &bytes].concat());
        let found = valid(&bytes[cut..]);
        let wanted = whole.iter().filter(|(at, packet)| *at >= cut + 6 && *packet != Packet::Sync);
        let wanted: Vec<_> = wanted.map(|&(at, packet)| (at - cut - 6, packet)).collect();
        let missing = wanted.iter().filter(|packet| !found.contains(packet)).count();
        let other = found.iter().filter(|packet| !wanted.contains(packet)).count();
        prop_assert!(missing <= 4 && other <= 4, "{missing} {other}");
    }

    /// A lost byte costs only a few packets.
    #[test]
    fn a_lost_byte_takes_few_packets_along(traced in traced(), lost in 0_usize..100) {
        let mut bytes = traced.concat();
        let whole = valid(&[&SYNC[..], &bytes].concat()).len();
        bytes.remove(lost);
        let found = valid(&bytes).len();
        prop_assert!(found + 16 >= whole && found <= whole + 4, "{found} of {whole}");
    }

    #[test]
    fn where_packets_begin_does_not_depend_on_pieces(
        traced in traced(),
        noise in prop::collection::vec(any::<u8>(), 0..300),
        cut in 0_usize..100,
        piece in 1_usize..200,
    ) {
        for bytes in [
            [&traced.concat()[cut..], &noise, &traced.concat()].concat(),
            [&noise[..], &traced.concat()[cut..], &[0; 9], &[0x80, 0x01, 0x41]].concat(),
        ] {
            let whole = packets(&mut Decoder::new(&config(0)), &bytes);
            end_to_end(&whole, &bytes);
            let found = packets_in_pieces(&mut Decoder::new(&config(0)), &bytes, piece);
            let named = |all: &[(usize, Packet, usize)]| -> Vec<(usize, Packet)> {
                let all = all.iter().filter(|(_, packet, _)| *packet != Packet::NotSync);
                all.map(|&(at, packet, _)| (at, packet)).collect()
            };
            prop_assert_eq!(named(&found), named(&whole));
        }
    }

    #[test]
    fn any_bytes_are_packets_end_to_end(
        rest in prop::collection::vec(any::<u8>(), 0..200),
        piece in 1usize..20,
    ) {
        let bytes = [&SYNC[..], &rest].concat();
        let found = packets(&mut Decoder::new(&config(0)), &bytes);
        end_to_end(&found, &bytes);
        let (mut decoder, mut state) = (Decoder::new(&config(0)), Elements::new(&config(0)));
        prop_assert!(elements(&mut decoder, &mut state, &bytes).len() <= found.len() + 2);
        end_to_end(&packets_in_pieces(&mut Decoder::new(&config(0)), &bytes, piece), &bytes);
    }
}
