use super::*;
use crate::etmv3::registers::Registers;
use crate::protocol::PacketDecoder;
use crate::ptm::Decoder;
use proptest::prelude::*;

fn config(etmcr: u32, etmccer: u32) -> Config {
    Config::new(Registers {
        etmcr,
        etmccer,
        etmidr: 0x411c_f312,
        etmtraceidr: 2,
    })
}

/// Writes what `choices` say; every packet fits what the encoder knows.
fn write(config: Config, choices: &[(u8, u64, u32)]) -> (Vec<Packet>, Vec<u8>) {
    let mut encoder = Encoder::new(config);
    let (mut packets, mut bytes) = (Vec::new(), Vec::new());
    let begin = [(0, 0, 0), (1, 0x1000, 0)];
    for &(choice, value, more) in begin.iter().chain(choices) {
        let set = [Isa::A32, Isa::T32, Isa::T32, Isa::ThumbEe][(more >> 30) as usize];
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
        let cycles = more >> (more & 31);
        let counted = config.cycle_accurate.then_some(cycles);
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
                address,
                isa,
                reason: [
                    None,
                    Some(TraceOnReason::BeginOrFilter),
                    Some(TraceOnReason::Overflow),
                    Some(TraceOnReason::DebugRestart),
                ][(more >> 4 & 3) as usize],
                non_secure: flag(6),
                hyp: flag(7),
                context_id: (id_bits > 0).then_some(id),
                cycles: counted.filter(|_| more >> 4 & 3 != 0),
            }),
            2..=4 if !config.cycle_accurate => {
                let count = (more % 5 + 1) as u8;
                Packet::Atoms(Atoms {
                    bits: value as u32 & ((1 << count) - 1),
                    count,
                })
            }
            2..=4 => Packet::TimedAtom {
                taken: flag(4),
                cycles,
            },
            5..=7 if !encoder.known.needs_information(isa) => Packet::Branch(Branch {
                address: part(&encoder, false),
                information: None,
                cycles: counted,
            }),
            5..=8 => {
                let hyp = flag(4).then_some(flag(5));
                let most = if hyp.is_some() { 512 } else { 16 };
                Packet::Branch(Branch {
                    address: part(&encoder, true),
                    information: Some(Information {
                        exception: (value >> 40) as u16 % most,
                        non_secure: flag(6),
                        hyp,
                    }),
                    cycles: counted,
                })
            }
            9 => {
                let mut address = part(&encoder, false);
                if encoder.known.needs_information(isa) {
                    address.bits = 32;
                }
                Packet::WaypointUpdate { address }
            }
            10 => Packet::Trigger,
            11 if id_bits > 0 => Packet::ContextId(id),
            12 => Packet::Vmid(value as u8),
            13 | 14 => {
                let value = value >> (more & 63);
                let wide = config.timestamp.wide;
                Packet::Timestamp(Timestamp {
                    value: if wide {
                        value
                    } else {
                        value & 0xffff_ffff_ffff
                    },
                    frequency_changed: flag(4),
                    cycles: counted,
                })
            }
            15 => Packet::ExceptionReturn,
            _ => Packet::Ignore,
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
        etmccer in prop::sample::select(vec![0_u32, 0x34c0_1ac2, 0x20c0_18ea, 0x10c0_18ea]),
    ) {
        let config = config(etmcr, etmccer);
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
