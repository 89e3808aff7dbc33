//! Follows one core's execution: counts what is executed, and keeps the open calls.
//!
//! The last stage of the decoding pipeline. Whole blocks are counted in a table by [`BlockId`]; only
//! those that call, return, or belong to another function than the one before take a longer way.

use super::clock::Moment;
use super::code::{BlockCount, EdgeKind, ExecutedCode, PartCount, last_at};
use super::functions::{FunctionId, FunctionKind, Functions};
use super::latency::Exceptions;
use super::rules::{self, Decision, Place};
use super::stack::{Call, CallKind, Ended, Frame, GapSeen, Listener};
use super::tree::{NodeId, Tree};
use super::window::Window;
use crate::decode::Image;
use crate::element::{Context, Element, ElementSink, Exception, Mark, NoSyncReason, TraceOnReason};
use crate::flow::{
    self, BlockId, Blocks, CodeImage, ContextKey, FlowSink, InstructionKind, QRange, Range, View,
};
use crate::program::symbols::Symbols;
use crate::quantity::{Address, BufferOffset, ExceptionLevel};
use crate::timeline::{Entry, Event, Gap, How, Position, Transition, Transitions};
use std::collections::{BTreeMap, VecDeque};

/// The most open calls. Beyond them all are forgotten.
const MOST_OPEN: usize = 1 << 18;
/// The most contexts whose open calls are kept while others are executed.
const MOST_PARKED: usize = 64;
/// The number of the exception with which a core enters debug state.
const DEBUG_HALT: u16 = 1;

/// What is known of a block. Read each time it is executed.
#[derive(Clone, Copy, Debug, Default)]
struct Info {
    /// With an N atom, and with an E atom.
    counts: [u64; 2],
    /// Its first instruction.
    start: Address,
    instructions: u32,
    /// The function of the symbol around it; 0 if there is none.
    function: u32,
    /// The function that it counts for.
    owner: u32,
    el: Option<ExceptionLevel>,
    /// With an E atom it ends in a call, a return or another indirect branch.
    leaves: bool,
    known: bool,
}

/// A gap that has not ended.
#[derive(Clone, Copy, Debug)]
struct OpenGap {
    gap: Gap,
    from: Moment,
}

/// What was counted in some executions of a core.
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
    pub first_time: Option<u64>,
    pub last_time: Option<u64>,
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
    /// Whether the window has a bound that is not reached yet.
    waiting: bool,
    /// The offset of the last packet, and the instructions that it reported so far.
    packet: (BufferOffset, u64),
    pub(super) counted: Counted,
    infos: Vec<Info>,
    now: Moment,
    /// Instructions and cycles up to which the tree is complete.
    settled: (u64, u64),
    /// Instructions before the window was opened.
    opened: (u64, u64),
    context: Option<Context>,
    view: View,
    /// Only a program is traced, not its kernel.
    alone: bool,
    transitions: Transitions,
    /// The next instruction may be reached by something else than plain execution.
    armed: bool,
    /// The branch of the edge to the next instruction.
    edge: Option<(Address, EdgeKind)>,
    exception: Option<Exception>,
    gap: Option<OpenGap>,
    open: Vec<Frame>,
    parked: VecDeque<Vec<Frame>>,
    /// The function of the innermost call.
    function: u32,
    node: NodeId,
    /// The calling contexts since callers were last forgotten.
    recent: Tree,
    /// Where these start.
    since: Moment,
}

