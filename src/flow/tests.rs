//! The flow, case by case.

use super::*;
use crate::element::{Atoms, Context, Element, Exception, Mark, TraceOnReason};
use crate::quantity::{Address, BufferOffset, ExceptionLevel, Isa, Security};

/// What came out, with blocks expanded.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Out {
    Range(Range, Option<u32>),
    Q(QRange),
    Exception(Exception),
    Gap(Gap),
    Mark(Mark),
}

#[derive(Debug, Default)]
pub(super) struct Log(pub Vec<(BufferOffset, Out)>);

impl FlowSink for Log {
    fn block(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        id: BlockId,
        taken: bool,
        cycles: Option<u32>,
    ) {
        let range = blocks.range(id, taken);
        assert_eq!(blocks.instructions(id), range.instructions);
        self.0.push((at, Out::Range(range, cycles)));
    }
    fn partial(&mut self, at: BufferOffset, range: &Range) {
        self.0.push((at, Out::Range(*range, None)));
    }
    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        self.0.push((at, Out::Q(*range)));
    }
    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.0.push((at, Out::Exception(*exception)));
    }
    fn gap(&mut self, at: BufferOffset, gap: Gap) {
        self.0.push((at, Out::Gap(gap)));
    }
    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        self.0.push((at, Out::Mark(*mark)));
    }
    fn forget(&mut self, _: &Blocks) {}
}

const NOP: u32 = 0xd503_201f;
const RET: u32 = 0xd65f_03c0;
const ERET: u32 = 0xd69f_03e0;

fn bl(from: u64, to: u64) -> u32 {
    0x9400_0000 | ((to.wrapping_sub(from) >> 2) as u32 & 0x3ff_ffff)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn a64(pieces: &[(u64, &[u32])]) -> Pieces {
    let mut code = Pieces::default();
    for (address, piece) in pieces {
        code.add(Address(*address), words(piece));
    }
    code
}

fn atoms(text: &str) -> Element {
    let bits = text.chars().enumerate().fold(0, |bits, (index, atom)| {
        bits | u32::from(atom == 'E') << index
    });
    Element::WaypointAtoms(Atoms {
        bits,
        count: text.len() as u8,
    })
}

fn instructions(text: &str) -> Element {
    let Element::WaypointAtoms(atoms) = atoms(text) else {
        unreachable!()
    };
    Element::InstructionAtoms(atoms)
}

fn address(address: u64) -> Element {
    Element::Address {
        address: Address(address),
        isa: Isa::A64,
    }
}

fn exception(return_address: u64) -> Element {
    Element::Exception(Exception {
        number: 1,
        name: "IRQ",
        return_address: Some(Address(return_address)),
    })
}

fn run(config: FlowConfig, code: impl CodeImage, elements: &[Element]) -> Vec<String> {
    let mut flow = Flow::new(config, code);
    let mut log = Log::default();
    for (index, element) in elements.iter().enumerate() {
        flow.element(BufferOffset(index as u64), *element, &mut log);
    }
    log.0.iter().map(|(_, out)| line(out)).collect()
}

/// One line for one output.
fn line(out: &Out) -> String {
    match out {
        Out::Range(range, cycles) => {
            let atom = if range.last.taken { 'E' } else { 'N' };
            let kind = range.last.kind.name();
            let mut text = format!(
                "{:x}-{:x} {} {kind} {atom}",
                range.start.0, range.end.0, range.instructions
            );
            if let Some(cycles) = cycles {
                text += &format!(" cycles {cycles}");
            }
            text
        }
        Out::Q(range) => format!(
            "q {:x} {:x} {:?}",
            range.start.0, range.end.0, range.instructions
        ),
        Out::Exception(exception) => match exception.return_address {
            Some(address) => format!("exception {:x}", address.0),
            None => "exception".into(),
        },
        Out::Gap(Gap::MemoryMissing(address)) => format!("missing {:x}", address.0),
        Out::Gap(gap) => format!("{gap:?}"),
        Out::Mark(Mark::ExceptionReturn) => "exception return".into(),
        Out::Mark(mark) => format!("{mark:?}"),
    }
}

/// A function at 0x2000, called twice in a row from 0x1000.
fn calls() -> Pieces {
    a64(&[
        (0x1000, &[bl(0x1000, 0x2000), bl(0x1004, 0x2000), ERET]),
        (0x2000, &[NOP, RET]),
    ])
}

const STACK: FlowConfig = FlowConfig {
    waypoints: Waypoints {
        barriers: false,
        waits: false,
        transactions: false,
    },
    return_stack: true,
    exception_returns: false,
    exceptions_here: false,
    most_blocks: 1 << 21,
};

#[test]
fn returns_come_from_the_stack() {
    let out = run(STACK, calls(), &[address(0x1000), atoms("EEEEE")]);
    let call = [
        "1000-1004 1 branch E",
        "2000-2008 2 indirect E",
        "1004-1008 1 branch E",
    ];
    assert_eq!(out[..3], call);
    assert_eq!(
        out[3..],
        ["2000-2008 2 indirect E", "1008-100c 1 indirect E"]
    );
}

#[test]
fn a_traced_target_leaves_the_stack_alone() {
    let elements = [
        address(0x1000),
        atoms("EE"),
        address(0x1004),
        atoms("EE"),
        // Both return addresses are still stacked.
        atoms("E"),
        address(0x2000),
        atoms("EE"),
    ];
    let out = run(STACK, calls(), &elements);
    let tail = [
        "1008-100c 1 indirect E",
        "2000-2008 2 indirect E",
        "1004-1008 1 branch E",
    ];
    assert_eq!(out[4..], tail);
}

#[test]
fn without_a_return_stack_atoms_wait_for_an_address() {
    let config = FlowConfig::default();
    let out = run(
        config,
        calls(),
        &[address(0x2000), atoms("EEE"), address(0x1000), atoms("E")],
    );
    assert_eq!(out, ["2000-2008 2 indirect E", "1000-1004 1 branch E"]);
}

#[test]
fn an_empty_return_stack_is_a_gap() {
    let out = run(
        STACK,
        calls(),
        &[address(0x2000), atoms("EEE"), address(0x1000), atoms("E")],
    );
    assert_eq!(
        out,
        [
            "2000-2008 2 indirect E",
            "ReturnStackEmpty",
            "1000-1004 1 branch E"
        ]
    );
}

#[test]
fn trace_on_empties_the_return_stack() {
    let on = Element::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter));
    let out = run(
        STACK,
        calls(),
        &[
            address(0x1000),
            atoms("E"),
            on,
            address(0x2000),
            atoms("EE"),
        ],
    );
    assert_eq!(out[2..], ["2000-2008 2 indirect E", "ReturnStackEmpty"]);
}

