//! Follows one core's execution: counts what is executed, and tracks the open calls.
//!
//! The last stage of the decoding pipeline. A run of blocks within one function is only counted.
//! The effect of any other run in a function is remembered, and applied at once when the run recurs
//! ([`again`]). New runs take the slow path: whole blocks are counted in a table by [`BlockId`],
//! and those that call, return, or belong to another function than the block before may change the
//! open calls.

mod again;
mod calls;
mod marks;
mod replay;
mod sink;
#[cfg(test)]
pub(super) mod tests;

use armsnap_arch::hash::{NumberMap, NumberSet};
use marks::OpenGap;
pub use marks::gap_name;
pub(super) use replay::Replayed;

use super::clock::Moment;
use super::code::{BlockCount, EdgeKind, ExecutedCode, last_at};
use super::functions::{FunctionId, FunctionKind, Functions};
use super::latency::Exceptions;
use super::memo::{Draft, Memo, Tail};
use super::owners;
use super::runs::{RunState, Runs};
use super::stack::{Ended, Frame, Listener};
use super::tree::{NodeId, Tree};
use super::window::Window;
use armsnap_arch::quantity::{Address, BufferOffset, ExceptionLevel};
use armsnap_history::calls::{Restorers, Suspended, Transitions};
use armsnap_history::decode::Image;
use armsnap_history::timeline::{Entry, Event, Gap, Position};
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_trace::element::{Context, Exception};
use armsnap_trace::flow::{
    BlockId, Blocks, CodeImage, ContextKey, InstructionKind, Range, Run, View,
};
use std::collections::BTreeMap;

/// The number of the exception with which a core enters debug state.
const DEBUG_HALT: u16 = 1;

/// What is known of a block. Read each time the block is executed.
#[derive(Clone, Copy, Debug, Default)]
struct Info {
    /// Executions with an N atom and with an E atom.
    counts: [u64; 2],
    instructions: u32,
    /// The function of the symbol that contains it; 0 without a symbol.
    function: u32,
    /// The function that its executions count for.
    owner: u32,
    el: Option<ExceptionLevel>,
    /// With an E atom, it ends in a call, a return or another indirect branch; if calls are not
    /// wanted, in an indirect branch.
    leaves: bool,
    known: bool,
    /// The branch at its end with an E atom, if it leaves the function and that was seen.
    tail: Tail,
}

/// The counts of a core's executions.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub functions: Functions,
    pub tree: Tree,
    pub code: ExecutedCode,
    pub exceptions: Exceptions,
    pub gaps: BTreeMap<&'static str, u64>,
    pub events: u64,
    pub ranges: u64,
    pub instructions: u64,
    pub unknown_path: u64,
    pub elements: u64,
    pub cycles: Option<u64>,
    pub last_time: Option<u64>,
    pub unreached: bool,
    pub kernel_and_user: [bool; 2],
}

/// The execution of one core, or the messages of a source without a core.
pub struct Course<'a, L> {
    listener: L,
    symbols: Option<&'a Symbols>,
    image: Image<'a>,
    window: Window,
    /// Whether the window is open.
    active: bool,
    /// Whether the window has a bound that has not been reached yet.
    waiting: bool,
    /// The offset of the last packet, and the instructions reported by it so far.
    packet: (BufferOffset, u64),
    pub(super) counted: Counted,
    infos: Vec<Info>,
    runs: Runs,
    memo: Memo,
    draft: Draft,
    /// The branch before the next run, for the memo.
    tail: Tail,
    /// The last run was in the memo: `function`, `node`, `settled`, `transitions`, `armed` and
    /// `edge` are out of date.
    repeating: bool,
    now: Moment,
    /// The number of instructions up to which the tree is complete.
    settled: u64,
    /// Instructions and cycles before the window was opened.
    opened: (u64, u64),
    context: Option<Context>,
    view: View,
    /// Whether only a program is traced, not its kernel.
    alone: bool,
    transitions: Transitions,
    /// The next instruction may be reached other than by plain execution.
    armed: bool,
    /// The branch of the edge to the next instruction.
    edge: Option<(Address, EdgeKind)>,
    exception: Option<Exception>,
    gap: Option<OpenGap>,
    open: Vec<Frame>,
    suspended: Suspended<Vec<Frame>>,
    /// Addresses that calls returned to, or were to return to, with the calling function.
    return_places: NumberMap<u64, FunctionId>,
    restorers: Restorers,
    /// Addresses that the memo relies on being neither a return address nor the start of a
    /// function.
    relied: NumberSet<u64>,
    /// The function of the innermost call.
    function: u32,
    node: NodeId,
    /// The calling contexts since the callers were last forgotten.
    recent: Tree,
    /// Where these start, or where another context was resumed.
    since: Moment,
    /// Remember nothing, to compare with in tests.
    #[cfg(test)]
    pub(super) forgetful: bool,
    /// The number of pieces that were accepted unchanged.
    #[cfg(test)]
    pub(super) accepted: u64,
    /// How often the memo was not needed.
    #[cfg(test)]
    pub(super) plain: u64,
}

