//! The rules for open calls: functions entered and left in all ways.

use super::course::{Course, Replayed};
use super::pieces::{Advance, Piece, Step as PieceStep, What};
use super::stack::{Call, CallKind, Ended, GapSeen, Listener};
use super::{BlockCount, Bound, FunctionId, Functions, Moment, NodeId, Note, Profile, Window};
use armsnap_arch::quantity::{Address, BufferOffset, ExceptionLevel, Isa};
use armsnap_history::decode::Image;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_trace::element::{
    Context, Element, ElementSink, Exception, Mark, NoSyncReason, Stm, TraceOnReason,
};
use armsnap_trace::flow::{FlowSink, InstructionKind, LastInstruction, QRange, Range, View};

mod signals;
mod windows;

const CALL: LastInstruction = LastInstruction::CALL;
const RETURN: LastInstruction = LastInstruction::RETURN;
const JUMP: LastInstruction = LastInstruction::JUMP;
const INDIRECT: LastInstruction = LastInstruction {
    kind: InstructionKind::Indirect,
    ..JUMP
};
/// An instruction that is not a branch.
const OTHER: LastInstruction = LastInstruction {
    kind: InstructionKind::Other,
    ..JUMP
};

/// A log with one word per event.
#[derive(Default)]
struct Log(Vec<String>);

impl Listener for Log {
    fn begin(&mut self, call: &Call, functions: &Functions) {
        let name = &functions.get(call.function).name;
        self.0
            .push(format!("{}{}:{}", call.depth, call.kind.name(), name));
    }

    fn end(&mut self, call: &Call, _: &Moment, how: Ended, functions: &Functions) {
        let name = &functions.get(call.function).name;
        self.0.push(format!("{}-{}", name, how.name()));
    }

    fn gap(&mut self, gap: &GapSeen) {
        let (from, to) = (gap.from.instructions, gap.to.map(|to| to.instructions));
        self.0.push(match to {
            Some(to) => format!("gap:{from}..{to}"),
            None => format!("gap:{from}.."),
        });
    }
}

/// One step of an execution.
enum Step {
    Run(u64, u64, LastInstruction),
    Irq(u64),
    /// An ETMv3 exception, which is traced without its return address.
    Swi,
    Mark(Mark),
    Unknown(u64, u64, u32),
}
use Step::{Irq, Run};

const MAIN_CALLS: Step = Run(0x1000, 0x1008, CALL);
/// After that call.
const MAIN_CONTINUES: Step = Run(0x1008, 0x100c, OTHER);
const IN_F: Step = Run(0x2000, 0x2004, OTHER);
const F_CALLS: Step = Run(0x2000, 0x2010, CALL);
/// After that call.
const F_RETURNS: Step = Run(0x2010, 0x2014, RETURN);
const G_RETURNS: Step = Run(0x3000, 0x3004, RETURN);
const HANDLER: Step = Run(0x8000, 0x8004, RETURN);

fn symbols() -> Symbols {
    Symbols::of(&[
        (0x1000, 0x2000, "main"),
        (0x2000, 0x3000, "f"),
        (0x3000, 0x4000, "g"),
        (0x4000, 0x5000, "h"),
        (0x8000, 0x9000, "vector"),
        (0x9000, 0xa000, "task"),
    ])
}

fn perform(course: &mut Course<'_, impl Listener>, steps: &[Step]) {
    let at = BufferOffset(0);
    for step in steps {
        match *step {
            Run(start, end, last) => {
                FlowSink::range(course, at, &Range::a64(start, end, last), None);
            }
            Irq(returns_to) => course.exception(
                at,
                &Exception {
                    number: 14,
                    name: "IRQ",
                    return_address: Some(Address(returns_to)),
                },
            ),
            Step::Swi => course.exception(
                at,
                &Exception {
                    number: 10,
                    name: "SVC",
                    return_address: None,
                },
            ),
            Step::Mark(mark) => FlowSink::mark(course, at, &mark),
            Step::Unknown(start, end, instructions) => course.q_range(
                at,
                &QRange {
                    start: Address(start),
                    end: Address(end),
                    isa: Isa::A64,
                    instructions: Some(instructions),
                },
            ),
        }
    }
}

