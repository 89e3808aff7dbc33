use super::*;
use crate::element::Mark;
use crate::encode::tests::{Mix, Program, Sets, leads_through};
use crate::flow::FlowConfig;
use crate::protocol::Core;
use crate::ptm::{self, Decoder, Elements, Registers};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_trace_of_a_program_decodes_to_it(
        seed in any::<u64>(),
        etmcr in prop::sample::select(
            vec![0_u32, 0x1000, 0x4100, 0x2000_c000, 0x2000_1000, 0x2000_0100],
        ),
        etmccer in prop::sample::select(vec![0x34c0_1ac2_u32, 0x35c0_1ac2, 0x04c0_1ac2]),
        sync_bytes in prop::sample::select(vec![0_usize, 30, 100, 1000]),
    ) {
        let registers = Registers {
            etmcr,
            etmccer,
            etmidr: 0x411c_f312,
            etmtraceidr: 2,
        };
        let config = Config::read(&registers, Core::default());
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
        let bytes = program.trace(ptm::TraceUnit::new(config), sync_bytes);
        let decoders = || (Decoder::new(&config), Elements::new(&config));
        let marks = leads_through(&program, &bytes, sync_bytes, flow, decoders);
        let times = marks.into_iter().filter(|mark| matches!(mark, Mark::Timestamp(_)));
        prop_assert_eq!(times.collect::<Vec<_>>(), program.timestamps(config.timestamp));
    }
}