impl<'a, L: Listener> Course<'a, L> {
    /// Starts at the beginning of the trace. `alone` says that the kernel of the traced program is
    /// not traced.
    pub fn new(
        image: Image<'a>,
        symbols: Option<&'a Symbols>,
        window: Window,
        alone: bool,
        listener: L,
    ) -> Self {
        Self {
            listener,
            symbols,
            image,
            active: window.from.is_none(),
            waiting: !window.is_whole(),
            window,
            packet: (BufferOffset(0), 0),
            counted: Counted::default(),
            infos: Vec::new(),
            runs: Runs::default(),
            memo: Memo::default(),
            draft: Draft::default(),
            tail: Tail::UNKNOWN,
            repeating: false,
            now: Moment::default(),
            settled: 0,
            opened: (0, 0),
            context: None,
            view: image.view(&ContextKey::default()),
            alone,
            transitions: Transitions::default(),
            armed: true,
            edge: None,
            exception: None,
            gap: None,
            open: Vec::new(),
            suspended: Suspended::default(),
            return_places: NumberMap::default(),
            restorers: Restorers::default(),
            relied: NumberSet::default(),
            function: 0,
            node: NodeId::ROOT,
            recent: Tree::default(),
            since: Moment::default(),
            #[cfg(test)]
            forgetful: false,
            #[cfg(test)]
            accepted: 0,
            #[cfg(test)]
            plain: 0,
        }
    }

    /// Starts the buffer with this index among the core's buffers.
    pub fn start_buffer(&mut self, buffer: usize) {
        self.now.buffer = buffer;
        self.now.at = BufferOffset(0);
        self.packet = (BufferOffset(0), 0);
        self.context = None;
        self.view = self.image.view(&ContextKey::default());
        if buffer > 0 {
            self.lose(Gap::Buffer);
        }
    }

    /// Ends the trace: closes what is open, and returns the listener and what was counted.
    pub(super) fn finish(mut self) -> (L, Counted) {
        self.close_window(Ended::Open);
        self.forget_callers();
        if let Some(gap) = self.gap.take()
            && self.active
            && gap.from.instructions > 0
        {
            self.report_gap(&gap, None);
        }
        self.counted.unreached = self.window.from.is_some();
        owners::settle(&mut self.counted.code, &self.counted.functions);
        (self.listener, self.counted)
    }

    /// Returns the function at an address, if known.
    fn function_at(&mut self, address: Address) -> Option<FunctionId> {
        self.counted.functions.at(self.symbols, address)
    }

    fn el(&self) -> Option<ExceptionLevel> {
        self.context.and_then(|context| context.el)
    }

    // Counting.

