//! Compares recordings of different builds: by functions of the same name, and by source lines where
//! a function has the same sequence of lines in both.

use super::super::core::Core;
use super::course::{Course, Item, Piece};
use super::difference::{Difference, Kind};
use super::places::Correspondence;
use super::system_calls::Calls;
use super::{DiffError, Next, next, other_start, past_interrupts, polling, reads, values};
use armsnap_arch::semantics::Control;
use armsnap_history::timeline::Position;
use armsnap_snapshot::program::symbols::{SourceLine, Symbols};
use armsnap_snapshot::stop::Cancel;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The number that stands for no line.
const NO_LINE: u32 = u32::MAX;

/// What is executed, in terms that both builds share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    /// A line of a function, by their numbers in [`Names`].
    Line(u32, u32),
    /// A system call.
    Call,
}

/// Instructions with the same key, one after another, without a branch back.
#[derive(Clone, Copy)]
struct Step {
    key: Key,
    first: Position,
    last: Position,
    /// The addresses of the first and the last instruction.
    pc: [u64; 2],
    /// Whether it is an iteration of a loop that only waits.
    waits: bool,
}

impl Step {
    /// Whether a step goes on with what this one does, instead of doing it again.
    fn goes_on(&self, next: &Self, symbols: &Symbols) -> bool {
        if self.key != next.key || self.key == Key::Call {
            return false;
        }
        let is_line = matches!(self.key, Key::Line(_, line) if line != NO_LINE);
        !is_line
            || next.waits
            || next.pc[0] > self.pc[1]
            || symbols.extent(next.pc[0]) != symbols.extent(self.pc[1])
    }
}

enum Unit {
    Step(Step),
    Other(Item),
}

impl Unit {
    fn item(&self) -> Item {
        match self {
            Self::Other(item) => *item,
            Self::Step(step) => Item::Run(Piece {
                position: step.first,
                pc: 0,
                isa: armsnap_arch::quantity::Isa::A64,
                instructions: 1,
            }),
        }
    }
}

/// The lines of a function, by their order of first use in its code: in the first build and in the
/// second one.
type Lines = [HashMap<SourceLine, u32>; 2];

/// The functions and lines that correspond.
#[derive(Default)]
struct Names {
    functions: HashMap<String, u32>,
    lines: HashMap<u32, Option<Lines>>,
}

impl Names {
    /// The key of an address in the build with this number; `None` outside of named functions.
    fn key(&mut self, symbols: [&Symbols; 2], build: usize, pc: u64) -> Option<Key> {
        let (name, _) = symbols[build].function(pc)?;
        let name = base(name);
        let number = match self.functions.get(name) {
            Some(number) => *number,
            None => {
                let number = self.functions.len() as u32;
                self.functions.insert(name.to_owned(), number);
                number
            }
        };
        let extent = symbols[build].extent(pc)?;
        let lines = self.lines.entry(number).or_insert_with(|| {
            let other = symbols[1 - build].addresses(name);
            let other = other
                .first()
                .and_then(|at| symbols[1 - build].extent(*at))?;
            let own = symbols[build].lines_of(extent);
            let other = symbols[1 - build].lines_of(other);
            let [own, other] = corresponding(&own, &other)?;
            Some(if build == 0 {
                [own, other]
            } else {
                [other, own]
            })
        });
        let line = lines.as_ref().and_then(|lines| {
            let line = symbols[build].line(pc)?;
            lines[build].get(&line).copied()
        });
        Some(Key::Line(number, line.unwrap_or(NO_LINE)))
    }
}

/// The name of a function without what compilers append to parts and copies of it (`f.part.0`).
fn base(name: &str) -> &str {
    let is_suffix = |rest: &str| {
        ["constprop", "isra", "part", "cold", "llvm"]
            .iter()
            .any(|suffix| rest.starts_with(suffix))
    };
    let mut dots = name.match_indices('.');
    let cut = dots.find(|(at, _)| is_suffix(&name[at + 1..]));
    cut.map_or(name, |(at, _)| &name[..at])
}