struct Outcome {
    log: String,
    /// Instructions by path.
    stacks: Vec<(String, u64)>,
    counted: super::course::Counted,
}

fn follow_in(window: Window, alone: bool, steps: &[Step]) -> Outcome {
    let symbols = symbols();
    let mut course = Course::new(
        Image::default(),
        Some(&symbols),
        window,
        alone,
        Log::default(),
    );
    course.start_buffer(0);
    perform(&mut course, steps);
    let (log, counted) = course.finish();
    let nodes = counted.tree.nodes().iter().enumerate();
    let nodes = nodes.filter(|(_, node)| node.instructions > 0);
    let mut stacks: Vec<(String, u64)> = nodes
        .map(|(index, node)| {
            let path = counted.tree.path(counted.tree.id(index));
            let names = path.iter().map(|id| &*counted.functions.get(*id).name);
            (names.collect::<Vec<_>>().join(";"), node.instructions)
        })
        .collect();
    stacks.sort();
    Outcome {
        log: log.0.join(" "),
        stacks,
        counted,
    }
}

fn follow(steps: &[Step]) -> Outcome {
    follow_in(Window::default(), false, steps)
}

#[track_caller]
fn check(steps: &[Step], log: &str, stacks: &[(&str, u64)]) {
    let outcome = follow(steps);
    assert_eq!(outcome.log, log);
    let found: Vec<(&str, u64)> = outcome
        .stacks
        .iter()
        .map(|(path, n)| (&**path, *n))
        .collect();
    assert_eq!(found, stacks);
    let sum: u64 = outcome.stacks.iter().map(|(_, count)| count).sum();
    assert_eq!(
        sum + outcome.counted.unknown_path,
        outcome.counted.instructions
    );
}

#[test]
fn calls_nest_and_return() {
    let steps = [MAIN_CALLS, F_CALLS, G_RETURNS, F_RETURNS, MAIN_CONTINUES];
    let log = "0unseen:main 1call:f 2call:g g-returned f-returned main-open";
    check(&steps, log, &[("main", 3), ("main;f", 5), ("main;f;g", 1)]);
}

/// The trace starts in the middle: callers are discovered when they are returned to.
#[test]
fn functions_entered_before_the_trace_become_callers() {
    let steps = [
        Run(0x3100, 0x3104, RETURN),
        F_RETURNS,
        Run(0x1008, 0x100c, CALL),
        Run(0x4000, 0x4004, RETURN),
        Run(0x100c, 0x1010, OTHER),
    ];
    let log =
        "0unseen:g g-returned -1caller:f f-returned -2caller:main -1call:h h-returned main-open";
    let stacks = [("main", 2), ("main;f", 1), ("main;f;g", 1), ("main;h", 1)];
    check(&steps, log, &stacks);
}

#[test]
fn calls_end_unseen_in_a_gap_that_leads_elsewhere() {
    let lost = Step::Mark(Mark::NoSync(NoSyncReason::Overflow));
    let steps = [MAIN_CALLS, IN_F, lost, Run(0x4010, 0x4014, OTHER)];
    let log = "0unseen:main 1call:f gap:3..3 f-unseen main-unseen 0unseen:h h-open";
    check(&steps, log, &[("h", 1), ("main", 2), ("main;f", 1)]);
}

#[test]
fn calls_go_on_after_a_gap_that_leads_into_an_open_function() {
    let lost = || Step::Mark(Mark::NoSync(NoSyncReason::Overflow));
    let steps = [
        MAIN_CALLS,
        F_CALLS,
        Run(0x3000, 0x3004, OTHER),
        lost(),
        // Where g returns to.
        Run(0x2010, 0x2014, OTHER),
        lost(),
        // Somewhere in main.
        Run(0x1040, 0x1044, OTHER),
    ];
    let log = "0unseen:main 1call:f 2call:g gap:7..7 g-returned gap:8..8 f-unseen main-open";
    check(&steps, log, &[("main", 3), ("main;f", 5), ("main;f;g", 1)]);
}

