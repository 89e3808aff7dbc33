//! Elements of packets made by hand, and invariants for any bytes.

use super::*;
use crate::element::{Atoms, Context, Element, Exception, Mark, NoSyncReason, TraceOnReason};
use crate::etm::tests::{A_SYNC, address, any_bytes_are_packets, traces};
use crate::protocol::tests::{flipped, packets, packets_in_pieces};
use crate::protocol::{self, Core, PacketDecoder};
use armsnap_arch::quantity::{Address, ExceptionLevel, Isa, Security};
use proptest::prelude::*;

fn config(etmcr: u32) -> Config {
    let registers = Registers {
        etmcr,
        etmccer: 0x3440_08f2,
        etmidr: 0x410c_f250,
        etmtraceidr: 0x10,
    };
    Config::read(&registers, Core::default())
}

fn cortex_m(etmcr: u32) -> Config {
    let registers = Registers {
        etmcr,
        etmccer: 0x0040_0000,
        etmidr: 0x4114_f240,
        etmtraceidr: 1,
    };
    Config::read(&registers, Core::microcontroller(7))
}

/// All elements of `bytes` except the end.
fn all_elements(config: Config, bytes: &[u8]) -> Vec<Element> {
    let (mut decoder, mut elements) = (Decoder::new(&config), Elements::new(&config));
    let out = protocol::tests::elements(&mut decoder, &mut elements, bytes);
    let mut out: Vec<Element> = out.into_iter().map(|(_, element)| element).collect();
    assert_eq!(out.pop(), Some(Element::Mark(Mark::End)));
    out
}

/// The elements of an I-sync and what follows it.
fn elements(config: Config, rest: &[u8]) -> Vec<Element> {
    all_elements(config, &with_sync(rest))
}

fn with_sync(rest: &[u8]) -> Vec<u8> {
    let mut bytes = A_SYNC.to_vec();
    // Tracing enabled at 0x8000, T32, secure.
    bytes.extend([0x08, 0x21, 0x01, 0x80, 0x00, 0x00]);
    bytes.extend(rest);
    bytes
}

fn exception(number: u16, name: &'static str) -> Element {
    Element::Exception(Exception {
        number,
        name,
        return_address: None,
    })
}

const CONTEXT: Context = Context {
    isa: Isa::T32,
    el: None,
    security: Some(Security::Secure),
    is_64bit: Some(false),
    vmid: None,
    context_id: None,
};

#[test]
fn packets_are_small() {
    assert!(size_of::<Packet>() <= 40);
}

#[test]
fn i_sync_turns_tracing_on_and_atoms_are_instructions() {
    assert_eq!(
        elements(config(0), &[0xc8]),
        [
            Element::Mark(Mark::NoSync(NoSyncReason::Start)),
            Element::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter)),
            Element::Mark(Mark::Context(CONTEXT)),
            address(0x8000, Isa::T32),
            Element::InstructionAtoms(Atoms {
                bits: 0b011,
                count: 3
            }),
        ]
    );
}

#[test]
fn cycles_belong_to_the_atom_after_them() {
    let timed = |bits, count, first, each| Element::TimedInstructions {
        atoms: Atoms { bits, count },
        first,
        each,
    };
    // Format 1 (E N), format 3 (4 cycles, E), format 3 (8 cycles), format 2 (N E), format 4 (N).
    let got = elements(config(0x1000), &[0xc4, 0xec, 0xbc, 0x8a, 0x96]);
    assert_eq!(
        got[4..],
        [
            timed(0b01, 2, 1, 1),
            timed(0b1, 1, 4, 0),
            Element::Mark(Mark::Cycles(8)),
            timed(0b10, 2, 1, 0),
            timed(0b0, 1, 0, 0),
        ]
    );
}

#[test]
fn an_exception_may_cancel_the_instruction_before_it() {
    // To 0x18, A32, with IRQ, cancelled, Non-secure and Hyp mode.
    let got = elements(config(0), &[0x84, 0x8d, 0x80, 0x80, 0x80, 0x48, 0xbd, 0x20]);
    let hyp = Context {
        isa: Isa::A32,
        el: Some(ExceptionLevel(2)),
        security: Some(Security::NonSecure),
        ..CONTEXT
    };
    assert_eq!(
        got[5..],
        [
            Element::CancelInstruction,
            Element::Mark(Mark::Context(hyp)),
            exception(14, "IRQ"),
            address(0x18, Isa::A32),
        ]
    );
}

#[test]
fn the_deprecated_fifth_byte_contains_an_exception() {
    let got = elements(config(0), &[0x84, 0x8d, 0x80, 0x80, 0x80, 0xe8]);
    assert_eq!(
        got[5..],
        [
            Element::CancelInstruction,
            exception(5, "FIQ"),
            address(0x18, Isa::A32)
        ]
    );
}

#[test]
fn an_exception_return_may_be_cancelled() {
    let exit = Element::Mark(Mark::ExceptionReturn);
    let got = elements(config(0), &[0x84, 0x76, 0x84]);
    assert_eq!(got[5], exit);
    let branch = [0x84, 0x76, 0x8d, 0x80, 0x80, 0x80, 0x48, 0x3c];
    let got = elements(config(0), &branch);
    assert_eq!(
        got[5..7],
        [Element::CancelInstruction, exception(14, "IRQ")]
    );
    // ARMv7-M: the instruction that returned was executed.
    let got = elements(cortex_m(0), &[0x84, 0x76, 0x8d, 0x40, 0x3e]);
    assert_eq!(
        got[5..],
        [exception(15, "SysTick"), address(0x800c, Isa::T32)]
    );
}

