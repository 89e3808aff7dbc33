//! The window: history from the end back to some step, built and solved.

use super::execution::blocks::Blocks;
use super::execution::recorded::Recorded;
use super::execution::stack_walk::{Noted, StackWalk};
use super::execution::steps::{Step, Steps, follows_return};
use super::execution::template::stack_pointer;
use super::execution::templates::Templates;
use super::facts::final_state::{FinalState, Others, RecordedAddresses};
use super::graph::build::{Builder, Through};
use super::graph::walk::{FirstWalk, INTERVAL, Walks};
use super::memory::cells::Cells;
use super::phase::{Next, Phase};
use super::queries::Solved;
use super::solver::built::StepSink;
use super::solver::inference::Proof;
use super::solver::{Given, Sharing, Solver};
use crate::timeline::{Direction, EndAgrees, Found, History, Position};
use armsnap_arch::semantics::Location;
use armsnap_snapshot::stop::Cancel;

/// The number of steps explored first.
const FIRST: u32 = 1 << 16;
/// Steps before a position that are explored as well: what they compute may be used after it.
const BEFORE: u32 = 1 << 14;
/// The most steps that are solved at once before it is known how much memory they need; a shorter
/// history is solved as a whole.
const ESTIMATED: u32 = 1 << 18;
/// The least memory that a step needs, in bytes.
const LEAST_BYTES: usize = 200;

/// Whether something was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached<T> {
    /// It was, and is here.
    At(T),
    /// Memory does not suffice for it, or nothing is to be shown.
    Not,
}

impl<T> From<Option<T>> for Reached<T> {
    fn from(found: Option<T>) -> Self {
        found.map_or(Self::Not, Self::At)
    }
}

/// A window, which grows backward.
#[derive(Debug, Default)]
pub(super) struct Window {
    pub templates: Templates,
    pub steps: Steps,
    /// The walk that builds the steps.
    first: FirstWalk,
    /// How far they are solved.
    phase: Phase,
    /// Bytes per step, when all were solved.
    each: usize,
    /// Whether the trace ends at the final state.
    pub ends: bool,
    started: bool,
    /// Whether it ends in the middle of the history.
    is_apart: bool,
    /// From here on nobody else writes memory.
    alone_from: Option<Position>,
    halted: Option<u64>,
    recorded: Recorded,
    /// How often what was proved contradicted itself.
    doubts: u32,
    /// A position that, like all earlier ones, memory does not suffice for.
    beyond: Option<Position>,
    /// The stack pointer before everything that is solved.
    pub stack: Option<StackWalk>,
    /// Positions with stack pointers that are inferred without solving, towards the past.
    hints: Vec<Noted>,
}

impl Window {
    /// A window whose history ends at a pc, with steps added by hand.
    #[cfg(test)]
    pub fn at_end(pc: u64) -> Self {
        Self {
            ends: true,
            started: true,
            halted: Some(pc),
            ..Self::default()
        }
    }

    /// A window that ends in the middle of the history, as if execution were halted there: of the
    /// registers, only the stack pointer may be inferred; of memory, only what is constant is
    /// known.
    pub fn in_the_middle(
        history: &mut History,
        facts: &FinalState,
        end: Position,
        hints: Vec<Noted>,
    ) -> Self {
        let mut window = Self {
            started: true,
            is_apart: true,
            hints,
            ..Self::default()
        };
        window.templates.architecture = facts.architecture;
        window.templates.without_model = facts.has_no_model();
        window.templates.model(facts.microcontroller);
        window.templates.go = facts.go.clone();
        window.steps.begin_at(history, end);
        window
    }

    /// `count` steps before a position, and a few more, all of them solved; at the position, with this
    /// pc, the facts hold. Without a position, it is the end of the history.
    pub fn before(
        history: &mut History,
        facts: &FinalState,
        end: Option<(Position, u64)>,
        count: u32,
        cancel: &Cancel,
    ) -> Option<Self> {
        let mut window = match end {
            Some((end, _)) => Self::in_the_middle(history, facts, end, Vec::new()),
            None => Self::default(),
        };
        match end {
            Some((_, pc)) => (window.ends, window.halted) = (true, Some(pc)),
            None => window.start(history, facts),
        }
        let (steps, templates) = (&mut window.steps, &mut window.templates);
        steps.extend(history, templates, count, cancel)?;
        window.work(facts, cancel)?;
        Some(window)
    }

    pub fn bytes(&self) -> usize {
        self.phase.bytes() + self.steps.bytes()
    }

