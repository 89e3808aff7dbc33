use super::*;
use crate::element::Mark;
use crate::encode::tests::{Mix, Program, Sets, leads_through};
use crate::etmv3::{self, Decoder, Elements, Registers};
use crate::flow::FlowConfig;
use crate::protocol::Core;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_trace_of_a_program_decodes_to_it(
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
        let (core, sets) = match micro {
            true => (Core::microcontroller(7), Sets::Microcontroller),
            false => (Core::default(), Sets::AArch32),
        };
        let config = Config::read(&registers, core);
        let mut program = Program::random(seed, Mix::all(sets), 600);
        // A cycle takes at least an eighth of a byte.
        program.most_cycles = 0x3f;
        let bytes = program.trace(etmv3::TraceUnit::new(config), sync_bytes);
        let decoders = || (Decoder::new(&config), Elements::new(&config));
        let marks = leads_through(&program, &bytes, sync_bytes, FlowConfig::default(), decoders);
        if micro {
            let returns = marks.iter().filter(|m| **m == Mark::ExceptionReturn);
            prop_assert_eq!(returns.count(), program.exception_returns());
        }
        let times = marks.into_iter().filter(|mark| matches!(mark, Mark::Timestamp(_)));
        prop_assert_eq!(times.collect::<Vec<_>>(), program.timestamps(config.timestamp));
    }
}