#[test]
fn an_indirect_call_pops_before_it_pushes() {
    // bl 0x2000; ret | blr x1; ret
    let code = || {
        a64(&[
            (0x1000, &[bl(0x1000, 0x2000), RET]),
            (0x2000, &[0xd63f_0020, RET]),
        ])
    };
    // The target of blr is the address on top of the stack, so it is left out.
    let out = run(STACK, code(), &[address(0x1000), atoms("EEEE")]);
    let want = [
        "1000-1004 1 branch E",
        "2000-2004 1 indirect E",
        "1004-1008 1 indirect E",
    ];
    assert_eq!(out[..3], want);
    assert_eq!(out[3..], ["2004-2008 1 indirect E"]);
    let out = run(
        STACK,
        code(),
        &[address(0x1000), atoms("EE"), address(0x1004), atoms("EE")],
    );
    assert_eq!(out[3..], ["2004-2008 1 indirect E"]);
}

#[test]
fn missing_memory_is_told_once_with_what_ran_before() {
    let code = a64(&[(0x1000, &[NOP, NOP])]);
    let out = run(
        STACK,
        code,
        &[address(0x1000), atoms("EENE"), address(0x3000), atoms("NN")],
    );
    assert_eq!(out, ["1000-1008 2 other E", "missing 1008", "missing 3000"]);
}

