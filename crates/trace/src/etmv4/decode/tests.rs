use super::*;
use crate::etmv4::{Protocol, Registers};
use crate::protocol::tests::{Located, end_to_end, fast_paths_agree, flipped, packets_in_pieces};
use crate::protocol::{Core, Describe, Profile};
use packet_script::{described, scripts};
use proptest::prelude::*;

#[path = "../../../../../tests/support/packet_script.rs"]
mod packet_script;

pub fn config(words: &str) -> Config {
    let mut words = words.split_whitespace();
    let protocol = match words.next() {
        Some("etmv4") => Protocol::Etmv4,
        Some("ete") => Protocol::Ete,
        other => panic!("protocol {other:?}"),
    };
    let core = words.next().unwrap();
    let profile = match &core[..1] {
        "A" => Profile::A,
        "R" => Profile::R,
        "M" => Profile::M,
        other => panic!("profile {other}"),
    };
    let core = Core {
        profile,
        version: core[1..].parse().unwrap(),
    };
    let registers: Vec<(&str, u64)> = words
        .map(|word| {
            let (name, value) = word.split_once('=').unwrap();
            let value = match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => value.parse(),
            };
            (name, value.unwrap())
        })
        .collect();
    let find = |name: &str| registers.iter().find(|r| r.0 == name).map(|r| r.1);
    Config::read(&Registers::read(protocol, find), core)
}

/// The packets of `bytes`, offered in pieces.
fn packets(config: &Config, bytes: &[u8], piece: usize) -> Vec<Located<Packet>> {
    packets_in_pieces(&mut Decoder::new(config), bytes, piece)
}

fn check(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for script in scripts(text) {
        let bytes = script.bytes();
        let found = packets(&config(script.config), &bytes, bytes.len());
        for ((at, packet, length), line) in found.iter().zip(&script.packets) {
            let have = (*at, &bytes[*at..at + length], described(packet));
            let want = (line.offset, &line.bytes[..], line.text.to_owned());
            assert_eq!(have, want, "line {}", line.number);
            assert_eq!(line.shared, None, "packets start at bytes");
            names.push(packet.name().to_owned());
        }
        assert_eq!(found.len(), script.packets.len());
    }
    names
}

#[test]
fn every_packet_of_the_scripts() {
    let mut names = check(include_str!("../../../../../testdata/packets/etmv4.txt"));
    names.extend(check(include_str!(
        "../../../../../testdata/packets/ete.txt"
    )));
    names.sort();
    names.dedup();
    // Every name that `Packet` has.
    assert_eq!(names.len(), 57, "{names:?}");
}

#[test]
fn bytes_one_by_one_give_the_same_packets() {
    let text = include_str!("../../../../../testdata/packets/etmv4.txt");
    for script in scripts(text) {
        let (config, bytes) = (config(script.config), script.bytes());
        let whole = packets(&config, &bytes, bytes.len());
        // Bytes skipped before synchronisation may be cut anywhere.
        let sync = |p: &&Located<Packet>| p.1 != Packet::NotSync;
        let pieces = packets(&config, &bytes, 1);
        assert!(pieces.iter().filter(sync).eq(whole.iter().filter(sync)));
    }
}

#[test]
fn zeros_after_a_reserved_packet_do_not_delay_it() {
    let sync = [&[0; 11][..], &[0x80, 0x01, 0x00]].concat();
    let zeros = [0; 1000];
    let trace = [&sync[..], &[0xb3], &zeros, &sync].concat();
    let config = config("etmv4 A8 TRCIDR0=0x08000ea1 TRCIDR1=0x4100f440");
    let mut decoder = Decoder::new(&config);
    let mut at = 0;
    while let Some((packet, length)) = decoder.next(&trace[at..]) {
        // A packet needs at most its own bytes and those of an A-sync after it.
        if at > 15 && at < 900 {
            let again = decoder.clone().next(&trace[at..at + 40]);
            assert_eq!(again, Some((packet, length)), "at {at}");
        }
        at += length;
        if packet == Packet::Async && at > 100 {
            break;
        }
    }
    assert_eq!(at, trace.len() - 2);
}

/// Configurations that together have every packet.
fn configs() -> Vec<Config> {
    let text = [
        include_str!("../../../../../testdata/packets/etmv4.txt"),
        include_str!("../../../../../testdata/packets/ete.txt"),
    ];
    text.iter()
        .flat_map(|t| scripts(t))
        .map(|script| config(script.config))
        .collect()
}

/// Correct trace: the packets of a script in any order.
fn spliced() -> impl Strategy<Value = Vec<u8>> {
    let text = include_str!("../../../../../testdata/packets/etmv4.txt");
    let lines: Vec<Vec<u8>> = scripts(text)
        .into_iter()
        .flat_map(|script| script.packets)
        .map(|line| line.bytes)
        .collect();
    prop::collection::vec(prop::sample::select(lines), 0..200).prop_map(|l| l.concat())
}

proptest! {
    #[test]
    fn any_bytes_are_accounted_for(
        bytes in flipped(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..600),
            prop::collection::vec(prop_oneof![Just(0u8), Just(0x80), any::<u8>()], 0..600),
            spliced(),
        ], 1),
        cut in any::<prop::sample::Index>(),
        piece in 1usize..40,
        which in any::<prop::sample::Index>(),
    ) {
        let bytes = &bytes[cut.index(bytes.len() + 1)..];
        let config = which.get(&configs()[..]).to_owned();
        let found = packets(&config, bytes, piece);
        end_to_end(&found, bytes);
    }

    #[test]
    fn several_packets_at_once_are_those_one_by_one(
        bytes in flipped(prop_oneof![prop::collection::vec(any::<u8>(), 0..600), spliced()], 1),
        piece in 1usize..200,
        which in any::<prop::sample::Index>(),
    ) {
        let config = which.get(&configs()[..]).to_owned();
        let bytes = [&[0; 11][..], &[0x80, 1, 0], &bytes].concat();
        fast_paths_agree(|| Decoder::new(&config), &bytes, piece);
    }

    #[test]
    fn an_alignment_synchronisation_is_found_after_zeros(
        zeros in 1usize..40,
        piece in 1usize..60,
        which in any::<prop::sample::Index>(),
    ) {
        let async_ = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80];
        let start = [&async_[..], &[0x01, 0x00, 0xf7]].concat();
        let trace = [&start[..], &vec![0; zeros], &async_, &[0x01, 0x00]].concat();
        let found = packets(which.get(&configs()[..]), &trace, piece);
        let place = trace.len() - 14;
        prop_assert!(found.iter().any(|p| p.0 == place && p.1 == Packet::Async), "{found:?}");
    }

    #[test]
    fn an_alignment_synchronisation_is_found_after_anything(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        which in any::<prop::sample::Index>(),
    ) {
        // 40 reserved headers end any packet before them.
        let async_ = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80];
        let trace = [&bytes[..], &[0x87; 40], &async_, &[0x01, 0x00]].concat();
        let place = trace.len() - 14;
        let found = packets(which.get(&configs()[..]), &trace, 1000);
        prop_assert!(found.iter().any(|p| p.0 == place && p.1 == Packet::Async));
    }
}
