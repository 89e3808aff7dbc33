//! The steps executed before the end, as far as they were explored.
//!
//! Steps count positions backward: step 0 is the halted state, step 1 the last instruction.

use super::address_space::AddressSpace;
use super::blocks::Blocks;
use super::floats::UsesFloats;
use super::handlers::{Chained, Handlers};
use super::template::Template;
use super::templates::Templates;
use crate::recover::facts::microcontroller::Microcontroller;
use crate::timeline::{Direction, Entry, History, Position};
use armsnap_arch::arch::Architecture;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_arch::semantics::Control;
use armsnap_arch::semantics::t32::ItState;
use armsnap_snapshot::stop::Cancel;
use armsnap_trace::element::{Exception, Mark};
use armsnap_trace::flow::{InstructionKind, LastInstruction};
use std::collections::HashMap;
use std::ops::Range;

/// What stands for the halted state, and for a gap, among the instructions.
const HALTED: u32 = u32::MAX;
const GAP: u32 = u32::MAX - 1;

/// What is at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) enum Step {
    Halted,
    Gap,
    /// The instruction of a template.
    Instruction(u32),
}

/// An exception between a step and the one before it in time, or on M-profile cores also the return
/// from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::recover) struct Taken {
    /// The step after it.
    pub step: u32,
    /// Whether it is the return.
    pub returns: bool,
    /// Its number in the trace protocol.
    pub number: u16,
    /// Where execution would have continued.
    pub return_to: Option<u64>,
    /// The instruction there, on M-profile cores, if it is known.
    pub interrupted: Option<u32>,
    /// Whether floating point is known to have been used before it, on M-profile cores.
    pub floats: bool,
    /// Whether the core is in Secure state before and after it, if that is known.
    pub is_secure: Option<bool>,
    /// Whether it is a fault of an M-profile core.
    pub is_fault: bool,
}

/// Consecutive positions.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// The first position in time, with its step.
    first: Position,
    step: u32,
    places: u32,
}

/// The steps from the end back to some position.
#[derive(Debug, Default)]
pub(in crate::recover) struct Steps {
    all: Vec<u32>,
    /// Backward in time.
    pieces: Vec<Piece>,
    /// By step.
    pub taken: Vec<Taken>,
    /// The latest step that ran in an address space other than the final one, by the trace's
    /// report.
    pub other_space: Option<u32>,
    /// The address space at the earliest position; what is not reported there is taken from the
    /// first later report.
    space: AddressSpace,
    /// The earliest position.
    begin: Option<Position>,
    /// Whether the earliest position is the first of the history.
    complete: bool,
    /// Whether a fault of an M-profile core was passed.
    faulted: bool,
    /// Whether the trace reports that the security state of an M-profile core changed.
    pub changes_security: bool,
}

/// Consecutive positions, forward in time.
#[derive(Debug, Default)]
pub(in crate::recover) struct Stretch {
    places: Vec<u32>,
    positions: Vec<(Position, u32)>,
    /// The exceptions, each with the number of the position after it instead of a step.
    pub taken: Vec<Taken>,
    /// The address space at the first position; what is not reported there is taken from the first
    /// later report.
    space: AddressSpace,
    /// The number of the first position after the last change of the address space.
    space_changed: Option<u32>,
    changes_security: bool,
}

impl Steps {
    pub fn len(&self) -> u32 {
        self.all.len() as u32
    }

    pub fn is_complete(&self) -> bool {
        self.complete
    }