#[test]
fn pieces_of_memory_that_meet_are_one() {
    let mut code = Pieces::default();
    code.add(Address(0x1000), words(&[NOP])[..3].to_vec());
    code.add(Address(0x1003), words(&[NOP, RET])[3..].to_vec());
    let out = run(STACK, code, &[address(0x1000), atoms("E")]);
    assert_eq!(out, ["1000-1008 2 indirect E"]);
}

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
    // It may come first.
    let out = run(STACK, code(), &[address(0x1000), exception(0x1000)]);
    assert_eq!(out, ["exception 1000"]);
    let out = run(STACK, code(), &[address(0x1008), exception(0x1000)]);
    assert_eq!(out, ["exception 1000"]);
    // It may come in code that is missing.
    let out = run(STACK, code(), &[address(0x100c), exception(0x1018)]);
    assert_eq!(
        out,
        ["100c-1010 1 indirect E", "missing 1010", "exception 1018"]
    );
    // Its address may be none of an instruction.
    let out = run(STACK, code(), &[address(0x1000), exception(0x1006)]);
    assert_eq!(out[1], "exception 1006");
    assert!(out[0].starts_with("NotReached"), "{out:?}");
    // What follows needs an address.
    let out = run(
        STACK,
        code(),
        &[address(0x1000), exception(0x1008), atoms("E")],
    );
    assert_eq!(out.len(), 2);
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
fn an_exception_that_tells_no_address_is_here_if_it_should_be() {
    let told_nothing = Element::Exception(Exception {
        number: 3,
        name: "IRQ",
        return_address: None,
    });
    let elements = [address(0x1000), atoms("EE"), told_nothing];
    assert_eq!(run(STACK, calls(), &elements)[2], "exception");
    let here = FlowConfig {
        exceptions_here: true,
        ..STACK
    };
    assert_eq!(run(here, calls(), &elements)[2], "exception 1004");
}

