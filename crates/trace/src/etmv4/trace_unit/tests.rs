use super::*;
use crate::encode::Tracer;
use crate::encode::tests::{Mix, Program, Sets, decoded, leads_through, same};
use crate::etmv4::{Decoder, Elements};
use crate::flow::{FlowConfig, Pieces};
use crate::protocol::tests::whole_packets;
use armsnap_arch::quantity::Address;
use proptest::prelude::*;

fn options(switches: [bool; 6], cycles: Option<u32>) -> TraceUnitOptions {
    TraceUnitOptions {
        cycles,
        timestamps: switches[0],
        context_ids: switches[1],
        vmids: switches[2],
        return_stack: switches[3],
        branch_broadcast: switches[4],
        ..TraceUnitOptions::default()
    }
}

fn flow(options: &TraceUnitOptions) -> FlowConfig {
    FlowConfig {
        return_stack: options.return_stack,
        ..FlowConfig::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_trace_of_a_program_decodes_to_it(
        seed in any::<u64>(),
        sets in prop::sample::select(
            vec![Sets::AArch64, Sets::AArch32, Sets::Both, Sets::Microcontroller],
        ),
        version in 7u8..9,
        switches in any::<[bool; 6]>(),
        cycles in prop::option::of(1u32..300),
        sync_bytes in prop::sample::select(vec![0usize, 30, 100, 1000]),
    ) {
        let mut options = options(switches, cycles);
        if sets == Sets::Microcontroller {
            options.core = Core::microcontroller(version);
        }
        let program = Program::random(seed, Mix::all(sets), 600);
        let bytes = program.trace(TraceUnit::new(options), sync_bytes);
        let config = options.config();
        let decoders = || (Decoder::new(&config), Elements::new(&config));
        let marks = leads_through(&program, &bytes, sync_bytes, flow(&options), decoders);
        let times = |marks: &[Mark]| -> Vec<Mark> {
            let listed = marks.iter().filter(|m| matches!(m, Mark::Timestamp(_) | Mark::Event(_)));
            listed.copied().collect()
        };
        let timestamp = |mark: &Mark| matches!(mark, Mark::Timestamp(_));
        let said = program.marks().filter(|mark| options.timestamps || !timestamp(mark));
        prop_assert_eq!(times(&marks), said.collect::<Vec<_>>());
        if sets == Sets::Microcontroller {
            prop_assert_eq!(returns(&marks), program.exception_returns());
        }
    }
}

fn returns(marks: &[Mark]) -> usize {
    let returns = marks.iter().filter(|m| **m == Mark::ExceptionReturn);
    returns.count()
}

/// 0x1000: bl 0x2000; bl 0x2000; b 0x1000 | 0x2000: nop; ret
fn calls() -> Pieces {
    let mut code = Pieces::default();
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    code.add(
        Address(0x1000),
        words(&[0x9400_0400, 0x9400_03ff, 0x17ff_fffe]),
    );
    code.add(Address(0x2000), words(&[0xd503_201f, 0xd65f_03c0]));
    code
}

fn at(address: u64) -> CodeAddress {
    CodeAddress {
        address: Address(address),
        isa: Isa::A64,
    }
}

fn traced(options: TraceUnitOptions, rounds: usize) -> Vec<Packet> {
    let mut tracer = Tracer::new(TraceUnit::new(options), calls(), 0);
    for _ in 0..rounds {
        for (start, end) in [
            (0x1000, 0x1004),
            (0x2000, 0x2008),
            (0x1004, 0x1008),
            (0x2000, 0x2008),
            (0x1008, 0x100c),
        ] {
            tracer.run(at(start), Address(end));
        }
    }
    tracer.finish(None);
    let mut bytes = Vec::new();
    tracer.take(&mut bytes);
    // The A-sync, trace info, trace on and the first address.
    whole_packets(&mut Decoder::new(&options.config()), &bytes).split_off(4)
}

fn e(count: u8, format: u8) -> Packet {
    Packet::Atoms {
        format,
        atoms: Atoms {
            bits: (1 << count) - 1,
            count,
        },
    }
}

#[test]
fn the_return_stack_omits_return_addresses() {
    let options = TraceUnitOptions {
        return_stack: true,
        ..TraceUnitOptions::default()
    };
    assert_eq!(traced(options, 5), [e(24, 6), e(1, 1)]);
}

#[test]
fn addresses_have_their_shortest_form() {
    let low = |value, bits| {
        Packet::Address(AddressBits::Low {
            value,
            bits,
            is: InstructionSet::Is0,
        })
    };
    let again = |entry| Packet::Address(AddressBits::Match(entry));
    let once = [e(2, 2), low(4, 9), e(2, 2), low(8, 9)];
    let twice = [e(3, 3), again(1), e(2, 2), again(1), e(1, 1)];
    assert_eq!(
        traced(TraceUnitOptions::default(), 2),
        [&once[..], &twice].concat()
    );
}

#[test]
fn branch_broadcasting_traces_every_target() {
    let options = TraceUnitOptions {
        branch_broadcast: true,
        ..TraceUnitOptions::default()
    };
    let addresses = traced(options, 3)
        .iter()
        .filter(|p| matches!(p, Packet::Address(_)))
        .count();
    assert_eq!(addresses, 15);
}

#[test]
fn a_jump_that_no_branch_explains_is_a_gap() {
    let options = TraceUnitOptions::default();
    let mut tracer = Tracer::new(TraceUnit::new(options), calls(), 0);
    tracer.run(at(0x1000), Address(0x1004));
    // The branch leads to 0x2000.
    tracer.run(at(0x1004), Address(0x1008));
    // There is no code at 0x3000.
    tracer.run(at(0x3000), Address(0x3004));
    tracer.run(at(0x2000), Address(0x2008));
    tracer.finish(Some(at(0x1008)));
    assert_eq!(tracer.gaps(), 3);
    let mut bytes = Vec::new();
    tracer.take(&mut bytes);
    let config = options.config();
    let (executed, _) = decoded(
        Decoder::new(&config),
        Elements::new(&config),
        flow(&options),
        &calls(),
        &bytes,
    );
    same(
        &executed,
        &[at(0x1000), at(0x1004), at(0x2000), at(0x2004)],
        "with gaps",
    );
}

#[test]
fn tstart_has_an_atom() {
    // nop; tstart x0; nop; ret
    let mut code = Pieces::default();
    let words = [0xd503_201f_u32, 0xd523_3060, 0xd503_201f, 0xd65f_03c0];
    code.add(Address(0x1000), words.map(u32::to_le_bytes).concat());
    let options = TraceUnitOptions::default();
    let mut tracer = Tracer::new(TraceUnit::new(options), code, 0);
    tracer.run(at(0x1000), Address(0x1010));
    tracer.finish(None);
    let mut bytes = Vec::new();
    tracer.take(&mut bytes);
    let packets = whole_packets(&mut Decoder::new(&options.config()), &bytes);
    assert_eq!(packets[4..], [e(2, 2)]);
}
