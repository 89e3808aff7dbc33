use super::*;
use crate::element::TraceOnReason;
use crate::etm;
use crate::etm::tests::{Choice, Numbers, numbers};
use crate::etmv3::{Decoder, Registers, SyncAddress};
use crate::protocol::Core;
use proptest::prelude::*;

fn config(etmcr: u32, etmccer: u32, etmidr: u32, core: Core) -> Config {
    let registers = Registers {
        etmcr,
        etmccer,
        etmidr,
        etmtraceidr: 2,
    };
    Config::read(&registers, core)
}

/// A packet made of random numbers, if they describe one.
fn packet(encoder: &Encoder<Config>, numbers: Numbers) -> Option<Packet> {
    let config = encoder.config;
    let sets = [Isa::A32, Isa::T32, Isa::Jazelle, Isa::ThumbEe];
    let choice = Choice::new(encoder, sets, numbers);
    let (address, isa, value) = (choice.address, choice.isa, choice.value);
    Some(match choice.packet {
        5..=9 if !choice.is_placed() => Packet::Ignore,
        0 => Packet::ASync,
        1 => Packet::ISync(ISync {
            place: Some(SyncAddress {
                address,
                isa,
                next: choice
                    .flag(11)
                    .then_some(address ^ ((value >> 32) as u32 & 0xffff & choice.mask)),
            }),
            reason: choice.reason(),
            non_secure: choice.flag(6),
            hyp: choice.flag(7) && config.virtualization,
            context_id: choice.context_id,
            cycles: choice.flag(12).then_some(choice.cycles()),
        }),
        2..=4 => {
            let count = (choice.bits(0) % 17) as u8;
            let ones = u32::MAX >> (choice.bits(8) & 31);
            let bits = (value as u32 | ones) & ((1 << count) - 1);
            let cycles = choice.bits(16) as u8 % 9;
            let timing = match (config.cycle_accurate, choice.flag(20)) {
                (false, _) => Timing::None,
                (true, true) => Timing::Each,
                (true, false) => Timing::Before(cycles),
            };
            let atoms = Atoms { bits, count };
            // Only some have a P-header.
            p_header(atoms, timing).ok()?;
            Packet::PHeader { atoms, timing }
        }
        5..=7 if !choice.needs_information() => Packet::Branch(Branch {
            address: choice.part(false),
            information: None,
        }),
        5..=8 => {
            let hyp = choice.flag(4).then_some(choice.flag(5));
            let micro = config.core.is_microcontroller();
            let most = if hyp.is_some() && micro { 512 } else { 16 };
            Packet::Branch(Branch {
                address: choice.part(true),
                information: Some(Information {
                    exception: (value >> 40) as u16 % most,
                    deprecated: false,
                    cancel: choice.flag(9),
                    non_secure: Some(choice.flag(6)),
                    hyp,
                    resume: if choice.flag(10) {
                        value as u8 & 0xf
                    } else {
                        0
                    },
                }),
            })
        }
        9 => Packet::Branch(Branch {
            address: PartAddress {
                value: address & !3,
                bits: 32,
                isa: Isa::A32,
            },
            information: Some(Information {
                exception: choice.bits(8) as u16 & 7,
                deprecated: true,
                cancel: choice.flag(9),
                non_secure: None,
                hyp: None,
                resume: 0,
            }),
        }),
        10 => Packet::CycleCount(choice.cycles()),
        11 => choice.context_id.map_or(Packet::Trigger, Packet::ContextId),
        12 => Packet::Vmid(value as u8),
        13 => Packet::Timestamp {
            value: choice.time,
            frequency_changed: choice.flag(4),
        },
        14 => Packet::ExceptionExit,
        _ => Packet::ExceptionEntry,
    })
}

proptest! {
    #[test]
    fn decoding_reverses_encoding(
        numbers in numbers(),
        etmcr in prop::sample::select(vec![0_u32, 0x1000, 0x4000, 0xc000, 0xd000]),
        etmccer in prop::sample::select(vec![0_u32, 0x3440_08f2, 0x2040_08f2]),
        etmidr in prop::sample::select(vec![0x410c_f250_u32, 0x411c_f250, 0x4110_f240]),
        micro in any::<bool>(),
    ) {
        let core = if micro {
            Core::microcontroller(7)
        } else {
            Core::default()
        };
        let config = config(etmcr, etmccer, etmidr, core);
        etm::tests::decoding_reverses_encoding(config, Decoder::new(&config), &numbers, packet);
    }
}

/// By hand from the tables and figures of IHI 0014Q, chapter 7.
#[test]
fn bytes_by_hand() {
    let mut encoder = Encoder::new(config(0x8000, 0x3440_08f2, 0x410c_f250, Core::default()));
    let mut check = |packet: Packet, want: &[u8]| {
        let mut out = Vec::new();
        encoder.packet(&packet, &mut out).unwrap();
        assert_eq!(out, want, "{packet:?}");
    };
    check(Packet::ASync, &[0, 0, 0, 0, 0, 0x80]);
    check(
        Packet::ISync(ISync {
            place: Some(SyncAddress {
                address: 0x8000_0554,
                isa: Isa::A32,
                next: None,
            }),
            reason: Some(TraceOnReason::DebugRestart),
            non_secure: true,
            hyp: false,
            context_id: Some(0x1234),
            cycles: None,
        }),
        &[0x08, 0x34, 0x12, 0x69, 0x54, 0x05, 0x00, 0x80],
    );
    let branch = |value, bits, isa, information| {
        Packet::Branch(Branch {
            address: PartAddress { value, bits, isa },
            information,
        })
    };
    check(branch(0x8000_0504, 8, Isa::A32, None), &[0x03]);
    check(branch(0x8000_4504, 15, Isa::A32, None), &[0x83, 0x45]);
    let info = Information {
        exception: 14,
        deprecated: false,
        cancel: true,
        non_secure: Some(false),
        hyp: Some(true),
        resume: 0,
    };
    check(
        branch(0xffff_0018, 32, Isa::A32, Some(info)),
        &[0x8d, 0x80, 0xfe, 0xff, 0x4f, 0xbc, 0x20],
    );
    let irq = Information {
        exception: 1,
        deprecated: true,
        cancel: false,
        non_secure: None,
        hyp: None,
        resume: 0,
    };
    check(
        branch(0x18, 32, Isa::A32, Some(irq)),
        &[0x8d, 0x80, 0x80, 0x80, 0x88],
    );
    let atoms = |bits, count, timing, want| {
        assert_eq!(p_header(Atoms { bits, count }, timing), Ok(want));
    };
    atoms(0b0111, 4, Timing::None, 0b1100_1100);
    atoms(0b10, 2, Timing::None, 0b1000_1010);
    atoms(0b011, 3, Timing::Each, 0b1100_1000);
    atoms(0b1, 1, Timing::Before(3), 0b1110_1000);
    atoms(0b0, 1, Timing::Before(0), 0b1001_0110);
}