#[test]
fn an_exception_return_is_told_where_no_packet_does() {
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
fn waypoints_are_configured() {
    // dsb sy; wfi; tstart x0; isb; ret
    let code = || {
        a64(&[(
            0x1000,
            &[0xd503_3f9f, 0xd503_207f, 0xd523_3060, 0xd503_3fdf, RET],
        )])
    };
    let out = run(STACK, code(), &[address(0x1000), atoms("EE")]);
    assert_eq!(out, ["1000-1010 4 isb E", "1010-1014 1 indirect E"]);
    let all = FlowConfig {
        waypoints: Waypoints {
            barriers: true,
            waits: true,
            transactions: true,
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
    assert_eq!(out, ["1000-1008 2 branch E", "1008-1010 2 indirect E"]);
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
    let want = [
        "1000-1004 1 branch E",
        "2000-2008 2 indirect E",
        "missing 2008",
    ];
    assert_eq!(out, want);
}

#[test]
fn q_elements_are_ranges_where_the_path_is_known() {
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
fn a_q_element_after_an_unknown_target_begins_where_execution_was_followed_to() {
    let q = Element::Q {
        instructions: Some(1),
    };
    // The function is run through twice, so that the second time its block is known.
    let again = [address(0x2000), atoms("E")];
    let elements = [&again[..], &again, &[q, address(0x1004), atoms("E")]].concat();
    let out = run(FlowConfig::default(), calls(), &elements);
    assert_eq!(out[2..], ["q 2008 1004 Some(1)", "1004-1008 1 branch E"]);
    // An atom at the unknown target changes nothing.
    let elements = [address(0x2000), atoms("EN"), q, address(0x1004)];
    let out = run(FlowConfig::default(), calls(), &elements);
    assert_eq!(out[1..], ["q 2008 1004 Some(1)"]);
}

#[test]
fn an_exception_beyond_missing_memory_tells_that_it_is_missing() {
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
    // Where it cannot be followed time goes on.
    let none = FlowConfig::default();
    let out = run(none, code(), &[address(0x1008), timed, timed, flush]);
    assert_eq!(out[0], "1008-100c 1 indirect E cycles 9");
    assert_eq!(out[1..3], ["Cycles(1)", "Cycles(10)"]);
    // The unit is in the element.
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

/// Each exception level sees other code at the same addresses.
struct Levels([Pieces; 2]);

impl CodeImage for Levels {
    fn view(&self, context: &ContextKey) -> View {
        View(u16::from(context.el.unwrap_or_default().0.min(1)))
    }
    fn slice(&self, view: View, address: Address) -> &[u8] {
        self.0[usize::from(view.0)].slice(view, address)
    }
}

fn context(el: u8, isa: Isa) -> Element {
    Element::Mark(Mark::Context(Context {
        isa,
        el: Some(ExceptionLevel(el)),
        security: Some(Security::NonSecure),
        is_64bit: Some(isa == Isa::A64),
        ..Context::default()
    }))
}

#[test]
fn contexts_do_not_share_blocks() {
    let levels = Levels([
        a64(&[(0x1000, &[NOP, bl(0x1004, 0x1000)])]),
        a64(&[(0x1000, &[NOP, NOP, RET])]),
    ]);
    let elements = [
        address(0x1000),
        atoms("EE"),
        // Before the address or behind it.
        context(1, Isa::A64),
        atoms("E"),
        address(0x1000),
        context(0, Isa::A64),
        atoms("E"),
        context(1, Isa::A64),
        address(0x1000),
        atoms("E"),
    ];
    let out: Vec<_> = run(STACK, levels, &elements)
        .into_iter()
        .filter(|line| !line.starts_with("Context"))
        .collect();
    let (user, kernel) = ("1000-1008 2 branch E", "1000-100c 3 indirect E");
    assert_eq!(out, [user, user, kernel, user, kernel]);
}

#[test]
fn a_context_behind_its_address_decides_its_instruction_set() {
    let mut code = Pieces::default();
    // A32: b . ; A64: not a branch
    code.add(Address(0x1000), words(&[0xeaff_fffe, RET]));
    let out = run(
        STACK,
        &code,
        &[address(0x1000), context(0, Isa::A32), atoms("E")],
    );
    assert_eq!(out[1], "1000-1004 1 branch E");
    let out = run(
        STACK,
        &code,
        &[address(0x1000), context(0, Isa::A64), atoms("E")],
    );
    assert_eq!(out[1], "1000-1008 2 indirect E");
}

#[test]
fn code_without_waypoints_is_bounded() {
    let mut code = Pieces::default();
    code.add(Address(0), vec![0; 8 << 20]);
    let near_end = address(0x7f_fff0);
    let out = run(
        STACK,
        &code,
        &[address(8), atoms("EEE"), near_end, atoms("E")],
    );
    assert_eq!(out.len(), 64 + 1 + 2);
    // At least 1024 instructions, up to an aligned address.
    assert_eq!(out[0], "8-2000 2046 other E");
    assert_eq!(out[1], "2000-3000 1024 other E");
    assert!(out[64].starts_with("NotReached"), "{}", out[64]);
    assert_eq!(out[65..], ["7ffff0-800000 4 other E", "missing 800000"]);
    // So are the lines to exceptions.
    let out = run(STACK, &code, &[address(8), exception(0x40_0000)]);
    assert!(out[0].starts_with("NotReached"), "{}", out[0]);
}

#[test]
fn lines_without_waypoints_share_their_blocks() {
    for isa in [Isa::A64, Isa::A32, Isa::T32] {
        let mut code = Pieces::default();
        // T32: instructions of 32 bits that lie across aligned addresses.
        let filler = if isa == Isa::T32 { 0xea4f_u16 } else { 0 };
        code.add(Address(0), filler.to_le_bytes().repeat(1 << 19));
        let mut flow = Flow::new(STACK, code);
        let mut log = Log::default();
        for start in 0..1000 {
            let element = Element::Address {
                address: Address(start * 4 + 2 * u64::from(isa == Isa::T32)),
                isa,
            };
            for element in [element, atoms("E")] {
                flow.element(BufferOffset(0), element, &mut log);
            }
            log.0.clear();
        }
        let blocks = flow.blocks();
        let most = (0..blocks.len())
            .map(|id| blocks.hot[id].instructions)
            .max();
        assert!(blocks.len() < 1000 + 200, "{isa:?}: {}", blocks.len());
        assert!(most <= Some(4096), "{isa:?}: {most:?}");
    }
}

#[test]
fn instruction_sets_that_are_not_followed_are_gaps() {
    let mut code = Pieces::default();
    code.add(Address(0), vec![0; 8]);
    let jazelle = Element::Address {
        address: Address(0),
        isa: Isa::Jazelle,
    };
    let out = run(STACK, &code, &[jazelle, atoms("EE")]);
    assert_eq!(out, ["NotFollowed { address: Address(0), isa: Jazelle }"]);
}

#[test]
fn an_emptied_cache_changes_nothing() {
    let small = FlowConfig {
        most_blocks: 4,
        ..STACK
    };
    let elements: Vec<_> = [address(0x1000)]
        .into_iter()
        .chain("EEEEE".chars().map(|atom| atoms(&atom.to_string())))
        .collect();
    assert_eq!(
        run(small, calls(), &elements),
        run(STACK, calls(), &elements)
    );
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
    let last = |kind, taken, link, returns, conditional| Last {
        kind,
        taken,
        link,
        returns,
        conditional,
    };
    let branch = last(LastKind::Branch, true, true, false, false);
    assert_eq!(ranges[0], (0x1002, 0x1006, Isa::T32, branch));
    let back = last(LastKind::Indirect, true, false, true, false);
    assert_eq!(ranges[1], (0x2000, 0x2004, Isa::A32, back));
    let conditional = last(LastKind::Indirect, false, false, true, true);
    assert_eq!(ranges[2], (0x1006, 0x100a, Isa::T32, conditional));
}
