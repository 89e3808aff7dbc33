//! The stack pointer far back, without solving what lies in between.
//!
//! Walks backward over straight lines of instructions and subtracts what each adds to the stack pointer.
//! A function that returned left it as it was (AAPCS64 6.4.6, AAPCS32 6.2.1.2), whatever it did in between. So
//! what is found is inferred. Inside a function that takes back what it allocated (`mov sp, x29`) nothing is
//! known backward, but from its call on forward.

use super::bits::low;
use super::blocks::Blocks;
use super::cells::GranuleHasher;
use super::final_state::FinalState;
use super::template::{Op, Templates, stack_pointer};
use crate::timeline::{Direction, Entry, Event, History, Position};
use armsnap_arch::quantity::{Address, Isa};
use armsnap_arch::semantics::{Location, Operand};
use armsnap_snapshot::stop::Cancel;
use armsnap_trace::element::Mark;
use armsnap_trace::flow::{InstructionKind, Range, View};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// Entries that are taken from the history at once.
const BATCH: usize = 1 << 12;
/// Places between two that are noted, at least.
const INTERVAL: u64 = 1 << 12;
/// Returns from code that called deeper are not matched.
const MAX_RETURNS: usize = 1 << 16;
/// Places that are walked beyond what is wanted, until the stack pointer is known again.
const MAX_BEYOND: u64 = 1 << 25;
/// ETMv4's exception number of the entry to debug state (IHI 0064H, 6.4.8).
const DEBUG_HALT: u16 = 1;
/// Branches through registers that no call goes with: jumps of linkage tables and others.
const MAX_OTHERS: usize = 64;

/// A place with a known stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    pub position: Position,
    pub stack_pointer: u64,
    /// Places from there to where the walk began.
    places: u64,
    /// It is known only by a walk forward.
    pub forward: bool,
}

/// What a straight line does.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// What it adds to the stack pointer; `None` if that is not a constant.
    adds: Option<u64>,
    /// The address behind it, where a call returns to.
    end: u64,
    ends_with: Ending,
    /// Where it returns from, SP may be another one than before the call: that of a goroutine.
    go: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Call,
    /// A branch to an address that was computed, like that of a return.
    Indirect,
    Other,
}

/// A return whose call was not met yet.
#[derive(Clone, Copy, Debug)]
struct Return {
    to: u64,
    stack_pointer: Option<u64>,
}

/// A walk towards the past.
#[derive(Debug)]
pub(super) struct StackWalk {
    /// All from here on was walked.
    at: Position,
    places: u64,
    stack_pointer: Option<u64>,
    returns: Vec<Return>,
    /// Where execution continued behind what is walked next.
    next: Option<u64>,
    /// Where the stack pointer was known last, if it is not known now or was not for long, and its places.
    unknown_until: Option<(Position, u64)>,
    view: View,
    /// The bits of an address.
    address: u64,
    /// The program was traced without its kernel.
    ignores_exceptions: bool,
    lines: HashMap<(u64, u64), Line, BuildHasherDefault<GranuleHasher>>,
    /// Towards the past.
    noted: Vec<Noted>,
    /// Nothing is found before.
    is_over: bool,
}

impl StackWalk {
    /// Begins at the end of a history that ends at the final state.
    pub fn new(
        history: &mut History,
        facts: &FinalState,
        templates: &mut Templates,
    ) -> Option<Self> {
        let at = history.end();
        let halted = history.halted()?.0;
        let stack = stack_pointer(templates.is_narrow());
        let final_value = facts.registers[stack.index()]?;
        let context = history.place(at).and_then(|place| place.context);
        let view = history.view(context.as_ref());
        // What is left of the last straight line was executed too.
        let mut rest = history
            .rest()
            .map_or_else(Vec::new, |range| history.range_instructions(view, &range));
        rest.retain(|(address, _)| address.0 < halted);
        let next = rest.first().map_or(halted, |(address, _)| address.0);
        let adds = added_by(history, templates, view, rest, false);
        let address = low(if templates.is_narrow() { 32 } else { 64 });
        let stack_pointer = adds.map(|adds| final_value.wrapping_sub(adds) & address);
        let mut walk = Self {
            at,
            places: 0,
            stack_pointer,
            returns: Vec::new(),
            next: Some(next),
            unknown_until: None,
            view,
            address,
            ignores_exceptions: facts.without_kernel,
            lines: HashMap::default(),
            noted: Vec::new(),
            is_over: false,
        };
        walk.know(stack_pointer);
        Some(walk)
    }

    /// Walks back to a position, and further until the stack pointer is known. `None` if it was cancelled;
    /// what was walked is kept.
    pub fn reach(
        &mut self,
        history: &mut History,
        templates: &mut Templates,
        position: Position,
        cancel: &Cancel,
    ) -> Option<()> {
        let mut batch = Vec::with_capacity(BATCH);
        let mut beyond = None;
        while !self.is_over {
            if self.at <= position {
                let since = *beyond.get_or_insert(self.places);
                if self.stack_pointer.is_some() || self.places - since > MAX_BEYOND {
                    break;
                }
            }
            if cancel.is_requested() {
                return None;
            }
            let Some(last) = history.step(self.at, Direction::Backward) else {
                break;
            };
            batch.extend(history.entries(last, Direction::Backward).take(BATCH));
            let mut events = batch.drain(..);
            let known_again = events.any(|event| {
                self.pass(history, templates, &event);
                self.is_over || self.is_known_again()
            });
            drop(events);
            if known_again && !self.is_over {
                self.fill(history, templates, cancel)?;
            }
        }
        Some(())
    }

