//! Property test: the fast and the slow flow agree for any code and any elements.

use super::twin::Twin;
use super::*;
use crate::element::{Context, NoSyncReason, TraceOnReason};
use armsnap_arch::quantity::ExceptionLevel;
use proptest::prelude::*;

const BASE: u64 = 0x1000;
const SIZE: usize = 128;

/// An instruction of a kind that matters to the flow.
fn instruction(isa: Isa, choice: u8, argument: u32) -> Vec<u8> {
    let near = |bits: u32| ((argument % 24).wrapping_sub(12)) & ((1 << bits) - 1);
    let word = match (isa, choice % 16) {
        (Isa::A64, 0..=3) => 0xd503_201f,
        (Isa::A64, 4) => 0x1400_0000 | near(26),
        (Isa::A64, 5 | 6) => 0x9400_0000 | near(26),
        (Isa::A64, 7) => 0xb400_0000 | near(19) << 5,
        (Isa::A64, 8 | 9) => 0xd65f_03c0,
        (Isa::A64, 10) => 0xd63f_0020,
        (Isa::A64, 11) => 0xd69f_03e0,
        (Isa::A64, 12) => 0xd503_3fdf,
        (Isa::A64, 13) => [0xd503_3f9f, 0xd503_207f, 0xd523_3061][argument as usize % 3],
        (Isa::A32, 0..=3) => 0xe320_f000,
        (Isa::A32, 4) => 0xea00_0000 | near(24),
        (Isa::A32, 5 | 6) => 0xeb00_0000 | near(24),
        (Isa::A32, 7) => 0x0a00_0000 | near(24),
        (Isa::A32, 8) => 0xe12f_ff1e,
        (Isa::A32, 9) => 0xe12f_ff33,
        (Isa::A32, 10) => 0xfa00_0000 | near(24) | argument >> 7 << 24 & 1 << 24,
        (Isa::A32, 11) => 0xe8bd_8010,
        (Isa::A32, 12) => 0xf57f_f06f,
        (Isa::A32, 13) => [0xf57f_f04f, 0xe320_f003][argument as usize % 2],
        (Isa::T32, 0..=2) => return vec![0, 0xbf],
        (Isa::T32, 3) => return (0xbf04 | argument as u16 & 0xff).to_le_bytes().to_vec(),
        (Isa::T32, 4) => return (0xe000 | near(11) as u16).to_le_bytes().to_vec(),
        (Isa::T32, 5) => return (0xd000 | near(8) as u16).to_le_bytes().to_vec(),
        (Isa::T32, 6) => return vec![0x70, 0x47],
        (Isa::T32, 7) => return vec![0x98, 0x47],
        // BL and BLX backwards
        (Isa::T32, 8..=10) => 0xf800_f7ff | near(11) << 16,
        (Isa::T32, 11) => 0xe800_f7ff | (near(11) & !1) << 16,
        (Isa::T32, 12) => 0x8f6f_f3bf,
        // LDM, which an exception can interrupt in the middle
        (Isa::T32, 13) => 0x0107_e8b4,
        _ => argument,
    };
    word.to_le_bytes().to_vec()
}

/// Two pieces of memory that meet in the middle of an instruction.
fn code(isa: Isa, parts: &[(u8, u32)]) -> Pieces {
    let mut bytes: Vec<u8> = parts
        .iter()
        .flat_map(|(choice, argument)| instruction(isa, *choice, *argument))
        .collect();
    bytes.truncate(SIZE);
    let second = bytes.split_off(bytes.len().min(47));
    let mut pieces = Pieces::default();
    pieces.add(Address(BASE + bytes.len() as u64), second);
    pieces.add(Address(BASE), bytes);
    pieces
}