    /// Creates the row of a block that is executed for the first time.
    #[cold]
    #[inline(never)]
    fn learn(&mut self, blocks: &Blocks, id: BlockId) {
        let index = id.index();
        if index >= self.infos.len() {
            self.infos
                .resize((index + 1).next_power_of_two(), Info::default());
        }
        let range = blocks.range(id, true);
        let function = self.function_at(range.start);
        self.note_level(function, self.el());
        // Without a symbol, the function depends on what was executed before; it is not a property
        // of the block.
        let function = function.filter(|function| self.is_symbol(*function));
        self.infos[index] = Info {
            counts: [0; 2],
            instructions: range.instructions,
            function: function.map_or(0, |function| function.0),
            owner: 0,
            el: self.el(),
            leaves: leaves(&range) && (L::CALLS || is_indirect(&range)),
            known: true,
            tail: Tail::NONE,
        };
    }

    fn is_symbol(&self, function: FunctionId) -> bool {
        self.counted.functions.get(function).kind == FunctionKind::Symbol
    }

    fn note_level(&mut self, function: Option<FunctionId>, el: Option<ExceptionLevel>) {
        if let Some(ExceptionLevel(level)) = el {
            self.counted.kernel_and_user[usize::from(level == 0)] = true;
        }
        if let Some(function) = function {
            let row = self.counted.functions.get_mut(function);
            row.el = row.el.or(el);
        }
    }

    /// Moves the counts of blocks to the table of code.
    fn collect(&mut self, blocks: &Blocks) {
        self.spread();
        self.spread_runs();
        self.listener.forget_runs();
        self.memo.forget_exits();
        if self.tail != Tail::NONE {
            self.tail = Tail::UNKNOWN;
        }
        let infos = std::mem::take(&mut self.infos);
        for (id, info) in blocks.ids().zip(infos) {
            if info.counts == [0; 2] {
                continue;
            }
            let [not_taken, taken] = info.counts;
            self.counted.ranges += not_taken + taken;
            self.counted.code.add_block(&BlockCount {
                el: info.el,
                function: FunctionId(info.owner),
                taken,
                not_taken,
                ..BlockCount::of(&self.image, blocks, id)
            });
        }
    }

    /// Executes a whole block.
    #[inline]
    fn whole(
        &mut self,
        at: BufferOffset,
        blocks: &Blocks,
        id: BlockId,
        taken: bool,
        cycles: Option<u32>,
    ) {
        let index = id.index();
        let new = self.infos.get(index).is_none_or(|info| !info.known);
        if new {
            self.learn(blocks, id);
        }
        self.now.at = at;
        let info = self.infos[index];
        let leaves = taken && info.leaves;
        let elsewhere = L::CALLS && info.function != self.function && info.function != 0;
        if self.armed || leaves || elsewhere || self.waiting {
            let range = blocks.range(id, taken);
            self.straight(&range, info.function, cycles);
            self.tail = self.tail_of(index, &range);
            if self.tail.is_branch() && info.tail != self.tail {
                self.infos[index].tail = self.tail;
                self.memo.learn_exit(self.tail, (range, self.edge));
            }
        }
        if L::LINES {
            self.add_line(&blocks.range(id, taken), blocks.view(id));
        }
        if L::STRAIGHT && self.active {
            let line = blocks.range(id, taken);
            self.listener
                .straight(&self.now, &line, self.context.as_ref());
        }
        if L::RUNS && self.active {
            let place = self.now.instructions;
            let line = || blocks.range(id, taken);
            self.listener.block(place, Some(index), line);
        }
        if new {
            self.infos[index].owner = match info.function {
                0 => self.function,
                function => function,
            };
        }
        self.infos[index].counts[usize::from(taken)] += u64::from(self.active);
        self.draft.blocks = self.draft.blocks.wrapping_add(1);
        self.now.instructions += u64::from(info.instructions);
        if let Some(cycles) = cycles {
            self.count_cycles(cycles.into());
        }
    }

    /// Adds cycles to the innermost call.
    fn count_cycles(&mut self, cycles: u64) {
        self.now.count(cycles);
        if self.active {
            let node = self.open.last().map_or(NodeId::ROOT, |frame| frame.node);
            let sum = &mut self.recent.get_mut(node).cycles;
            *sum = sum.saturating_add(cycles);
        }
    }

    /// Notes that the next instruction may be reached other than by plain execution.
    fn arm(&mut self) {
        self.armed = true;
        self.tail = Tail::UNKNOWN;
    }