    pub fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<u32>() + self.pieces.capacity() * size_of::<Piece>()
    }

    pub fn step(&self, step: u32) -> Step {
        step_of(self.all[step as usize])
    }

    pub fn template<'t>(&self, templates: &'t Templates, step: u32) -> Option<&'t Template> {
        match self.step(step) {
            Step::Instruction(template) => Some(&templates.all[template as usize]),
            Step::Halted | Step::Gap => None,
        }
    }

    /// The step of a position; `None` if it is earlier than the explored ones.
    pub fn find(&self, position: Position) -> Option<u32> {
        let index = self.pieces.partition_point(|piece| piece.first > position);
        let piece = self.pieces.get(index)?;
        let distance = position.distance(piece.first)?;
        (distance < u64::from(piece.places)).then(|| piece.step - distance as u32)
    }

    /// The position of a step.
    pub fn position(&self, step: u32) -> Option<Position> {
        // The `step` of a piece is its largest.
        let index = self.pieces.partition_point(|piece| piece.step < step);
        let piece = self.pieces.get(index)?;
        let distance = piece.step - step;
        // Steps between pieces have no position.
        (distance < piece.places).then(|| piece.first.after(distance.into()))
    }

    /// The earliest explored position; initially, the end of the history.
    pub fn begin(&mut self, history: &mut History) -> Position {
        if let Some(begin) = self.begin {
            return begin;
        }
        let end = history.end();
        self.space = space_at(history, end);
        self.begin_with(end);
        end
    }

    /// Begins at a position in the middle, as if execution were halted there.
    pub fn begin_at(&mut self, history: &mut History, position: Position) {
        let end = history.end();
        let (mut space, last) = (space_at(history, position), space_at(history, end));
        self.space = space;
        if !space.move_to(last) {
            self.other_space = Some(0);
        }
        self.begin_with(position);
    }

    fn begin_with(&mut self, halted: Position) {
        self.all.push(HALTED);
        self.pieces.push(Piece {
            first: halted,
            step: 0,
            places: 1,
        });
        self.begin = Some(halted);
    }

    /// Forgets everything for good: nothing more is explored.
    pub fn forget(&mut self) {
        *self = Self {
            begin: self.begin,
            complete: true,
            changes_security: self.changes_security,
            ..Self::default()
        };
    }

    /// Adds a step before all others, without a position.
    pub fn push(&mut self, step: Step) {
        self.all.push(match step {
            Step::Halted => HALTED,
            Step::Gap => GAP,
            Step::Instruction(template) => template,
        });
    }

    /// Gives consecutive positions to steps that were added manually.
    #[cfg(test)]
    pub fn number(&mut self) {
        self.pieces = vec![Piece {
            first: Position::default(),
            step: self.len() - 1,
            places: self.len(),
        }];
    }

    /// Counts the positions from a position to the explored ones. If there are more than `most`,
    /// returns a position between them that is too far away. `None` if it was cancelled.
    pub fn distance(
        &mut self,
        history: &mut History,
        position: Position,
        most: u32,
        cancel: &Cancel,
    ) -> Option<Result<u32, Position>> {
        let begin = self.begin(history);
        let Some(last) = history.step(begin, Direction::Backward) else {
            return Some(Ok(0));
        };
        let mut places = 0_u64;
        for (number, event) in history.entries(last, Direction::Backward).enumerate() {
            places = places.saturating_add(event.entry.places());
            if places > most.into() {
                return Some(Err(event.position));
            }
            if event.position <= position {
                break;
            }
            if number.is_multiple_of(1024) && cancel.is_requested() {
                return None;
            }
        }
        Some(Ok(places as u32))
    }

    /// Explores `count` more positions before the explored ones, or a few more. `None` if it was
    /// cancelled; then nothing was added.
    pub fn extend(
        &mut self,
        history: &mut History,
        templates: &mut Templates,
        count: u32,
        cancel: &Cancel,
    ) -> Option<()> {
        let begin = self.begin(history);
        let Some(last) = history.step(begin, Direction::Backward) else {
            self.complete = true;
            return Some(());
        };
        let mut start = last;
        let mut places = 0_u64;
        for event in history.entries(last, Direction::Backward) {
            places = places.saturating_add(event.entry.places());
            if event.entry.places() > 0 {
                start = event.position;
                if places >= count.into() {
                    break;
                }
            }
            if places.is_multiple_of(1024) && cancel.is_requested() {
                return None;
            }
        }
        let stretch = Stretch::of(history, templates, start..begin, self.space, cancel)?;
        self.add(stretch, templates.microcontroller);
        self.begin = Some(start);
        self.complete = history.step(start, Direction::Backward).is_none();
        Some(())
    }

    fn add(&mut self, stretch: Stretch, microcontroller: Microcontroller) {
        let count = stretch.places.len() as u32;
        // The step of a position, by its number in the stretch.
        let before = self.len();
        let step = |number: u32| before + (count - 1 - number.min(count - 1));
        let mut end = count;
        for &(first, number) in stretch.positions.iter().rev() {
            let places = end - number;
            end = number;
            if let Some(piece) = self.pieces.last_mut()
                && piece.first.distance(first) == Some(places.into())
            {
                *piece = Piece {
                    first,
                    step: step(number),
                    places: piece.places + places,
                };
            } else if places > 0 {
                self.pieces.push(Piece {
                    first,
                    step: step(number),
                    places,
                });
            }
        }
        for &taken in stretch.taken.iter().rev() {
            let step = if taken.step == count {
                before - 1
            } else {
                step(taken.step)
            };
            let mut taken = Taken { step, ..taken };
            if taken.is_fault && microcontroller.frames_may_fail {
                let has_frame = microcontroller.last_has_frame && !self.faulted;
                taken.number = if has_frame { taken.number } else { UNKNOWN };
            }
            // Where the security state changes, the frame is on a stack of the other state.
            let may_change = microcontroller.extensions.security && taken.is_secure.is_none();
            if may_change && taken.number != HALT {
                taken.number = UNKNOWN;
            }
            self.faulted |= taken.is_fault;
            self.taken.push(taken);
        }
        self.changes_security |= stretch.changes_security;
        self.space = stretch.space;
        if let Some(changed) = stretch.space_changed {
            // The position before the change: the last one of the next stretch if this one has
            // none.
            self.other_space.get_or_insert(before + (count - changed));
        }
        self.all.extend(stretch.places.iter().rev());
    }
}