#[test]
fn longjmp_unwinds_to_the_function_that_it_returns_into() {
    let steps = [
        MAIN_CALLS,
        F_CALLS,
        // Not an address that any open call returns to.
        G_RETURNS,
        Run(0x1020, 0x1024, OTHER),
    ];
    let log = "0unseen:main 1call:f 2call:g g-unwound f-unwound main-open";
    check(&steps, log, &[("main", 3), ("main;f", 4), ("main;f;g", 1)]);
}

/// The unwinder branches to the landing pad through a register.
#[test]
fn a_thrown_exception_unwinds_to_its_landing_pad() {
    let steps = [
        MAIN_CALLS,
        F_CALLS,
        Run(0x3000, 0x3004, INDIRECT),
        Run(0x1020, 0x1024, OTHER),
    ];
    let log = "0unseen:main 1call:f 2call:g g-unwound f-unwound main-open";
    check(&steps, log, &[("main", 3), ("main;f", 4), ("main;f;g", 1)]);
}

#[test]
fn a_tail_call_takes_the_place_of_its_caller() {
    let steps = [
        MAIN_CALLS,
        Run(0x2000, 0x2004, JUMP),
        Run(0x3000, 0x3004, JUMP),
        // A loop to the start of the same function is not a call.
        G_RETURNS,
        MAIN_CONTINUES,
    ];
    let log = "0unseen:main 1call:f f-jumped 1jump:g g-returned main-open";
    check(&steps, log, &[("main", 3), ("main;f", 1), ("main;g", 2)]);
}

#[test]
fn a_branch_into_the_middle_of_a_function_is_no_call() {
    let steps = [
        MAIN_CALLS,
        Run(0x2000, 0x2004, JUMP),
        Run(0x3010, 0x3014, JUMP),
        Run(0x2008, 0x200c, RETURN),
        MAIN_CONTINUES,
    ];
    let log = "0unseen:main 1call:f f-jumped 1middle:g g-jumped 1middle:f f-returned main-open";
    check(&steps, log, &[("main", 3), ("main;f", 2), ("main;g", 1)]);
    let outcome = follow(&steps);
    let calls = |name: &str| {
        let mut all = outcome.counted.functions.iter();
        all.find(|(_, row)| row.name == name).unwrap().1.calls
    };
    assert_eq!((calls("f"), calls("g"), calls("main")), (1, 0, 0));
}

#[test]
fn a_branch_with_link_to_the_next_instruction_is_no_call() {
    let steps = [MAIN_CALLS, MAIN_CONTINUES];
    check(&steps, "0unseen:main main-open", &[("main", 3)]);
}

#[test]
fn exceptions_nest_and_have_a_length() {
    let steps = [
        MAIN_CALLS,
        IN_F,
        Irq(0x2004),
        Run(0x8000, 0x8008, CALL),
        Run(0x3000, 0x300c, RETURN),
        Run(0x8008, 0x800c, RETURN),
        Run(0x2004, 0x2008, RETURN),
        MAIN_CONTINUES,
        Irq(0x100c),
        HANDLER,
        Run(0x100c, 0x1010, OTHER),
    ];
    let log = "0unseen:main 1call:f 2exception:[IRQ] 3handler:vector 4call:g g-returned \
        vector-returned [IRQ]-returned f-returned 1exception:[IRQ] 2handler:vector \
        vector-returned [IRQ]-returned main-open";
    let stacks = [
        ("main", 4),
        ("main;[IRQ];vector", 1),
        ("main;f", 2),
        ("main;f;[IRQ];vector", 3),
        ("main;f;[IRQ];vector;g", 3),
    ];
    check(&steps, log, &stacks);
    let outcome = follow(&steps);
    let statistics = outcome.counted.exceptions.statistics();
    let [irq] = &statistics[..] else {
        panic!("{statistics:?}");
    };
    assert_eq!((irq.name, irq.taken, irq.returned), ("IRQ", 2, 2));
    let spread = irq.instructions.unwrap();
    assert_eq!((spread.minimum, spread.median, spread.maximum), (1, 1, 6));
    assert_eq!((irq.cycles, irq.time), (None, None));
}