    /// The branch before the next run, for the memo, after a block.
    fn tail_of(&self, index: usize, range: &Range) -> Tail {
        if self.waiting || !self.active {
            Tail::UNKNOWN
        } else if self.armed {
            let last = &range.last;
            Tail::of(index, L::CALLS && last.returns && !last.link)
        } else {
            Tail::NONE
        }
    }

    /// Handles a renumbering of the flow's runs.
    #[cold]
    #[inline(never)]
    fn renumber(&mut self, generation: u32) {
        self.spread();
        self.spread_runs();
        self.listener.forget_runs();
        self.runs.generation = generation;
    }

    /// Adds the counts of runs to those of their blocks.
    #[cold]
    #[inline(never)]
    fn spread_runs(&mut self) {
        let infos = &mut self.infos;
        self.runs.spread(|block, taken, count| {
            infos[block].counts[usize::from(taken)] += count;
        });
    }

    /// Executes a run block by block, and remembers it if it can be executed at once next time.
    #[inline(never)]
    fn each(&mut self, at: BufferOffset, blocks: &Blocks, run: Run<'_>) {
        let last = run.len() - 1;
        let seen = self.active;
        for (id, taken) in run.blocks() {
            self.whole(at, blocks, id, taken, None);
        }
        let (number, _) = run.number();
        // A listener must have received its blocks.
        if !self.runs.is_new(number) || L::RUNS && !(seen && self.active) {
            return;
        }
        let mut function = 0;
        let mut plain = true;
        for (place, (id, taken)) in run.blocks().enumerate() {
            let info = &self.infos[id.index()];
            plain &= !(taken && info.leaves) || place == last;
            if L::CALLS {
                plain &= info.function == 0 || function == 0 || function == info.function;
                function = function.max(info.function);
            }
        }
        let leaves = run.blocks().next_back();
        let leaves = leaves.map(|(id, taken)| (taken, &self.infos[id.index()]));
        let leaves = leaves.filter(|(taken, info)| *taken && info.leaves);
        let state = match (plain, leaves) {
            (false, _) => (RunState::Each, Tail::NONE),
            (true, None) => (RunState::Plain, Tail::NONE),
            // Outside the window, its exit was not seen.
            (true, Some((_, info))) if info.tail == Tail::NONE => return,
            (true, Some((_, info))) => (RunState::Leaves, info.tail),
        };
        self.runs.learn(number, function, state, run.blocks());
        if L::RUNS {
            let blocks = run.blocks().map(|(id, _)| id.index());
            self.listener.new_run(number, blocks);
        }
    }

    /// The slow path: before a straight line is executed.
    #[inline(never)]
    fn straight(&mut self, range: &Range, function: u32, cycles: Option<u32>) {
        if self.waiting {
            self.look_at_window(range);
        }
        if self.active
            && let Some((from, kind)) = self.edge.take()
        {
            self.counted.code.add_edge(from, range.start, kind, 1);
        }
        self.edge = None;
        self.end_gap(range.start);
        self.exception = None;
        if L::CALLS {
            let transition = self.transitions.event(&Event {
                position: Position::default(),
                offset: self.now.at,
                entry: Entry::Run {
                    range: *range,
                    cycles,
                },
            });
            self.reach(range.start, function, transition);
        }
        let leaves = range.last.taken && leaves(range);
        self.armed = leaves && (L::CALLS || is_indirect(range));
        if leaves {
            if is_indirect(range)
                && let Some(kind) = EdgeKind::of(&range.last)
            {
                let view = self.view;
                let from = last_at(&self.image, view, range.isa, range.start, range.end);
                self.edge = Some((from, kind));
            }
        } else {
            self.transitions.pass();
        }
    }
}

/// Returns whether an E atom of the last instruction may leave the function.
pub(super) fn leaves(range: &Range) -> bool {
    let last = &range.last;
    is_indirect(range) || last.kind == InstructionKind::Branch && last.link
}

fn is_indirect(range: &Range) -> bool {
    range.last.kind == InstructionKind::Indirect
}
