//! Atoms: of waypoints and of instructions, with cycles, cancelled.

use super::*;

#[test]
fn waypoints_are_configured() {
    // dsb sy; wfi; tstart x0; isb; ret
    let code = || {
        a64(&[(
            0x1000,
            &[0xd503_3f9f, 0xd503_207f, 0xd523_3060, 0xd503_3fdf, RET],
        )])
    };
    let out = run(STACK, code(), &[address(0x1000), atoms("EEE")]);
    let always = [
        "1000-100c 3 transaction E",
        "100c-1010 1 isb E",
        "1010-1014 1 indirect E",
    ];
    assert_eq!(out, always);
    let all = FlowConfig {
        waypoints: Waypoints {
            barriers: true,
            waits: true,
        },
        ..STACK
    };
    let out = run(all, code(), &[address(0x1000), atoms("EEEE")]);
    let kinds = [
        "1000-1004 1 barrier E",
        "1004-1008 1 wfi E",
        "1008-100c 1 transaction E",
    ];
    assert_eq!(out[..3], kinds);
    assert_eq!(out[3..], ["100c-1010 1 isb E"]);
}

#[test]
fn cycles_belong_to_their_range() {
    let timed = |taken, cycles| Element::TimedAtom { taken, cycles };
    let out = run(
        STACK,
        calls(),
        &[
            timed(true, 1),
            address(0x1000),
            timed(false, 5),
            timed(true, 7),
        ],
    );
    assert_eq!(
        out,
        [
            "1000-1004 1 branch N cycles 5",
            "1004-1008 1 branch E cycles 7"
        ]
    );
}

#[test]
fn an_exception_return_without_a_packet_gives_a_mark() {
    let config = FlowConfig {
        exception_returns: true,
        ..STACK
    };
    let twice = [address(0x1008), atoms("E"), address(0x1008), atoms("E")];
    let out = run(config, calls(), &twice);
    let once = ["1008-100c 1 indirect E", "exception return"];
    assert_eq!(out, [once, once].concat());
    assert_eq!(run(STACK, calls(), &twice), [once[0], once[0]]);
}

#[test]
fn thumb_calls_arm_and_back() {
    let mut code = Pieces::default();
    // 0x1002: blx 0x2000 (T32) ; 0x1006: it eq; bxeq lr | 0x2000: bx lr (A32)
    code.add(
        Address(0x1002),
        [0xf000_u16, 0xeffe, 0xbf08, 0x4770]
            .map(u16::to_le_bytes)
            .concat(),
    );
    code.add(Address(0x2000), words(&[0xe12f_ff1e]));
    let start = Element::Address {
        address: Address(0x1002),
        isa: Isa::T32,
    };
    let mut flow = Flow::new(STACK, code);
    let mut log = Log::default();
    for element in [start, atoms("EEN")] {
        flow.element(BufferOffset(0), element, &mut log);
    }
    let ranges: Vec<_> = log
        .0
        .iter()
        .map(|(_, out)| match out {
            Out::Range(range, _) => (range.start.0, range.end.0, range.isa, range.last),
            other => panic!("{other:?}"),
        })
        .collect();
    let last = |kind, taken, link, returns, conditional| LastInstruction {
        kind,
        taken,
        link,
        returns,
        conditional,
    };
    let branch = last(InstructionKind::Branch, true, true, false, false);
    assert_eq!(ranges[0], (0x1002, 0x1006, Isa::T32, branch));
    let back = last(InstructionKind::Indirect, true, false, true, false);
    assert_eq!(ranges[1], (0x2000, 0x2004, Isa::A32, back));
    let conditional = last(InstructionKind::Indirect, false, false, true, true);
    assert_eq!(ranges[2], (0x1006, 0x100a, Isa::T32, conditional));
}

fn instructions(text: &str) -> Element {
    let Element::WaypointAtoms(atoms) = atoms(text) else {
        unreachable!()
    };
    Element::InstructionAtoms(atoms)
}

#[test]
fn instruction_atoms_count_instructions() {
    let code = || a64(&[(0x1000, &[NOP, bl(0x1004, 0x1000), RET])]);
    let flush = Element::Mark(Mark::Trigger);
    let out = run(
        STACK,
        code(),
        &[address(0x1000), instructions("ENE"), flush],
    );
    let want = [
        "1000-1004 1 other E",
        "1004-1008 1 branch N",
        "1008-100c 1 indirect E",
    ];
    assert_eq!(out[..3], want);
    let timed = Element::TimedInstructions {
        atoms: Atoms {
            bits: 0b11,
            count: 2,
        },
        first: 9,
        each: 1,
    };
    let out = run(STACK, code(), &[address(0x1004), timed, flush]);
    let want = [
        "1004-1008 1 branch E cycles 9",
        "1000-1004 1 other E cycles 1",
    ];
    assert_eq!(out[..2], want);
    // Cycles are counted where execution cannot be followed.
    let none = FlowConfig::default();
    let out = run(none, code(), &[address(0x1008), timed, timed, flush]);
    assert_eq!(out[0], "1008-100c 1 indirect E cycles 9");
    assert_eq!(out[1..4], ["no target 100c", "Cycles(1)", "Cycles(10)"]);
    // The element decides what an atom stands for.
    let out = run(
        STACK,
        code(),
        &[address(0x1000), instructions("E"), atoms("E")],
    );
    assert_eq!(out, ["1000-1004 1 other E", "1004-1008 1 branch E"]);
}

#[test]
fn the_last_instruction_may_be_cancelled() {
    let code = || a64(&[(0x1000, &[NOP, NOP, ERET])]);
    let cancel = Element::CancelInstruction;
    let out = run(
        STACK,
        code(),
        &[address(0x1000), instructions("EE"), cancel, address(0)],
    );
    assert_eq!(out, ["1000-1004 1 other E"]);
    let returned = Element::Mark(Mark::ExceptionReturn);
    let back = [
        address(0x1004),
        instructions("EE"),
        returned,
        cancel,
        address(0),
    ];
    assert_eq!(run(STACK, code(), &back), ["1004-1008 1 other E"]);
    let kept = [
        address(0x1008),
        instructions("E"),
        returned,
        address(0),
        cancel,
    ];
    let out = run(STACK, code(), &kept);
    assert_eq!(out, ["1008-100c 1 indirect E", "exception return"]);
}