impl<'a, L: Listener> Course<'a, L> {
    /// Starts at the start of the trace. `alone` says that the kernel of the traced program is not
    /// traced.
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
            now: Moment::default(),
            settled: (0, 0),
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
            parked: VecDeque::new(),
            function: 0,
            node: NodeId::ROOT,
            recent: Tree::default(),
            since: Moment::default(),
        }
    }

    /// The buffer with this index among those of the core starts.
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

    /// Makes the row of a block that is executed for the first time.
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
        self.note_level(function);
        self.infos[index] = Info {
            counts: [0; 2],
            start: range.start,
            instructions: range.instructions,
            function: function.map_or(0, |function| function.0),
            owner: 0,
            el: self.el(),
            leaves: leaves(&range),
            known: true,
        };
    }

    fn note_level(&mut self, function: Option<FunctionId>) {
        let el = self.el();
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
        let infos = std::mem::take(&mut self.infos);
        for (id, info) in blocks.ids().zip(infos) {
            if info.counts == [0; 2] {
                continue;
            }
            let range = blocks.range(id, true);
            let view = blocks.view(id);
            let function = FunctionId(info.owner);
            let [not_taken, taken] = info.counts;
            self.counted.ranges += not_taken + taken;
            self.counted.code.add_block(&BlockCount {
                start: range.start,
                end: range.end,
                last_at: last_at(&self.image, view, range.isa, range.start, range.end),
                isa: range.isa,
                instructions: range.instructions,
                last: range.last,
                target: blocks.target(id).map(|(target, _)| target),
                view,
                el: info.el,
                function,
                taken,
                not_taken,
            });
        }
    }

    /// A whole block is executed.
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
        let elsewhere = info.function != self.function && info.function != 0;
        if self.armed || leaves || elsewhere || self.waiting {
            let range = blocks.range(id, taken);
            self.straight(&range, info.function, cycles);
        }
        if L::STRAIGHT && self.active {
            self.listener
                .straight(&self.now, info.start, info.instructions);
        }
        if new {
            self.infos[index].owner = match info.function {
                0 => self.function,
                function => function,
            };
        }
        self.infos[index].counts[usize::from(taken)] += u64::from(self.active);
        self.now.instructions += u64::from(info.instructions);
        if let Some(cycles) = cycles {
            self.now.count(cycles);
        }
    }

    /// The longer way: before a straight line is executed.
    #[inline(never)]
    fn straight(&mut self, range: &Range, function: u32, cycles: Option<u32>) {
        if self.waiting {
            self.look_at_window(range);
        }
        if self.active
            && let Some((from, kind)) = self.edge.take()
        {
            self.counted.code.add_edge(from, range.start, kind);
        }
        self.edge = None;
        self.end_gap(range.start);
        let transition = self.transitions.event(&Event {
            position: Position::default(),
            offset: self.now.at,
            entry: Entry::Run {
                range: *range,
                cycles,
            },
        });
        self.exception = None;
        self.reach(range.start, function, transition);
        let leaves = range.last.taken && leaves(range);
        self.armed = leaves;
        if leaves {
            if range.last.kind == InstructionKind::Indirect
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

    /// Execution reaches an instruction.
    fn reach(&mut self, to: Address, function: u32, transition: Option<Transition>) {
        let mut how = transition.map(|transition| transition.how);
        if self.open.is_empty() && !matches!(how, Some(How::Took(_) | How::Called { .. })) {
            let function = self.function_at(to);
            return self.begin_root(function, CallKind::Unseen);
        }
        if how.is_none() {
            if function == 0 || function == self.function {
                return;
            }
            // By a direct branch, or on from the function before.
            how = Some(How::Jumped {
                from: to,
                indirect: false,
            });
        }
        if let Some(how) = how {
            self.follow(to, how);
            if self.open.is_empty() {
                let function = self.function_at(to);
                self.begin_root(function, CallKind::Unseen);
            }
        }
    }

    fn follow(&mut self, to: Address, how: How) {
        let function = self.function_at(to);
        let start = function.and_then(|function| self.counted.functions.get(function).start);
        let place = Place {
            to,
            function,
            begins: start == Some(to),
            context_id: self.context.and_then(|context| context.context_id),
        };
        match rules::decide(&self.open, &how, &place) {
            Decision::Stay => {}
            Decision::Enter { returns_to } => {
                let function = self.counted.functions.entered(self.symbols, to);
                self.enter(function, CallKind::Call, Some(returns_to), false, None);
            }
            Decision::Take((name, returns_to)) => {
                let exception = self.counted.functions.exception(name);
                let context = place.context_id;
                self.enter(exception, CallKind::Exception, returns_to, false, context);
                let handler = self.counted.functions.entered(self.symbols, to);
                self.enter(handler, CallKind::Handler, returns_to, true, context);
            }
            Decision::Signal((_, returns_to)) => {
                let function = self.counted.functions.entered(self.symbols, to);
                self.enter(function, CallKind::Signal, returns_to, false, None);
            }
            Decision::Return(depth) => self.return_from(depth),
            Decision::Unwind { keep, unseen } => {
                let how = match unseen {
                    true => Ended::Unseen,
                    false => Ended::Unwound,
                };
                self.close_down_to(keep, how);
            }
            Decision::Replace(kind) => self.replace(function, kind),
            Decision::Discover => self.discover(function),
            Decision::Switch => self.switch(&place),
            Decision::Forget => {
                self.forget_callers();
                self.begin_root(function, CallKind::Unseen);
            }
        }
    }

    // Open calls.

    /// Adds what was executed to the innermost call.
    fn settle(&mut self) {
        let cycles = self.now.cycles.unwrap_or(0);
        if self.active {
            let node = self.recent.get_mut(self.node);
            node.instructions += self.now.instructions - self.settled.0;
            node.cycles += cycles.saturating_sub(self.settled.1);
        }
        self.settled = (self.now.instructions, cycles);
    }

    fn begin_root(&mut self, function: Option<FunctionId>, kind: CallKind) {
        let function = function.unwrap_or(FunctionId::UNKNOWN);
        self.settle();
        let node = self.recent.root(function);
        self.push(function, kind, None, false, None, node);
    }

    fn enter(
        &mut self,
        function: FunctionId,
        kind: CallKind,
        returns_to: Option<Address>,
        joined: bool,
        context_id: Option<u32>,
    ) {
        if self.open.len() >= MOST_OPEN {
            self.forget_callers();
        }
        self.settle();
        let parent = self.open.last().map_or(NodeId::ROOT, |frame| frame.node);
        let node = match self.open.is_empty() {
            true => self.recent.root(function),
            false => self.recent.child(parent, function, returns_to),
        };
        self.push(function, kind, returns_to, joined, context_id, node);
    }

    fn push(
        &mut self,
        function: FunctionId,
        kind: CallKind,
        returns_to: Option<Address>,
        joined: bool,
        context_id: Option<u32>,
        node: NodeId,
    ) {
        let depth = self.open.last().map_or(0, |frame| frame.call.depth + 1);
        let call = Call {
            function,
            kind,
            begin: self.now,
            depth,
            returns_to,
        };
        self.open.push(Frame {
            call,
            node,
            joined,
            context_id,
        });
        self.function = function.0;
        self.node = node;
        if self.active {
            if kind.is_counted() {
                self.recent.get_mut(node).calls += 1;
                self.counted.functions.get_mut(function).calls += 1;
            }
            self.listener.begin(&call, &self.counted.functions);
        }
    }

    /// Removes the innermost call.
    fn pop(&mut self, how: Ended) -> Option<Frame> {
        let frame = self.open.pop()?;
        if self.active {
            if let FunctionKind::Exception(name) =
                self.counted.functions.get(frame.call.function).kind
                && (how, frame.call.kind) == (Ended::Returned, CallKind::Exception)
            {
                self.counted
                    .exceptions
                    .returned(name, &frame.call, &self.now);
            }
            self.listener
                .end(&frame.call, &self.now, how, &self.counted.functions);
        }
        Some(frame)
    }

    /// Continues in the innermost call that is left.
    fn back(&mut self) {
        let last = self.open.last();
        self.function = last.map_or(0, |frame| frame.call.function.0);
        self.node = last.map_or(NodeId::ROOT, |frame| frame.node);
    }

    fn close_down_to(&mut self, keep: usize, how: Ended) {
        self.settle();
        while self.open.len() > keep {
            self.pop(how);
        }
        self.back();
    }

    /// The calls from a depth on end: that one by returning, with those that are joined to it.
    fn return_from(&mut self, depth: usize) {
        self.settle();
        let joined = self.open[depth + 1..].iter();
        let joined = joined.take_while(|frame| frame.joined).count();
        while self.open.len() > depth {
            let how = match self.open.len() - 1 <= depth + joined {
                true => Ended::Returned,
                false => Ended::Unwound,
            };
            self.pop(how);
        }
        self.back();
    }

    fn replace(&mut self, function: Option<FunctionId>, kind: CallKind) {
        self.settle();
        let function = function.unwrap_or(FunctionId::UNKNOWN);
        let Some(frame) = self.pop(Ended::Jumped) else {
            return;
        };
        let parent = self.open.last().map(|frame| frame.node);
        let node = match parent {
            Some(parent) => self.recent.child(parent, function, frame.call.returns_to),
            None => {
                // A root has what was found to be its caller.
                let caller = self.recent.nodes()[frame.node.index()].parent;
                let root = self.recent.root(function);
                self.recent.adopt(caller, root);
                root
            }
        };
        let depth = frame.call.depth;
        self.push(
            function,
            kind,
            frame.call.returns_to,
            frame.joined,
            frame.context_id,
            node,
        );
        if let Some(last) = self.open.last_mut() {
            last.call.depth = depth;
        }
    }

    /// The outermost call returns to a function that was entered before the trace.
    fn discover(&mut self, function: Option<FunctionId>) {
        self.settle();
        let Some(frame) = self.pop(Ended::Returned) else {
            return;
        };
        let function = function.unwrap_or(FunctionId::UNKNOWN);
        let node = self.recent.root(function);
        self.recent.adopt(node, frame.node);
        let call = Call {
            function,
            kind: CallKind::Caller,
            begin: self.since,
            depth: frame.call.depth - 1,
            returns_to: None,
        };
        self.open.push(Frame {
            call,
            node,
            joined: false,
            context_id: None,
        });
        self.function = function.0;
        self.node = node;
        if self.active {
            self.listener.begin(&call, &self.counted.functions);
        }
    }

    /// Another context continues: one that was left and has a call that returns here, or a new one.
    fn switch(&mut self, place: &Place) {
        self.settle();
        let mut left = std::mem::take(&mut self.open);
        for frame in left.iter().rev() {
            self.end_call(frame, Ended::Switched);
        }
        let found = self
            .parked
            .iter()
            .enumerate()
            .rev()
            .find_map(|(index, frames)| Some((index, rules::returning(frames, place)?)));
        let resumed = found.and_then(|(index, depth)| Some((self.parked.remove(index)?, depth)));
        left.shrink_to_fit();
        self.parked.push_back(left);
        if self.parked.len() > MOST_PARKED {
            self.parked.pop_front();
        }
        match resumed {
            Some((frames, depth)) => {
                self.open = frames;
                self.open.truncate(depth);
                self.continue_open();
                if self.open.is_empty() {
                    self.begin_root(place.function, CallKind::Unseen);
                }
            }
            None => self.begin_root(place.function, CallKind::Unseen),
        }
        self.back();
    }

    fn end_call(&mut self, frame: &Frame, how: Ended) {
        if self.active {
            self.listener
                .end(&frame.call, &self.now, how, &self.counted.functions);
        }
    }

    /// Begins the open calls anew.
    fn continue_open(&mut self) {
        for frame in &mut self.open {
            frame.call.begin = self.now;
            frame.call.kind = CallKind::Continued;
            if self.active {
                self.listener.begin(&frame.call, &self.counted.functions);
            }
        }
    }

    /// Ends all calls: their callers are no longer known.
    fn forget_callers(&mut self) {
        self.close_down_to(0, Ended::Unseen);
        self.parked.clear();
        self.counted.tree.merge(&self.recent);
        self.recent.clear();
        self.since = self.now;
    }

    // The window.

    /// Opens or closes the window before a straight line.
    fn look_at_window(&mut self, range: &Range) {
        if self.packet.0 != self.now.at {
            self.packet = (self.now.at, 0);
        }
        let skipped = self.packet.1;
        self.packet.1 += u64::from(range.instructions);
        let reached =
            |bound: &super::window::Bound| bound.is_reached(&self.now, range.start, skipped);
        let (from, to) = (
            self.window.from.as_ref().is_some_and(reached),
            self.window.to.as_ref().is_some_and(reached),
        );
        if from {
            self.window.from = None;
            self.open_window();
        } else if to && self.active {
            self.close_window(Ended::Open);
            self.window.to = None;
            self.active = false;
            self.waiting = false;
        }
    }

    fn open_window(&mut self) {
        self.settle();
        self.active = true;
        self.waiting = self.window.to.is_some();
        self.opened = (self.now.instructions, self.now.cycles.unwrap_or(0));
        self.since = self.now;
        self.counted.first_time = self.now.time;
        self.recent.clear();
        let mut parent = None;
        for frame in &mut self.open {
            let function = frame.call.function;
            frame.node = match parent {
                Some(parent) => self.recent.child(parent, function, frame.call.returns_to),
                None => self.recent.root(function),
            };
            parent = Some(frame.node);
        }
        self.parked.clear();
        self.continue_open();
        self.back();
    }

    fn close_window(&mut self, how: Ended) {
        if !self.active {
            return;
        }
        self.close_down_to(0, how);
        self.counted.tree.merge(&self.recent);
        self.recent.clear();
        self.counted.instructions = self.now.instructions - self.opened.0;
        let cycles = self.now.cycles;
        self.counted.cycles = cycles.map(|cycles| cycles.saturating_sub(self.opened.1));
        self.counted.last_time = self.now.time;
    }

    // Gaps, exceptions and marks.

    fn lose(&mut self, gap: Gap) {
        self.edge = None;
        self.transitions.event(&Event {
            position: Position::default(),
            offset: self.now.at,
            entry: Entry::Gap(gap),
        });
        self.armed = true;
        if self.gap.is_none() {
            let from = self.now;
            self.gap = Some(OpenGap { gap, from });
        }
    }

    fn end_gap(&mut self, to: Address) {
        if let Some(gap) = self.gap.take()
            && self.active
        {
            // Before the first instruction there is nothing to lose.
            let start = matches!(gap.gap, Gap::NoSync(NoSyncReason::Start) | Gap::TraceOff(_));
            if gap.from.instructions > 0 || !start {
                self.report_gap(&gap, Some(to));
            }
        }
    }

    fn report_gap(&mut self, gap: &OpenGap, to: Option<Address>) {
        *self.counted.gaps.entry(gap_name(&gap.gap)).or_default() += 1;
        self.listener.gap(&GapSeen {
            gap: gap.gap,
            from: gap.from,
            to: to.map(|_| self.now),
            resumes_at: to,
        });
    }

    /// An element without code, of any source.
    fn event_mark(&mut self, mark: &Mark) {
        if self.active {
            self.counted.events += 1;
            self.listener.event(&self.now, mark);
        }
    }

    fn any_mark(&mut self, at: BufferOffset, mark: &Mark) {
        self.counted.elements += u64::from(self.active);
        self.now.at = at;
        match mark {
            Mark::Cycles(cycles) => self.now.count(*cycles),
            Mark::Timestamp(time) => {
                self.now.time = Some(*time);
                if self.active {
                    self.counted.first_time = self.counted.first_time.or(Some(*time));
                    self.listener.time(&self.now);
                }
            }
            Mark::Context(context) => self.enter_context(context, mark),
            Mark::NoSync(reason) => self.lose(Gap::NoSync(*reason)),
            Mark::TraceOn(reason) => self.trace_on(*reason, mark),
            Mark::Stm(stm) => {
                if let Some(time) = stm.timestamp {
                    self.now.time = Some(time);
                }
                self.event_mark(mark);
            }
            Mark::Itm(itm) => {
                use crate::element::Itm;
                match itm {
                    Itm::LocalTimestamp { total, .. } => self.now.time = Some(*total),
                    Itm::GlobalTimestamp(_) => {}
                    _ => self.event_mark(mark),
                }
            }
            Mark::Event(_)
            | Mark::Trigger
            | Mark::Marker(_)
            | Mark::Transaction(_)
            | Mark::Instrumentation { .. } => self.event_mark(mark),
            Mark::ExceptionReturn | Mark::Data { .. } | Mark::End => {}
        }
    }

    fn enter_context(&mut self, context: &Context, mark: &Mark) {
        let before = self.context;
        let mut context = *context;
        if let Some(before) = before {
            context.context_id = context.context_id.or(before.context_id);
            context.vmid = context.vmid.or(before.vmid);
        }
        self.context = Some(context);
        self.view = self.image.view(&ContextKey::from(&context));
        self.pass_mark(mark);
        if self.active && before != Some(context) {
            self.listener.context(&self.now, &context);
        }
    }

    fn pass_mark(&mut self, mark: &Mark) {
        self.transitions.event(&Event {
            position: Position::default(),
            offset: self.now.at,
            entry: Entry::Mark(*mark),
        });
    }

    fn trace_on(&mut self, reason: TraceOnReason, mark: &Mark) {
        let returned = self.exception.is_some_and(|exception| {
            self.alone && self.gap.is_none() && exception.number != DEBUG_HALT
        });
        // The untraced kernel returned to the program: nothing of the program is lost.
        if returned && reason == TraceOnReason::BeginOrFilter {
            self.edge = None;
            self.armed = true;
            self.pass_mark(mark);
        } else {
            self.lose(Gap::TraceOff(reason));
        }
    }
}

/// Returns whether an E atom of the last instruction leaves the function, maybe.
fn leaves(range: &Range) -> bool {
    let last = &range.last;
    last.kind == InstructionKind::Indirect || last.kind == InstructionKind::Branch && last.link
}

/// The name of a kind of gap, in tables.
pub(super) fn gap_name(gap: &Gap) -> &'static str {
    match gap {
        Gap::Flow(flow::Gap::MemoryMissing(_)) => "code_missing",
        Gap::Flow(flow::Gap::NotFollowed { .. }) => "not_followed",
        Gap::Flow(flow::Gap::ReturnStackEmpty) => "return_stack_empty",
        Gap::Flow(flow::Gap::TargetNotTraced { .. }) => "target_not_traced",
        Gap::Flow(_) => "not_reached",
        Gap::NoSync(NoSyncReason::Overflow) => "overflow",
        Gap::NoSync(_) => "no_sync",
        Gap::TraceOff(TraceOnReason::Overflow) => "overflow",
        Gap::TraceOff(_) => "trace_off",
        Gap::UnknownPath(_) => "unknown_path",
        Gap::Buffer => "buffer",
    }
}