/// A scheduler returns from an exception to another task, and later back to the first one.
#[test]
fn open_calls_wait_while_another_context_runs() {
    let steps = [
        MAIN_CALLS,
        IN_F,
        Irq(0x2004),
        HANDLER,
        // Not where the exception was taken: another task.
        Run(0x9100, 0x9104, OTHER),
        Irq(0x9104),
        HANDLER,
        // The first task.
        Run(0x2004, 0x2008, RETURN),
        MAIN_CONTINUES,
    ];
    let log = "0unseen:main 1call:f 2exception:[IRQ] 3handler:vector vector-switched [IRQ]-switched \
        f-switched main-switched 0unseen:task 1exception:[IRQ] 2handler:vector vector-switched \
        [IRQ]-switched task-switched 0continued:main 1continued:f f-returned main-open";
    let stacks = [
        ("main", 3),
        ("main;f", 2),
        ("main;f;[IRQ];vector", 1),
        ("task", 1),
        ("task;[IRQ];vector", 1),
    ];
    check(&steps, log, &stacks);
}

/// A function that made calls before its task continued was not open in the other task.
#[test]
fn a_caller_begins_when_its_task_is_continued() {
    /// The start of each caller.
    #[derive(Default)]
    struct Callers(Vec<(String, u64)>);

    impl Listener for Callers {
        fn begin(&mut self, call: &Call, functions: &Functions) {
            if call.kind == CallKind::Caller {
                let name = functions.get(call.function).name.clone();
                self.0.push((name, call.begin.instructions));
            }
        }
    }

    let symbols = symbols();
    let (whole, callers) = (Window::default(), Callers::default());
    let mut course = Course::new(Image::default(), Some(&symbols), whole, false, callers);
    course.start_buffer(0);
    let steps = [
        MAIN_CALLS,
        IN_F,
        Irq(0x2004),
        HANDLER,
        // Another task, which was called from h.
        Run(0x9100, 0x9104, RETURN),
        Run(0x4010, 0x4014, OTHER),
    ];
    perform(&mut course, &steps);
    assert_eq!(course.finish().0.0, [("h".to_owned(), 4)]);
}

/// Two processes execute the same code: the context ID shows which one continues.
#[test]
fn an_exception_returns_to_the_context_that_took_it() {
    let context = |id| {
        Step::Mark(Mark::Context(Context {
            isa: Isa::A64,
            context_id: Some(id),
            ..Context::default()
        }))
    };
    let steps = [
        context(1),
        MAIN_CALLS,
        IN_F,
        Irq(0x2004),
        HANDLER,
        context(2),
        // The same address, in another process.
        Run(0x2004, 0x2008, OTHER),
    ];
    let outcome = follow(&steps);
    assert!(outcome.log.ends_with(" f-open"));
    assert!(outcome.log.contains(" main-switched "));
    assert!(outcome.stacks.contains(&("f".to_owned(), 1)));
}

/// A handler that skips the instruction that caused the exception.
#[test]
fn an_exception_may_return_behind_its_instruction() {
    let steps = [
        MAIN_CALLS,
        IN_F,
        Irq(0x2004),
        HANDLER,
        Run(0x2008, 0x200c, RETURN),
        MAIN_CONTINUES,
    ];
    let log = "0unseen:main 1call:f 2exception:[IRQ] 3handler:vector vector-returned [IRQ]-returned \
        f-returned main-open";
    let stacks = [("main", 3), ("main;f", 2), ("main;f;[IRQ];vector", 1)];
    check(&steps, log, &stacks);
}

#[test]
fn unknown_paths_are_counted_apart() {
    let steps = [
        Run(0x1000, 0x1008, OTHER),
        Step::Unknown(0x1008, 0x1040, 9),
        Run(0x1040, 0x1044, OTHER),
    ];
    let log = "0unseen:main gap:2..11 main-open";
    check(&steps, log, &[("main", 3)]);
    let outcome = follow(&steps);
    assert_eq!(outcome.counted.unknown_path, 9);
    assert_eq!(outcome.counted.instructions, 12);
}