/// Numbers the lines of a function in both builds, if their sequences are alike.
fn corresponding<R>(own: &[(R, SourceLine)], other: &[(R, SourceLine)]) -> Option<Lines> {
    if own.len() != other.len() {
        return None;
    }
    let [mut first, mut second] = Lines::default();
    for ((_, x), (_, y)) in own.iter().zip(other) {
        let number = first.len() as u32;
        let x = *first.entry(x.clone()).or_insert(number);
        let y = *second.entry(y.clone()).or_insert(number);
        if x != y {
            return None;
        }
    }
    Some([first, second])
}

/// A part of a straight line: the numbers and the addresses of its first and last instruction, and
/// whether it only waits.
#[derive(Clone, Copy)]
struct Part {
    key: Key,
    numbers: [u32; 2],
    pc: [u64; 2],
    waits: bool,
}

/// A course in steps.
struct Steps {
    build: usize,
    course: Course,
    known: HashMap<(u64, u32), Arc<[Part]>>,
    pending: VecDeque<Step>,
    other: Option<Item>,
}

impl Steps {
    fn new(build: usize, core: &mut Core<'_>) -> Self {
        Self {
            build,
            course: Course::new(core.history),
            known: HashMap::new(),
            pending: VecDeque::new(),
            other: None,
        }
    }

    /// The next step, as long as it is, or whatever else comes next.
    fn next(
        &mut self,
        core: &mut Core<'_>,
        (names, symbols): (&mut Names, [&Symbols; 2]),
        cancel: &Cancel,
    ) -> Result<Unit, DiffError> {
        let mut current: Option<Step> = None;
        loop {
            while let Some(step) = self.pending.pop_front() {
                match &mut current {
                    Some(current) if current.goes_on(&step, symbols[self.build]) => {
                        current.last = step.last;
                        current.pc[1] = step.pc[1];
                    }
                    Some(_) => {
                        self.pending.push_front(step);
                        return Ok(current.map_or(Unit::Step(step), Unit::Step));
                    }
                    None => current = Some(step),
                }
            }
            if self.other.is_none() {
                self.read(core, (names, symbols), cancel)?;
            }
            if let Some(other) = self.other {
                if let Some(step) = current {
                    return Ok(Unit::Step(step));
                }
                self.other = None;
                return Ok(Unit::Other(other));
            }
        }
    }

    /// Reads an item of the course.
    fn read(
        &mut self,
        core: &mut Core<'_>,
        given: (&mut Names, [&Symbols; 2]),
        cancel: &Cancel,
    ) -> Result<(), DiffError> {
        let which = ["first", "second"][self.build];
        let item = past_interrupts(&mut self.course, core, which, cancel)?;
        match item {
            Item::Run(piece) => {
                self.course.pass(core.history, piece.instructions);
                for part in self.parts(core, given, piece).iter() {
                    let [first, last] = part.numbers;
                    self.pending.push_back(Step {
                        key: part.key,
                        first: piece.position.after(first.into()),
                        last: piece.position.after(last.into()),
                        pc: part.pc,
                        waits: part.waits,
                    });
                }
            }
            other => {
                self.course.pass(core.history, 1);
                self.other = Some(other);
            }
        }
        Ok(())
    }

