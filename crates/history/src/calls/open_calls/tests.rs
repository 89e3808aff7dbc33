//! How transitions open and close calls.

use super::*;
use crate::timeline::Gap;
use armsnap_arch::quantity::{BufferOffset, ExceptionLevel};
use armsnap_trace::element::{Context, Exception, TraceOnReason};
use armsnap_trace::flow::{self, InstructionKind, LastInstruction};
use proptest::prelude::*;
use std::ops::Range;

/// Does the same as [`Stretch::apply`], with a separate walk for each return.
fn walked(stretch: &Stretch, at: &mut At, pending: &mut VecDeque<Address>) {
    while let Some(to) = pending.front() {
        let calls = || {
            let node = |at| match at {
                At::Call(number) => Some(stretch.nodes[number as usize]),
                At::Before(_) => None,
            };
            std::iter::successors(node(*at), move |last| node(last.outer))
        };
        let returns = |to| calls().find(|node| node.leads_to().any(|end| end == to));
        match returns(Some(*to)).or_else(|| returns(None)) {
            Some(node) => *at = node.outer,
            None => {
                *at = calls().last().map_or(*at, |node| node.outer);
                return;
            }
        }
        pending.pop_front();
    }
}

/// Functions start at multiples of 0x1000; calls from the first one land in it.
struct Pages;

impl Code for Pages {
    fn symbol(&self, address: Address) -> Option<Range<u64>> {
        let start = address.0 & !0xfff;
        Some(start..start + 0x1000)
    }

    fn landing_pad(&self, returns_to: Address) -> Option<Address> {
        (returns_to.0 < 0x2000).then_some(Address(0x1800))
    }

    fn lands(&self, address: Address) -> bool {
        address == Address(0x1800)
    }
}

/// Code without symbols.
struct Bare;

impl Code for Bare {
    fn symbol(&self, _: Address) -> Option<Range<u64>> {
        None
    }
}

/// Follows straight lines, each with its last instruction, and untraced exceptions.
struct Steps {
    builder: Builder<'static>,
    index: u64,
}

const CALL: LastInstruction = LastInstruction::CALL;
const RETURN: LastInstruction = LastInstruction::RETURN;
const JUMP: LastInstruction = LastInstruction::JUMP;
const INDIRECT: LastInstruction = LastInstruction {
    kind: InstructionKind::Indirect,
    ..JUMP
};

impl Steps {
    fn new() -> Self {
        Self::of(&Pages)
    }

    fn of(code: &'static dyn Code) -> Self {
        let program = Context {
            el: Some(ExceptionLevel(0)),
            ..Context::default()
        };
        Self {
            builder: Builder::new(code, Some(&program)),
            index: 0,
        }
    }

    fn entry(&mut self, entry: Entry) -> At {
        self.index += 1;
        let position = Position {
            session: 0,
            segment: 0,
            index: self.index,
        };
        let offset = BufferOffset(0);
        self.builder.event(&Event {
            position,
            offset,
            entry,
        });
        self.builder.innermost()
    }

    /// Executes a straight line; returns the innermost call in it.
    fn run(&mut self, start: u64, end: u64, last: LastInstruction) -> At {
        self.entry(Entry::Run {
            range: flow::Range::a64(start, end, last),
            cycles: None,
        })
    }

    /// The untraced kernel takes an exception at an address.
    fn untraced(&mut self, returns_to: u64) {
        self.entry(Entry::Exception(Exception {
            number: 1,
            name: "SVC",
            return_address: Some(Address(returns_to)),
        }));
        let off = TraceOnReason::BeginOrFilter;
        self.entry(Entry::Gap(Gap::TraceOff(off)));
    }
}

/// A function that calls itself is interrupted at the return address of such a call.
#[test]
fn an_untraced_exception_at_a_return_address_ends_no_call() {
    let mut steps = Steps::new();
    steps.run(0x2000, 0x2010, CALL);
    let open = steps.run(0x2000, 0x2010, JUMP);
    steps.untraced(0x2010);
    assert_eq!(steps.run(0x2010, 0x2014, JUMP), open);
    // Taken elsewhere: the call ended unseen.
    steps.untraced(0x2004);
    assert_eq!(steps.run(0x2010, 0x2014, JUMP), At::Before(0));
}