impl<L: Listener> FlowSink for Course<'_, L> {
    fn range(&mut self, at: BufferOffset, range: &Range, cycles: Option<u32>) {
        self.now.at = at;
        let key = (range.start.0, range.end.0, part_kind(range));
        let function = match self.counted.code.parts.get(&key) {
            Some(part) => part.function,
            None => {
                let function = self.function_at(range.start);
                self.note_level(function);
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
        let named = match self.counted.functions.get(function).kind {
            FunctionKind::Symbol => function.0,
            _ => 0,
        };
        self.straight(range, named, cycles);
        if L::STRAIGHT && self.active {
            self.listener
                .straight(&self.now, range.start, range.instructions);
        }
        if self.active
            && let Some(part) = self.counted.code.parts.get_mut(&key)
        {
            if part.count == 0 && named == 0 {
                part.function = FunctionId(self.function);
            }
            part.count += 1;
            self.counted.ranges += 1;
            // The next instruction says whether its last one branched.
            if range.last.taken
                && let Some(kind) = EdgeKind::of(&range.last)
            {
                self.edge = Some((part.last_at, kind));
                self.armed = true;
            }
        }
        self.now.instructions += u64::from(range.instructions);
        if let Some(cycles) = cycles {
            self.now.count(cycles);
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
        self.whole(at, blocks, id, taken, cycles);
    }

    fn q_range(&mut self, at: BufferOffset, range: &QRange) {
        self.now.at = at;
        self.lose(Gap::UnknownPath(*range));
        let instructions = range.instructions.unwrap_or(0);
        if self.active {
            self.counted.ranges += 1;
            self.counted.unknown_path += u64::from(instructions);
        }
        self.settle();
        self.now.instructions += u64::from(instructions);
        self.settled.0 = self.now.instructions;
    }

    fn exception(&mut self, at: BufferOffset, exception: &Exception) {
        self.now.at = at;
        self.edge = None;
        let transition = self.transitions.event(&Event {
            position: Position::default(),
            offset: at,
            entry: Entry::Exception(*exception),
        });
        if let Some(Transition { to, how, .. }) = transition {
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
        self.armed = true;
        self.exception = Some(*exception);
        if self.active {
            self.counted.elements += 1;
            self.counted.exceptions.take(exception.name);
            self.listener.exception(&self.now, exception);
        }
    }

    fn gap(&mut self, at: BufferOffset, gap: flow::Gap) {
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
        self.armed = true;
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

impl<L: Listener> Course<'_, L> {
    /// Execution reached an instruction that cannot be followed.
    fn follow_into_gap(&mut self, to: Address, how: How) {
        if !self.open.is_empty() {
            self.follow(to, how);
        }
    }
}

/// Distinguishes straight lines of the same addresses.
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
