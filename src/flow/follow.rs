//! Elements lead from block to block.

use super::blocks::{AWAIT, BlockId, Blocks, End, NOWHERE, PUSH, SLOW, Space, Unit};
use super::code::{CodeImage, ContextKey};
use super::lines::{PendingQ, Stuck};
use super::return_stack::ReturnStack;
use super::sink::{FlowSink, Gap, LastKind, Range};
use super::walk::{Stop, Waypoints};
use crate::element::{Atoms, Context, Element, ElementSink, Mark};
use crate::quantity::{Address, BufferOffset, Isa};

/// How many blocks without a waypoint one atom may lead through: 256 KiB of A64 code.
const LONGEST_RUN: u32 = 64;

/// What differs between trace sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowConfig {
    /// Which instructions have atoms, beyond branches and ISB.
    pub waypoints: Waypoints,
    /// The trace unit leaves out the target of a return that it predicts (TRCCONFIGR.RS;
    /// PTM ETMCR bit 29).
    pub return_stack: bool,
    /// A taken ERET gives [`Mark::ExceptionReturn`]: ETE has no packet for it. It does not where
    /// a source address tells that it was taken; other decoders of ETE agree on that.
    pub exception_returns: bool,
    /// An exception of which the trace does not tell where it returns (ETMv3) has the address
    /// that execution had come to: that of an instruction which aborts and was not cancelled
    /// lies before it.
    pub exceptions_here: bool,
    /// The cache of blocks is emptied when it holds so many (about 100 to 200 bytes each).
    pub most_blocks: usize,
}

impl Default for FlowConfig {
    fn default() -> Self {
        Self {
            waypoints: Waypoints::default(),
            return_stack: false,
            exception_returns: false,
            exceptions_here: false,
            most_blocks: 1 << 21,
        }
    }
}

/// A block whose output is held back, for it may be cancelled (ETMv3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    at: BufferOffset,
    pub(super) block: u32,
    taken: bool,
    cycles: Option<u32>,
    /// The exception return that its instruction was.
    exception_return: Option<BufferOffset>,
}

impl Held {
    #[inline]
    fn give(&self, blocks: &Blocks, sink: &mut impl FlowSink) {
        sink.block(
            self.at,
            blocks,
            BlockId(self.block),
            self.taken,
            self.cycles,
        );
        if let Some(at) = self.exception_return {
            sink.mark(at, &Mark::ExceptionReturn);
        }
    }
}

/// Follows the program flow of one trace source.
#[derive(Debug)]
pub struct Flow<C> {
    pub(super) config: FlowConfig,
    pub(super) code: C,
    pub(super) blocks: Blocks,
    /// The block that the next atom leads through.
    pub(super) current: u32,
    /// Where new blocks are made.
    pub(super) space: Space,
    pub(super) stack: ReturnStack,
    /// With [`AWAIT`]: the indirect branch with link that leads there; it pushes after the pop.
    pub(super) linking: Option<u32>,
    pub(super) held: Option<Held>,
    pub(super) q: Option<PendingQ>,
    /// The last block that was left by an atom.
    pub(super) left: u32,
    /// The block that the last address led to, and the address.
    pub(super) arrived: (u32, Address),
    /// How far execution was followed, while no address is known.
    pub(super) stuck: Option<Stuck>,
    /// How often the table of blocks was emptied.
    emptied: u64,
}

impl<C: CodeImage> Flow<C> {
    /// A flow that knows no address yet.
    pub fn new(config: FlowConfig, code: C) -> Self {
        let view = code.view(&ContextKey::default());
        Self {
            config,
            code,
            blocks: Blocks::new(),
            current: NOWHERE,
            space: Space::of(view),
            stack: ReturnStack::default(),
            linking: None,
            held: None,
            q: None,
            left: NOWHERE,
            arrived: (NOWHERE, Address(0)),
            stuck: None,
            emptied: 0,
        }
    }

    /// Its configuration.
    pub fn config(&self) -> FlowConfig {
        self.config
    }

    /// How often the table of blocks was emptied: a [`BlockId`] means the same block as long as
    /// this number does not change.
    pub fn emptied(&self) -> u64 {
        self.emptied
    }