    /// Determines whether the trace is known to end at the final state.
    pub fn start(&mut self, history: &mut History, facts: &FinalState) {
        if self.started {
            return;
        }
        self.started = true;
        self.templates.architecture = facts.architecture;
        self.templates.without_model = facts.has_no_model();
        self.templates.model(facts.microcontroller);
        self.templates.go = facts.go.clone();
        match facts.others {
            Others::EndedBy(time) => self.alone_from = after(history, time),
            Others::Devices => self.alone_from = Some(history.begin()),
            Others::None | Others::Always => {}
        }
        if history.end_agrees() != EndAgrees::Yes {
            return;
        }
        let Some(halted) = history.halted() else {
            return;
        };
        self.ends = true;
        self.halted = Some(halted.0 | u64::from(facts.is_thumb()));
        self.stack = StackWalk::new(history, facts, &mut self.templates);
        // The rest of the last straight line was executed too.
        let end = self.steps.begin(history);
        let context = history.place(end).and_then(|place| place.context);
        let view = history.view(context.as_ref());
        if let Some(range) = history.rest() {
            let mut addresses = history.range_instructions(view, &range);
            addresses.retain(|(address, _)| *address < halted);
            let (templates, blocks) = (&mut self.templates, &mut Blocks::default());
            let mut rest = templates.instructions(history, view, addresses, blocks, false);
            if self.templates.has_handlers()
                && follows_return(history, end)
                && let Some(first) = rest.first_mut()
            {
                *first = self.templates.resumed(*first);
            }
            for &template in rest.iter().rev() {
                self.steps.push(Step::Instruction(template));
            }
        }
    }

    /// The step of a position; everything from there to the end, and some steps before it, is built
    /// and solved. It is not reached if memory does not suffice, in which case nothing is solved for it.
    /// `None` if it was cancelled.
    pub fn reach(
        &mut self,
        history: &mut History,
        facts: &FinalState,
        position: Position,
        most_bytes: usize,
        cancel: &Cancel,
    ) -> Option<Reached<u32>> {
        self.start(history, facts);
        loop {
            let found = self.steps.find(position);
            let older = found.map_or(0, |step| self.steps.len() - step);
            if found.is_none() && self.is_beyond(position) {
                return Some(Reached::Not);
            }
            if older >= BEFORE || self.steps.is_complete() {
                self.solve(history, facts, cancel)?;
                return Some(self.steps.find(position).into());
            }
            let room = self.room(most_bytes);
            let count = match self.steps.distance(history, position, room, cancel)? {
                Ok(distance) => distance.saturating_add(BEFORE - older),
                Err(beyond) if found.is_none() => {
                    self.beyond = self.beyond.max(Some(beyond));
                    return Some(Reached::Not);
                }
                Err(_) => room,
            };
            let count = count.max(self.short_history(history, room, cancel)?);
            if self.each == 0 && count > ESTIMATED {
                // It is then known how much memory a step needs.
                self.grow_by(history, FIRST, most_bytes, cancel)?;
                self.solve(history, facts, cancel)?;
            } else if !self.grow_by(history, count, most_bytes, cancel)? {
                self.solve(history, facts, cancel)?;
                return Some(self.steps.find(position).into());
            }
        }
    }

    /// The number of steps of the whole history, if it is short and nothing is solved yet: facts
    /// from the start of a program reach far, so all of it is then solved together.
    fn short_history(&mut self, history: &mut History, room: u32, cancel: &Cancel) -> Option<u32> {
        if self.each != 0 || self.is_apart {
            return Some(0);
        }
        // A step may need four times the estimate.
        let (begin, most) = (history.begin(), (room / 4).min(ESTIMATED));
        let all = self.steps.distance(history, begin, most, cancel)?;
        Some(all.unwrap_or(0))
    }

    /// Infers stack pointers from the end back to a position. `None` if it was cancelled.
    pub fn walk_stack(
        &mut self,
        history: &mut History,
        position: Position,
        cancel: &Cancel,
    ) -> Option<()> {
        let Some(walk) = self.stack.as_mut().filter(|_| self.ends) else {
            return Some(());
        };
        walk.reach(history, &mut self.templates, position, cancel)
    }

    /// Builds and solves what was explored, with stack pointers that are inferred without solving.
    pub fn solve(
        &mut self,
        history: &mut History,
        facts: &FinalState,
        cancel: &Cancel,
    ) -> Option<()> {
        if self.has_grown() && self.ends {
            let (begin, end) = (self.steps.begin(history), history.end());
            self.walk_stack(history, begin, cancel)?;
            if let Some(walk) = &self.stack {
                self.hints = walk.forward(begin, end).collect();
            }
        }
        self.work(facts, cancel)
    }

