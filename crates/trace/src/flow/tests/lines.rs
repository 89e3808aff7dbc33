//! Straight lines to exceptions, waypoint updates and source addresses; Q elements.

use super::*;
use std::cell::Cell;

#[test]
fn an_exception_runs_to_its_return_address() {
    let code = || a64(&[(0x1000, &[NOP, NOP, NOP, RET]), (0x2000, &[NOP, ERET])]);
    let out = run(
        STACK,
        code(),
        &[
            address(0x1000),
            exception(0x1008),
            address(0x2000),
            atoms("E"),
        ],
    );
    assert_eq!(
        out,
        [
            "1000-1008 2 other E",
            "exception 1008",
            "2000-2008 2 indirect E"
        ]
    );
    // The exception occurs first.
    let out = run(STACK, code(), &[address(0x1000), exception(0x1000)]);
    assert_eq!(out, ["exception 1000"]);
    let out = run(STACK, code(), &[address(0x1008), exception(0x1000)]);
    assert_eq!(out, ["exception 1000"]);
    // It occurs in missing code.
    let code_ends = a64(&[(0x1000, &[NOP])]);
    let out = run(STACK, code_ends, &[address(0x1000), exception(0x1018)]);
    assert_eq!(
        out,
        ["1000-1004 1 other E", "missing 1004", "exception 1018"]
    );
    // Its address is not that of an instruction.
    let out = run(STACK, code(), &[address(0x1000), exception(0x1006)]);
    assert_eq!(out[1], "exception 1006");
    assert!(out[0].starts_with("NotReached"), "{out:?}");
    // Atoms after it need an address.
    let out = run(
        STACK,
        code(),
        &[address(0x1000), exception(0x1008), atoms("E")],
    );
    assert_eq!(out.len(), 2);
}

#[test]
fn a_line_to_an_exception_runs_over_no_waypoint() {
    const CBZ: u32 = 0xb400_0060;
    const ISB: u32 = 0xd503_3fdf;
    const DSB: u32 = 0xd503_3f9f;
    const WFI: u32 = 0xd503_207f;
    const ALL: FlowConfig = FlowConfig {
        waypoints: Waypoints {
            barriers: true,
            waits: true,
        },
        ..STACK
    };
    let gap = |config, over| {
        let code = a64(&[(0x1000, &[NOP, over, NOP, RET])]);
        let out = run(config, code, &[address(0x1000), exception(0x1008)]);
        match &*out[0] {
            "1000-1008 2 other E" => false,
            first => {
                assert!(first.starts_with("NotReached"), "{out:?}");
                assert_eq!(out[1..], ["exception 1008"]);
                true
            }
        }
    };
    for over in [bl(0x1004, 0x2000), CBZ, RET, ERET, ISB] {
        assert!(gap(STACK, over), "{over:x}");
    }
    for over in [DSB, WFI] {
        assert!(!gap(STACK, over), "{over:x}");
        assert!(gap(ALL, over), "{over:x}");
    }
    // Interrupted before it, or after it with an atom.
    let code = || a64(&[(0x1000, &[NOP, CBZ, NOP, RET])]);
    let out = run(STACK, code(), &[address(0x1000), exception(0x1004)]);
    assert_eq!(out, ["1000-1004 1 other E", "exception 1004"]);
    let out = run(
        STACK,
        code(),
        &[address(0x1000), atoms("N"), exception(0x100c)],
    );
    let want = [
        "1000-1008 2 branch N",
        "1008-100c 1 other E",
        "exception 100c",
    ];
    assert_eq!(out, want);
    // A popped return address can start such a line too.
    let code = a64(&[
        (0x1000, &[bl(0x1000, 0x2000), NOP, CBZ, NOP, NOP]),
        (0x2000, &[RET]),
    ]);
    let out = run(
        STACK,
        code,
        &[address(0x1000), atoms("EE"), exception(0x1010)],
    );
    assert!(out[2].starts_with("NotReached"), "{out:?}");
}

