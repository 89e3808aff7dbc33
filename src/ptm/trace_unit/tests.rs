use super::*;
use crate::encode::tests::{Mix, Program, Sets, Step, decoded, same};
use crate::etmv3::registers::Registers;
use crate::flow::{FlowConfig, Waypoints};
use crate::protocol::PacketDecoder;
use crate::ptm::{Decoder, Elements};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_trace_of_a_program_leads_through_it(
        seed in any::<u64>(),
        etmcr in prop::sample::select(
            vec![0_u32, 0x1000, 0x4100, 0x2000_c000, 0x2000_1000, 0x2000_0100],
        ),
        etmccer in prop::sample::select(vec![0x34c0_1ac2_u32, 0x35c0_1ac2, 0x04c0_1ac2]),
        sync_bytes in prop::sample::select(vec![0_usize, 30, 100, 1000]),
    ) {
        let config = Config::new(Registers {
            etmcr,
            etmccer,
            etmidr: 0x411c_f312,
            etmtraceidr: 2,
        });
        let waypoints = Waypoints {
            barriers: config.barriers_are_waypoints,
            ..Waypoints::default()
        };
        let flow = FlowConfig {
            waypoints,
            return_stack: config.return_stack,
            ..FlowConfig::default()
        };
        let program = Program::random(seed, Mix::all(Sets::AArch32), 600);
        let bytes = program.trace(TraceUnit::new(config), sync_bytes);
        let decode = |bytes: &[u8]| {
            decoded(Decoder::new(config), Elements::new(), flow, &program.code, bytes)
        };
        let (executed, marks) = decode(&bytes);
        same(&executed, &program.executed, "from the begin");
        let mask = if config.timestamp.wide { u64::MAX } else { (1 << 48) - 1 };
        let said: Vec<Mark> = program.steps.iter().filter_map(|step| match step {
            Step::Mark(Mark::Timestamp(value)) => Some(Mark::Timestamp(value & mask)),
            _ => None,
        }).collect();
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