#[test]
fn armv7_m_has_long_exception_numbers_and_resumes() {
    // Alternative encoding; bytes 0, 1 and 2: exception 0x34, resume 3.
    let got = elements(cortex_m(0), &[0x84, 0x8d, 0x40, 0x88, 0x83, 0x43]);
    assert_eq!(
        got[5..],
        [exception(0x34, "IRQ"), address(0x800c, Isa::T32)]
    );
}

#[test]
fn data_follow_their_addresses() {
    let data = |address, value, bytes| {
        Element::Mark(Mark::Data {
            address,
            value,
            bytes,
            write: None,
        })
    };
    let got = elements(
        config(0x1c | 0x2),
        &[
            // Normal data, 5 address bytes, 4 bytes.
            0x2e, 0x90, 0xa0, 0x80, 0x80, 0x12, 0x78, 0x56, 0x34, 0x12,
            // Two address bytes, one byte; without address, value zero.
            0x26, 0x94, 0x20, 0xab, 0x02,
            // Placeholder with tag 2 and an address, then its data.
            0x78, 0x40, 0x84, 0x48, 0xcd, 0xab, // Value not traced, with an address.
            0x7a, 0x44,
        ],
    );
    assert_eq!(
        got[4..],
        [
            data(Some(Address(0x2000_1010)), Some(0x1234_5678), 4),
            data(Some(Address(0x2000_1014)), Some(0xab), 1),
            data(None, Some(0), 0),
            Element::InstructionAtoms(Atoms { bits: 1, count: 1 }),
            data(Some(Address(0x2000_1040)), Some(0xabcd), 2),
            data(Some(Address(0x2000_1044)), None, 0),
        ]
    );
}

#[test]
fn data_only_mode_has_no_addresses_of_instructions() {
    let config = config(0x0010_0004);
    let mut bytes = A_SYNC.to_vec();
    bytes.extend([0x08, 0x21, 0x06, 0x55]);
    let got = packets(&mut Decoder::new(&config), &bytes);
    assert!(matches!(
        got[1],
        (6, Packet::ISync(packet::ISync { place: None, .. }), 2)
    ));
    assert!(matches!(
        got[2],
        (8, Packet::NormalData { address: None, .. }, 2)
    ));
}

#[test]
fn a_load_in_progress_was_executed() {
    let mut bytes = A_SYNC.to_vec();
    bytes.extend([0x08, 0xa1, 0x01, 0x80, 0x00, 0x00, 0x05, 0x84]);
    let got = all_elements(config(0), &bytes);
    let executed = Element::InstructionAtoms(Atoms { bits: 1, count: 1 });
    assert_eq!(
        got[3..],
        [
            address(0x8000, Isa::T32),
            executed,
            address(0x8004, Isa::T32),
            executed
        ]
    );
}

#[test]
fn decoding_resumes_at_the_next_a_sync_after_a_bad_header() {
    let mut rest = vec![0x84, 0x10, 0x84, 0x84];
    rest.extend(with_sync(&[0x84]));
    let got = elements(config(0), &rest);
    assert_eq!(got[5], Element::Mark(Mark::NoSync(NoSyncReason::BadPacket)));
    assert_eq!(
        got[6],
        Element::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter))
    );
}

#[test]
fn packets_of_atoms_are_their_elements() {
    for etmcr in [0, 0x1000] {
        let config = config(etmcr);
        let start = with_sync(&[]);
        let before = all_elements(config, &start).len();
        let mut decoder = Decoder::new(&config);
        packets(&mut decoder, &start);
        let atoms = decoder.atoms();
        let mut count = 0;
        for byte in 0..=u8::MAX {
            let elements = all_elements(config, &[&start[..], &[byte]].concat());
            let elements = &elements[before..];
            if let Some(packet) = atoms(byte) {
                assert_eq!(elements, [packet.element()], "{byte:#x}");
                count += 1;
            } else {
                let is_of_atoms = |element: &Element| {
                    matches!(
                        element,
                        Element::InstructionAtoms(_)
                            | Element::TimedInstructions { .. }
                            | Element::Mark(Mark::Cycles(_))
                    )
                };
                assert!(!elements.iter().any(is_of_atoms), "{byte:#x}");
            }
        }
        // Tables 7.2 and 7.3: 0b1NEEEE00 without 0x80, 0b1000FF10; 0b1N0EEE00, 0b1E1WWW00, 0b1000FF10,
        // 0b1001x010.
        let expected = if etmcr == 0 { 31 + 4 } else { 16 + 16 + 4 + 2 };
        assert_eq!(count, expected);
        assert_eq!(
            Decoder::new(&config).atoms()(0x84),
            None,
            "not synchronised"
        );
    }
}

const HEADERS: &[u8] = &[
    0x04, 0x08, 0x70, 0x0c, 0x3c, 0x42, 0x46, 0x66, 0x6e, 0x76, 0x7e, 0x50, 0x62, 0x6a, 0x7a, 0x2e,
    0x22, 0x24, 0x48, 0x58, 0x7c,
];

fn configs() -> impl Strategy<Value = Config> {
    let etmcr = prop::sample::select(vec![
        0u32,
        0x1000,
        0xc000,
        0x900e,
        0x0010_c00c,
        0x0010_1004,
        0x1000_5008,
    ]);
    (etmcr, any::<bool>()).prop_map(|(etmcr, m)| if m { cortex_m(etmcr) } else { config(etmcr) })
}

proptest! {
    #[test]
    fn any_bytes_are_packets_end_to_end(
        bytes in flipped(traces(with_sync(&[]), HEADERS), 3),
        config in configs(),
    ) {
        any_bytes_are_packets(Decoder::new(&config), Elements::new(&config), &bytes, 17);
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
