//! The flow: dispatches elements.
//!
//! [`super::atoms`] follows atoms, from block to block by [`super::successors`]; [`super::lines`]
//! handles straight lines and Q elements; all output goes through [`super::output`].

use super::blocks::{AWAIT, AtomUnit, BlockId, Blocks, NOWHERE, Space};
use super::code::{CodeImage, ContextKey};
use super::instructions::Steps;
use super::lines::{KnownLines, LineEnd, PendingQ};
use super::memo::Memo;
use super::output::{Held, LostAt};
use super::range::Range;
use super::return_stack::ReturnStack;
use super::sink::FlowSink;
use super::walk::Waypoints;
use crate::element::{AtomPacket, AtomSink, Context, Element, ElementSink, Mark};
use armsnap_arch::quantity::{Address, BufferOffset, Isa};

/// Properties of the trace source that the flow depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowConfig {
    /// The instructions with atoms, besides branches, ISB and TSTART.
    pub waypoints: Waypoints,
    /// The trace unit omits the targets of returns that it predicts (TRCCONFIGR.RS; in PTM, ETMCR
    /// bit 29).
    pub return_stack: bool,
    /// A taken ERET emits [`Mark::ExceptionReturn`], because ETE has no packet for it. Exception:
    /// an ERET reported as taken by a source address, as in other decoders of ETE.
    pub exception_returns: bool,
    /// An exception without a return address in the trace (ETMv3) receives the address that
    /// execution had reached. If the instruction before it aborted and was not cancelled, the
    /// actual return address is that of the instruction.
    pub exceptions_here: bool,
    /// Number of blocks, of about 100 to 200 bytes each, at which the cache is emptied.
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

/// The block at a traced address.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrival {
    /// The block; [`NOWHERE`] before the first address.
    pub block: u32,
    /// Its address.
    pub address: Address,
    /// Whether memory is missing at its first instruction.
    pub lacks_code: bool,
}

/// Follows the program flow of one trace source.
#[derive(Debug)]
pub struct Flow<C> {
    pub(super) config: FlowConfig,
    pub(super) code: C,
    pub(super) blocks: Blocks,
    pub(super) memo: Memo,
    pub(super) known_lines: KnownLines,
    /// The block that the next atom belongs to.
    pub(super) current: u32,
    /// The space of new blocks.
    pub(super) space: Space,
    pub(super) stack: ReturnStack,
    /// With [`AWAIT`]: the last block, if it ends in an indirect branch with link. It is pushed after
    /// the pop.
    pub(super) linking: Option<u32>,
    pub(super) held: Option<Held>,
    /// Empty between two calls.
    pub(super) steps: Box<Steps>,
    pub(super) q: Option<PendingQ>,
    /// The last block executed by an atom.
    pub(super) left: u32,
    /// The block at the last traced address.
    pub(super) arrived: Arrival,
    /// While no address is known: the address up to which execution was followed.
    pub(super) lost: Option<LostAt>,
    /// How often the table of blocks was emptied.
    emptied: u64,
}

