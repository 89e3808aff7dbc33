//! What a course does with the output of the flow: the fast paths for blocks and runs, and what needs
//! more.

use super::super::code::{EdgeKind, PartCount, last_at};
use super::super::functions::FunctionId;
use super::super::memo::{Step, Tail};
use super::super::stack::Listener;
use super::Course;
use super::marks::OpenGap;
use armsnap_arch::quantity::BufferOffset;
use armsnap_history::calls::Transition;
use armsnap_history::timeline::{Entry, Event, Gap, Position};
use armsnap_trace::element::{Element, ElementSink, Exception, Mark};
use armsnap_trace::flow::{self, BlockId, Blocks, FlowSink, QRange, Range, Run};

impl<L: Listener> FlowSink for Course<'_, L> {
    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        self.slow();
        self.now.at = at;
        let key = (range.start.0, range.end.0, part_kind(range));
        let function = match self.counted.code.parts.get(&key) {
            Some(part) => part.function,
            None => {
                let function = self.function_at(range.start);
                self.note_level(function, self.el());
                let function = function.unwrap_or_default();
                let (start, end) = (range.start, range.end);
                let part = PartCount {
                    range: *range,
                    last_at: last_at(&self.image, self.view, range.isa, start, end),
                    function,
                    count: 0,
                };
                self.counted.code.parts.insert(key, part);
                function
            }
        };
        let named = match self.is_symbol(function) {
            true => function.0,
            false => 0,
        };
        self.straight(range, named, cycles);
        if L::LINES {
            self.add_line(range, self.view);
        }
        if L::STRAIGHT && self.active {
            self.listener
                .straight(&self.now, range, self.context.as_ref());
        }
        if L::RUNS && self.active {
            let place = self.now.instructions;
            self.listener.block(place, None, || *range);
        }
        if self.active
            && let Some(part) = self.counted.code.parts.get_mut(&key)
        {
            if part.count == 0 && named == 0 {
                part.function = FunctionId(self.function);
            }
            part.count += 1;
            self.counted.ranges += 1;
            // The next instruction shows whether its last one branched.
            if range.last.taken
                && let Some(kind) = EdgeKind::of(&range.last)
            {
                self.edge = Some((part.last_at, kind));
                self.arm();
            }
        }
        self.tail = match self.armed || self.waiting || !self.active {
            true => Tail::UNKNOWN,
            false => Tail::NONE,
        };
        self.now.instructions += u64::from(range.instructions);
        if let Some(cycles) = cycles {
            self.count_cycles(cycles.into());
        }
    }

    #[inline]
    fn block(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        id: BlockId,
        taken: bool,
        cycles: Option<u32>,
    ) {
        let step = Step::block(id.index(), taken);
        let lines = || std::iter::once((id, taken));
        let before = self.now.instructions;
        if !self.plain_block(at, blocks, (id, taken))
            && !self.again(at, blocks, step, blocks.instructions(id), lines)
        {
            return self.new_block(at, blocks, (id, taken), cycles);
        }
        if L::RUNS && self.active {
            let line = || blocks.range(id, taken);
            self.listener.block(before, Some(id.index()), line);
        }
        if let Some(cycles) = cycles {
            self.count_cycles(cycles.into());
        }
    }

    #[inline]
    fn run(&mut self, at: BufferOffset, blocks: &Blocks, run: Run<'_>) {
        let (number, generation) = run.number();
        if generation != self.runs.generation {
            self.renumber(generation);
        }
        let before = self.now.instructions;
        let step = Step::run(number);
        if !self.plain_run(at, &run)
            && !self.again(at, blocks, step, run.instructions(), || run.blocks())
        {
            return self.new_run(at, blocks, run);
        }
        if L::RUNS && self.active {
            self.listener.run(before, number, run.len());
        }
    }

    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        self.now.at = at;
        self.lose(Gap::UnknownPath(*range));
        let instructions = range.instructions.unwrap_or(0);
        if self.active {
            self.counted.ranges += 1;
            self.counted.unknown_path += u64::from(instructions);
            if L::STRAIGHT {
                let context = self.context.as_ref();
                self.listener.unknown_path(&self.now, instructions, context);
            }
        }
        self.settle();
        self.now.instructions += u64::from(instructions);
        self.settled = self.now.instructions;
    }

    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.slow();
        self.now.at = at;
        self.edge = None;
        let transition = self.transitions.event(&Event {
            position: Position::default(),
            offset: at,
            entry: Entry::Exception(*exception),
        });
        if L::CALLS
            && let Some(Transition { to, how, .. }) = transition
        {
            let function = self.function_at(to).unwrap_or_default();
            self.reach(
                to,
                function.0,
                Some(Transition {
                    position: Position::default(),
                    to,
                    how,
                }),
            );
        }
        self.arm();
        self.exception = Some(*exception);
        if self.active {
            self.counted.elements += 1;
            self.counted.exceptions.take(exception.name);
            self.listener.exception(&self.now, exception);
        }
    }

    fn gap(&mut self, at: BufferOffset, gap: flow::Gap) {
        self.slow();
        self.now.at = at;
        // Listings of elements skip these.
        if !matches!(gap, flow::Gap::TargetNotTraced { .. }) {
            self.counted.elements += u64::from(self.active);
        }
        self.edge = None;
        let transition = self.transitions.event(&Event {
            position: Position::default(),
            offset: at,
            entry: Entry::Gap(Gap::Flow(gap)),
        });
        if let Some(Transition { to, how, .. }) = transition {
            self.follow_into_gap(to, how);
        }
        self.arm();
        if self.gap.is_none() {
            let (gap, from) = (Gap::Flow(gap), self.now);
            self.gap = Some(OpenGap { gap, from });
        }
    }

    fn mark(&mut self, at: BufferOffset, mark: &Mark) {
        self.any_mark(at, mark);
    }

    fn forget(&mut self, blocks: &Blocks) {
        self.collect(blocks);
    }
}

/// Distinguishes straight lines with the same addresses.
fn part_kind(range: &Range) -> u32 {
    (range.isa as u32) << 1 | u32::from(range.last.taken)
}

impl<L: Listener> ElementSink for Course<'_, L> {
    fn element(&mut self, at: BufferOffset, element: Element) {
        match element {
            Element::Mark(mark) => self.any_mark(at, &mark),
            _ => self.counted.elements += u64::from(self.active),
        }
    }
}
