use super::*;
use crate::encode::tests::{Mix, Program, Sets, Step, decoded, same};
use crate::etmv3::registers::Registers;
use crate::etmv3::{Decoder, Elements};
use crate::flow::FlowConfig;
use crate::protocol::PacketDecoder;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_trace_of_a_program_leads_through_it(
        seed in any::<u64>(),
        etmcr in prop::sample::select(
            vec![0_u32, 0x1000, 0x4100, 0xc000, 0xd100],
        ),
        etmccer in prop::sample::select(vec![0x3440_08f2_u32, 0x0440_08f2]),
        etmidr in prop::sample::select(vec![0x410c_f250_u32, 0x411c_f250, 0x4110_f240]),
        micro in any::<bool>(),
        sync_bytes in prop::sample::select(vec![0_usize, 30, 100, 1000]),
    ) {
        let registers = Registers { etmcr, etmccer, etmidr, etmtraceidr: 2 };
        let (profile, sets) = match micro {
            true => (Profile::Microcontroller, Sets::Microcontroller),
            false => (Profile::ApplicationOrRealTime, Sets::AArch32),
        };
        let config = Config::new(registers, profile);
        let flow = FlowConfig::default();
        let mut program = Program::random(seed, Mix::all(sets), 600);
        // A cycle takes an eighth of a byte at least.
        program.most_cycles = 0x3f;
        let bytes = program.trace(TraceUnit::new(config), sync_bytes);
        let decode = |bytes: &[u8]| {
            decoded(Decoder::new(config), Elements::new(config), flow, &program.code, bytes)
        };
        let (executed, marks) = decode(&bytes);
        same(&executed, &program.executed, "from the begin");
        let mask = if config.timestamp.wide { u64::MAX } else { (1 << 48) - 1 };
        let said: Vec<Mark> = program.steps.iter().filter_map(|step| match step {
            Step::Mark(Mark::Timestamp(value)) => Some(Mark::Timestamp(value & mask)),
            _ => None,
        }).collect();
        if micro {
            let returns = marks.iter().filter(|m| **m == Mark::ExceptionReturn);
            prop_assert_eq!(returns.count(), program.exception_returns());
        }
        let times = marks.into_iter().filter(|mark| matches!(mark, Mark::Timestamp(_)));
        prop_assert_eq!(times.collect::<Vec<_>>(), said);
        // From synchronisations on.
        let mut decoder = Decoder::new(config);
        let (mut at, mut syncs) = (0, 0);
        while let Some((packet, length)) = decoder.next(&bytes[at..]) {
            prop_assert!(packet != Packet::Reserved && packet != Packet::BadSequence);
            if packet == Packet::ASync {
                syncs += 1;
                if syncs % 7 == 1 {
                    let (executed, _) = decode(&bytes[at..]);
                    let from = program.executed.len() - executed.len();
                    same(&executed, &program.executed[from..], "from a synchronisation");
                }
            }
            at += length;
        }
        prop_assert!(sync_bytes == 0 || bytes.len() < 40 * sync_bytes || syncs > 1);
    }
}
