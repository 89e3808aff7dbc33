//! The stack pointer far back, without solving what lies in between.
//!
//! Walks backward over straight lines of instructions and subtracts what each adds to the stack
//! pointer. A function that returned left it unchanged (AAPCS64 6.4.6, AAPCS32 6.2.1.2), whatever
//! it did in between; so results are inferred. Inside a function that restores it from the frame
//! pointer (`mov sp, x29`), it is unknown going backward, but known going forward from the call of
//! the function.

use super::blocks::Blocks;
use super::template::{Op, stack_pointer};
use super::templates::Templates;
use crate::recover::bits::low;
use crate::recover::facts::final_state::FinalState;
use crate::timeline::{Direction, Entry, Event, History, Position};
use armsnap_arch::hash::NumberMap;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_arch::semantics::{Location, Operand};
use armsnap_snapshot::stop::Cancel;
use armsnap_trace::element::Mark;
use armsnap_trace::flow::{InstructionKind, Range, View};

/// The number of entries taken from the history at once.
const BATCH: usize = 1 << 12;
/// The least number of positions between two noted ones.
const INTERVAL: u64 = 1 << 12;
/// Returns from deeper call nesting than this are not matched.
const MAX_RETURNS: usize = 1 << 16;
/// The most positions walked beyond the wanted one until the stack pointer is known again.
const MAX_BEYOND: u64 = 1 << 25;
/// ETMv4's exception number of the entry to debug state (IHI 0064H, 6.4.8).
const DEBUG_HALT: u16 = 1;
/// The most branches through registers that belong to no call: jumps of linkage tables and others.
const MAX_OTHERS: usize = 64;

/// A position with a known stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) struct Noted {
    pub position: Position,
    pub stack_pointer: u64,
    /// The number of positions from there to where the walk began.
    places: u64,
    /// Whether it is known only by a walk forward.
    pub forward: bool,
}

/// The effect of a straight line.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// What it adds to the stack pointer; `None` if that is not a constant.
    adds: Option<u64>,
    /// The address after it, to which a call returns.
    end: u64,
    ends_with: Ending,
    /// Whether SP may differ after its return from SP before the call, because it belongs to
    /// another goroutine.
    go: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Call,
    /// A branch to a computed address, like a return.
    Indirect,
    Other,
}

/// Where a call returns to, and the stack pointer there.
#[derive(Clone, Copy, Debug)]
struct ReturnPoint {
    to: u64,
    stack_pointer: Option<u64>,
}

/// A walk towards the past.
#[derive(Debug)]
pub(in crate::recover) struct StackWalk {
    /// Everything from here on was walked.
    at: Position,
    places: u64,
    stack_pointer: Option<u64>,
    /// Returns whose calls have not been reached yet.
    returns: Vec<ReturnPoint>,
    /// Where execution continued after what is walked next.
    next: Option<u64>,
    /// The position where the stack pointer was last known, and its count of positions; set if the
    /// stack pointer is unknown now, or was unknown for long.
    unknown_until: Option<(Position, u64)>,
    view: View,
    /// The bits of an address.
    address: u64,
    /// Whether the program was traced without its kernel.
    ignores_exceptions: bool,
    lines: NumberMap<(u64, u64), Line>,
    /// Towards the past.
    noted: Vec<Noted>,
    /// Whether nothing more can be found before.
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
        // The rest of the last straight line was executed too.
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
            lines: NumberMap::default(),
            noted: Vec::new(),
            is_over: false,
        };
        walk.know(stack_pointer);
        Some(walk)
    }

    /// Walks back to a position, and on until the stack pointer is known. `None` if it was
    /// cancelled; what was walked is kept.
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

    /// The nearest noted position that is at least `places` positions after another, or the last
    /// one if there are fewer; `None` if it is more than twice as far, or if the walk did not reach
    /// the position.
    pub fn after(&self, position: Position, places: u64) -> Option<Noted> {
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

    /// The stack pointers between two positions that were found only forward, towards the past.
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
            // The final state is the one in which the exception was taken.
            Entry::Exception(taken)
                if self.places == 0 && (self.ignores_exceptions || taken.number == DEBUG_HALT) => {}
            // The stack pointer of a handler is another one, or the kernel's; across a gap it is
            // unknown.
            Entry::Gap(_) | Entry::Exception(_) => self.is_over = true,
            Entry::Mark(Mark::ExceptionReturn) if templates.has_handlers() => {
                // The instruction after it may have moved the stack pointer before the exception.
                let at = self.at;
                self.noted.pop_if(|noted| noted.position == at);
                self.is_over = true;
            }
            Entry::Mark(_) | Entry::Halted => {}
        }
    }

    /// Records the stack pointer at the position reached.
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

    /// Walks forward over the positions where it was unknown, from one where it is known. `None` if
    /// it was cancelled; then this is repeated.
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
                self.returns.push(ReturnPoint {
                    to,
                    stack_pointer: self.stack_pointer,
                });
            }
            (Ending::Call, _) => self.pass_call(line.end),
            _ => {}
        }
        self.stack_pointer = match (self.stack_pointer, line.adds) {
            (Some(after), Some(adds)) => Some(after.wrapping_sub(adds) & self.address),
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
            // The called function did not return: no later return belongs to an earlier call.
            self.returns.clear();
            self.is_over |= self.stack_pointer.is_none();
            return;
        };
        let after = self.returns[recent + found].stack_pointer;
        self.returns.truncate(recent + found);
        // If these differ, execution switched to another stack.
        let differs = matches!((self.stack_pointer, after), (Some(a), Some(b)) if a != b);
        self.is_over |= differs;
        self.stack_pointer = after;
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
    /// Calls that have not returned yet.
    calls: Vec<ReturnPoint>,
    /// Whether the last line ended like a return.
    returns: bool,
}

impl Forward {
    /// Follows execution to an address.
    fn enter(&mut self, to: u64) {
        if !self.returns {
            return;
        }
        if let Some(call) = self.calls.pop_if(|call| call.to == to) {
            self.stack_pointer = call.stack_pointer;
        }
    }

    fn pass(&mut self, line: Line) {
        let after = |(before, adds): (u64, u64)| before.wrapping_add(adds) & self.address;
        self.stack_pointer = self.stack_pointer.zip(line.adds).map(after);
        self.returns = line.ends_with == Ending::Indirect && !line.go;
        if line.ends_with == Ending::Call && self.calls.len() < MAX_RETURNS {
            self.calls.push(ReturnPoint {
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
    // Locations that hold the original stack pointer plus a constant.
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
