//! Remembered runs count like those executed block by block: random programs and random trace, with
//! and without the memo.

use super::super::stack::{Call, Ended, GapSeen, LinesOfCalls, Listener};
use super::super::window::{Bound, Window};
use super::super::{Functions, Moment};
use super::{Counted, Course};
use armsnap_arch::quantity::{Address, BufferOffset, ExceptionLevel, Isa};
use armsnap_history::decode::Image;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_trace::element::{
    Atoms, Context, Element, Exception, Mark, NoSyncReason, TraceOnReason,
};
use armsnap_trace::flow::{Flow, FlowConfig, FlowSink, Pieces, Range};
use std::collections::HashMap;
use std::fmt::{Debug, Write};

pub(in super::super) mod sums;

/// The start of the code, and its length in instructions: functions, and code without a symbol.
const CODE: u64 = 0x1000;
const LENGTH: u64 = 240;
const FUNCTION: u64 = 24;

/// A generator of numbers (Knuth's constants).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn function(&mut self) -> u64 {
        CODE + self.below(LENGTH / FUNCTION) * FUNCTION * 4
    }

    /// An instruction at an address: no branch, or one of each kind.
    fn instruction(&mut self, here: u64) -> u32 {
        let away = |to: u64| (to.wrapping_sub(here) as i64 / 4) as u32;
        let near = here - here % (FUNCTION * 4) + CODE % (FUNCTION * 4) + self.below(FUNCTION) * 4;
        match self.below(16) {
            0..=7 => 0xd503_201f,
            8 | 9 => 0x5400_0001 | (away(near) & 0x7_ffff) << 5,
            10 | 11 => 0x9400_0000 | away(self.function()) & 0x3ff_ffff,
            12 => 0x1400_0000 | away(self.function()) & 0x3ff_ffff,
            13 => [0xd61f_0200, 0xd63f_0100][self.below(2) as usize],
            _ => 0xd65f_03c0,
        }
    }

    fn program(&mut self) -> Vec<u32> {
        (0..LENGTH)
            .map(|index| self.instruction(CODE + index * 4))
            .collect()
    }

    /// Elements in a loop, so that they recur, with others in between.
    fn elements(&mut self, rare: u64) -> Vec<Element> {
        let pattern: Vec<Element> = (0..6 + self.below(30)).map(|_| self.usual()).collect();
        let address = Element::Address {
            address: Address(CODE),
            isa: Isa::A64,
        };
        let mut all = vec![self.context(), address];
        for _ in 0..60 {
            for element in &pattern {
                all.push(*element);
                if self.below(rare) == 0 {
                    self.unusual(&mut all);
                }
            }
        }
        all
    }

    fn context(&mut self) -> Element {
        Element::Mark(Mark::Context(Context {
            isa: Isa::A64,
            context_id: Some(self.below(2) as u32),
            el: Some(ExceptionLevel(1)),
            ..Context::default()
        }))
    }

    fn address(&mut self) -> Element {
        let address = match self.below(3) {
            0 => CODE + self.below(LENGTH) * 4,
            _ => self.function(),
        };
        Element::Address {
            address: Address(address),
            isa: Isa::A64,
        }
    }

    fn usual(&mut self) -> Element {
        match self.below(8) {
            0 => self.address(),
            1 => Element::TimedAtom {
                taken: self.below(3) > 0,
                cycles: self.below(9) as u32,
            },
            2 => Element::Mark(Mark::Cycles(self.below(9) as u32)),
            3 => Element::Mark(Mark::Timestamp(self.below(1000))),
            _ => {
                let count = 1 + self.below(12) as u8;
                let bits = (self.below(1 << 24) | self.below(1 << 24)) as u32;
                Element::WaypointAtoms(Atoms {
                    bits: bits & ((1 << count) - 1),
                    count,
                })
            }
        }
    }

    fn unusual(&mut self, all: &mut Vec<Element>) {
        match self.below(5) {
            0 => {
                let returns_to = Address(CODE + self.below(LENGTH) * 4);
                all.push(Element::Exception(Exception {
                    number: 14,
                    name: "IRQ",
                    return_address: (self.below(4) > 0).then_some(returns_to),
                }));
                if self.below(4) == 0 {
                    all.push(Element::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter)));
                }
                all.push(self.address());
            }
            1 => {
                all.push(Element::Mark(Mark::NoSync(NoSyncReason::Overflow)));
                all.push(self.address());
            }
            2 => all.push(self.context()),
            3 => {
                all.push(Element::Mark(Mark::TraceOn(TraceOnReason::BeginOrFilter)));
                all.push(self.address());
            }
            _ => all.push(self.address()),
        }
    }
}

