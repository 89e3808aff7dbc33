//! The window: history from the end back to some step, built and solved.

use super::bits::{Bits, low};
use super::execution::blocks::Blocks;
use super::execution::course::Course;
use super::execution::recorded::{self, Recorded};
use super::execution::stack_walk::{Noted, StackWalk};
use super::execution::template::{Template, Templates, stack_pointer};
use super::facts::final_state::{FinalState, Others, RecordedAddresses};
use super::graph::build::{Builder, Checkpoint, Sink, Through};
use super::graph::nodes::{NONE, RESULT};
use super::graph::walk::INTERVAL;
use super::memory::cells::untagged;
use super::queries::values::Nearby;
use super::solver::kept_frames::Handled;
use super::solver::{AccessKind, BASE, Known, Layer, Solver};
use crate::timeline::{Direction, EndAgrees, Found, History, Position};
use armsnap_arch::semantics::Location;
use armsnap_snapshot::stop::Cancel;
use armsnap_trace::data_addresses::Accessed;
use std::cell::RefCell;
use std::ops::Range;

/// The number of steps explored first.
const FIRST: u32 = 1 << 16;
/// Steps before a position that are explored as well: what they compute may be used after it.
const BEFORE: u32 = 1 << 14;
/// The most steps that are solved at once before it is known how much memory they need; a shorter
/// history is solved as a whole.
const ESTIMATED: u32 = 1 << 18;
/// The least memory that a step needs, in bytes.
const LEAST_BYTES: usize = 200;
/// How often the second layer is tried again without what contradicted itself.
const TRIES: u32 = 8;

/// How far the explored steps have been processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There may be steps that were not built.
    Build,
    Prove,
    /// The second layer, for the n-th time.
    Infer(u32),
    Solved,
}

/// A window, which grows backward.
#[derive(Debug)]
pub(super) struct Window {
    pub templates: Templates,
    pub course: Course,
    pub solver: Solver,
    pub builder: Option<Builder>,
    /// The state before every step whose number is a multiple of [`INTERVAL`].
    pub checkpoints: Vec<Checkpoint>,
    /// The number of steps built.
    pub built: u32,
    stage: Stage,
    /// Bytes per step, when all were solved.
    each: usize,
    /// Whether the trace ends at the final state.
    pub ends: bool,
    started: bool,
    /// Whether it ends in the middle of the history.
    is_apart: bool,
    /// From here on nobody else writes memory.
    alone_from: Option<Position>,
    pub halted: Option<u64>,
    recorded: Recorded,
    /// What queries of registers found, until more is built.
    pub nearby: RefCell<Nearby>,
    /// How often what was proved contradicted itself.
    doubts: u32,
    /// A position that, like all earlier ones, memory does not suffice for.
    beyond: Option<Position>,
    /// The stack pointer before all that is solved.
    pub stack: Option<StackWalk>,
    /// Positions with stack pointers that are inferred without solving, towards the past.
    hints: Vec<Noted>,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            templates: Templates::default(),
            course: Course::default(),
            solver: Solver::default(),
            builder: None,
            checkpoints: Vec::new(),
            built: 0,
            stage: Stage::Build,
            each: 0,
            ends: false,
            started: false,
            is_apart: false,
            alone_from: None,
            halted: None,
            recorded: Recorded::default(),
            nearby: RefCell::default(),
            doubts: 0,
            beyond: None,
            stack: None,
            hints: Vec::new(),
        }
    }
}

/// Puts what is built into the solver.
struct Into<'a> {
    solver: &'a mut Solver,
    templates: &'a Templates,
    /// The instruction of the step, and what was recorded of its accesses.
    template: Option<Template>,
    recorded: &'a [Accessed],
}

