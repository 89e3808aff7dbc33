//! Recurring runs: counted by the effects they had when they were executed block by block.
//!
//! Changes to the open calls and counts by calling context are applied each time, so that listeners
//! receive the changes and the calls have their moments; other sums are multiplied at the end
//! ([`Course::spread`]).

use super::super::code::EdgeKind;
use super::super::memo::{Change, Effect, Entry, Key, Step, Tail};
use super::super::runs::RunState;
use super::super::stack::{Call, CallKind, Ended, Frame, Listener};
use super::super::tree::{LineKey, NodeId};
use super::{Course, FunctionId};
use armsnap_arch::quantity::{Address, BufferOffset};
use armsnap_history::calls::{Decision, How, MAX_OPEN, Place};
use armsnap_history::timeline::{Entry as HistoryEntry, Event, Position};
use armsnap_trace::flow::{BlockId, Blocks, Range, Run, View};

impl<L: Listener> Course<'_, L> {
    /// Executes a step that was executed before in the same function. If it was not, does nothing
    /// and returns false. `lines` are its blocks.
    #[inline]
    pub(super) fn again<I: Iterator<Item = (BlockId, bool)>>(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        step: Step,
        instructions: u32,
        lines: impl Fn() -> I,
    ) -> bool {
        let Some(key) = self.key(step) else {
            return false;
        };
        let Some(slot) = self.memo.find(key) else {
            return false;
        };
        let entry = *self.memo.get_mut(slot);
        let before = self.now.instructions;
        if entry.stays && !L::STRAIGHT {
            self.repeat();
            self.now.at = at;
            self.executes(instructions);
        } else if !self.change(at, blocks, entry, instructions, lines) {
            return false;
        }
        self.memo.get_mut(slot).count += 1;
        self.tail = entry.tail;
        self.now.instructions = before + u64::from(instructions);
        true
    }

    /// Adds executed instructions to the innermost call.
    #[inline]
    fn executes(&mut self, instructions: u32) {
        let node = self.open.last().map_or(NodeId::ROOT, |frame| frame.node);
        self.recent.get_mut(node).instructions += u64::from(instructions);
    }

    /// Counts a run without the memo if it is reached by plain execution and stays in the current
    /// function up to its end: then its effect is always the same. Otherwise does nothing, and
    /// returns false.
    #[inline]
    pub(super) fn plain_run(&mut self, at: BufferOffset, run: &Run<'_>) -> bool {
        let (number, _) = run.number();
        let known = self.runs.get(number);
        if known.state == RunState::Each || !self.is_plain(known.function, known.tail) {
            return false;
        }
        self.runs.count(number, u64::from(self.active));
        self.pass(at, run.instructions(), known.tail);
        true
    }

    /// Counts a block likewise.
    #[inline]
    pub(super) fn plain_block(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        (id, taken): (BlockId, bool),
    ) -> bool {
        let Some(known) = self.infos.get(id.index()).filter(|info| info.known) else {
            return false;
        };
        let leaves = taken && known.leaves;
        let tail = if leaves { known.tail } else { Tail::NONE };
        if leaves && tail == Tail::NONE || !self.is_plain(known.function, tail) {
            return false;
        }
        self.infos[id.index()].counts[usize::from(taken)] += u64::from(self.active);
        self.pass(at, blocks.instructions(id), tail);
        true
    }

    /// Whether code of a function (0 without symbols), with or without a branch at its end, is
    /// executed within that function and was reached by plain execution only.
    #[inline]
    fn is_plain(&self, function: u32, tail: Tail) -> bool {
        #[cfg(test)]
        if self.forgetful {
            return false;
        }
        if L::STRAIGHT || L::LINES || self.waiting || self.tail != Tail::NONE {
            return false;
        }
        let armed = self.armed && !self.repeating;
        let here = match self.repeating {
            false => self.function,
            true => self.open.last().map_or(0, |frame| frame.call.function.0),
        };
        let seen = tail == Tail::NONE || self.active;
        seen && !armed && (!L::CALLS || function == 0 || function == here)
    }

    /// Executes instructions in the innermost call, with or without a branch at their end.
    #[inline]
    fn pass(&mut self, at: BufferOffset, instructions: u32, tail: Tail) {
        #[cfg(test)]
        {
            self.plain += 1;
        }
        if tail != Tail::NONE {
            self.repeat();
            self.tail = tail;
        }
        self.now.at = at;
        self.now.instructions += u64::from(instructions);
        if self.repeating && self.active {
            self.executes(instructions);
        }
    }

    /// The key that determines the effect of a step; `None` if the effect depends on more than a
    /// key contains.
    #[inline]
    fn key(&self, step: Step) -> Option<Key> {
        let tail = self.tail;
        if tail == Tail::UNKNOWN {
            return None;
        }
        if !L::CALLS {
            let place = 0;
            return Some(Key { place, tail, step });
        }
        let above = 1 + usize::from(tail.returns());
        let frame = self.open.get(self.open.len().checked_sub(above)?)?;
        let function = frame.call.function;
        let place = match L::LINES {
            false => function.0,
            // Once the tree is full, its nodes no longer identify the executed function.
            true => {
                let known = self.recent.nodes()[frame.node.index()].function == function;
                known.then_some(frame.node.0)?
            }
        };
        Some(Key { place, tail, step })
    }

    /// From here on, the memo completes the tree.
    #[inline]
    fn repeat(&mut self) {
        if !self.repeating {
            self.settle();
            self.repeating = true;
        }
    }

    /// From here on, execution is followed.
    #[inline]
    pub(super) fn slow(&mut self) {
        if self.repeating {
            self.catch_up();
        }
    }

    #[inline(never)]
    fn catch_up(&mut self) {
        self.repeating = false;
        self.settled = self.now.instructions;
        self.back();
        self.transitions.pass();
        self.edge = None;
        self.armed = self.tail != Tail::NONE;
        if let Some(&(range, edge)) = self.memo.exit(self.tail) {
            self.edge = edge;
            if L::CALLS {
                self.transitions.event(&Event {
                    position: Position::default(),
                    offset: self.now.at,
                    entry: HistoryEntry::Run {
                        range,
                        cycles: None,
                    },
                });
            }
        }
    }

    /// Makes the changes of an entry, and passes on its lines; does nothing and returns false if
    /// the entry has no plan, or needs other calls to be open.
    #[inline]
    fn change<I: Iterator<Item = (BlockId, bool)>>(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        entry: Entry,
        instructions: u32,
        lines: impl Fn() -> I,
    ) -> bool {
        let Some(plan) = self.memo.plan(&entry) else {
            return false;
        };
        let returns = self.tail.returns();
        let changes = plan.changes.0..plan.changes.1;
        if returns
            && !self
                .open
                .last()
                .is_some_and(|top| top.call.returns_to == Some(plan.start) && is_simple(top))
        {
            return false;
        }
        if plan.replaces {
            let left = self.open.len() - usize::from(returns);
            let [.., _caller, top] = &self.open[..left] else {
                return false;
            };
            if !is_simple(top) {
                return false;
            }
        }
        if self.open.len() + changes.len() > MAX_OPEN {
            return false;
        }
        self.repeat();
        self.now.at = at;
        if returns && let Some(frame) = self.open.pop() {
            let functions = &self.counted.functions;
            self.listener
                .end(&frame.call, &self.now, Ended::Returned, functions);
        }
        let before = self.now.instructions;
        let mut lines = L::STRAIGHT.then(lines).into_iter().flatten();
        let mut passed = 0;
        let mut executed = 0;
        for index in changes {
            let change = self.memo.change(index);
            while L::STRAIGHT && passed < change.blocks {
                self.pass_line(blocks, lines.next());
                passed += 1;
            }
            self.executes(change.instructions - executed);
            executed = change.instructions;
            self.now.instructions = before + u64::from(executed);
            self.make(&change);
        }
        self.executes(instructions - executed);
        while L::STRAIGHT
            && let line @ Some(_) = lines.next()
        {
            self.pass_line(blocks, line);
        }
        true
    }

    /// Passes on a straight line.
    fn pass_line(&mut self, blocks: &Blocks, line: Option<(BlockId, bool)>) {
        if let Some((id, taken)) = line {
            let range = blocks.range(id, taken);
            self.listener
                .straight(&self.now, &range, self.context.as_ref());
            self.now.instructions += u64::from(range.instructions);
        }
    }

    /// Makes a change of the open calls.
    #[inline]
    fn make(&mut self, change: &Change) {
        let functions = &self.counted.functions;
        let mut returns_to = change.returns_to;
        let mut replaced = None;
        if change.kind != CallKind::Call
            && let Some(frame) = self.open.pop()
        {
            self.listener
                .end(&frame.call, &self.now, Ended::Jumped, functions);
            returns_to = frame.call.returns_to;
            replaced = Some(frame.call.depth);
        }
        let caller = self.open.last();
        let depth = caller.map_or(0, |frame| frame.call.depth + 1);
        let parent = caller.map_or(NodeId::ROOT, |frame| frame.node);
        let node = self.recent.child(parent, change.function, returns_to);
        if change.kind.is_counted() {
            self.recent.get_mut(node).calls += 1;
        }
        let call = Call {
            function: change.function,
            kind: change.kind,
            begin: self.now,
            depth,
            returns_to,
        };
        self.listener.begin(&call, functions);
        self.open.push(Frame {
            call: Call {
                depth: replaced.unwrap_or(depth),
                ..call
            },
            node,
            joined: false,
            context_id: None,
            signal: None,
        });
    }

    /// Adds a straight line to the innermost call.
    pub(super) fn add_line(&mut self, range: &Range, view: View) {
        if self.active {
            let line = LineKey {
                node: self.node,
                start: range.start,
                end: range.end,
                view,
                isa: range.isa,
            };
            self.recent.add_line(line, 1);
            self.draft.line(line);
        }
    }

    // Learning.

    /// Executes a run that is not in the memo, or whose effect varies.
    #[inline(never)]
    pub(super) fn new_run(&mut self, at: BufferOffset, blocks: &Blocks, run: Run<'_>) {
        let (number, _) = run.number();
        let (Some(first), Some(last)) = (run.blocks().next(), run.blocks().next_back()) else {
            return;
        };
        self.slow();
        if self.is_to_learn(Step::run(number)) {
            return self.watch(blocks, Step::run(number), first.0, |course| {
                course.each(at, blocks, run);
            });
        }
        let known = self.runs.get(number);
        let here = known.function == self.function || known.function == 0;
        if !here
            || self.armed
            || self.waiting
            || L::STRAIGHT
            || L::LINES
            || known.state == RunState::Each
        {
            return self.each(at, blocks, run);
        }
        self.now.at = at;
        self.runs.count(number, u64::from(self.active));
        if L::RUNS && self.active {
            let place = self.now.instructions;
            self.listener.run(place, number, run.len());
        }
        if known.state == RunState::Leaves {
            let range = blocks.range(last.0, last.1);
            self.now.instructions += u64::from(run.instructions() - range.instructions);
            self.straight(&range, known.function, None);
            self.tail = self.tail_of(last.0.index(), &range);
            self.now.instructions += u64::from(range.instructions);
        } else {
            self.now.instructions += u64::from(run.instructions());
        }
    }

    /// Executes a block that is not in the memo, or whose effect varies.
    #[inline(never)]
    pub(super) fn new_block(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        (id, taken): (BlockId, bool),
        cycles: Option<u32>,
    ) {
        self.slow();
        let step = Step::block(id.index(), taken);
        if self.is_to_learn(step) {
            self.watch(blocks, step, id, |course| {
                course.whole(at, blocks, id, taken, cycles);
            });
        } else {
            self.whole(at, blocks, id, taken, cycles);
        }
    }

    /// Whether to remember the effect of a step: if it is seen for the second time.
    fn is_to_learn(&mut self, step: Step) -> bool {
        #[cfg(test)]
        if self.forgetful {
            return false;
        }
        let Some(key) = self.key(step) else {
            return false;
        };
        self.memo.find(key).is_none() && self.memo.came(key)
    }

    /// Remembers the effect of `execute`.
    fn watch(
        &mut self,
        blocks: &Blocks,
        step: Step,
        first: BlockId,
        execute: impl FnOnce(&mut Self),
    ) {
        if self.memo.is_full() {
            self.spread();
        }
        let Some(key) = self.key(step) else {
            return execute(self);
        };
        let edge: Option<(Address, EdgeKind)> = self.edge;
        self.settle();
        self.draft.start(self.now.instructions);
        execute(self);
        self.settle();
        self.draft.active = false;
        if key.tail.returns() != self.draft.returned {
            self.draft.varies();
        }
        let start = blocks.range(first, false).start;
        self.memo.learn(key, start, edge, &self.draft, self.tail);
    }

    /// Whether this decision is always the same in the same function.
    pub(super) fn repeats(
        &mut self,
        decision: &Decision,
        how: &How,
        place: &Place<FunctionId>,
    ) -> bool {
        match (decision, how) {
            // It depends on the progress of a signal handler.
            (_, How::Jumped { .. }) if self.open.last().is_some_and(|top| top.signal.is_some()) => {
                false
            }
            (Decision::Enter { .. } | Decision::Return(_), _) => true,
            (Decision::Stay, How::Called { .. }) => true,
            (Decision::Stay | Decision::Replace { .. }, How::Jumped { indirect, .. }) => {
                let middle = *decision == Decision::Replace { begins: false };
                if !indirect {
                    return place.function.is_some();
                }
                // Whether this is a return, or unwinds calls, depends on all open calls.
                if middle || self.return_places.contains_key(&place.to.0) {
                    return false;
                }
                self.relied.insert(place.to.0);
                true
            }
            _ => false,
        }
    }

    /// Returns the function entered at an address.
    pub(super) fn entered(&mut self, to: Address) -> FunctionId {
        let function = self.counted.functions.entered(self.symbols, to);
        self.found_at(to);
        function
    }

    /// Notes that a call returns to an address for the first time, or that a function starts there.
    pub(super) fn found_at(&mut self, address: Address) {
        if self.relied.contains(&address.0) {
            self.spread();
        }
    }

    /// The innermost calls, from a depth on, are about to return.
    pub(super) fn note_return(&mut self, depth: usize) {
        let draft = &mut self.draft;
        let innermost = depth > 0 && depth + 1 == self.open.len() && is_simple(&self.open[depth]);
        if innermost && draft.changes.is_empty() && !draft.returned {
            draft.returned = true;
        } else {
            draft.varies();
        }
    }

    /// The innermost call is about to be replaced by another one.
    pub(super) fn note_replaced(&mut self) {
        let [.., _caller, top] = &self.open[..] else {
            return self.draft.varies();
        };
        let draft = &mut self.draft;
        let called = |change: &Change| change.kind == CallKind::Call;
        if L::LINES || !is_simple(top) {
            // In chains of callers that are too long, the node does not identify the caller.
            draft.varies();
        } else if !draft.changes.iter().any(called) {
            draft.replaces = true;
        }
    }

    /// Notes that a call began.
    pub(super) fn note_change(&mut self, kind: CallKind, returns_to: Option<Address>) {
        if !self.draft.active {
            return;
        }
        if let Some(frame) = self.open.last() {
            self.draft.changes.push(Change {
                instructions: (self.now.instructions - self.draft.before) as u32,
                blocks: self.draft.blocks,
                function: frame.call.function,
                kind,
                returns_to,
            });
        }
    }

    /// Adds the recurrences to the counts, and forgets them.
    pub(super) fn spread(&mut self) {
        self.slow();
        self.draft.varies();
        let Self {
            memo,
            infos,
            runs,
            recent,
            counted,
            relied,
            ..
        } = self;
        memo.drain(|step, count, edge, effects| {
            match step.split() {
                Ok(run) => runs.count(run, count),
                Err((block, taken)) => infos[block].counts[usize::from(taken)] += count,
            }
            if let Some((from, to, kind)) = edge {
                counted.code.add_edge(from, to, kind, count);
            }
            for effect in effects {
                match *effect {
                    Effect::Calls(function) => {
                        counted.functions.get_mut(function).calls += count;
                    }
                    Effect::Line(line) => recent.add_line(line, count),
                }
            }
        });
        relied.clear();
    }
}

/// Whether a call ends alone: it is neither an exception nor a handler.
fn is_simple(frame: &Frame) -> bool {
    !frame.joined
        && frame.context_id.is_none()
        && frame.signal.is_none()
        && frame.call.kind != CallKind::Exception
}