/// Logs everything.
#[derive(Default)]
struct Log<const CALLS: bool, const STRAIGHT: bool>(String);

impl<const CALLS: bool, const STRAIGHT: bool> Log<CALLS, STRAIGHT> {
    fn add(&mut self, what: &dyn Debug) {
        let _ = writeln!(self.0, "{what:?}");
    }
}

impl<const CALLS: bool, const STRAIGHT: bool> Listener for Log<CALLS, STRAIGHT> {
    const CALLS: bool = CALLS;
    const STRAIGHT: bool = STRAIGHT;

    fn begin(&mut self, call: &Call, functions: &Functions) {
        self.add(&(call, &functions.get(call.function).name));
    }

    fn end(&mut self, call: &Call, end: &Moment, how: Ended, _: &Functions) {
        self.add(&(call, end, how));
    }

    fn gap(&mut self, gap: &GapSeen) {
        self.add(gap);
    }

    fn time(&mut self, moment: &Moment) {
        self.add(moment);
    }

    fn straight(&mut self, moment: &Moment, line: &Range, context: Option<&Context>) {
        self.add(&(moment, line, context));
    }
}

/// Logs what is executed: in straight lines, or in runs.
#[derive(Default)]
struct Passed<const RUNS: bool> {
    log: String,
    blocks: HashMap<usize, Range>,
    runs: HashMap<usize, Vec<usize>>,
}

impl<const RUNS: bool> Passed<RUNS> {
    fn add(&mut self, instructions: u64, line: &Range) {
        let _ = writeln!(self.log, "{instructions} {:?} {:?}", line.start, line.end);
    }
}

impl<const RUNS: bool> Listener for Passed<RUNS> {
    const RUNS: bool = RUNS;
    const STRAIGHT: bool = !RUNS;

    fn straight(&mut self, moment: &Moment, line: &Range, _: Option<&Context>) {
        self.add(moment.instructions, line);
    }

    fn block(&mut self, instructions: u64, index: Option<usize>, line: impl FnOnce() -> Range) {
        let line = line();
        self.add(instructions, &line);
        if let Some(index) = index {
            self.blocks.insert(index, line);
        }
    }

    fn new_run(&mut self, number: usize, blocks: impl Iterator<Item = usize>) {
        self.runs.insert(number, blocks.collect());
    }

    fn run(&mut self, instructions: u64, number: usize, blocks: usize) {
        let mut instructions = instructions;
        let run = self.runs[&number].clone();
        assert_eq!(run.len(), blocks);
        for block in run {
            let line = self.blocks[&block];
            self.add(instructions, &line);
            instructions += u64::from(line.instructions);
        }
    }

    fn forget_runs(&mut self) {
        self.blocks.clear();
        self.runs.clear();
    }
}

/// Which part of a trace is wanted, and how it is decoded.
#[derive(Clone)]
struct Case {
    program: Vec<u32>,
    elements: Vec<Element>,
    window: Window,
    flow: FlowConfig,
    symbols: bool,
}

impl Case {
    fn code(&self) -> Pieces {
        let mut code = Pieces::default();
        let bytes = self.program.iter().flat_map(|word| word.to_le_bytes());
        code.add(Address(CODE), bytes.collect());
        code
    }
}

/// The last functions have no symbols.
fn symbols() -> Symbols {
    let names = ["main", "f", "g", "h", "i", "j", "k"];
    let named = names.iter().zip(0..).map(|(name, index)| {
        let start = CODE + index * FUNCTION * 4;
        (start, start + FUNCTION * 4, *name)
    });
    Symbols::of(&named.collect::<Vec<_>>())
}

/// How often runs recurred: without and with changes to the open calls.
type Again = [u64; 2];