    /// Whether memory was found not to suffice for a position.
    pub fn is_beyond(&self, position: Position) -> bool {
        self.beyond.is_some_and(|beyond| position <= beyond)
    }

    /// Whether a position before the explored ones can be reached within a limit of bytes.
    pub fn is_near(
        &mut self,
        history: &mut History,
        position: Position,
        most_bytes: usize,
        cancel: &Cancel,
    ) -> Option<bool> {
        let room = self.room(most_bytes);
        let found = self.steps.distance(history, position, room, cancel)?;
        Some(found.is_ok())
    }

    /// Explores more history; returns whether there is more within the limit.
    pub fn grow(
        &mut self,
        history: &mut History,
        most_bytes: usize,
        cancel: &Cancel,
    ) -> Option<bool> {
        self.grow_by(history, 0, most_bytes, cancel)
    }

    /// Explores `count` more steps, or as many as there are already, whichever is more.
    fn grow_by(
        &mut self,
        history: &mut History,
        count: u32,
        most_bytes: usize,
        cancel: &Cancel,
    ) -> Option<bool> {
        if self.steps.is_complete() {
            return Some(false);
        }
        let count = count.max(self.steps.len()).max(FIRST);
        let count = count.min(self.room(most_bytes));
        if count < 1024 {
            return Some(false);
        }
        self.steps
            .extend(history, &mut self.templates, count, cancel)?;
        Some(true)
    }