impl Stretch {
    /// The number of positions.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// What is at the position with this number.
    pub fn step(&self, number: usize) -> Step {
        step_of(self.places[number])
    }

    /// The number of a position; `None` if it is not among these.
    pub fn find(&self, position: Position) -> Option<usize> {
        let after = self
            .positions
            .partition_point(|(first, _)| *first <= position);
        let (first, number) = self.positions[..after].last()?;
        let number = u64::from(*number).checked_add(position.distance(*first)?)?;
        let number = usize::try_from(number).ok()?;
        (number < self.len()).then_some(number)
    }

    /// The position with this number.
    pub fn position(&self, number: usize) -> Option<Position> {
        let after = self
            .positions
            .partition_point(|(_, first)| *first as usize <= number);
        let (position, first) = self.positions[..after].last()?;
        Some(position.after((number - *first as usize) as u64))
    }

    /// The positions of a range; `later` is the address space after it.
    pub fn of(
        history: &mut History,
        templates: &mut Templates,
        Range { start, end }: Range<Position>,
        later: AddressSpace,
        cancel: &Cancel,
    ) -> Option<Self> {
        /// Events between two checks for a request to cancel.
        const OFTEN: usize = 1 << 12;
        let mut stretch = Self::default();
        let is_m_profile = templates.architecture == Architecture::MProfile;
        let context = history.place(start).and_then(|place| place.context);
        let mut view = history.view(context.as_ref());
        let versions = history.code_versions();
        let mut space = AddressSpace::of(context.as_ref(), versions);
        stretch.space = space;
        let events = history.entries(start, Direction::Forward);
        // The history cannot provide code while it iterates over entries.
        let mut batch = Vec::with_capacity(OFTEN);
        let mut events = events.take_while(|event| {
            event.position < end || event.entry.places() == 0 && event.position == end
        });
        let mut all = Vec::new();
        loop {
            batch.clear();
            batch.extend(events.by_ref().take(OFTEN));
            if batch.is_empty() {
                break;
            }
            if cancel.is_requested() {
                return None;
            }
            all.append(&mut batch);
        }
        type Key = (Address, Address, Isa, u32, Blocks, bool);
        let mut runs = HashMap::<Key, (u32, u32, Blocks)>::new();
        let mut blocks = match follows_branch(history, start) {
            true => Blocks::after_branch(),
            false => Blocks::default(),
        };
        // The state of IT blocks where handlers may return to: it depends on the address only.
        let mut interrupted = HashMap::<u64, ItState>::new();
        let mut returned = false;
        // The return itself is before these positions.
        let mut resumes = is_m_profile && follows_return(history, start);
        let mut handlers = Handlers::default();
        let mut floats = UsesFloats::default();
        let has_floats = templates.microcontroller.extensions.floating_point;
        // Where execution continues, if that follows from the trace so far.
        let mut next = None;
        let mut sequences: Vec<u32> = Vec::new();
        for event in all {
            let number = stretch.places.len() as u32;
            match event.entry {
                Entry::Run { range, .. } => {
                    stretch.at(event.position, number);
                    if range.isa == Isa::A64 {
                        blocks.lose();
                    }
                    if std::mem::take(&mut returned) {
                        let here = range.start.0;
                        let state = interrupted.get(&here);
                        blocks = Blocks::resumed(state.map(|state| (here, *state)));
                    }
                    let untaken = is_untaken(&range.last);
                    let key = (range.start, range.end, range.isa, view.0, blocks, untaken);
                    let (first, count, known) = *runs.entry(key).or_insert_with(|| {
                        let first = sequences.len() as u32;
                        let addresses = history.range_instructions(view, &range);
                        sequences.extend(templates.instructions(
                            history,
                            view,
                            addresses,
                            &mut blocks,
                            untaken,
                        ));
                        (first, sequences.len() as u32 - first, blocks)
                    });
                    blocks = known;
                    let sequence = &sequences[first as usize..(first + count) as usize];
                    stretch.places.extend_from_slice(sequence);
                    if std::mem::take(&mut resumes)
                        && let Some(&first) = sequence.first()
                    {
                        stretch.places[number as usize] = templates.resumed(first);
                    }
                    if has_floats {
                        floats.pass(templates, &mut stretch.places[number as usize..]);
                    }
                    if let Some(&last) = sequence.last().filter(|_| is_m_profile) {
                        let template = &templates.all[last as usize];
                        handlers.pass(template, templates, range.last.taken);
                        next = match template.control {
                            Control::Jump(to) => Some(to),
                            Control::Conditional { target, .. } if range.last.taken => Some(target),
                            Control::Indirect { .. } if range.last.taken => None,
                            _ => Some(template.end()),
                        };
                    }
                }
                Entry::Gap(_) => {
                    stretch.at(event.position, number);
                    stretch.places.push(GAP);
                    blocks.lose();
                    handlers.lose();
                    floats.lose();
                    (resumes, next) = (false, None);
                }
                Entry::Exception(exception) => {
                    let to = exception.return_address.map(|address| address.0);
                    let mut taken = Taken {
                        step: number,
                        number: number_of(&exception, is_m_profile),
                        return_to: to,
                        floats: floats.0,
                        is_secure: stretch.is_secure(number, space),
                        is_fault: is_m_profile && is_fault(exception.name),
                        ..Taken::default()
                    };
                    floats.lose();
                    resumes = false;
                    let next = next.take();
                    if is_m_profile {
                        let place = to.or(next);
                        taken.interrupted =
                            place.map(|place| templates.interrupted(history, view, place & !1));
                        if stretch.is_derived(&exception, number) {
                            taken.number = UNKNOWN;
                        }
                        match handlers.exception(to) {
                            Chained::Yes => {
                                stretch.taken.push(returned_at(number, taken.is_secure))
                            }
                            Chained::Unknown => taken.number = UNKNOWN,
                            Chained::No => interrupted.extend(blocks.interrupted(to)),
                        }
                    }
                    stretch.taken.push(taken);
                    blocks.lose();
                }
                Entry::Mark(Mark::ExceptionReturn) if is_m_profile => {
                    handlers.returned();
                    let is_secure = stretch.is_secure(number, space);
                    stretch.taken.push(returned_at(number, is_secure));
                    blocks.lose();
                    floats.lose();
                    returned = true;
                    resumes = true;
                }
                Entry::Mark(Mark::Context(context)) => {
                    view = history.view(Some(&context));
                    let next = AddressSpace::of(Some(&context), versions);
                    stretch.space = stretch.space.or(next);
                    if is_m_profile && space.changes_security(next) {
                        stretch.change_security(number);
                        floats.lose();
                    }
                    if !space.move_to(next) {
                        stretch.space_changed = Some(number);
                    }
                }
                Entry::Mark(_) | Entry::Halted => {}
            }
        }
        stretch.space = stretch.space.or(later);
        if !space.move_to(later) {
            stretch.space_changed = Some(stretch.places.len() as u32);
        }
        Some(stretch)
    }

