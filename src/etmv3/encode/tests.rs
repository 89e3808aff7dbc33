use super::*;
use crate::etmv3::Decoder;
use crate::etmv3::packet::Place;
use crate::etmv3::registers::Registers;
use crate::protocol::PacketDecoder;
use proptest::prelude::*;

fn config(etmcr: u32, etmccer: u32, etmidr: u32, profile: Profile) -> Config {
    let registers = Registers {
        etmcr,
        etmccer,
        etmidr,
        etmtraceidr: 2,
    };
    Config::new(registers, profile)
}

/// Writes what `choices` say; every packet fits what the encoder knows.
fn write(config: Config, choices: &[(u8, u64, u32)]) -> (Vec<Packet>, Vec<u8>) {
    let mut encoder = Encoder::new(config);
    let (mut packets, mut bytes) = (Vec::new(), Vec::new());
    let begin = [(0, 0, 0), (1, 0x1000, 0)];
    for &(choice, value, more) in begin.iter().chain(choices) {
        let sets = [Isa::A32, Isa::T32, Isa::Jazelle, Isa::ThumbEe];
        let set = sets[(more >> 30) as usize];
        let (_, before) = encoder.known.place.unwrap_or_default();
        let isa = if more & 2 == 0 && choice != 1 {
            before
        } else {
            set
        };
        let mask = !((1_u32 << compress::unused(isa)) - 1);
        let near = encoder.known.place.map_or(0, |place| place.0);
        let address = (near ^ ((value as u32) >> (more >> 8 & 31))) & mask;
        let flag = |bit: u32| more >> bit & 1 == 1;
        let id_bits = 8 * u32::from(config.context_id_bytes);
        let id = u32::try_from(value & ((1 << id_bits) - 1)).unwrap();
        let part = |encoder: &Encoder, information| {
            let mut part = encoder.shortest(address, isa, information);
            if flag(3) {
                part.bits = 32;
            }
            part
        };
        let placed = encoder.known.place.is_some();
        let packet = match choice % 16 {
            5..=9 if !placed => Packet::Ignore,
            0 => Packet::ASync,
            1 => Packet::ISync(ISync {
                place: Some(Place {
                    address,
                    isa,
                    next: flag(11).then_some(address ^ ((value >> 32) as u32 & 0xffff & mask)),
                }),
                reason: [
                    None,
                    Some(TraceOnReason::BeginOrFilter),
                    Some(TraceOnReason::Overflow),
                    Some(TraceOnReason::DebugRestart),
                ][(more >> 4 & 3) as usize],
                non_secure: flag(6),
                hyp: flag(7) && config.virtualization,
                context_id: (id_bits > 0).then_some(id),
                cycles: flag(12).then_some(more >> (more & 31)),
            }),
            2..=4 => {
                let count = (more % 17) as u8;
                let ones = u32::MAX >> (more >> 8 & 31);
                let bits = (value as u32 | ones) & ((1 << count) - 1);
                let cycles = (more >> 16) as u8 % 9;
                let timing = match (config.cycle_accurate, flag(20)) {
                    (false, _) => Timing::None,
                    (true, true) => Timing::Each,
                    (true, false) => Timing::Before(cycles),
                };
                let atoms = Atoms { bits, count };
                // Only some have a P-header.
                if p_header(atoms, timing).is_err() {
                    continue;
                }
                Packet::PHeader { atoms, timing }
            }
            5..=7 if !encoder.known.needs_information(isa) => Packet::Branch(Branch {
                address: part(&encoder, false),
                information: None,
            }),
            5..=8 => {
                let hyp = flag(4).then_some(flag(5));
                let micro = config.profile == Profile::Microcontroller;
                let most = if hyp.is_some() && micro { 512 } else { 16 };
                Packet::Branch(Branch {
                    address: part(&encoder, true),
                    information: Some(Information {
                        exception: (value >> 40) as u16 % most,
                        deprecated: false,
                        cancel: flag(9),
                        non_secure: Some(flag(6)),
                        hyp,
                        resume: if flag(10) { value as u8 & 0xf } else { 0 },
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
                    exception: more as u16 >> 8 & 7,
                    deprecated: true,
                    cancel: flag(9),
                    non_secure: None,
                    hyp: None,
                    resume: 0,
                }),
            }),
            10 => Packet::CycleCount(value as u32 >> (more & 31)),
            11 if id_bits > 0 => Packet::ContextId(id),
            12 => Packet::Vmid(value as u8),
            13 => {
                let value = value >> (more & 63);
                let wide = config.timestamp.wide;
                Packet::Timestamp {
                    value: if wide {
                        value
                    } else {
                        value & 0xffff_ffff_ffff
                    },
                    frequency_changed: flag(4),
                }
            }
            14 => Packet::ExceptionExit,
            15 => Packet::ExceptionEntry,
            _ => Packet::Trigger,
        };
        let length = bytes.len();
        let written = encoder.packet(&packet, &mut bytes);
        assert!(written.is_ok() && bytes.len() > length, "{packet:?}");
        packets.push(packet);
    }
    (packets, bytes)
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        choices in prop::collection::vec(any::<(u8, u64, u32)>(), 0..60),
        etmcr in prop::sample::select(vec![0_u32, 0x1000, 0x4000, 0xc000, 0xd000]),
        etmccer in prop::sample::select(vec![0_u32, 0x3440_08f2, 0x2040_08f2]),
        etmidr in prop::sample::select(vec![0x410c_f250_u32, 0x411c_f250, 0x4110_f240]),
        micro in any::<bool>(),
    ) {
        let profile = if micro {
            Profile::Microcontroller
        } else {
            Profile::ApplicationOrRealTime
        };
        let config = config(etmcr, etmccer, etmidr, profile);
        let (written, bytes) = write(config, &choices);
        let mut decoder = Decoder::new(config);
        let (mut at, mut read) = (0, Vec::new());
        while let Some((packet, length)) = decoder.next(&bytes[at..]) {
            read.push(packet);
            at += length;
        }
        prop_assert_eq!(at, bytes.len());
        prop_assert_eq!(read, written);
    }
}

/// By hand from the tables and figures of IHI 0014Q, chapter 7.
#[test]
fn bytes_by_hand() {
    let application = Profile::ApplicationOrRealTime;
    let mut encoder = Encoder::new(config(0x8000, 0x3440_08f2, 0x410c_f250, application));
    let mut check = |packet: Packet, want: &[u8]| {
        let mut out = Vec::new();
        encoder.packet(&packet, &mut out).unwrap();
        assert_eq!(out, want, "{packet:?}");
    };
    check(Packet::ASync, &[0, 0, 0, 0, 0, 0x80]);
    check(
        Packet::ISync(ISync {
            place: Some(Place {
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
    let told = Information {
        exception: 14,
        deprecated: false,
        cancel: true,
        non_secure: Some(false),
        hyp: Some(true),
        resume: 0,
    };
    check(
        branch(0xffff_0018, 32, Isa::A32, Some(told)),
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