#[test]
fn a_line_ends_before_an_interrupted_t32_instruction() {
    let code = |halfwords: &[u16]| {
        let mut code = Pieces::default();
        let bytes = halfwords.iter().flat_map(|half| half.to_le_bytes());
        code.add(Address(0x1000), bytes.collect());
        code
    };
    let at = |address| Element::Address {
        address: Address(address),
        isa: Isa::T32,
    };
    // nop; ldm.w r4!, {r0, r1, r2, r8}; nop
    let ldm = || code(&[0xbf00, 0xe8b4, 0x0107, 0xbf00]);
    let twice = [at(0x1000), exception(0x1004), at(0x1000), exception(0x1004)];
    let out = run(STACK, ldm(), &twice);
    assert_eq!(out[..2], ["1000-1002 1 other E", "exception 1004"]);
    assert_eq!(out[2..], out[..2]);
    let out = run(STACK, ldm(), &[at(0x1002), exception(0x1004)]);
    assert_eq!(out, ["exception 1004"]);
    // No exception interrupts a branch in the middle, and no instruction has a third byte.
    let bl = code(&[0xbf00, 0xf000, 0xf800, 0xbf00]);
    let out = run(STACK, bl, &[at(0x1000), exception(0x1004)]);
    assert!(out[0].starts_with("NotReached"), "{out:?}");
    let out = run(STACK, ldm(), &[at(0x1000), exception(0x1005)]);
    assert!(out[0].starts_with("NotReached"), "{out:?}");
}

#[test]
fn a_source_address_implies_only_conditional_branches_before_it() {
    const CBZ: u32 = 0xb400_0060;
    let run = |over| {
        let code = a64(&[(0x1000, &[NOP, over, bl(0x1008, 0x2000)]), (0x2000, &[RET])]);
        let from = Element::SourceAddress {
            address: Address(0x1008),
            isa: Isa::A64,
        };
        run(STACK, code, &[address(0x1000), from, atoms("E")])
    };
    assert_eq!(run(CBZ), ["1000-100c 3 branch E", "2000-2004 1 indirect E"]);
    let out = run(bl(0x1004, 0x2000));
    assert!(out[0].starts_with("NotReached"), "{out:?}");
    assert_eq!(out[1..], ["1008-100c 1 branch E", "2000-2004 1 indirect E"]);
}

/// Code that counts how often it is read.
struct Counted(Pieces, Cell<u32>);

impl CodeImage for Counted {
    fn view(&self, context: &ContextKey) -> View {
        self.0.view(context)
    }
    fn slice(&self, view: View, address: Address) -> &[u8] {
        self.1.set(self.1.get() + 1);
        self.0.slice(view, address)
    }
}

#[test]
fn a_line_is_walked_once() {
    let code = Counted(a64(&[(0x1000, &[NOP, NOP, RET])]), Cell::new(0));
    let mut flow = Flow::new(STACK, &code);
    let mut counts = Vec::new();
    for _ in 0..3 {
        let mut log = Log::default();
        for element in [address(0x1000), exception(0x1008)] {
            flow.element(BufferOffset(0), element, &mut log);
        }
        let out: Vec<_> = log.0.iter().map(|(_, out)| line(out)).collect();
        assert_eq!(out, ["1000-1008 2 other E", "exception 1008"]);
        counts.push(code.1.get());
    }
    assert_eq!(counts[1..], [counts[0]; 2]);
    // The same line including its last instruction is a different one.
    let mut log = Log::default();
    let inclusive = Element::RunTo {
        end: Address(0x1008),
        inclusive: true,
    };
    for element in [address(0x1000), inclusive] {
        flow.element(BufferOffset(0), element, &mut log);
    }
    assert_eq!(line(&log.0[0].1), "1000-100c 3 indirect E");
}

#[test]
fn an_exception_here_returns_to_the_current_address() {
    let here = Element::ExceptionHere(Exception {
        number: 3,
        name: "IRQ",
        return_address: None,
    });
    let out = run(STACK, calls(), &[here, address(0x1000), atoms("EE"), here]);
    assert_eq!(out[0], "exception");
    assert_eq!(out[3], "exception 1004");
}

