//! The flow and its dispatch: which element does what.
//!
//! Atoms are followed in [`super::atoms`], from block to block by [`super::successors`]; straight
//! lines and Q elements in [`super::lines`]; what comes out goes through [`super::output`].

use super::blocks::{AWAIT, BlockId, Blocks, NOWHERE, Space, Unit};
use super::code::{CodeImage, ContextKey};
use super::lines::PendingQ;
use super::output::{Held, Stuck};
use super::return_stack::ReturnStack;
use super::sink::{FlowSink, Range};
use super::walk::Waypoints;
use crate::element::{Context, Element, ElementSink, Mark};
use crate::quantity::{Address, BufferOffset, Isa};

/// What differs between trace sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowConfig {
    /// Which instructions have atoms, beyond branches, ISB and TSTART.
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

    /// Keeps the table of blocks within its limit.
    #[inline]
    pub(super) fn bound(&mut self, sink: &mut impl FlowSink) {
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

    /// Empties the table of blocks. What the flow itself remembers is decoded again.
    #[cold]
    #[inline(never)]
    fn forget(&mut self, sink: &mut impl FlowSink) {
        sink.forget(&self.blocks);
        self.emptied += 1;
        let state = self.state();
        self.blocks = Blocks::new();
        self.resume(&state);
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