/// An exception ends the calls in the function that catches it, however the unwinder gets
/// there.
#[test]
fn an_exception_ends_the_calls_in_the_function_of_its_landing_pad() {
    for lands in [RETURN, INDIRECT] {
        let mut steps = Steps::new();
        steps.run(0x5000, 0x5004, CALL);
        let first = steps.run(0x1000, 0x1004, CALL);
        steps.run(0x2000, 0x2004, CALL);
        steps.run(0x3000, 0x3004, lands);
        assert_eq!(steps.run(0x1800, 0x1804, RETURN), first);
        assert_eq!(steps.run(0x5004, 0x5008, CALL), At::Before(0));
        // In another call, from before.
        steps.run(0x3000, 0x3004, INDIRECT);
        assert_eq!(steps.run(0x1800, 0x1804, RETURN), At::Before(1));
    }
}

/// After `longjmp`, the callers of the function that it continues in are known.
#[test]
fn longjmp_ends_the_calls_within_its_function() {
    let mut steps = Steps::new();
    steps.run(0x1000, 0x1008, CALL);
    let open = steps.run(0x2000, 0x2010, CALL);
    steps.run(0x3000, 0x3010, CALL);
    steps.run(0x4000, 0x4004, RETURN);
    assert_eq!(steps.run(0x2040, 0x2044, RETURN), open);
    assert_eq!(steps.run(0x1008, 0x100c, JUMP), At::Before(0));
}

/// The returns of another context do not end calls of the one that continues.
#[test]
fn a_context_continues_where_it_was_left() {
    let mut steps = Steps::new();
    let open = steps.run(0x2000, 0x2010, CALL);
    steps.run(0x3000, 0x3004, RETURN);
    // A scheduler.
    steps.run(0x2010, 0x2014, CALL);
    steps.run(0x4000, 0x4004, RETURN);
    assert_eq!(steps.run(0x5000, 0x5004, RETURN), At::Before(1));
    assert_eq!(steps.run(0x6000, 0x6004, CALL), At::Before(2));
    steps.run(0x4000, 0x4004, RETURN);
    assert_eq!(steps.run(0x2014, 0x2018, RETURN), open);
    assert_eq!(steps.run(0x7000, 0x7004, JUMP), At::Before(3));
    let last = steps.builder.returns[2];
    assert_eq!((last.to, last.before), (Address(0x7000), 0));
}

/// Without symbols, the outermost functions of two contexts are not the same one.
#[test]
fn a_context_without_symbols_continues_where_it_was_left() {
    let mut steps = Steps::of(&Bare);
    steps.run(0x1000, 0x1008, CALL);
    let open = steps.run(0x2000, 0x2008, CALL);
    // A scheduler.
    steps.run(0x3000, 0x3004, RETURN);
    assert_eq!(steps.run(0x5000, 0x5008, CALL), At::Before(1));
    steps.run(0x3000, 0x3004, RETURN);
    assert_eq!(steps.run(0x2008, 0x200c, RETURN), open);
    assert_eq!(steps.run(0x1008, 0x100c, CALL), At::Before(0));
    steps.run(0x3000, 0x3004, RETURN);
    // In the outermost function.
    assert_eq!(steps.run(0x5008, 0x500c, RETURN), At::Before(1));
    steps.run(0x5100, 0x5104, CALL);
    steps.run(0x3000, 0x3004, RETURN);
    assert_eq!(steps.run(0x100c, 0x1010, RETURN), At::Before(0));
}

/// Execution continues after a gap somewhere in the function: perhaps in another call of it.
#[test]
fn callers_are_unknown_after_a_gap() {
    let mut steps = Steps::new();
    steps.run(0x1000, 0x1008, CALL);
    steps.run(0x2000, 0x2010, CALL);
    steps.run(0x3000, 0x3004, JUMP);
    steps.entry(Entry::Gap(Gap::Buffer));
    assert_eq!(steps.run(0x2040, 0x2044, JUMP), At::Before(1));
}

/// One handler of a fault skips the instruction; another asks for a call of a function.
#[test]
fn a_signal_ends_where_its_handler_resumes_the_program() {
    for (to, stays) in [(0x2008, true), (0x7000, false)] {
        let mut steps = Steps::new();
        steps.run(0x1000, 0x1008, CALL);
        let open = steps.run(0x2000, 0x2004, JUMP);
        steps.untraced(0x2004);
        steps.run(0x4000, 0x4004, RETURN);
        steps.run(0x9000, 0x9008, JUMP);
        steps.untraced(0x9008);
        let after = steps.run(to, to + 4, RETURN);
        assert_eq!(after == open, stays);
        if !stays {
            assert_eq!(steps.run(0x2004, 0x2008, JUMP), open);
        }
    }
}