    fn is_known_again(&self) -> bool {
        self.unknown_until.is_some() && self.stack_pointer.is_some()
    }

    /// The nearest noted place that is some places behind a position, or the last one if that is less; `None`
    /// if it is more than twice as many, or the walk did not reach the position.
    pub fn behind(&self, position: Position, places: u64) -> Option<Noted> {
        if self.at > position {
            return None;
        }
        let later = self
            .noted
            .partition_point(|noted| noted.position >= position);
        let later = &self.noted[..later];
        let nearest = later.last()?.places;
        let mut far = later.iter().rev();
        let found = far.find(|noted| nearest - noted.places >= places);
        let found = found.or(later.first())?;
        (nearest - found.places <= 2 * places).then_some(*found)
    }

    /// What was found only forward between two positions, towards the past.
    pub fn forward(&self, from: Position, until: Position) -> impl Iterator<Item = Noted> + '_ {
        let later = self.noted.partition_point(|noted| noted.position >= until);
        let noted = self.noted[later..].iter().copied();
        let noted = noted.take_while(move |noted| noted.position >= from);
        noted.filter(|noted| noted.forward)
    }

    fn pass(&mut self, history: &History, templates: &mut Templates, event: &Event) {
        match event.entry {
            Entry::Run { range, .. } => {
                let line = self.line(history, templates, &range);
                self.pass_line(line);
                self.next = Some(range.start.0);
                self.at = event.position;
                self.places += event.entry.places();
                self.know(self.stack_pointer);
            }
            Entry::Mark(Mark::Context(context)) => {
                self.is_over |= history.view(Some(&context)) != self.view;
            }
            // The final state is the one in which it was taken.
            Entry::Exception(taken)
                if self.places == 0 && (self.ignores_exceptions || taken.number == DEBUG_HALT) => {}
            // The stack pointer of a handler is another one, or the kernel's; behind a gap it is unknown.
            Entry::Gap(_) | Entry::Exception(_) => self.is_over = true,
            Entry::Mark(_) | Entry::Halted => {}
        }
    }

    /// Notes the stack pointer at the place that was walked to.
    fn know(&mut self, stack_pointer: Option<u64>) {
        let Some(stack_pointer) = stack_pointer else {
            self.unknown_until.get_or_insert((self.at, self.places));
            return;
        };
        let is_short = |(_, since): &(Position, u64)| self.places - since < INTERVAL;
        if self.unknown_until.as_ref().is_some_and(is_short) {
            self.unknown_until = None;
        }
        let last = self.noted.last().map(|noted| noted.places);
        if last.is_none_or(|last| self.places - last >= INTERVAL) {
            self.noted.push(Noted {
                position: self.at,
                stack_pointer,
                places: self.places,
                forward: false,
            });
        }
    }

    /// Walks forward over what was not known, from where it is known. `None` if it was cancelled: then it is
    /// done again.
    fn fill(
        &mut self,
        history: &mut History,
        templates: &mut Templates,
        cancel: &Cancel,
    ) -> Option<()> {
        let (until, _) = self.unknown_until?;
        let mut forward = Forward {
            stack_pointer: self.stack_pointer,
            address: self.address,
            calls: Vec::new(),
            returns: false,
        };
        let (mut at, mut places) = (self.at, self.places);
        let mut last = places;
        let mut found = Vec::new();
        'all: while at < until {
            if cancel.is_requested() {
                return None;
            }
            let batch: Vec<Event> = history
                .entries(at, Direction::Forward)
                .take(BATCH)
                .collect();
            let mut moved = false;
            for event in batch {
                let Entry::Run { range, .. } = event.entry else {
                    continue;
                };
                if event.position >= until {
                    break 'all;
                }
                let is_first = event.position <= at && places != self.places;
                if is_first {
                    continue;
                }
                forward.enter(range.start.0);
                if let Some(stack_pointer) = forward.stack_pointer
                    && last - places >= INTERVAL
                {
                    last = places;
                    found.push(Noted {
                        position: event.position,
                        stack_pointer,
                        places,
                        forward: true,
                    });
                }
                forward.pass(self.line(history, templates, &range));
                places = places.saturating_sub(event.entry.places());
                at = event.position;
                moved = true;
            }
            if !moved {
                break;
            }
        }
        self.unknown_until = None;
        let here = self.noted.pop_if(|noted| noted.places == self.places);
        self.noted.extend(found.into_iter().rev());
        self.noted.extend(here);
        Some(())
    }

    /// Goes back over a straight line.
    fn pass_line(&mut self, line: Line) {
        match (line.ends_with, self.next) {
            (Ending::Indirect, Some(to)) if self.returns.len() < MAX_RETURNS && !line.go => {
                self.returns.push(Return {
                    to,
                    stack_pointer: self.stack_pointer,
                });
            }
            (Ending::Call, _) => self.pass_call(line.end),
            _ => {}
        }
        self.stack_pointer = match (self.stack_pointer, line.adds) {
            (Some(behind), Some(adds)) => Some(behind.wrapping_sub(adds) & self.address),
            _ => None,
        };
    }

    /// Goes back over a call that returns to an address.
    fn pass_call(&mut self, return_to: u64) {
        let recent = self.returns.len().saturating_sub(MAX_OTHERS);
        let found = self.returns[recent..]
            .iter()
            .rposition(|r| r.to == return_to);
        let Some(found) = found else {
            // What it called goes on: nothing behind it returned to before.
            self.returns.clear();
            self.is_over |= self.stack_pointer.is_none();
            return;
        };
        let behind = self.returns[recent + found].stack_pointer;
        self.returns.truncate(recent + found);
        // Another stack was switched to where these differ.
        let differs = matches!((self.stack_pointer, behind), (Some(a), Some(b)) if a != b);
        self.is_over |= differs;
        self.stack_pointer = behind;
    }

    fn line(&mut self, history: &History, templates: &mut Templates, range: &Range) -> Line {
        let isa = match range.isa {
            Isa::A64 => 0,
            Isa::A32 => 1,
            _ => 2,
        };
        let length = range.end.0.wrapping_sub(range.start.0);
        let key = (
            range.start.0,
            length << 3 | isa << 1 | u64::from(range.last.taken),
        );
        if let Some(line) = self.lines.get(&key) {
            return *line;
        }
        let last = &range.last;
        let addresses = history.range_instructions(self.view, range);
        let is_untaken = last.conditional && !last.taken;
        let adds = added_by(history, templates, self.view, addresses, is_untaken);
        let line = Line {
            adds,
            end: range.end.0,
            ends_with: match last.kind {
                _ if !last.taken => Ending::Other,
                InstructionKind::Branch | InstructionKind::Indirect if last.link => Ending::Call,
                InstructionKind::Indirect => Ending::Indirect,
                _ => Ending::Other,
            },
            go: templates.go.contains(range.start.0),
        };
        self.lines.insert(key, line);
        line
    }
}