    /// Whether an exception is a fault that was taken instead of the first instruction of another
    /// handler: what the core stored of the frames is unknown then (DDI 0403, B1.5.11).
    fn is_derived(&self, exception: &Exception, number: u32) -> bool {
        let entered = |last: &Taken| last.step == number && !last.returns;
        is_fault(exception.name) && self.taken.last().is_some_and(entered)
    }

    /// Whether the core is in Secure state before and after a position; `None` if that is not known or it
    /// changed there: some trace units report the new state before the exception that leads to it.
    fn is_secure(&self, number: u32, space: AddressSpace) -> Option<bool> {
        let mut here = self
            .taken
            .iter()
            .rev()
            .take_while(|last| last.step == number);
        let known = here.all(|last| last.is_secure.is_some());
        space.is_secure().filter(|_| known)
    }

    /// Loses everything where the security state changes, whose registers and frames are others.
    fn change_security(&mut self, number: u32) {
        self.changes_security = true;
        let here = self.taken.iter_mut().rev();
        for taken in here.take_while(|taken| taken.step == number) {
            taken.is_secure = None;
        }
        self.taken.push(Taken {
            step: number,
            number: UNKNOWN,
            ..Taken::default()
        });
    }

    /// Records a position, unless it follows from the last recorded one.
    fn at(&mut self, position: Position, number: u32) {
        if let Some((last, at)) = self.positions.last()
            && position.distance(*last) == Some(u64::from(number - at))
        {
            return;
        }
        self.positions.push((position, number));
    }
}

