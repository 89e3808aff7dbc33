//! Follows pieces of a trace that was decoded elsewhere.

use super::super::code::{BlockCount, FastMap, block_key};
use super::super::functions::FunctionId;
use super::super::shards::{Advance, Piece, What};
use super::super::stack::Listener;
use super::Course;
use crate::flow::{FlowSink, LastInstruction, Range};
use std::collections::hash_map::Entry;

/// What is known of the blocks of a buffer that were executed in the pieces so far: the functions
/// that they count for, where they are known.
#[derive(Debug, Default)]
pub(in super::super) struct Replayed(FastMap<(u64, u32), Option<FunctionId>>);

impl<L: Listener> Course<'_, L> {
    /// Executes the next piece of the buffer.
    pub(in super::super) fn replay(&mut self, replayed: &mut Replayed, piece: &Piece) {
        self.listener.piece(&self.now, piece);
        let mut functions = vec![None; piece.blocks.len()];
        for step in &piece.steps {
            self.advance(step.before);
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
            }
        }
        self.advance(piece.after);
        // A piece without packets has no offset.
        self.now.at = self.now.at.max(piece.last_at);
        self.counted.elements += piece.elements;
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

    /// Meets a block of a piece; returns the function of the symbol around it, or 0.
    fn meet(&mut self, replayed: &mut Replayed, block: &BlockCount) -> u32 {
        let function = self.function_at(block.start);
        let named = function.filter(|function| self.is_symbol(*function));
        if let Entry::Vacant(new) = replayed.0.entry(block_key(block)) {
            new.insert(named);
            self.note_level(named, block.el);
        }
        named.map_or(0, |function| function.0)
    }

    fn advance(&mut self, by: Advance) {
        let now = &mut self.now;
        now.instructions = now.instructions.saturating_add(by.instructions);
        if let Some(cycles) = by.cycles {
            self.count_cycles(cycles);
        }
    }
}
