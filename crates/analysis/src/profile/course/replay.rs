//! Follows pieces of a trace that were decoded elsewhere.

use super::super::code::{BlockCount, block_key};
use super::super::functions::FunctionId;
use super::super::pieces::{Advance, Calls, Facts, Piece, Target, What};
use super::super::stack::Listener;
use super::super::tree::NodeId;
use super::Course;
use armsnap_arch::hash::NumberMap;
use armsnap_history::calls::MAX_OPEN;
use armsnap_trace::flow::{FlowSink, LastInstruction, Range};
use std::collections::hash_map::Entry;

/// The calls that execution before a piece may start in it: an exception and its handler.
const PENDING: usize = 2;

/// The blocks of a buffer executed in the pieces so far: the functions that they count for, where
/// known.
#[derive(Debug, Default)]
pub(in super::super) struct Replayed(NumberMap<(u64, u32), Option<FunctionId>>);

impl<L: Listener> Course<'_, L> {
    /// Executes the next piece of the buffer.
    pub(in super::super) fn replay(&mut self, replayed: &mut Replayed, piece: &Piece) {
        self.listener.piece(&self.now, piece);
        let mut functions = vec![None; piece.blocks.len()];
        for step in &piece.steps {
            self.advance(step.before, piece.covered);
            let at = step.at;
            match &step.what {
                What::Block {
                    block,
                    taken,
                    cycles,
                } => {
                    // Functions are numbered in the order of execution.
                    let index = *block as usize;
                    let block = &piece.blocks[index];
                    let function = &mut functions[index];
                    let function = *function.get_or_insert_with(|| self.meet(replayed, block));
                    let last = LastInstruction {
                        taken: *taken,
                        ..block.last
                    };
                    let range = Range {
                        last,
                        ..block.range()
                    };
                    self.now.at = at;
                    // Code without symbols belongs to what executes it first.
                    let key = block_key(block);
                    let new = function == 0 && replayed.0.get(&key) == Some(&None);
                    if new {
                        let entered = self.function_at(block.start);
                        self.note_level(entered, block.el);
                    }
                    self.straight(&range, function, *cycles);
                    if new {
                        replayed.0.insert(key, Some(FunctionId(self.function)));
                    }
                    self.now.instructions += u64::from(range.instructions);
                    if let Some(cycles) = cycles {
                        self.count_cycles((*cycles).into());
                    }
                }
                What::Range { range, cycles } => FlowSink::range(self, at, range, *cycles),
                What::UnknownPath(range) => self.q_range(at, range),
                What::Exception(exception) => FlowSink::exception(self, at, exception),
                What::Gap(gap) => FlowSink::gap(self, at, *gap),
                What::Mark(mark) => self.any_mark(at, mark),
                What::Calls(calls) => self.add_calls(replayed, piece, calls),
                What::Enter {
                    function,
                    kind,
                    returns_to,
                } => {
                    self.now.at = at;
                    let function = self.entered(*function);
                    self.enter(function, *kind, Some(*returns_to), false, None);
                }
                What::Return => {
                    self.now.at = at;
                    if let Some(depth) = self.open.len().checked_sub(1) {
                        self.return_from(depth);
                    }
                }
            }
        }
        self.advance(piece.after, piece.covered);
        // A piece without packets has no offset.
        self.now.at = self.now.at.max(piece.last_at);
        self.counted.elements += piece.elements;
        for edge in &piece.edges {
            let code = &mut self.counted.code;
            code.add_edge(edge.from, edge.to, edge.kind, edge.count);
        }
        for (block, function) in piece.blocks.iter().zip(functions) {
            if function.is_none() {
                self.meet(replayed, block);
            }
            self.counted.ranges = self.counted.ranges.saturating_add(block.count());
            let owner = replayed.0.get(&block_key(block)).copied().flatten();
            self.counted.code.add_block(&BlockCount {
                function: owner.unwrap_or_default(),
                ..*block
            });
        }
    }

    /// Whether all of the trace is wanted.
    pub(in super::super) fn is_whole(&self) -> bool {
        self.active && !self.waiting
    }

    /// Registers a block of a piece; returns the function of the symbol that contains it, or 0.
    fn meet(&mut self, replayed: &mut Replayed, block: &BlockCount) -> u32 {
        let function = self.function_at(block.start);
        let named = function.filter(|function| self.is_symbol(*function));
        if let Entry::Vacant(new) = replayed.0.entry(block_key(block)) {
            new.insert(named);
            self.note_level(named, block.el);
        }
        named.map_or(0, |function| function.0)
    }

    /// Advances the clocks. If the advance is `covered`, it has already been added to the calls.
    fn advance(&mut self, by: Advance, covered: bool) {
        if covered {
            self.settle();
        }
        let now = &mut self.now;
        now.instructions = now.instructions.saturating_add(by.instructions);
        match by.cycles {
            Some(cycles) if covered => now.count(cycles),
            Some(cycles) => self.count_cycles(cycles),
            None => {}
        }
        if covered {
            self.settled = self.now.instructions;
        }
    }

    /// Adds calls that began and returned within the innermost one.
    fn add_calls(&mut self, replayed: &mut Replayed, piece: &Piece, calls: &Calls) {
        self.settle();
        let here = FunctionId(self.function);
        let mut there: Vec<(NodeId, FunctionId)> = Vec::with_capacity(calls.nodes.len());
        for (index, node) in calls.nodes.iter().enumerate() {
            let (own, function) = match index {
                0 => (self.node, here),
                _ => {
                    let (parent, caller) = there[node.parent as usize];
                    let function = self.entered(node.function);
                    if let Some(to) = node.returns_to {
                        self.return_places.insert(to.0, caller);
                    }
                    self.counted.functions.get_mut(function).calls += node.calls;
                    self.note_entered(function);
                    (
                        self.recent.child(parent, function, node.returns_to),
                        function,
                    )
                }
            };
            let sum = self.recent.get_mut(own);
            sum.calls += node.calls;
            sum.instructions += node.instructions;
            sum.cycles = sum.cycles.saturating_add(node.cycles);
            there.push((own, function));
        }
        for (to, from) in &calls.returns {
            let caller = from.map_or(here, |from| self.entered(from));
            self.return_places.insert(to.0, caller);
        }
        for (place, owner) in &calls.owners {
            let block = &piece.blocks[*place as usize];
            self.meet(replayed, block);
            let key = block_key(block);
            if replayed.0.get(&key) == Some(&None) {
                let entered = self.function_at(block.start);
                self.note_level(entered, block.el);
                let owner = owner.map_or(here, |owner| self.entered(owner));
                replayed.0.insert(key, Some(owner));
            }
        }
    }

    /// Checks a piece's assumptions about earlier execution.
    ///
    /// # Errors
    ///
    /// If they do not hold. Returns the facts.
    pub(in super::super) fn grants(&mut self, piece: &Piece) -> Result<(), Facts> {
        let mut granted = self.open.len() + piece.assumed.depth + PENDING < MAX_OPEN;
        let mut facts = Facts::default();
        let pending = self.transitions.returns_to();
        // A call or exception before the piece reaches its first instruction.
        let leads = pending.is_some() || self.exception.is_some();
        let called = leads.then(|| piece.first()).flatten();
        for &(place, target) in &piece.assumed.targets {
            let starts = |course: &mut Self| course.function_at(place).is_some();
            if self.return_places.contains_key(&place.0) || pending == Some(place) {
                facts.doubtful.push(place.0);
            } else if target == Target::Within && (called == Some(place) || starts(self)) {
                facts.starts.push(place.0);
            } else if target == Target::Start && !starts(self) {
                // The function is one of another core.
                facts.doubtful.push(place.0);
            } else {
                continue;
            }
            granted = false;
        }
        match granted {
            true => Ok(()),
            false => Err(facts),
        }
    }
}
