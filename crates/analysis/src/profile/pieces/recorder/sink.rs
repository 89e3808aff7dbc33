//! What a recorder receives from the flow.

use super::super::piece::{Straight, What};
use super::{Left, Recorder, add};
use crate::profile::FunctionId;
use armsnap_arch::quantity::BufferOffset;
use armsnap_history::decode::{SinkState, SourceSinks, Stage, StageStates, Unsaved};
use armsnap_trace::element::{AtomSink, Element, ElementSink, Exception, Mark};
use armsnap_trace::flow::{BlockId, Blocks, Executed, FlowSink, Gap, QRange, Range, Run};

impl<const SUMS: bool> FlowSink for Recorder<'_, SUMS> {
    const COUNTS: bool = SUMS;
    const COUNTS_BLOCKS: bool = SUMS;

    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        self.straight(at, Straight::Line(*range));
        self.piece.lines += 1;
        let range = *range;
        self.step(at, What::Range { range, cycles });
        self.moment.instructions += u64::from(range.instructions);
        add(&mut self.moment.cycles, cycles);
        self.told_here();
        self.frames.note_unknown(Some(range.end));
        self.frames.doubt(range.start);
        self.arm();
    }

    fn block(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        id: BlockId,
        taken: bool,
        cycles: Option<u32>,
    ) {
        let index = id.index();
        if !self.knows(index) {
            self.learn(blocks, id);
        }
        let new = self.is_new(id);
        let step = self.is_step(index, taken, new);
        match step {
            true => self.enter(blocks, id),
            false => self.enter_counted(blocks, id),
        }
        if self.wanted.lines {
            self.straight(at, Straight::Line(blocks.range(id, taken)));
        }
        self.count_block_of(index, taken);
        let info = &self.infos[index];
        let (block, instructions) = (info.place, u64::from(info.instructions));
        let leaves = self.may_leave(index, taken);
        if step {
            let what = What::Block {
                block,
                taken,
                cycles,
            };
            self.step(at, what);
            self.moment.instructions += instructions;
            add(&mut self.moment.cycles, cycles);
            self.told_here();
            return self.after_step(index, leaves);
        }
        self.unsure = false;
        self.moment.at = at;
        let before = self.clocks();
        self.moment.instructions += instructions;
        add(&mut self.moment.cycles, cycles);
        if self.sums_calls()
            && let Some(cycles) = cycles
        {
            self.frames.count_cycles(cycles.into());
        }
        if leaves {
            self.left = Some(Left {
                index,
                at,
                cycles,
                before,
            });
        }
    }

    #[inline(always)]
    fn count_run<'b>(&mut self, blocks: &Blocks, number: usize, run: impl FnOnce() -> Run<'b>) {
        if !self.counts.run(number) {
            self.touch_run(blocks, run());
        }
    }

    fn forget_runs(&mut self) {
        self.count();
    }

    #[inline(always)]
    fn count_block(&mut self, blocks: &Blocks, id: BlockId, taken: bool) {
        if !self.counts.block(id.index(), taken) {
            self.touch_block(blocks, id, taken);
        }
    }

    #[inline]
    fn arrives(
        &mut self,
        blocks: &Blocks,
        (from, taken): (BlockId, bool),
        to: BlockId,
        executed: Executed,
    ) -> bool {
        self.moment.instructions += executed.instructions as u64;
        let (from, index) = (from.index(), to.index());
        if !self.knows(index) {
            self.learn(blocks, to);
        }
        // If a block has no instructions, its memory is missing: nothing is executed there.
        let follows = self.infos[index].instructions > 0 && self.follow((from, taken), index);
        if !follows && taken {
            self.left_behind(from);
        }
        follows
    }

    fn leaves(&mut self, id: BlockId) {
        self.left_behind(id.index());
    }

    #[inline]
    fn executed(&mut self, executed: Executed) {
        self.moment.instructions += executed.instructions as u64;
    }

    #[inline]
    fn only_counts(&mut self, blocks: &Blocks, next: Option<BlockId>) -> bool {
        if !self.waits() || self.armed || self.unsure {
            return false;
        }
        let Some(next) = next else {
            return self.left.is_none();
        };
        let index = next.index();
        if !self.knows(index) {
            self.learn(blocks, next);
        }
        if let Some(left) = self.left {
            // The course decides once the block is executed.
            if self.infos[index].instructions == 0 || !self.follow((left.index, true), index) {
                return false;
            }
            self.left = None;
        }
        let function = self.infos[index].function;
        !self.wanted.calls || function == FunctionId::UNKNOWN || function == self.frames.here()
    }

    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        let instructions = range.instructions.unwrap_or(0);
        self.straight(at, Straight::Unknown(instructions));
        self.piece.lines += 1;
        self.step(at, What::UnknownPath(*range));
        self.moment.instructions += u64::from(instructions);
        self.told_here();
        self.arm();
    }

    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.step(at, What::Exception(*exception));
        self.frames.note_unknown(exception.return_address);
        self.arm();
    }

    fn gap(&mut self, at: BufferOffset, gap: Gap) {
        self.step(at, What::Gap(gap));
        self.arm();
    }

    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        match mark {
            Mark::Cycles(cycles) => {
                self.moment.at = at;
                self.piece.elements += 1;
                add(&mut self.moment.cycles, Some(*cycles));
                if self.sums_calls() {
                    self.frames.count_cycles((*cycles).into());
                }
                return;
            }
            Mark::ExceptionReturn | Mark::Data { .. } | Mark::End => {
                self.moment.at = at;
                self.piece.elements += 1;
                return;
            }
            Mark::Timestamp(time) => self.moment.time = Some(*time),
            Mark::Context(context) => {
                self.context = Some(context.completed(self.context.as_ref()));
            }
            _ => {}
        }
        self.step(at, What::Mark(*mark));
        if matches!(mark, Mark::NoSync(_) | Mark::TraceOn(_)) {
            self.arm();
        }
    }

    fn forget(&mut self, _: &Blocks) {
        self.settle();
        if self.armed_by.take().is_some() {
            self.arm();
        }
        self.count();
        self.infos.clear();
        self.rows.clear();
    }
}

impl<const SUMS: bool> ElementSink for Recorder<'_, SUMS> {
    fn element(&mut self, at: BufferOffset, element: Element) {
        match element {
            Element::Mark(mark) => FlowSink::mark(self, at, &mark),
            _ => self.piece.elements += 1,
        }
    }
}

impl<const SUMS: bool> AtomSink for Recorder<'_, SUMS> {}

impl<const SUMS: bool> SourceSinks<Self> for Recorder<'_, SUMS> {
    fn end(&mut self, _: BufferOffset) {}

    fn output(&mut self) -> &mut Self {
        self
    }
}

impl<const SUMS: bool> Stage for Recorder<'_, SUMS> {
    fn save(&self, to: &mut StageStates) -> Result<(), Unsaved> {
        to.sink = SinkState::Context(self.context);
        Ok(())
    }

    fn restore(&mut self, from: &StageStates) -> Result<(), Unsaved> {
        let SinkState::Context(context) = from.sink else {
            return Err(Unsaved);
        };
        self.context = context;
        Ok(())
    }
}