impl Sink for Into<'_> {
    fn node(&mut self, node: u32) {
        let added = self.solver.graph.add_node();
        debug_assert_eq!(added, node, "nodes are numbered by the builder");
    }

    fn fact(&mut self, node: u32, bits: Bits) {
        if bits.mask == low(56) {
            self.solver.tagged.push(node);
        }
        self.solver.graph.learn(node, bits, NONE);
    }

    fn relation(&mut self, op: u32, nodes: [u32; 4]) {
        self.solver.graph.add_relation(op, nodes);
        if let Some(more) = self.templates.op(op).added() {
            self.solver.bounds.add(nodes[RESULT], nodes[BASE], more);
        }
    }

    fn stack_pointer(&mut self, node: u32, access: u32) {
        self.solver.stack_pointers.push((node, access));
    }

    fn switches_stack(&mut self) {
        self.solver.switches_stack = true;
    }

    fn below(&mut self, node: u32, bound: u32) {
        self.solver.bounds.begin(node, bound);
    }

    fn access(&mut self, op: u32, nodes: [u32; 4], step: u32, access: u32) {
        let what = self.templates.op(op);
        let kind = AccessKind::of(op, what).unwrap_or(AccessKind::Load);
        self.solver.add_access(kind, op, nodes, step);
        debug_assert_eq!(self.solver.accesses.len() as u32, access + 1);
        if matches!(kind, AccessKind::Load | AccessKind::Store) {
            self.recorded(op, nodes[BASE], access);
        }
        if kind == AccessKind::Store && what.direct {
            let end = u64::from(what.access().unwrap_or(0)).wrapping_add(what.displacement);
            self.solver.bounds.store(access, end);
        }
        if let (AccessKind::Load, Some(size)) = (kind, what.access()) {
            let upper = Bits::UNKNOWN.extend(8 * u32::from(size));
            self.solver.graph.learn(nodes[0], upper, NONE);
        }
    }

    fn signal(&mut self, step: u32) {
        let kind = AccessKind::Signal;
        self.solver.add_access(kind, NONE, [NONE; 4], step);
    }

    fn handled(&mut self, [started, returned]: [u32; 2], accesses: Range<u32>) {
        let first = self.solver.accesses[accesses.start as usize].relation;
        self.solver.kept_frames.add(Handled {
            started,
            returned,
            accesses,
            relations: first..self.solver.graph.relations.len() as u32,
        });
    }

    fn barrier(&mut self, step: u32, hard: bool) {
        let kind = if hard {
            AccessKind::Lost
        } else {
            AccessKind::Unmodelled
        };
        self.solver.add_access(kind, NONE, [NONE; 4], step);
    }
}