/// A piece of a shard contains the blocks that are executed before the steps.
#[test]
fn functions_of_a_piece_are_in_the_order_of_execution() {
    let block = |start| BlockCount {
        start: Address(start),
        end: Address(start + 4),
        last_at: Address(start),
        isa: Isa::A64,
        instructions: 1,
        last: CALL,
        target: None,
        view: View::default(),
        el: None,
        function: FunctionId::UNKNOWN,
        taken: 1,
        not_taken: 0,
    };
    let reached = |block| What::Block {
        block,
        taken: true,
        cycles: None,
    };
    let taken = What::Exception(Exception {
        number: 14,
        name: "IRQ",
        return_address: Some(Address(0x2004)),
    });
    let steps = [reached(0), taken, reached(1), reached(2)];
    let steps = steps.map(|what| PieceStep {
        at: BufferOffset(0),
        before: Advance::default(),
        what,
    });
    let piece = Piece {
        blocks: [0x2000, 0x8000, 0x3000].map(block).into(),
        steps: steps.into(),
        ..Piece::default()
    };
    let symbols = symbols();
    let (whole, log) = (Window::default(), Log::default());
    let mut course = Course::new(Image::default(), Some(&symbols), whole, false, log);
    course.start_buffer(0);
    course.replay(&mut Replayed::default(), &piece);
    let (_, counted) = course.finish();
    let names: Vec<&str> = counted
        .functions
        .iter()
        .map(|(_, row)| &*row.name)
        .collect();
    assert_eq!(names, ["[unknown]", "f", "vector", "[IRQ]", "g"]);
    assert_eq!(counted.code.blocks().len(), 3);
}

/// A program that calls and never returns.
#[test]
fn open_calls_are_bounded() {
    let mut steps = Vec::new();
    for _ in 0..(1 << 18) + 10 {
        steps.push(Run(0x2000, 0x2004, CALL));
    }
    let outcome = follow(&steps);
    assert_eq!(outcome.counted.instructions, (1 << 18) + 10);
    assert!(outcome.log.contains(" f-unseen "));
    let sum: u64 = outcome.stacks.iter().map(|(_, count)| count).sum();
    assert_eq!(sum, (1 << 18) + 10);
}

#[test]
fn recursion_counts_once_in_totals() {
    let steps = [
        MAIN_CALLS,
        F_CALLS,
        F_CALLS,
        G_RETURNS,
        F_RETURNS,
        F_RETURNS,
        MAIN_CONTINUES,
    ];
    let Outcome { counted, .. } = follow(&steps);
    let totals = counted.tree.totals(counted.functions.iter().len());
    let total = |name: &str| {
        let mut all = counted.functions.iter();
        totals[all.find(|(_, row)| row.name == name).unwrap().0.index()].0
    };
    assert_eq!((total("main"), total("f"), total("g")), (14, 11, 1));
    assert_eq!(counted.tree.path(NodeId::ROOT), []);
}

/// A task deep in recursion is left for another one, and continues later.
#[test]
fn the_innermost_calls_wait_while_another_context_runs() {
    let mut steps = vec![MAIN_CALLS];
    steps.extend((0..1100).map(|_| F_CALLS));
    steps.extend([
        IN_F,
        Irq(0x2004),
        HANDLER,
        Run(0x9100, 0x9104, OTHER),
        Irq(0x9104),
        HANDLER,
        Run(0x2004, 0x2008, RETURN),
        F_RETURNS,
        F_RETURNS,
    ]);
    let outcome = follow(&steps);
    let count = |word: &str| outcome.log.matches(word).count();
    assert_eq!(count("f-switched"), 1101);
    // Two of 1024 are the exception and its handler.
    assert_eq!(count("continued:f"), 1022);
    assert_eq!(count("main-switched"), 1);
    assert_eq!(count("continued:main"), 0);
    assert_eq!(count("f-returned"), 2);
}

#[test]
fn a_full_tree_is_noted() {
    const MOST: u64 = 1 << 20;
    let mut profile = Profile::default();
    let caller = profile.tree.root(FunctionId::UNKNOWN);
    let mut places = (2..=MOST).map(Address);
    let mut call = |tree: &mut super::Tree| {
        let called = tree.child(caller, FunctionId::UNKNOWN, places.next());
        called == caller
    };
    for _ in 2..MOST {
        assert!(!call(&mut profile.tree));
    }
    assert_eq!(profile.notes(), []);
    assert!(call(&mut profile.tree));
    let limit = 1 << 20;
    assert_eq!(profile.notes(), [Note::ManyChains { limit }]);
    let text = profile.notes()[0].to_string();
    assert!(text.contains("more than 1048576 chains of callers"));
}