fn follow<const CALLS: bool, const STRAIGHT: bool>(
    case: &Case,
    forgetful: bool,
) -> (String, Again) {
    let log = Log::<CALLS, STRAIGHT>::default();
    let (log, counted, again) = listen(case, forgetful, log);
    (log.0 + &counted, again)
}

/// Returns the listener, the counts, and how often runs recurred.
fn listen<L: Listener>(case: &Case, forgetful: bool, listener: L) -> (L, String, Again) {
    let symbols = symbols();
    let symbols = case.symbols.then_some(&symbols);
    let mut flow = Flow::new(case.flow, case.code());
    let mut course = Course::new(
        Image::default(),
        symbols,
        case.window.clone(),
        true,
        listener,
    );
    course.forgetful = forgetful;
    course.start_buffer(0);
    for (element, at) in case.elements.iter().zip(0..) {
        flow.element(BufferOffset(at), *element, &mut course);
    }
    let mut again = course.memo.times();
    again[0] += course.plain;
    course.forget(flow.blocks());
    let (listener, counted) = course.finish();
    (listener, text(&counted), again)
}

fn text(counted: &Counted) -> String {
    let Counted {
        functions,
        tree,
        code,
        exceptions,
        ..
    } = counted;
    let functions: Vec<_> = functions.iter().collect();
    let mut lines: Vec<_> = tree.lines().map(|line| format!("{line:?}")).collect();
    lines.sort();
    let mut text = String::new();
    for all in [
        &functions as &dyn Debug,
        &tree.nodes(),
        &lines,
        &code.blocks(),
        &code.parts(),
        &code.edges(),
        &exceptions.statistics(),
        &counted.gaps,
        &(counted.ranges, counted.instructions, counted.elements),
        &(counted.cycles, counted.last_time),
    ] {
        let _ = writeln!(text, "{all:#?}");
    }
    text
}

#[track_caller]
fn compare<const CALLS: bool, const STRAIGHT: bool>(case: &Case, seed: u64) -> Again {
    let (remembered, again) = follow::<CALLS, STRAIGHT>(case, false);
    let (followed, never) = follow::<CALLS, STRAIGHT>(case, true);
    assert_eq!(never, [0, 0]);
    let mut lines = remembered.lines().zip(followed.lines()).enumerate();
    let differs = lines.find(|(_, (one, other))| one != other);
    assert_eq!(differs, None, "seed {seed}");
    assert_eq!(remembered.len(), followed.len(), "seed {seed}");
    again
}

/// Compares executions by chains of callers, and in runs; returns how often runs recurred.
#[track_caller]
fn compare_lines(case: &Case, seed: u64) -> Again {
    let (_, remembered, again) = listen(case, false, LinesOfCalls);
    let (_, followed, _) = listen(case, true, LinesOfCalls);
    assert_eq!(remembered, followed, "seed {seed}");
    let (runs, counted, _) = listen(case, false, Passed::<true>::default());
    let (lines, same, _) = listen(case, true, Passed::<false>::default());
    assert_eq!(runs.log, lines.log, "seed {seed}");
    assert_eq!(counted, same, "seed {seed}");
    again
}

#[test]
fn runs_that_come_again_count_as_those_that_are_followed() {
    let mut again = [0, 0];
    for seed in 0..40 {
        let mut random = Random(seed);
        let end = |random: &mut Random, one_in: u64| {
            let number = random.below(4000);
            (random.below(one_in) == 0).then_some(Bound::Instructions(number))
        };
        let case = Case {
            program: random.program(),
            elements: {
                let rare = [20, 200, 100_000][random.below(3) as usize];
                random.elements(rare)
            },
            window: Window {
                from: end(&mut random, 6),
                to: end(&mut random, 6),
            },
            flow: FlowConfig {
                return_stack: random.below(2) == 0,
                most_blocks: [1 << 21, 24][random.below(2) as usize],
                ..FlowConfig::default()
            },
            symbols: random.below(4) > 0,
        };
        for more in [
            compare::<true, false>(&case, seed),
            compare::<true, true>(&case, seed),
            compare::<false, false>(&case, seed),
            compare_lines(&case, seed),
        ] {
            again[0] += more[0];
            again[1] += more[1];
        }
    }
    assert!(again[0] > 1000 && again[1] > 400, "{again:?}");
}