/// Numbers of an interrupt, of a halt, and of what leaves an unknown state (IHI 0064H, 6.4.8: IRQ,
/// debug halt and PE reset).
const INTERRUPT: u16 = 14;
const HALT: u16 = 1;
const UNKNOWN: u16 = 0;

/// The number of an exception. Those of the M profile, which each protocol numbers differently, have
/// that of an interrupt, except resets and halts.
fn number_of(exception: &Exception, is_m_profile: bool) -> u16 {
    match exception.name {
        _ if !is_m_profile => exception.number,
        "debug halt" => HALT,
        "PE reset" | "Reset" | "lockup" | "lazy FP push" | "reserved" | "Reserved" | "None" => {
            UNKNOWN
        }
        _ => INTERRUPT,
    }
}

/// Whether this is a fault of the M profile.
fn is_fault(name: &str) -> bool {
    matches!(
        name,
        "HardFault" | "MemManage" | "BusFault" | "UsageFault" | "SecureFault"
    )
}

/// Whether a position is the first one after the return from a handler.
pub(in crate::recover) fn follows_return(history: &mut History, position: Position) -> bool {
    let before = history.entries(position, Direction::Backward);
    let mut before = before
        .skip_while(|event| event.entry.places() > 0 && event.position == position)
        .take_while(|event| event.entry.places() == 0);
    before.any(|event| matches!(event.entry, Entry::Mark(Mark::ExceptionReturn)))
}

/// Whether the instruction executed before a position, without an exception or a gap between them, is a branch.
fn follows_branch(history: &mut History, position: Position) -> bool {
    let before = history.entries(position, Direction::Backward);
    let mut before =
        before.skip_while(|event| event.entry.places() > 0 && event.position == position);
    let found = before.find(|event| !matches!(event.entry, Entry::Mark(_)));
    found.is_some_and(|event| ends_in_branch(&event.entry))
}

/// Whether an entry is a run of instructions that ends in a branch.
pub(in crate::recover) fn ends_in_branch(entry: &Entry) -> bool {
    let kind = match entry {
        Entry::Run { range, .. } => range.last.kind,
        _ => return false,
    };
    matches!(kind, InstructionKind::Branch | InstructionKind::Indirect)
}

/// A return from an exception before a position.
fn returned_at(step: u32, is_secure: Option<bool>) -> Taken {
    Taken {
        step,
        returns: true,
        number: INTERRUPT,
        is_secure,
        ..Taken::default()
    }
}

fn step_of(place: u32) -> Step {
    match place {
        HALTED => Step::Halted,
        GAP => Step::Gap,
        template => Step::Instruction(template),
    }
}

fn space_at(history: &mut History, position: Position) -> AddressSpace {
    let context = history.place(position).and_then(|place| place.context);
    AddressSpace::of(context.as_ref(), history.code_versions())
}

/// Whether a run ends with an indirect branch that was not taken: its atom is N. Without an atom,
/// the run would not end there.
fn is_untaken(last: &LastInstruction) -> bool {
    last.kind == InstructionKind::Indirect && last.conditional && !last.taken
}