#[test]
fn an_exception_without_an_address_gets_the_current_one_if_configured() {
    let without_address = Element::Exception(Exception {
        number: 3,
        name: "IRQ",
        return_address: None,
    });
    let elements = [address(0x1000), atoms("EE"), without_address];
    assert_eq!(run(STACK, calls(), &elements)[2], "exception");
    let here = FlowConfig {
        exceptions_here: true,
        ..STACK
    };
    assert_eq!(run(here, calls(), &elements)[2], "exception 1004");
}

#[test]
fn an_exception_beyond_missing_memory_reports_the_missing_memory() {
    let code = || a64(&[(0x1000, &[NOP])]);
    let out = run(
        STACK,
        code(),
        &[address(0x1000), atoms("E"), exception(0x1010)],
    );
    let want = [
        "1000-1004 1 other E",
        "missing 1004",
        "missing 1004",
        "exception 1010",
    ];
    assert_eq!(out, want);
    let out = run(
        STACK,
        code(),
        &[address(0x1000), atoms("E"), exception(0x1004)],
    );
    assert_eq!(out[2..], ["exception 1004"]);
}

#[test]
fn a_waypoint_update_takes_its_instruction() {
    let to = |end, inclusive| Element::RunTo {
        end: Address(end),
        inclusive,
    };
    let code = || a64(&[(0x1000, &[NOP, bl(0x1004, 0x1000), NOP, RET])]);
    let out = run(
        STACK,
        code(),
        &[address(0x1000), to(0x1004, true), atoms("E")],
    );
    assert_eq!(out, ["1000-1008 2 branch E", "1000-1008 2 branch E"]);
    let out = run(
        STACK,
        code(),
        &[address(0x1000), to(0x1000, true), atoms("E")],
    );
    assert_eq!(out, ["1000-1004 1 other E", "1004-1008 1 branch E"]);
    let out = run(
        STACK,
        code(),
        &[address(0x1000), to(0x1008, false), atoms("E")],
    );
    assert!(out[0].starts_with("NotReached"), "{out:?}");
    assert_eq!(out.len(), 1);
    assert!(run(STACK, code(), &[to(0x1004, true)]).is_empty());
}

#[test]
fn a_waypoint_update_does_not_hide_missing_memory() {
    let code = a64(&[(0x1000, &[NOP])]);
    let update = Element::RunTo {
        end: Address(0x1000),
        inclusive: true,
    };
    let again = [address(0x1000), update, address(0x1000), atoms("E")];
    let want = ["1000-1004 1 other E", "1000-1004 1 other E", "missing 1004"];
    assert_eq!(run(STACK, code, &again), want);
}

#[test]
fn a_source_address_needs_no_current_address() {
    let from = |address| Element::SourceAddress {
        address: Address(address),
        isa: Isa::A64,
    };
    let out = run(STACK, calls(), &[from(0x1004), from(0x2004), atoms("E")]);
    assert_eq!(out[..2], ["1004-1008 1 branch E", "2000-2008 2 indirect E"]);
    assert_eq!(out[2..], ["1008-100c 1 indirect E"]);
    let out = run(
        STACK,
        calls(),
        &[address(0x1008), from(0x1000), from(0x3000)],
    );
    assert_eq!(out[..1], ["1000-1004 1 branch E"]);
    assert!(out[1].starts_with("NotReached"), "{out:?}");
    assert_eq!(out.len(), 2);
}