    /// The blocks that were executed so far.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The straight line at whose begin execution is, as far as the next atom would lead; `None`
    /// where no address is known.
    pub fn ahead(&self) -> Option<Range> {
        (self.current > AWAIT).then(|| self.blocks.range(BlockId(self.current), true))
    }

    /// Takes the next element.
    #[inline(always)]
    pub fn element(&mut self, at: BufferOffset, element: Element, sink: &mut impl FlowSink) {
        // Elements that need thought are made anew: those that do not stay in registers.
        match element {
            Element::WaypointAtoms(atoms) => {
                if self.space.unit == Unit::Waypoint {
                    self.waypoints(at, atoms, sink);
                } else {
                    self.other(at, Element::WaypointAtoms(atoms), sink);
                }
            }
            Element::TimedAtom { taken, cycles } => {
                if self.space.unit == Unit::Waypoint {
                    self.timed_waypoint(at, taken, cycles, sink);
                } else {
                    self.other(at, Element::TimedAtom { taken, cycles }, sink);
                }
            }
            Element::TimedInstructions { atoms, first, each } => {
                if self.space.unit == Unit::Instruction {
                    let done = self.linked_instructions(at, atoms, Some([first, each]), sink);
                    if done < atoms.count {
                        self.timed_instructions(at, atoms, done, [first, each], sink);
                    }
                } else {
                    let element = Element::TimedInstructions { atoms, first, each };
                    self.other(at, element, sink);
                }
            }
            Element::InstructionAtoms(atoms) => {
                if self.space.unit == Unit::Instruction {
                    let done = self.linked_instructions(at, atoms, None, sink);
                    if done < atoms.count {
                        self.instructions(at, atoms, done, sink);
                    }
                } else {
                    self.other(at, Element::InstructionAtoms(atoms), sink);
                }
            }
            Element::Address { address, isa } => {
                let plain = self.held.is_none() && self.q.is_none();
                if plain && self.blocks.len() < self.config.most_blocks {
                    self.address(address, isa);
                } else {
                    self.other(at, Element::Address { address, isa }, sink);
                }
            }
            Element::Mark(mark @ Mark::Cycles(_)) => {
                self.release(sink);
                sink.mark(at, &mark);
            }
            _ => self.other(at, element, sink),
        }
    }

    /// Instructions over links that only lead on; returns how many they were.
    #[inline]
    fn linked_instructions(
        &mut self,
        at: BufferOffset,
        atoms: Atoms,
        cycles: Option<[u8; 2]>,
        sink: &mut impl FlowSink,
    ) -> u8 {
        let hot = &self.blocks.hot;
        let follow = |block: u32, bits: u32| hot[block as usize].links[(bits & 1) as usize];
        let leads_on = |link: u32| link.wrapping_sub(1) < PUSH - 1;
        let passed = |index: u8| cycles.map(|cycles| cycles[usize::from(index > 0)].into());
        let mut bits = atoms.bits;
        let mut block = self.current;
        let mut next = follow(block, bits);
        if !leads_on(next) {
            return 0;
        }
        if let Some(held) = self.held.take() {
            held.give(&self.blocks, sink);
        }
        self.q = None;
        let mut done = 1;
        while done < atoms.count {
            let after = follow(next, bits >> 1);
            if !leads_on(after) {
                break;
            }
            let taken = bits & 1 == 1;
            sink.block(at, &self.blocks, BlockId(block), taken, passed(done - 1));
            (block, next) = (next, after);
            bits >>= 1;
            done += 1;
        }
        self.held = Some(Held {
            at,
            block,
            taken: bits & 1 == 1,
            cycles: passed(done - 1),
            exception_return: None,
        });
        self.left = block;
        self.current = next;
        done
    }