/// Any element; elements that correct decoders emit are more likely.
fn element(isa: Isa, choice: u8, argument: u32) -> Element {
    let step = if isa == Isa::T32 { 2 } else { 4 };
    let mut address = Address(BASE + u64::from(argument % 40) * step);
    if argument >> 30 == 3 {
        address.0 += 1;
    }
    let atoms = Atoms {
        bits: argument & ((1 << (argument >> 27 & 15)) - 1),
        count: (argument >> 27 & 15) as u8,
    };
    let taken = argument & 1 == 1;
    let exception = Exception {
        number: 1,
        name: "IRQ",
        return_address: (argument >> 29 > 0).then_some(address),
    };
    match choice % 32 {
        0..=9 if atoms.count > 0 => Element::WaypointAtoms(atoms),
        10 if atoms.count > 0 => Element::InstructionAtoms(atoms),
        11 if atoms.count > 0 => Element::TimedInstructions {
            atoms,
            first: argument as u8,
            each: (argument >> 8) as u8,
        },
        0..=4 | 10 | 11 => Element::TimedAtom {
            taken,
            cycles: argument,
        },
        5..=9 | 12..=18 => Element::Address { address, isa },
        19 | 20 => Element::RunTo {
            end: address,
            inclusive: argument >> 29 & 1 == 1,
        },
        21 => Element::SourceAddress { address, isa },
        22 => Element::Q {
            instructions: (argument >> 29 > 0).then_some(argument >> 16 & 7),
        },
        // At the next addresses, so that some lines lead there.
        23 => Element::Exception(Exception {
            return_address: Some(Address(BASE + u64::from(argument % 40) / 4 * step)),
            ..exception
        }),
        24 => Element::Exception(exception),
        25 => Element::ExceptionHere(Exception {
            return_address: None,
            ..exception
        }),
        26 => Element::CancelInstruction,
        27 => Element::Mark(Mark::ExceptionReturn),
        28 => match argument % 8 {
            0 => Element::Mark(Mark::TraceOn(TraceOnReason::Overflow)),
            1 => Element::Mark(Mark::NoSync(NoSyncReason::BadPacket)),
            2 => Element::Address {
                address,
                isa: [Isa::Jazelle, Isa::ThumbEe, Isa::A32, Isa::T32, Isa::A64]
                    [argument as usize % 5],
            },
            _ => Element::Mark(Mark::Timestamp(argument.into())),
        },
        _ => Element::Mark(Mark::Context(Context {
            isa: if argument & 15 == 0 { Isa::A32 } else { isa },
            el: Some(ExceptionLevel(argument as u8 >> 4 & 3)),
            is_64bit: (argument >> 8 & 1 == 1).then_some(argument & 15 != 0 && isa == Isa::A64),
            ..Context::default()
        })),
    }
}

fn parts(count: usize) -> impl Strategy<Value = Vec<(u8, u32)>> {
    prop::collection::vec(any::<(u8, u32)>(), 1..count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_fast_flow_equals_the_slow_one(
        isa in prop::sample::select(vec![Isa::A64, Isa::A32, Isa::T32]),
        user in parts(60),
        kernel in parts(60),
        elements in parts(200),
        switches in any::<[bool; 5]>(),
        small in any::<bool>(),
    ) {
        let code = Levels([code(isa, &user), code(isa, &kernel)]);
        let config = FlowConfig {
            waypoints: Waypoints {
                barriers: switches[0],
                waits: switches[1],
            },
            return_stack: switches[2],
            exception_returns: switches[3],
            exceptions_here: switches[4],
            most_blocks: if small { 6 } else { 1 << 20 },
        };
        let mut flow = Flow::new(config, &code);
        let mut log = Log::default();
        let mut twin = Twin::new(config, &code);
        let end = Element::Mark(Mark::End);
        let elements = elements.iter().map(|(choice, argument)| element(isa, *choice, *argument));
        for (index, element) in elements.chain([end]).enumerate() {
            let at = BufferOffset(index as u64);
            flow.element(at, element, &mut log);
            twin.element(at, element);
        }
        let same = log.0.iter().zip(&twin.out).take_while(|(fast, slow)| fast == slow).count();
        prop_assert_eq!(log.0.get(same), twin.out.get(same), "after {} of {}", same, log.0.len());
    }
}