impl<C: CodeImage> Flow<C> {
    /// Creates a flow without a known address.
    pub fn new(config: FlowConfig, code: C) -> Self {
        let view = code.view(&ContextKey::default());
        Self {
            config,
            code,
            blocks: Blocks::new(),
            memo: Memo::default(),
            known_lines: KnownLines::default(),
            current: NOWHERE,
            space: Space::of(view),
            stack: ReturnStack::default(),
            linking: None,
            held: None,
            steps: Box::default(),
            q: None,
            left: NOWHERE,
            arrived: Arrival::default(),
            lost: None,
            emptied: 0,
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> FlowConfig {
        self.config
    }

    /// Returns how often the table of blocks was emptied. A [`BlockId`] is valid as long as this
    /// number does not change.
    pub fn emptied(&self) -> u64 {
        self.emptied
    }

    /// Returns the blocks executed so far.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Returns the straight line from the current address to the next waypoint; `None` if no address
    /// is known.
    pub fn ahead(&self) -> Option<Range> {
        (self.current > AWAIT).then(|| self.blocks.range(BlockId(self.current), true))
    }

    /// Processes the next element.
    #[inline(always)]
    pub fn element(&mut self, at: BufferOffset, element: Element, sink: &mut impl FlowSink) {
        // The slow path receives a new copy of the element, so that the fast path keeps its own in
        // registers.
        match element {
            Element::WaypointAtoms(atoms) => {
                if self.space.unit == AtomUnit::Waypoint {
                    self.waypoints(at, atoms, sink);
                } else {
                    self.other(at, Element::WaypointAtoms(atoms), sink);
                }
            }
            Element::TimedAtom { taken, cycles } => {
                if self.space.unit == AtomUnit::Waypoint {
                    self.timed_waypoint(at, taken, cycles, sink);
                } else {
                    self.other(at, Element::TimedAtom { taken, cycles }, sink);
                }
            }
            Element::TimedInstructions { atoms, first, each } => {
                if self.space.unit == AtomUnit::Instruction {
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
                if self.space.unit == AtomUnit::Instruction {
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
            Element::Mark(mark) => self.mark(at, &mark, sink),
            _ => self.other(at, element, sink),
        }
    }

    /// Empties the table of blocks if it has reached its limit.
    #[inline]
    pub(super) fn bound(&mut self, sink: &mut impl FlowSink) {
        if self.blocks.len() >= self.config.most_blocks {
            self.forget(sink);
        }
    }

    /// The slow path: processes any element but marks.
    #[inline(never)]
    fn other(&mut self, at: BufferOffset, element: Element, sink: &mut impl FlowSink) {
        if !matches!(element, Element::CancelInstruction) {
            self.release(sink);
            self.bound(sink);
        }
        if !matches!(element, Element::Address { .. }) {
            self.q = None;
        }
        match element {
            Element::WaypointAtoms(atoms) => {
                self.count_in(AtomUnit::Waypoint);
                self.waypoints(at, atoms, sink);
            }
            Element::InstructionAtoms(atoms) => {
                self.count_in(AtomUnit::Instruction);
                self.instructions(at, atoms, 0, sink);
            }
            Element::TimedAtom { taken, cycles } => {
                self.count_in(AtomUnit::Waypoint);
                self.current = self.atom(at, self.current, taken, Some(cycles), sink);
            }
            Element::TimedInstructions { atoms, first, each } => {
                self.count_in(AtomUnit::Instruction);
                self.timed_instructions(at, atoms, 0, [first, each], sink);
            }
            Element::Address { address, isa } => {
                if let Some(q) = self.q.take() {
                    self.lost = None;
                    self.finish_q(&q, address, isa, sink);
                }
                self.address(address, isa);
            }
            Element::RunTo { end, inclusive } => {
                self.settle(at, sink);
                let line_end = if inclusive {
                    LineEnd::With
                } else {
                    LineEnd::Before
                };
                self.run_to(at, end, line_end, sink);
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
            // `element` passes marks on itself.
            Element::Mark(_) => {}
        }
    }

    #[inline(always)]
    fn mark(&mut self, at: BufferOffset, mark: &Mark, sink: &mut impl FlowSink) {
        if let Mark::Cycles(_) = mark {
            self.release(sink);
            sink.mark(at, mark);
        } else {
            self.other_mark(at, mark, sink);
        }
    }

    /// The slow path: processes any mark.
    #[inline(never)]
    fn other_mark(&mut self, at: BufferOffset, mark: &Mark, sink: &mut impl FlowSink) {
        if !matches!(mark, Mark::ExceptionReturn) {
            self.release(sink);
            self.bound(sink);
        }
        match mark {
            Mark::Context(context) => self.context(context),
            Mark::TraceOn(_) | Mark::NoSync(_) | Mark::End => {
                self.current = NOWHERE;
                self.stack.clear();
                self.linking = None;
                self.q = None;
                self.lost = None;
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

    /// Selects the memory that the core sees in a context. Changes the instruction set of the current
    /// address only if it contradicts the execution state of the context.
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

    /// Empties the table of blocks, and decodes again the blocks that the flow refers to.
    #[cold]
    #[inline(never)]
    fn forget(&mut self, sink: &mut impl FlowSink) {
        sink.forget(&self.blocks);
        self.emptied += 1;
        let state = self.state();
        self.blocks = Blocks::new();
        self.memo.clear();
        self.known_lines.clear();
        self.resume(&state);
    }
}

/// A flow and the sink of its output, as one consumer of elements.
#[derive(Debug)]
pub struct FlowDriver<C, S> {
    /// The flow.
    pub flow: Flow<C>,
    /// Receives its output.
    pub sink: S,
}

impl<C: CodeImage, S: FlowSink> ElementSink for FlowDriver<C, S> {
    #[inline(always)]
    fn element(&mut self, at: BufferOffset, element: Element) {
        self.flow.element(at, element, &mut self.sink);
    }

    #[inline]
    fn mark(&mut self, at: BufferOffset, mark: Mark) {
        self.flow.mark(at, &mark, &mut self.sink);
    }
}

impl<C: CodeImage, S: FlowSink> AtomSink for FlowDriver<C, S> {
    #[inline(always)]
    fn atoms(
        &mut self,
        bytes: &[u8],
        atoms: impl Fn(u8) -> Option<AtomPacket>,
        locate: impl FnMut(usize) -> BufferOffset,
    ) -> usize {
        let (flow, sink) = (&mut self.flow, &mut self.sink);
        match (flow.space.unit, S::COUNTS) {
            (AtomUnit::Waypoint, false) => flow.packets_of_atoms(bytes, atoms, locate, sink),
            (AtomUnit::Waypoint, true) => flow.counted_atoms(bytes, atoms, locate, sink),
            (AtomUnit::Instruction, true) if !S::COUNTS_BLOCKS => {
                flow.counted_instructions(bytes, atoms, locate, sink)
            }
            (AtomUnit::Instruction, _) => flow.packets_of_instructions(bytes, atoms, locate, sink),
        }
    }
}