    #[inline]
    fn timed_waypoint(
        &mut self,
        at: BufferOffset,
        taken: bool,
        cycles: u32,
        sink: &mut impl FlowSink,
    ) {
        let block = self.current;
        let link = self.blocks.hot[block as usize].links[usize::from(taken)];
        if link.wrapping_sub(1) < PUSH - 1 {
            sink.block(at, &self.blocks, BlockId(block), taken, Some(cycles));
            self.left = block;
            self.current = link;
        } else {
            self.q = None;
            self.current = self.atom(at, block, taken, Some(cycles), sink);
        }
    }

    /// Nothing is held back where atoms are waypoints.
    #[inline(always)]
    fn waypoints(&mut self, at: BufferOffset, atoms: Atoms, sink: &mut impl FlowSink) {
        if self.current == NOWHERE {
            self.q = None;
        } else {
            self.follow(at, atoms, sink);
        }
    }

    #[inline(never)]
    fn follow(&mut self, at: BufferOffset, atoms: Atoms, sink: &mut impl FlowSink) {
        let mut current = self.current;
        let mut left = self.left;
        let mut bits = atoms.bits;
        for _ in 0..atoms.count {
            let taken = (bits & 1) as usize;
            bits >>= 1;
            let mut link = self.blocks.hot[current as usize].links[taken];
            if link == SLOW
                && current == AWAIT
                && let Some(next) = self.pop_linked()
            {
                current = next;
                link = self.blocks.hot[current as usize].links[taken];
            }
            if link.wrapping_sub(1) < PUSH - 1 {
                sink.block(at, &self.blocks, BlockId(current), taken == 1, None);
                left = current;
                current = link;
            } else if link == SLOW && self.blocks.hot[current as usize].is_missing() {
                let address = self.start(current);
                self.stuck = Some(Stuck::missing(address));
                sink.gap(at, Gap::MemoryMissing(address));
                current = NOWHERE;
                break;
            } else if link == SLOW {
                self.left = left;
                current = self.atom(at, current, taken == 1, None, sink);
                left = self.left;
            } else {
                sink.block(at, &self.blocks, BlockId(current), taken == 1, None);
                self.stack.push(current);
                left = current;
                current = link & !PUSH;
            }
        }
        self.current = current;
        self.left = left;
        self.bound(sink);
    }

    /// Keeps the table of blocks within its limit.
    #[inline]
    fn bound(&mut self, sink: &mut impl FlowSink) {
        if self.blocks.len() >= self.config.most_blocks {
            self.forget(sink);
        }
    }

    /// Every element, at any speed.
    #[inline(never)]
    fn other(&mut self, at: BufferOffset, element: Element, sink: &mut impl FlowSink) {
        if !matches!(
            element,
            Element::CancelInstruction | Element::Mark(Mark::ExceptionReturn)
        ) {
            self.release(sink);
            self.bound(sink);
        }
        if !matches!(element, Element::Mark(_) | Element::Address { .. }) {
            self.q = None;
        }
        match element {
            Element::WaypointAtoms(atoms) => {
                self.count_in(Unit::Waypoint);
                self.waypoints(at, atoms, sink);
            }
            Element::InstructionAtoms(atoms) => {
                self.count_in(Unit::Instruction);
                self.instructions(at, atoms, 0, sink);
            }
            Element::TimedAtom { taken, cycles } => {
                self.count_in(Unit::Waypoint);
                self.current = self.atom(at, self.current, taken, Some(cycles), sink);
            }
            Element::TimedInstructions { atoms, first, each } => {
                self.count_in(Unit::Instruction);
                self.timed_instructions(at, atoms, 0, [first, each], sink);
            }
            Element::Address { address, isa } => {
                if let Some(q) = self.q.take() {
                    self.stuck = None;
                    self.finish_q(&q, address, isa, sink);
                }
                self.address(address, isa);
            }
            Element::RunTo { end, inclusive } => {
                self.settle(at, sink);
                self.run_to(at, end, inclusive, sink);
            }
            Element::SourceAddress { address, isa } => self.source(at, address, isa, sink),
            Element::Q { instructions } => self.begin_q(at, instructions, sink),
            Element::Exception(exception) => {
                self.exception(at, exception, self.config.exceptions_here, sink);
            }
            Element::ExceptionHere(exception) => self.exception(at, exception, true, sink),
            Element::CancelInstruction => {
                if let Some(held) = self.held.take() {
                    self.current = held.block;
                    self.linking = None;
                }
            }
            Element::Mark(mark) => self.mark(at, &mark, sink),
        }
    }

