//! Elements of packets made by hand, and what must hold for any bytes.

use super::*;
use crate::element::{Context, Element, ElementSink, Exception, Mark, NoSyncReason, TraceOnReason};
use crate::etmv3::registers::Registers;
use crate::protocol::{ElementDecoder, PacketDecoder};
use crate::quantity::{Address, BufferOffset, ExceptionLevel, Isa, Security};
use proptest::prelude::*;

fn config(etmcr: u32) -> Config {
    Config::new(Registers {
        etmcr,
        etmccer: 0x34c0_1ac2,
        etmidr: 0x411c_f312,
        etmtraceidr: 2,
    })
}

fn packets(config: Config, bytes: &[u8]) -> Vec<(usize, Packet, usize)> {
    let mut decoder = Decoder::new(config);
    let mut at = 0;
    let mut out = Vec::new();
    while let Some((packet, length)) = decoder.next(&bytes[at..]) {
        assert!(length > 0 && at + length <= bytes.len());
        out.push((at, packet, length));
        at += length;
    }
    if at < bytes.len() {
        out.push((at, decoder.finish(&bytes[at..]), bytes.len() - at));
    }
    out
}

fn elements(config: Config, bytes: &[u8]) -> Vec<Element> {
    let mut decoder = Elements::new();
    let mut out: Vec<(BufferOffset, Element)> = Vec::new();
    for (at, packet, _) in packets(config, bytes) {
        decoder.packet(BufferOffset(at as u64), &packet, &mut out);
    }
    decoder.end(BufferOffset(bytes.len() as u64), &mut out);
    out.into_iter().map(|(_, element)| element).collect()
}

const A_SYNC: [u8; 6] = [0, 0, 0, 0, 0, 0x80];

fn with_sync(rest: &[u8]) -> Vec<u8> {
    let mut bytes = A_SYNC.to_vec();
    // Address 0x80000554, A32, secure, tracing enabled.
    bytes.extend([0x08, 0x54, 0x05, 0x00, 0x80, 0x21]);
    bytes.extend(rest);
    bytes
}

fn address(address: u64, isa: Isa) -> Element {
    Element::Address {
        address: Address(address),
        isa,
    }
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
fn a_periodic_i_sync_tells_only_the_address() {
    let periodic = [0x08, 0x00, 0x10, 0x00, 0x80, 0x01];
    let got = elements(config(0), &with_sync(&periodic));
    assert_eq!(
        got[4..],
        [address(0x8000_1000, Isa::A32), Element::Mark(Mark::End)]
    );
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
    let mut decoder = Decoder::new(config(0));
    let mut elements = Elements::new();
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

/// Bytes that look like a trace: synchronised, then headers with payloads cut and mixed.
fn traces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..12),
        2 => Just(with_sync(&[])),
        1 => prop::collection::vec(Just(0u8), 0..40),
        2 => prop::sample::select(vec![0x08u8, 0x0c, 0x3c, 0x42, 0x46, 0x66, 0x6e, 0x72, 0x76])
            .prop_map(|header| vec![header]),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

struct Count(usize);

impl ElementSink for Count {
    fn element(&mut self, _: BufferOffset, _: Element) {
        self.0 += 1;
    }
}

proptest! {
    #[test]
    fn any_bytes_are_packets_end_to_end(
        bytes in traces(),
        etmcr in prop::sample::select(vec![0u32, 0x1000, 0xc000, 0x9000, 0x3000_d000]),
        flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4),
    ) {
        let mut bytes = bytes;
        for (index, bit) in flips {
            if !bytes.is_empty() {
                let i = index.index(bytes.len());
                bytes[i] ^= 1 << (bit & 7);
            }
        }
        let got = packets(config(etmcr), &bytes);
        let total: usize = got.iter().map(|(_, _, length)| length).sum();
        prop_assert_eq!(total, bytes.len());
        let mut decoder = Elements::new();
        let mut count = Count(0);
        for (at, packet, _) in &got {
            decoder.packet(BufferOffset(*at as u64), packet, &mut count);
        }
        prop_assert!(count.0 <= 4 * got.len() + 1);
        // A cut packet asks for a bounded number of bytes.
        if let Some((_, _, length)) = got.last() {
            prop_assert!(*length <= 64);
        }
    }

    #[test]
    fn pieces_of_any_size_give_the_same_packets(bytes in traces(), size in 1usize..9) {
        let whole = packets(config(0x9000), &bytes);
        let mut decoder = Decoder::new(config(0x9000));
        let (mut at, mut end) = (0, 0);
        let mut pieces = Vec::new();
        while end < bytes.len() {
            end = (end + size).min(bytes.len());
            while at < end {
                let Some((packet, length)) = decoder.next(&bytes[at..end]) else { break };
                pieces.push((at, packet, length));
                at += length;
            }
        }
        if at < bytes.len() {
            pieces.push((at, decoder.finish(&bytes[at..]), bytes.len() - at));
        }
        prop_assert_eq!(pieces, whole);
    }
}