    fn parts(
        &mut self,
        core: &mut Core<'_>,
        (names, symbols): (&mut Names, [&Symbols; 2]),
        piece: Piece,
    ) -> Arc<[Part]> {
        let known = (piece.pc, piece.instructions);
        if let Some(parts) = self.known.get(&known) {
            return Arc::clone(parts);
        }
        let mut parts: Vec<Part> = Vec::new();
        for number in 0..piece.instructions {
            let at = piece.position.after(number.into());
            let pc = core.history.place(at).and_then(|place| place.pc());
            let instruction = reads::instruction(core, at);
            let is_call = instruction
                .is_some_and(|instruction| instruction.semantics.control == Control::SystemCall);
            let pc = pc.map_or(piece.pc, |pc| pc.0);
            let key = match is_call {
                true => Some(Key::Call),
                false => names.key(symbols, self.build, pc),
            };
            match (parts.last_mut(), key) {
                (Some(part), Some(key)) if part.key == key && key != Key::Call => {
                    part.numbers[1] = number;
                    part.pc[1] = pc;
                }
                (_, Some(key)) => parts.push(Part {
                    key,
                    numbers: [number; 2],
                    pc: [pc; 2],
                    waits: number == 0 && polling::waits(core, piece),
                }),
                (_, None) => {}
            }
        }
        let parts: Arc<[Part]> = parts.into();
        self.known.insert(known, Arc::clone(&parts));
        parts
    }
}

/// Finds where the courses of two builds first differ; `None` if they are the same.
pub(super) fn compare(
    (a, b): (&mut Core<'_>, &mut Core<'_>),
    calls: &mut Calls,
    cancel: &Cancel,
) -> Result<Option<Difference>, DiffError> {
    let mut names = Names::default();
    let mut same = Correspondence::of_builds();
    let symbols = [a.symbols, b.symbols];
    let (mut left, mut right) = (Steps::new(0, a), Steps::new(1, b));
    let mut last = None;
    let mut is_after_gap = false;
    loop {
        let x = left.next(a, (&mut names, symbols), cancel)?;
        let y = right.next(b, (&mut names, symbols), cancel)?;
        let is_same = match (&x, &y) {
            (Unit::Step(x), Unit::Step(y)) => x.key == y.key,
            _ => false,
        };
        let items = [x.item(), y.item()];
        match next(items, is_same)? {
            Next::Same(..) => {
                if let (Unit::Step(x), Unit::Step(y)) = (x, y) {
                    let at = [x.last, y.last];
                    last = Some(at);
                    if x.key == Key::Call
                        && let Some(found) = calls.compare((a, b), at, &mut same, cancel)?
                    {
                        return Ok(Some(found));
                    }
                }
            }
            Next::Pass => {
                if matches!(items[0], Item::Gap(_)) {
                    last = None;
                    is_after_gap = true;
                }
            }
            Next::End => return values::at_end((a, b), last, (&mut same, calls), cancel),
            Next::Differ(Kind::Branch) => {
                let at = last.ok_or_else(|| other_start(items, is_after_gap))?;
                return values::at((a, b), at, Kind::Branch, &mut same, cancel).map(Some);
            }
            Next::Differ(kind) => {
                let at = items.map(Item::position);
                return values::at((a, b), at, kind, &mut same, cancel).map(Some);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(numbers: &[u32]) -> Vec<((), SourceLine)> {
        let line = |&line| {
            let file = "a.c".to_owned();
            ((), SourceLine { file, line })
        };
        numbers.iter().map(line).collect()
    }

    #[test]
    fn lines_correspond_where_their_sequences_are_alike() {
        let of = |own: &[u32], other: &[u32]| corresponding(&lines(own), &lines(other));
        let [own, other] = of(&[5, 6, 5, 9], &[7, 8, 7, 12]).unwrap();
        assert_eq!(own[&lines(&[9])[0].1], other[&lines(&[12])[0].1]);
        assert_eq!(of(&[5, 6, 5], &[7, 8, 9]), None);
        assert_eq!(of(&[5, 6, 7], &[7, 8, 7]), None);
        assert_eq!(of(&[5, 6], &[5]), None);
    }

    #[test]
    fn parts_of_a_function_have_its_name() {
        for (name, wanted) in [
            ("f", "f"),
            ("f.part.0", "f"),
            ("f.constprop.0.isra.1", "f"),
            ("main.run", "main.run"),
        ] {
            assert_eq!(base(name), wanted);
        }
    }
}