/// A walk forward from a known stack pointer.
struct Forward {
    stack_pointer: Option<u64>,
    /// The bits of an address.
    address: u64,
    /// Calls that did not return yet: where to, and the stack pointer then.
    calls: Vec<Return>,
    /// The last line ended like a return.
    returns: bool,
}

impl Forward {
    /// Execution continues at an address.
    fn enter(&mut self, to: u64) {
        if !self.returns {
            return;
        }
        if let Some(call) = self.calls.pop_if(|call| call.to == to) {
            self.stack_pointer = call.stack_pointer;
        }
    }

    fn pass(&mut self, line: Line) {
        let behind = |(before, adds): (u64, u64)| before.wrapping_add(adds) & self.address;
        self.stack_pointer = self.stack_pointer.zip(line.adds).map(behind);
        self.returns = line.ends_with == Ending::Indirect && !line.go;
        if line.ends_with == Ending::Call && self.calls.len() < MAX_RETURNS {
            self.calls.push(Return {
                to: line.end,
                stack_pointer: self.stack_pointer,
            });
        }
    }
}

/// What instructions add to the stack pointer; `None` if that is not a constant.
fn added_by(
    history: &History,
    templates: &mut Templates,
    view: View,
    addresses: Vec<(Address, Isa)>,
    is_untaken: bool,
) -> Option<u64> {
    let mut blocks = Blocks::default();
    let numbers = templates.instructions(history, view, addresses, &mut blocks, is_untaken);
    numbers.iter().try_fold(0_u64, |adds, &number| {
        let template = &templates.all[number as usize];
        let ops = &templates.ops[template.first as usize..][..template.count.into()];
        let is_plain = !template.opaque && !template.changes_space && !template.sigreturn;
        let added = is_plain.then(|| added(ops)).flatten()?;
        Some(adds.wrapping_add(added))
    })
}

/// What the operations of an instruction add to the stack pointer; `None` if that is not a constant.
fn added(ops: &[Op]) -> Option<u64> {
    let stack = ops.first().map_or(Location::SP, Op::stack_pointer);
    // Locations that hold the stack pointer of before and a constant.
    let mut held = vec![(stack, 0_u64)];
    for op in ops {
        let sum = match op.operands[0] {
            Operand::Location(from) => {
                let base = held.iter().find(|(location, _)| *location == from);
                base.and_then(|(_, more)| Some(more.wrapping_add(op.added()?)))
            }
            Operand::Constant(_) => None,
        };
        if op.is_store() {
            continue;
        }
        held.retain(|(location, _)| *location != op.destination);
        held.extend(sum.map(|sum| (op.destination, sum)));
    }
    let found = held.iter().find(|(location, _)| *location == stack);
    found.map(|(_, more)| *more)
}