    /// Instructions from atom `begin` on.
    #[inline(never)]
    fn instructions(
        &mut self,
        at: BufferOffset,
        atoms: Atoms,
        begin: u8,
        sink: &mut impl FlowSink,
    ) {
        self.q = None;
        for index in begin..atoms.count {
            self.current = self.atom(at, self.current, atoms.is_e(index), None, sink);
        }
    }

    /// Instructions with the cycles of the first one and of each other one. Time goes on where
    /// they cannot be followed.
    #[inline(never)]
    fn timed_instructions(
        &mut self,
        at: BufferOffset,
        atoms: Atoms,
        begin: u8,
        cycles: [u8; 2],
        sink: &mut impl FlowSink,
    ) {
        let cycles = |index: u8| u32::from(cycles[usize::from(index > 0)]);
        self.q = None;
        for index in begin..atoms.count {
            self.settle(at, sink);
            if self.current == NOWHERE {
                self.release(sink);
                let rest = (index..atoms.count).map(cycles).sum();
                return sink.mark(at, &Mark::Cycles(rest));
            }
            let passed = atoms.is_e(index);
            self.current = self.atom(at, self.current, passed, Some(cycles(index)), sink);
            if self.current == NOWHERE {
                sink.mark(at, &Mark::Cycles(cycles(index)));
            }
        }
    }

    /// One atom in any state; returns the block after it.
    #[inline(never)]
    fn atom(
        &mut self,
        at: BufferOffset,
        mut current: u32,
        taken: bool,
        cycles: Option<u32>,
        sink: &mut impl FlowSink,
    ) -> u32 {
        let mut run = 0;
        loop {
            match current {
                NOWHERE => {
                    self.q = None;
                    self.release(sink);
                    return NOWHERE;
                }
                AWAIT => {
                    current = self.pop(at, sink);
                    continue;
                }
                _ => {}
            }
            let link = self.blocks.hot[current as usize].links[usize::from(taken)];
            if link != SLOW {
                self.left = current;
                self.executed(at, current, taken, cycles, sink);
                if link & PUSH != 0 {
                    self.stack.push(current);
                }
                return link & !PUSH;
            }
            match self.blocks.cold[current as usize].stop {
                End::Waypoint => {
                    self.left = current;
                    self.executed(at, current, taken, cycles, sink);
                    if taken && self.is_marked(current) {
                        sink.mark(at, &Mark::ExceptionReturn);
                    }
                    return self.leave(current, taken);
                }
                End::Missing | End::NotFollowed => {
                    self.stuck(at, current, sink);
                    return NOWHERE;
                }
                End::Long => {
                    self.part(at, current, sink);
                    run += 1;
                    if run == LONGEST_RUN {
                        let to = self.blocks.cold[current as usize].end;
                        let from = self.blocks.cold[current as usize].start;
                        self.gap(at, Gap::NotReached { from, to }, sink);
                        return NOWHERE;
                    }
                    current = self.fall_through(current);
                }
            }
        }
    }

    /// The block after `current`, whose last instruction had an E or N atom.
    pub(super) fn leave(&mut self, current: u32, taken: bool) -> u32 {
        let index = current as usize;
        let cold = self.blocks.cold[index];
        let stacked = cold.last.link && self.config.return_stack;
        match cold.last.kind {
            LastKind::Branch if taken => {
                let next = self.find(cold.space, cold.target_isa, cold.target);
                self.blocks.hot[index].links[1] = next | if stacked { PUSH } else { 0 };
                if stacked {
                    self.stack.push(current);
                }
                next
            }
            LastKind::Indirect if taken => {
                if stacked {
                    self.linking = Some(current);
                } else if !self.is_marked(current) {
                    self.blocks.hot[index].links[1] = AWAIT;
                }
                AWAIT
            }
            _ => {
                let next = self.fall_through(current);
                self.blocks.hot[index].links[usize::from(taken)] = next;
                next
            }
        }
    }