/// The kernel delivers a pending signal where a handler asks to resume the program.
#[test]
fn signals_one_after_another_leave_no_handler_open() {
    for second in [0x4000, 0x5000] {
        let mut steps = Steps::new();
        steps.run(0x1000, 0x1008, CALL);
        let open = steps.run(0x2000, 0x2004, JUMP);
        steps.untraced(0x2004);
        steps.run(0x4000, 0x4004, RETURN);
        // A page fault in the code that asks.
        steps.run(0x9000, 0x9004, JUMP);
        steps.untraced(0x9004);
        steps.run(0x9004, 0x9008, JUMP);
        steps.untraced(0x9008);
        let At::Call(handler) = steps.run(second, second + 4, RETURN) else {
            panic!("no handler");
        };
        assert_eq!(steps.builder.nodes[handler as usize].outer, open);
        steps.run(0x9000, 0x9008, JUMP);
        steps.untraced(0x9008);
        assert_eq!(steps.run(0x2004, 0x2008, JUMP), open);
    }
}

/// Without symbols, a handler that was not seen before cannot be told from other code.
#[test]
fn an_unknown_handler_is_not_within_the_interrupted_call() {
    let mut steps = Steps::of(&Bare);
    steps.run(0x1000, 0x1008, CALL);
    let open = steps.run(0x2000, 0x2004, JUMP);
    assert!(matches!(open, At::Call(_)));
    steps.untraced(0x2004);
    steps.run(0x8000, 0x8004, RETURN);
    steps.run(0xa000, 0xa004, JUMP);
    steps.untraced(0xa004);
    assert_eq!(steps.run(0x7000, 0x7004, RETURN), At::Before(1));
    assert_eq!(steps.run(0xa000, 0xa004, JUMP), At::Before(2));
    steps.untraced(0xa004);
    assert_eq!(steps.run(0x2004, 0x2008, RETURN), At::Before(3));
    assert!(matches!(steps.run(0x1008, 0x100c, JUMP), At::Before(_)));
}

/// Without symbols, the handler of a fault skips the instruction.
#[test]
fn an_instruction_is_skipped_in_the_interrupted_call() {
    for (to, stays) in [
        (0x2008, true),
        (0x200c, true),
        (0x2010, false),
        (0x2000 - 4, false),
    ] {
        let mut steps = Steps::of(&Bare);
        steps.run(0x1000, 0x1008, CALL);
        let open = steps.run(0x2000, 0x2004, JUMP);
        steps.untraced(0x2004);
        steps.run(0x8000, 0x8004, RETURN);
        steps.run(0xa000, 0xa008, JUMP);
        steps.untraced(0xa008);
        assert_eq!(steps.run(to, to + 4, RETURN) == open, stays, "{to:x}");
    }
}

proptest! {
    #[test]
    fn returns_close_the_innermost_call(
        calls in prop::collection::vec(
            (prop::option::weighted(0.8, 0u64..6), prop::option::weighted(0.3, 4u64..8)),
            0..40,
        ),
        returns in prop::collection::vec(0u64..8, 0..20),
    ) {
        let entry = Position { session: 0, segment: 0, index: 0 };
        let mut at = At::Before(3);
        let mut nodes = Vec::new();
        for (returns_to, lands_at) in calls {
            let call = OpenCall {
                entry,
                function: Address(0),
                returns_to: returns_to.map(Address),
                exception: false,
                signal: false,
            };
            nodes.push(Node { call, lands_at: lands_at.map(Address), outer: at });
            at = At::Call(nodes.len() as u32 - 1);
        }
        let stretch = Stretch {
            nodes,
            changes: Vec::new(),
            end: at,
            returns: Vec::new(),
            begin: entry,
            before: None,
        };
        let mut pending: VecDeque<Address> = returns.into_iter().map(Address).collect();
        let (mut other, mut left) = (at, pending.clone());
        stretch.apply(&mut at, &mut pending);
        walked(&stretch, &mut other, &mut left);
        prop_assert_eq!((at, pending), (other, left));
    }
}