    /// The number of further steps that memory suffices for, estimated from its current use;
    /// explored steps may not be solved yet.
    fn room(&self, most_bytes: usize) -> u32 {
        let (bytes, length) = (self.bytes(), self.steps.len() as usize);
        let each = (bytes / length.max(1) + 1).max(self.each).max(LEAST_BYTES);
        let taken = bytes.max(self.each.saturating_mul(length));
        let room = most_bytes.saturating_sub(taken) / each;
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// Whether there are steps that were not built.
    fn has_grown(&self) -> bool {
        self.first.built < self.steps.len()
    }

    /// Builds and solves what was explored.
    pub fn work(&mut self, facts: &FinalState, cancel: &Cancel) -> Option<()> {
        if self.has_grown() {
            self.phase = std::mem::take(&mut self.phase).grown();
        }
        while !matches!(self.phase, Phase::Solved(..)) {
            let next = match std::mem::take(&mut self.phase) {
                Phase::Build(solver) => self.build(solver, facts, cancel),
                Phase::Prove(solver) => Phase::prove(solver, &self.given(facts), cancel),
                Phase::Infer(solver, tries) => {
                    Phase::infer(solver, tries, &self.given(facts), cancel)
                }
                solved @ Phase::Solved(..) => Next::Phase(solved),
            };
            match next {
                Next::Phase(phase) => self.phase = phase,
                Next::Cancelled(phase) => {
                    self.phase = phase;
                    return None;
                }
                Next::Again(sharing) => self.start_again(sharing),
                Next::Doubt(sharing) => self.doubt(sharing),
            }
            if matches!(self.phase, Phase::Solved(..)) {
                self.each = self.bytes() / (self.steps.len().max(1) as usize);
            }
        }
        Some(())
    }

    /// What the solver reads.
    fn given<'a>(&'a self, facts: &'a FinalState) -> Given<'a> {
        Given {
            templates: &self.templates,
            memory: &*facts.memory,
            is_final: self.ends,
            others: facts.others != Others::None,
            frame: facts.frame(),
            stack: facts.registers[stack_pointer(self.templates.is_narrow()).index()],
        }
    }

    /// What was proved contradicts itself, so some of the facts are false: everything is built
    /// again with fewer of them.
    fn doubt(&mut self, sharing: Sharing) {
        self.doubts += 1;
        // First, others are assumed to have written memory, and recorded addresses to belong to
        // something else; then the final state, too. Finally, the trace itself contradicts the code.
        self.start_again(sharing.contradicted());
        if self.doubts > 1 {
            self.ends = false;
            self.halted = None;
        }
        if self.doubts > 2 {
            self.steps.forget();
        }
    }

    /// Forgets everything that was built.
    fn start_again(&mut self, sharing: Sharing) {
        self.phase = Phase::again(sharing);
        self.first = FirstWalk::default();
    }

    /// Who else may have written memory.
    pub fn sharing(&self) -> &Sharing {
        self.phase.sharing()
    }

    /// Which accesses are known to have hit which words so far.
    pub fn cells(&self) -> &Cells {
        self.phase.cells()
    }

    /// The window for queries, if everything in it is solved.
    pub fn solved<'w>(&'w mut self, facts: &'w FinalState) -> Option<Solved<'w>> {
        let Phase::Solved(solver, nearby) = &mut self.phase else {
            return None;
        };
        Some(Solved {
            facts,
            walks: Walks {
                through: through(&self.templates, &self.steps, self.halted, facts),
                first: &self.first,
            },
            solver,
            nearby,
            ends: self.ends,
        })
    }

    /// Why recorded addresses are not used, if they are not.
    pub fn addresses_fault(&self) -> Option<&str> {
        self.recorded.fault.as_deref()
    }

    /// Builds the steps that are not built yet.
    fn build(
        &mut self,
        mut solver: Box<Solver<Proof>>,
        facts: &FinalState,
        cancel: &Cancel,
    ) -> Next {
        solver.sharing.alone_from = self.alone_from.map_or(0, |from| {
            // A position that is not found is earlier than all explored ones.
            self.steps.find(from).unwrap_or(u32::MAX)
        });
        solver.forget_rare();
        let templates = &self.templates;
        let through = through(templates, &self.steps, self.halted, facts);
        let none = [None; Location::KEPT];
        let values = if self.ends { &facts.registers } else { &none };
        let mut sink = StepSink {
            built: &mut solver.built,
            templates,
            template: None,
            recorded: &[],
        };
        let narrow = templates.is_narrow();
        let first = &mut self.first;
        let builder = first
            .builder
            .get_or_insert_with(|| Builder::new(values, narrow, &mut sink));
        let stack = stack_pointer(narrow).index();
        let end = self.hints.first().map(|noted| noted.position);
        if first.built == 0 && !self.ends && end == self.steps.position(0) {
            builder.node(stack, &mut sink);
        }
        let of_step = |noted: &Noted| Some((self.steps.find(noted.position)?, noted.stack_pointer));
        let hints = self.hints.iter().filter_map(of_step);
        let built = first.built;
        let mut hints = hints.skip_while(|(step, _)| *step < built).peekable();
        let mut known_until = built;
        while first.built < self.steps.len() {
            let step = first.built;
            if step.is_multiple_of(INTERVAL) {
                if cancel.is_requested() {
                    return Next::Cancelled(Phase::Build(solver));
                }
                let relations = solver.built.graph.relations.len() as u32;
                let (checkpoint, settled) = builder.checkpoint(relations);
                if let Some(before) = first.checkpoints.last_mut() {
                    before.settled = settled;
                }
                first.checkpoints.push(checkpoint);
            }
            let mut sink = StepSink {
                built: &mut solver.built,
                templates,
                template: self.steps.template(templates, step).copied(),
                recorded: &[],
            };
            if let Some(log) = believed(facts, self.doubts, &self.recorded) {
                if step >= known_until {
                    known_until = (step / INTERVAL + 1) * INTERVAL;
                    self.recorded.read(log, step..known_until);
                }
                match self.recorded.of(log, &self.steps, templates, step) {
                    Some(accesses) => sink.recorded = accesses,
                    // What was built with faulty addresses is forgotten.
                    None => return Next::Again(solver.sharing),
                }
            }
            builder.step(&through, step, &mut sink);
            if let Some((_, value)) = hints.next_if(|(hinted, _)| *hinted == step) {
                solver.built.hinted.push((builder.current()[stack], value));
            }
            first.built += 1;
        }
        solver.take_accesses();
        Next::Phase(Phase::Prove(solver))
    }
}

/// What a walk over some steps needs.
fn through<'a>(
    templates: &'a Templates,
    steps: &'a Steps,
    halted: Option<u64>,
    facts: &'a FinalState,
) -> Through<'a> {
    Through {
        templates,
        steps,
        halted,
        without_kernel: facts.without_kernel,
        landing_pads: &facts.landing_pads,
    }
}

/// The first position that is known to be later than a time.
fn after(history: &mut History, time: u64) -> Option<Position> {
    let timed = history.seek_time(time.checked_add(1)?)?;
    // A timestamp belongs to the last branch before it (IHI 0064H, 5.1): what was executed after
    // that branch, up to the next one, may be earlier.
    match history.waypoint(timed, Direction::Forward) {
        Found::At(waypoint) => history.step(waypoint, Direction::Forward),
        _ => None,
    }
}

/// The recorded addresses, unless there is reason to doubt them.
fn believed<'a>(
    facts: &'a FinalState,
    doubts: u32,
    recorded: &Recorded,
) -> Option<&'a dyn RecordedAddresses> {
    let addresses = facts.addresses.as_deref();
    addresses.filter(|_| doubts == 0 && recorded.fault.is_none())
}