#[test]
fn execution_continues_at_a_source_address_after_a_hole_in_memory() {
    let from = |address| Element::SourceAddress {
        address: Address(address),
        isa: Isa::A64,
    };
    let code = || {
        a64(&[
            (0x1000, &[NOP, NOP]),
            (0x1100, &[bl(0x1100, 0x1200), NOP, ERET]),
            (0x1200, &[RET]),
        ])
    };
    // The hole is at the last known address.
    let out = run(STACK, code(), &[address(0x1080), from(0x1100), atoms("EE")]);
    let want = [
        "missing 1080",
        "1100-1104 1 branch E",
        "1200-1204 1 indirect E",
        "1104-110c 2 indirect E",
    ];
    assert_eq!(out, want);
    // The hole is on the way, or in the middle of an instruction.
    let out = run(STACK, code(), &[address(0x1000), from(0x1100)]);
    let want = [
        "1000-1008 2 other E",
        "missing 1008",
        "1100-1104 1 branch E",
    ];
    assert_eq!(out, want);
    // The instruction is missing as well: one gap.
    let lost = [address(0x1000), from(0x1180), atoms("E")];
    let out = run(STACK, code(), &lost);
    assert_eq!(out, ["1000-1008 2 other E", "missing 1008"]);
    // The same from a cached block, with no address known afterwards.
    let out = run(STACK, code(), &[&lost[..], &lost, &[from(0x1200)]].concat());
    assert_eq!(out[2..4], out[..2]);
    assert_eq!(out[4..], ["1200-1204 1 indirect E"]);
}

#[test]
fn execution_continues_at_a_source_address_that_no_line_reaches() {
    // The source address is inside a 32-bit instruction: the image contradicts the trace.
    let mut code = Pieces::default();
    let halfwords = [0xbf00_u16, 0xf3af, 0x8000, 0x4770]; // nop; nop.w; bx lr
    code.add(
        Address(0x1000),
        halfwords.iter().flat_map(|h| h.to_le_bytes()).collect(),
    );
    let at = |address| Element::Address {
        address: Address(address),
        isa: Isa::T32,
    };
    let from = |address| Element::SourceAddress {
        address: Address(address),
        isa: Isa::T32,
    };
    let out = run(STACK, code, &[at(0x1000), from(0x1004), atoms("E")]);
    assert!(out[0].starts_with("NotReached"), "{out:?}");
    assert_eq!(out[1..], ["1004-1006 1 other E", "1006-1008 1 indirect E"]);
}

#[test]
fn q_elements_with_a_known_path_are_ranges() {
    let q = |instructions| Element::Q { instructions };
    let out = run(
        STACK,
        calls(),
        &[address(0x2000), q(Some(2)), address(0x1004), atoms("E")],
    );
    assert_eq!(out, ["2000-2008 2 indirect E", "1004-1008 1 branch E"]);
    let out = run(
        STACK,
        calls(),
        &[address(0x2000), q(Some(1)), address(0x2004)],
    );
    assert_eq!(out, ["2000-2004 1 other E"]);
    let out = run(
        STACK,
        calls(),
        &[address(0x1000), q(Some(4)), address(0x1008)],
    );
    assert_eq!(out, ["q 1000 1008 Some(4)"]);
    let out = run(STACK, calls(), &[address(0x1000), q(None), address(0x1008)]);
    assert_eq!(out, ["q 1000 1008 None"]);
    assert!(run(STACK, calls(), &[q(Some(3)), address(0x1008)]).is_empty());
    assert!(run(STACK, calls(), &[address(0x1000), q(Some(3)), atoms("E")]).is_empty());
}

#[test]
fn a_q_element_after_an_unknown_target_starts_after_the_last_known_branch() {
    let q = Element::Q {
        instructions: Some(1),
    };
    // The function runs twice, so that its block is cached the second time.
    let again = [address(0x2000), atoms("E")];
    let elements = [&again[..], &again, &[q, address(0x1004), atoms("E")]].concat();
    let out = run(FlowConfig::default(), calls(), &elements);
    assert_eq!(out[2..], ["q 2008 1004 Some(1)", "1004-1008 1 branch E"]);
    // An atom at the unknown target changes nothing.
    let elements = [address(0x2000), atoms("EN"), q, address(0x1004)];
    let out = run(FlowConfig::default(), calls(), &elements);
    assert_eq!(out[1..], ["no target 2008", "q 2008 1004 Some(1)"]);
}