    /// Whether the block ends in an exception return that has a mark.
    fn is_marked(&self, block: u32) -> bool {
        self.config.exception_returns && self.blocks.cold[block as usize].exception_return
    }

    /// The block that begins where another one ends.
    fn fall_through(&mut self, block: u32) -> u32 {
        let index = block as usize;
        if self.blocks.hot[index].links[0] == SLOW {
            let cold = self.blocks.cold[index];
            let next = self.find(cold.space, cold.isa, cold.end);
            self.blocks.hot[index].links[0] = if cold.stop == End::Waypoint {
                next
            } else {
                SLOW
            };
            return next;
        }
        self.blocks.hot[index].links[0]
    }

    /// [`Self::pop`] where nothing is out of the ordinary: a block follows its caller already.
    #[inline]
    fn pop_linked(&mut self) -> Option<u32> {
        let caller = self.blocks.hot[self.stack.top()? as usize];
        let next = caller.links[0];
        if next == SLOW || self.linking.is_some() || !caller.lies_in(self.space) {
            return None;
        }
        self.stack.pop();
        Some(next)
    }

    /// The target of an indirect branch whose address the trace leaves out.
    fn pop(&mut self, at: BufferOffset, sink: &mut impl FlowSink) -> u32 {
        if !self.config.return_stack {
            self.linking = None;
            self.stuck = self.after_branch();
            return NOWHERE;
        }
        let caller = self.stack.pop();
        if let Some(linking) = self.linking.take() {
            self.stack.push(linking);
        }
        let Some(caller) = caller else {
            self.gap(at, Gap::ReturnStackEmpty, sink);
            self.stuck = self.after_branch();
            return NOWHERE;
        };
        let cold = self.blocks.cold[caller as usize];
        if cold.space == self.space {
            self.fall_through(caller)
        } else {
            self.find(self.space, cold.isa, cold.end)
        }
    }

    /// Takes a return address if one is due.
    pub(super) fn settle(&mut self, at: BufferOffset, sink: &mut impl FlowSink) {
        if self.current == AWAIT {
            self.current = self.pop(at, sink);
        }
    }

    #[inline]
    pub(super) fn find(&mut self, space: Space, isa: Isa, start: Address) -> u32 {
        self.blocks
            .at(&self.code, self.config.waypoints, space, isa, start)
    }

    #[inline]
    fn address(&mut self, address: Address, isa: Isa) {
        self.stuck = None;
        if self.current == AWAIT
            && let Some(linking) = self.linking.take()
        {
            self.stack.push(linking);
        }
        self.current = self.find(self.space, isa, address);
        self.arrived = (self.current, address);
    }

    /// Where a block begins; that of the last address is at hand.
    fn start(&self, block: u32) -> Address {
        let (arrived, address) = self.arrived;
        if block == arrived {
            address
        } else {
            self.blocks.cold[block as usize].start
        }
    }

    /// Counts atoms in this unit from now on.
    fn count_in(&mut self, unit: Unit) {
        if self.space.unit != unit {
            self.space.unit = unit;
            self.relocate(None);
        }
    }

    /// The current address in the current space.
    fn relocate(&mut self, isa: Option<Isa>) {
        if self.current > AWAIT {
            let cold = self.blocks.cold[self.current as usize];
            self.current = self.find(self.space, isa.unwrap_or(cold.isa), cold.start);
        }
    }

    fn mark(&mut self, at: BufferOffset, mark: &Mark, sink: &mut impl FlowSink) {
        match mark {
            Mark::Context(context) => self.context(context),
            Mark::TraceOn(_) | Mark::NoSync(_) | Mark::End => {
                self.current = NOWHERE;
                self.stack.clear();
                self.linking = None;
                self.q = None;
                self.stuck = None;
            }
            Mark::ExceptionReturn => {
                if let Some(held) = &mut self.held
                    && held.exception_return.is_none()
                {
                    held.exception_return = Some(at);
                    return;
                }
                self.release(sink);
            }
            Mark::Cycles(_)
            | Mark::Timestamp(_)
            | Mark::Event(_)
            | Mark::Trigger
            | Mark::Marker(_)
            | Mark::Transaction(_)
            | Mark::Instrumentation { .. }
            | Mark::Data { .. }
            | Mark::Stm(_)
            | Mark::Itm(_) => {}
        }
        sink.mark(at, mark);
    }

