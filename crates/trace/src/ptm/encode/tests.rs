use super::*;
use crate::element::TraceOnReason;
use crate::etm;
use crate::etm::tests::{Choice, Numbers, numbers};
use crate::protocol::Core;
use crate::ptm::{Decoder, Registers};
use proptest::prelude::*;

fn config(etmcr: u32, etmccer: u32) -> Config {
    let registers = Registers {
        etmcr,
        etmccer,
        etmidr: 0x411c_f312,
        etmtraceidr: 2,
    };
    Config::read(&registers, Core::default())
}

/// A packet made of random numbers.
fn packet(encoder: &Encoder<Config>, numbers: Numbers) -> Option<Packet> {
    let sets = [Isa::A32, Isa::T32, Isa::T32, Isa::ThumbEe];
    let choice = Choice::new(encoder, sets, numbers);
    let cycle_accurate = encoder.config.cycle_accurate;
    let cycles = choice.cycles();
    let counted = cycle_accurate.then_some(cycles);
    Some(match choice.packet {
        5..=9 if !choice.is_placed() => Packet::Ignore,
        0 => Packet::ASync,
        1 => Packet::ISync(ISync {
            address: choice.address,
            isa: choice.isa,
            reason: choice.reason(),
            non_secure: choice.flag(6),
            hyp: choice.flag(7),
            context_id: choice.context_id,
            cycles: counted.filter(|_| choice.reason().is_some()),
        }),
        2..=4 if !cycle_accurate => {
            let count = (choice.bits(0) % 5 + 1) as u8;
            Packet::Atoms(Atoms {
                bits: choice.value as u32 & ((1 << count) - 1),
                count,
            })
        }
        2..=4 => Packet::TimedAtom {
            taken: choice.flag(4),
            cycles,
        },
        5..=7 if !choice.needs_information() => Packet::Branch(Branch {
            address: choice.part(false),
            information: None,
            cycles: counted,
        }),
        5..=8 => {
            let hyp = choice.flag(4).then_some(choice.flag(5));
            let most = if hyp.is_some() { 512 } else { 16 };
            Packet::Branch(Branch {
                address: choice.part(true),
                information: Some(Information {
                    exception: (choice.value >> 40) as u16 % most,
                    non_secure: choice.flag(6),
                    hyp,
                }),
                cycles: counted,
            })
        }
        9 => {
            let mut address = choice.part(false);
            if choice.needs_information() {
                address.bits = 32;
            }
            Packet::WaypointUpdate { address }
        }
        10 => Packet::Trigger,
        11 => choice.context_id.map_or(Packet::Ignore, Packet::ContextId),
        12 => Packet::Vmid(choice.value as u8),
        13 | 14 => Packet::Timestamp(Timestamp {
            value: choice.time,
            frequency_changed: choice.flag(4),
            cycles: counted,
        }),
        _ => Packet::ExceptionReturn,
    })
}

proptest! {
    #[test]
    fn decoding_reverses_encoding(
        numbers in numbers(),
        etmcr in prop::sample::select(vec![0_u32, 0x1000, 0x4000, 0xc000, 0xd000]),
        etmccer in prop::sample::select(vec![0_u32, 0x34c0_1ac2, 0x20c0_18ea, 0x10c0_18ea]),
    ) {
        let config = config(etmcr, etmccer);
        etm::tests::decoding_reverses_encoding(config, Decoder::new(&config), &numbers, packet);
    }
}

/// By hand from the figures of IHI 0035B 4.5.
#[test]
fn bytes_by_hand() {
    let mut encoder = Encoder::new(config(0x4000, 0x34c0_1ac2));
    let mut check = |packet: Packet, want: &[u8]| {
        let mut out = Vec::new();
        encoder.packet(&packet, &mut out).unwrap();
        assert_eq!(out, want, "{packet:?}");
    };
    check(Packet::ASync, &[0, 0, 0, 0, 0, 0x80]);
    check(
        Packet::ISync(ISync {
            address: 0x8000_0554,
            isa: Isa::T32,
            reason: Some(TraceOnReason::BeginOrFilter),
            non_secure: true,
            hyp: false,
            context_id: Some(0x7f),
            cycles: None,
        }),
        &[0x08, 0x55, 0x05, 0x00, 0x80, 0x29, 0x7f],
    );
    let branch = |value, bits, isa, information| {
        Packet::Branch(Branch {
            address: PartAddress { value, bits, isa },
            information,
            cycles: None,
        })
    };
    check(branch(0x8000_0560, 7, Isa::T32, None), &[0x61]);
    check(branch(0x8000_1560, 13, Isa::T32, None), &[0xe1, 0x2a]);
    check(branch(0x8000_1560, 20, Isa::T32, None), &[0xe1, 0xaa, 0x00]);
    check(
        branch(
            0xffff_0018,
            32,
            Isa::A32,
            Some(Information {
                exception: 14,
                non_secure: false,
                hyp: None,
            }),
        ),
        &[0x8d, 0x80, 0xfe, 0xff, 0x4f, 0x1c],
    );
    // N, E, E
    let atoms = Atoms {
        bits: 0b110,
        count: 3,
    };
    check(Packet::Atoms(atoms), &[0b1001_1000]);
    let mut timed = Vec::new();
    cycle_count(0x82, 0x123, &mut timed);
    assert_eq!(timed, [0xce, 0x12]);
}