impl Into<'_> {
    /// Takes the address of an access from the recorded addresses.
    fn recorded(&mut self, op: u32, base: u32, access: u32) {
        let Some(template) = self.template.filter(|_| !self.recorded.is_empty()) else {
            return;
        };
        let Some(found) = recorded::address(&template, self.templates, self.recorded, op) else {
            return;
        };
        self.solver.recorded.push((access, untagged(found)));
        if base != NONE {
            let what = self.templates.op(op);
            let value = found.wrapping_sub(what.displacement);
            self.fact(
                base,
                match what.narrow {
                    true => Bits::known(value & low(32)),
                    false => Bits::new(low(56), value),
                },
            );
        }
    }
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

    /// Must be called after steps were added by hand.
    #[cfg(test)]
    pub fn added(&mut self) {
        self.stage = Stage::Build;
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
        window.templates.go = facts.go.clone();
        window.course.begin_at(history, end);
        window
    }

    pub fn bytes(&self) -> usize {
        self.solver.bytes() + self.course.bytes()
    }

    /// Determines whether the trace is known to end at the final state.
    pub fn start(&mut self, history: &mut History, facts: &FinalState) {
        if self.started {
            return;
        }
        self.started = true;
        self.templates.architecture = facts.architecture;
        self.templates.without_model = facts.has_no_model();
        self.templates.go = facts.go.clone();
        if let Others::EndedBy(time) = facts.others {
            self.alone_from = after(history, time);
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
        let end = self.course.begin(history);
        let context = history.place(end).and_then(|place| place.context);
        let view = history.view(context.as_ref());
        if let Some(range) = history.rest() {
            let mut addresses = history.range_instructions(view, &range);
            addresses.retain(|(address, _)| *address < halted);
            let (templates, blocks) = (&mut self.templates, &mut Blocks::default());
            let rest = templates.instructions(history, view, addresses, blocks, false);
            for &template in rest.iter().rev() {
                self.course
                    .push(super::execution::course::Step::Instruction(template));
            }
        }
    }

    /// The step of a position; everything from there to the end, and some steps before it, is built
    /// and solved. The inner `None` if memory does not suffice to reach the position, in which case
    /// nothing is solved for it; the outer `None` if it was cancelled.
    pub fn reach(
        &mut self,
        history: &mut History,
        facts: &FinalState,
        position: Position,
        most_bytes: usize,
        cancel: &Cancel,
    ) -> Option<Option<u32>> {
        self.start(history, facts);
        loop {
            let found = self.course.find(position);
            let behind = found.map_or(0, |step| self.course.len() - step);
            if found.is_none() && self.is_beyond(position) {
                return Some(None);
            }
            if behind >= BEFORE || self.course.is_complete() {
                self.solve(history, facts, cancel)?;
                return Some(self.course.find(position));
            }
            let room = self.room(most_bytes);
            let count = match self.course.distance(history, position, room, cancel)? {
                Ok(distance) => distance.saturating_add(BEFORE - behind),
                Err(beyond) if found.is_none() => {
                    self.beyond = self.beyond.max(Some(beyond));
                    return Some(None);
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
                return Some(self.course.find(position));
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
        let all = self.course.distance(history, begin, most, cancel)?;
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
        if self.stage == Stage::Build && self.ends {
            let (begin, end) = (self.course.begin(history), history.end());
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
        let found = self.course.distance(history, position, room, cancel)?;
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
        if self.course.is_complete() {
            return Some(false);
        }
        let count = count.max(self.course.len()).max(FIRST);
        let count = count.min(self.room(most_bytes));
        if count < 1024 {
            return Some(false);
        }
        self.course
            .extend(history, &mut self.templates, count, cancel)?;
        self.stage = Stage::Build;
        Some(true)
    }

    /// The number of further steps that memory suffices for, estimated from its current use;
    /// explored steps may not be solved yet.
    fn room(&self, most_bytes: usize) -> u32 {
        let (bytes, length) = (self.bytes(), self.course.len() as usize);
        let each = (bytes / length.max(1) + 1).max(self.each).max(LEAST_BYTES);
        let taken = bytes.max(self.each.saturating_mul(length));
        let room = most_bytes.saturating_sub(taken) / each;
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// Builds and solves what was explored.
    pub fn work(&mut self, facts: &FinalState, cancel: &Cancel) -> Option<()> {
        while self.stage != Stage::Solved {
            let known = Known {
                templates: &self.templates,
                memory: &*facts.memory,
                is_final: self.ends,
                others: facts.others != Others::None,
                frame: facts.frame(),
                stack: facts.registers[stack_pointer(self.templates.is_narrow()).index()],
            };
            self.stage = match self.stage {
                Stage::Build => {
                    self.nearby.take();
                    self.solver.alone_from = self.alone_from.map_or(0, |from| {
                        // A position that is not found is earlier than all explored ones.
                        self.course.find(from).unwrap_or(u32::MAX)
                    });
                    self.solver.begin(Layer::Proved, &known);
                    self.solver.sites.forget_rare();
                    if self.build(facts, cancel)? {
                        Stage::Prove
                    } else {
                        self.start_again();
                        Stage::Build
                    }
                }
                Stage::Prove => {
                    self.solver.run(&known, cancel)?;
                    if self.solver.separates_shared_mappings() {
                        self.start_again();
                        Stage::Build
                    } else if !self.solver.graph.conflicts.is_empty() {
                        self.doubt();
                        Stage::Build
                    } else if self.solver.find_kept_frames(&known) {
                        Stage::Prove
                    } else {
                        self.solver.begin(Layer::Inferred, &known);
                        Stage::Infer(0)
                    }
                }
                Stage::Infer(tries) => {
                    self.solver.run(&known, cancel)?;
                    if self.solver.find_lifetimes(&known) {
                        self.solver.run(&known, cancel)?;
                    }
                    if self.solver.separates_shared_mappings() {
                        self.start_again();
                        self.stage = Stage::Build;
                        continue;
                    }
                    let overtaken = self.solver.overtaken;
                    let (cut, refuted) = match tries < TRIES {
                        true => (
                            self.solver.cut_conflicts() | overtaken,
                            self.solver.sites_are_refuted(&known),
                        ),
                        false => (overtaken && !self.solver.without_slots, false),
                    };
                    // The last attempt assumes no slots, the most frequent cause of
                    // contradictions.
                    self.solver.without_slots |= cut && tries + 1 >= TRIES;
                    if cut || refuted && !self.solver.go_back_to_settled(&known) {
                        self.solver.begin(Layer::Inferred, &known);
                    }
                    if cut || refuted {
                        Stage::Infer(tries + 1)
                    } else if tries < TRIES
                        && (self.solver.use_bounds(&known) || self.solver.infer_sites(&known))
                    {
                        Stage::Infer(tries)
                    } else {
                        self.solver.forget_settled();
                        Stage::Solved
                    }
                }
                Stage::Solved => return Some(()),
            };
            if self.stage == Stage::Solved {
                self.each = self.bytes() / (self.course.len().max(1) as usize);
            }
        }
        Some(())
    }

    /// What was proved contradicts itself, so some of the facts are false: everything is built
    /// again with fewer of them.
    fn doubt(&mut self) {
        self.doubts += 1;
        // First, others are assumed to have written memory, and recorded addresses to belong to
        // something else; then the final state, too. Finally, the trace itself contradicts the code.
        self.solver.memory_contradicts = true;
        self.start_again();
        if self.doubts > 1 {
            self.ends = false;
            self.halted = None;
        }
        if self.doubts > 2 {
            self.course.forget();
        }
    }

    /// Forgets everything that was built.
    fn start_again(&mut self) {
        self.solver = Solver {
            memory_contradicts: self.solver.memory_contradicts,
            shared_mappings: std::mem::take(&mut self.solver.shared_mappings),
            ..Solver::default()
        };
        (self.builder, self.built) = (None, 0);
        self.checkpoints.clear();
    }

    /// Why recorded addresses are not used, if they are not.
    pub fn addresses_fault(&self) -> Option<&str> {
        self.recorded.fault.as_deref()
    }

    /// Builds the steps that are not built yet. `Some(false)` if recorded addresses turn out to be
    /// faulty: then what was built with them must be forgotten.
    fn build(&mut self, facts: &FinalState, cancel: &Cancel) -> Option<bool> {
        let through = Through {
            templates: &self.templates,
            course: &self.course,
            halted: self.halted,
            without_kernel: facts.without_kernel,
            landing_pads: &facts.landing_pads,
        };
        let none = [None; Location::KEPT];
        let values = if self.ends { &facts.registers } else { &none };
        let (solver, templates) = (&mut self.solver, &self.templates);
        let mut sink = Into {
            solver,
            templates,
            template: None,
            recorded: &[],
        };
        let narrow = templates.is_narrow();
        let builder = self
            .builder
            .get_or_insert_with(|| Builder::new(values, narrow, &mut sink));
        let stack = stack_pointer(narrow).index();
        let end = self.hints.first().map(|noted| noted.position);
        if self.built == 0 && !self.ends && end == self.course.position(0) {
            builder.node(stack, &mut sink);
        }
        let of_step =
            |noted: &Noted| Some((self.course.find(noted.position)?, noted.stack_pointer));
        let hints = self.hints.iter().filter_map(of_step);
        let built = self.built;
        let mut hints = hints.skip_while(|(step, _)| *step < built).peekable();
        let mut known_until = self.built;
        while self.built < self.course.len() {
            let step = self.built;
            if step.is_multiple_of(INTERVAL) {
                if cancel.is_requested() {
                    return None;
                }
                let relations = solver.graph.relations.len() as u32;
                let (checkpoint, settled) = builder.checkpoint(relations);
                if let Some(before) = self.checkpoints.last_mut() {
                    before.settled = settled;
                }
                self.checkpoints.push(checkpoint);
            }
            let mut sink = Into {
                solver,
                templates,
                template: self.course.template(templates, step).copied(),
                recorded: &[],
            };
            if let Some(log) = believed(facts, self.doubts, &self.recorded) {
                if step >= known_until {
                    known_until = (step / INTERVAL + 1) * INTERVAL;
                    self.recorded.read(log, step..known_until);
                }
                match self.recorded.of(log, &self.course, templates, step) {
                    Some(accesses) => sink.recorded = accesses,
                    None => return Some(false),
                }
            }
            builder.step(&through, step, &mut sink);
            if let Some((_, value)) = hints.next_if(|(hinted, _)| *hinted == step) {
                solver.hinted.push((builder.current()[stack], value));
            }
            self.built += 1;
        }
        Some(true)
    }

    /// What a walk over the window needs.
    pub fn through<'a>(&'a self, facts: &'a FinalState) -> Through<'a> {
        Through {
            templates: &self.templates,
            course: &self.course,
            halted: self.halted,
            without_kernel: facts.without_kernel,
            landing_pads: &facts.landing_pads,
        }
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