    /// The memory that the core sees may have changed. The instruction set changes only where
    /// it cannot be the one that the address told.
    fn context(&mut self, context: &Context) {
        let view = self.code.view(&ContextKey::from(context));
        let mut isa = None;
        if self.current > AWAIT
            && let Some(is_64bit) = context.is_64bit
        {
            let known = self.blocks.cold[self.current as usize].isa;
            if (known == Isa::A64) != is_64bit && (context.isa == Isa::A64) == is_64bit {
                isa = Some(context.isa);
            }
        }
        if view != self.space.view || isa.is_some() {
            self.space.view = view;
            self.relocate(isa);
        }
    }

    /// A block was executed.
    fn executed(
        &mut self,
        at: BufferOffset,
        block: u32,
        taken: bool,
        cycles: Option<u32>,
        sink: &mut impl FlowSink,
    ) {
        if self.space.unit == Unit::Waypoint {
            sink.block(at, &self.blocks, BlockId(block), taken, cycles);
        } else {
            self.release(sink);
            self.held = Some(Held {
                at,
                block,
                taken,
                cycles,
                exception_return: None,
            });
        }
    }

    /// Gives out what can no longer be cancelled.
    #[inline]
    fn release(&mut self, sink: &mut impl FlowSink) {
        if let Some(held) = self.held.take() {
            held.give(&self.blocks, sink);
        }
    }

    /// A block without a waypoint at its end was executed.
    fn part(&mut self, at: BufferOffset, block: u32, sink: &mut impl FlowSink) {
        self.release(sink);
        let range = self.blocks.range(BlockId(block), true);
        if range.instructions > 0 {
            sink.partial(at, &range);
        }
    }

    /// A block ends where it cannot be followed.
    fn stuck(&mut self, at: BufferOffset, block: u32, sink: &mut impl FlowSink) {
        self.part(at, block, sink);
        let cold = self.blocks.cold[block as usize];
        let stop = if cold.stop == End::NotFollowed {
            Stop::NotFollowed
        } else {
            Stop::Missing
        };
        self.stop(at, stop, cold.end, cold.isa, sink);
    }

    pub(super) fn gap(&mut self, at: BufferOffset, gap: Gap, sink: &mut impl FlowSink) {
        self.release(sink);
        sink.gap(at, gap);
    }

    /// Empties the table of blocks. What the flow itself remembers is decoded again.
    #[cold]
    #[inline(never)]
    fn forget(&mut self, sink: &mut impl FlowSink) {
        sink.forget(&self.blocks);
        self.emptied += 1;
        let old = std::mem::replace(&mut self.blocks, Blocks::new());
        self.arrived.0 = NOWHERE;
        let again = |flow: &mut Self, block: u32| {
            if block <= AWAIT {
                return block;
            }
            let cold = old.cold[block as usize];
            flow.find(cold.space, cold.isa, cold.start)
        };
        self.current = again(self, self.current);
        self.left = again(self, self.left);
        for caller in self.stack.drain() {
            let caller = again(self, caller);
            self.stack.push(caller);
        }
        if let Some(linking) = self.linking {
            self.linking = Some(again(self, linking));
        }
        if let Some(mut q) = self.q {
            q.from = again(self, q.from);
            self.q = Some(q);
        }
    }
}

/// A flow and what takes its output, as one consumer of elements.
#[derive(Debug)]
pub struct FlowDriver<C, S> {
    /// Follows.
    pub flow: Flow<C>,
    /// Takes what was executed.
    pub sink: S,
}

impl<C: CodeImage, S: FlowSink> ElementSink for FlowDriver<C, S> {
    #[inline(always)]
    fn element(&mut self, at: BufferOffset, element: Element) {
        self.flow.element(at, element, &mut self.sink);
    }
}
