//! Elements of packets made by hand, and invariants for any bytes.

use super::*;
use crate::element::{Context, Element, Exception, Mark, NoSyncReason, TraceOnReason};
use crate::etm::tests::{A_SYNC, address, any_bytes_are_packets, traces};
use crate::protocol::tests::{fast_paths_agree, flipped, packets, packets_in_pieces};
use crate::protocol::{self, Core, ElementDecoder, PacketDecoder};
use armsnap_arch::quantity::{BufferOffset, ExceptionLevel, Isa, Security};
use proptest::prelude::*;

fn config(etmcr: u32) -> Config {
    let registers = Registers {
        etmcr,
        etmccer: 0x34c0_1ac2,
        etmidr: 0x411c_f312,
        etmtraceidr: 2,
    };
    Config::read(&registers, Core::default())
}

fn elements(config: Config, bytes: &[u8]) -> Vec<Element> {
    let (mut decoder, mut elements) = (Decoder::new(&config), Elements::new(&config));
    let out = protocol::tests::elements(&mut decoder, &mut elements, bytes);
    out.into_iter().map(|(_, element)| element).collect()
}

fn with_sync(rest: &[u8]) -> Vec<u8> {
    let mut bytes = A_SYNC.to_vec();
    // Address 0x80000554, A32, secure, tracing enabled.
    bytes.extend([0x08, 0x54, 0x05, 0x00, 0x80, 0x21]);
    bytes.extend(rest);
    bytes
}

#[test]
fn packets_are_small() {
    assert!(size_of::<Packet>() <= 32);
}

#[test]
fn i_sync_turns_tracing_on_and_a_branch_implies_an_atom() {
    let got = elements(config(0), &with_sync(&[0x84, 0x8b, 0x01]));
    let context = Context {
        isa: Isa::A32,
        security: Some(Security::Secure),
        is_64bit: Some(false),
        ..Context::default()
    };
    assert_eq!(
        got,
        [
            Element::Mark(Mark::NoSync(NoSyncReason::Start)),
            Element::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter)),
            Element::Mark(Mark::Context(context)),
            address(0x8000_0554, Isa::A32),
            Element::WaypointAtoms(crate::element::Atoms { bits: 1, count: 1 }),
            Element::WaypointAtoms(crate::element::Atoms { bits: 1, count: 1 }),
            address(0x8000_0114, Isa::A32),
            Element::Mark(Mark::End),
        ]
    );
}

#[test]
fn a_periodic_i_sync_gives_only_the_address() {
    let periodic = [0x08, 0x00, 0x10, 0x00, 0x80, 0x01];
    let got = elements(config(0), &with_sync(&periodic));
    assert_eq!(
        got[4..],
        [address(0x8000_1000, Isa::A32), Element::Mark(Mark::End)]
    );
}

/// Parts of a trace that are decoded on their own must continue like the whole.
#[test]
fn the_state_does_not_depend_on_what_was_emitted_long_ago() {
    let after = |bytes: &[u8]| {
        let config = config(0);
        let (mut decoder, mut elements) = (Decoder::new(&config), Elements::new(&config));
        protocol::tests::elements(&mut decoder, &mut elements, bytes);
        format!("{elements:?}")
    };
    // T32, secure.
    let periodic = [0x08, 0x01, 0x10, 0x00, 0x80, 0x01];
    let alone = [A_SYNC.as_slice(), &periodic].concat();
    assert_eq!(after(&with_sync(&periodic)), after(&alone));
}

#[test]
fn an_exception_implies_no_atom_and_changes_the_state() {
    // To 0x18, A32; SMC of the first byte, Hyp mode of the second.
    let got = elements(
        config(0),
        &with_sync(&[0x8d, 0x80, 0x80, 0x80, 0x48, 0x85, 0x20]),
    );
    let hyp = Context {
        isa: Isa::A32,
        el: Some(ExceptionLevel(2)),
        security: Some(Security::NonSecure),
        is_64bit: Some(false),
        ..Context::default()
    };
    assert_eq!(
        got[4..],
        [
            Element::ExceptionHere(Exception {
                number: 2,
                name: "SMC",
                return_address: None
            }),
            Element::Mark(Mark::Context(hyp)),
            address(0x18, Isa::A32),
            Element::Mark(Mark::End),
        ]
    );
}

#[test]
fn a_branch_that_only_changes_the_security_state_is_a_branch() {
    let got = elements(config(0), &with_sync(&[0x8d, 0x40, 0x01]));
    assert!(matches!(got[4], Element::WaypointAtoms(_)));
    assert!(matches!(
        got[5],
        Element::Mark(Mark::Context(Context {
            security: Some(Security::NonSecure),
            ..
        }))
    ));
    assert_eq!(got[6], address(0x8000_0018, Isa::A32));
}

#[test]
fn decoding_resumes_at_the_next_a_sync_after_a_bad_header() {
    let mut bytes = with_sync(&[0x84, 0x10, 0x84, 0x84]);
    bytes.extend(with_sync(&[0x84]));
    let got = elements(config(0), &bytes);
    assert_eq!(got[5], Element::Mark(Mark::NoSync(NoSyncReason::BadPacket)));
    assert_eq!(
        got[6],
        Element::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter))
    );
}

#[test]
fn lost_bytes_break_the_trace_even_before_an_a_sync() {
    let config = config(0);
    let mut decoder = Decoder::new(&config);
    let mut elements = Elements::new(&config);
    let mut out: Vec<(BufferOffset, Element)> = Vec::new();
    let bytes = with_sync(&[]);
    for pass in 0..2 {
        let mut at = 0;
        while at < bytes.len() {
            let (packet, length) = decoder.next(&bytes[at..]).unwrap();
            elements.packet(BufferOffset(pass), &packet, &mut out);
            at += length;
        }
        if pass == 0 {
            decoder.lost();
            elements.lost(BufferOffset(1), &mut out);
        }
    }
    let second: Vec<_> = out
        .iter()
        .filter(|(at, _)| at.0 == 1)
        .map(|(_, e)| *e)
        .collect();
    assert_eq!(
        second[0],
        Element::Mark(Mark::NoSync(NoSyncReason::Discard))
    );
    assert_eq!(second.last(), Some(&address(0x8000_0554, Isa::A32)));
}

const HEADERS: &[u8] = &[0x08, 0x0c, 0x3c, 0x42, 0x46, 0x66, 0x6e, 0x72, 0x76];

fn configs() -> impl Strategy<Value = Config> {
    prop::sample::select(vec![0u32, 0x1000, 0xc000, 0x9000, 0x3000_d000]).prop_map(config)
}

proptest! {
    #[test]
    fn any_bytes_are_packets_end_to_end(
        bytes in flipped(traces(with_sync(&[]), HEADERS), 3),
        config in configs(),
    ) {
        any_bytes_are_packets(Decoder::new(&config), Elements::new(&config), &bytes, 4);
    }

    #[test]
    fn several_packets_at_once_are_those_one_by_one(
        bytes in flipped(traces(with_sync(&[]), HEADERS), 3),
        config in configs(),
        piece in 1usize..200,
    ) {
        fast_paths_agree(|| Decoder::new(&config), &bytes, piece);
    }

    #[test]
    fn pieces_of_any_size_give_the_same_packets(
        bytes in traces(with_sync(&[]), HEADERS),
        config in configs(),
        size in 1usize..9,
    ) {
        let whole = packets(&mut Decoder::new(&config), &bytes);
        let pieces = packets_in_pieces(&mut Decoder::new(&config), &bytes, size);
        prop_assert_eq!(pieces, whole);
    }
}
