//! The calls that a piece knows: those that began in it.
//!
//! A call is open until a return reaches its return address. If both its start and its return are
//! in the piece, and nothing between them depends on earlier execution, then the call is only
//! counted, in a small tree. Otherwise the course has to know of it: [`Frames::flush`] writes steps
//! for the open calls, and what follows is counted in the innermost of them.
//!
//! Decides what [`decide`](armsnap_history::calls::decide) would, from the calls known here, and does not
//! decide where others matter. [`Assumed`] contains the assumptions made about those others.

use super::super::functions::FunctionId;
use super::super::stack::CallKind;
use super::super::tree::{NodeId, Tree};
use super::facts::KnownFacts;
use super::names::Names;
use super::piece::{Assumed, Called, Calls, Target, What};
use armsnap_arch::hash::{NumberMap, NumberSet};
use armsnap_arch::quantity::Address;
use armsnap_history::calls::{MAX_OPEN, SEARCHED};

/// The maximum number of open calls not written yet: no chain of callers in the tree is longer.
const MOST_OPEN: usize = 256;
/// The maximum number of nodes of the tree.
const MOST_NODES: usize = 1 << 16;

/// How a block with an E atom leads to the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Exit {
    /// By falling through, or by a direct branch.
    #[default]
    Plain,
    /// By a branch with link.
    Call,
    Return,
    /// By another indirect branch.
    Jump,
}

/// The properties of a block that decide what a step between two blocks means.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Info {
    pub start: Address,
    pub end: Address,
    pub instructions: u32,
    /// The function of the symbol that contains it.
    pub function: FunctionId,
    /// The function that is entered by calling it.
    pub entered: FunctionId,
    /// It is the first block of the symbol's function.
    pub begins: bool,
    /// No symbol contains the code after it.
    pub ends_unnamed: bool,
    pub exit: Exit,
    pub indirect: bool,
    /// The piece that it was last executed in, and its index there. Pieces are numbered from 1.
    pub piece: u32,
    pub place: u32,
    /// The last piece that assumes that nothing returns to it.
    pub assumed: u32,
}

/// A moment, by the clocks that steps report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clocks {
    pub instructions: u64,
    pub cycles: Option<u64>,
}

/// An open call.
#[derive(Clone, Copy, Debug)]
struct Frame {
    node: NodeId,
    function: FunctionId,
    returns_to: Address,
    kind: CallKind,
    begin: Clocks,
}

/// The open calls of a piece.
#[derive(Debug, Default)]
pub(super) struct Frames {
    open: Vec<Frame>,
    /// The number of open calls that the course knows.
    written: usize,
    /// The function of the enclosing call, if known.
    base: FunctionId,
    /// Execution since the last step for the open calls, by call. The root stands for the innermost
    /// call that the course knows.
    tree: Tree,
    /// The number of instructions up to which the tree is complete.
    counted: u64,
    returns: NumberMap<u64, FunctionId>,
    owners: Vec<(u32, FunctionId)>,
    /// Where functions without a symbol were called.
    targets: NumberSet<u64>,
    /// Addresses without a symbol that calls returned to, return addresses of forgotten calls, and
    /// addresses that unknown calls may have reached.
    places: NumberSet<u64>,
    /// What was discovered when assumptions failed.
    pub facts: KnownFacts,
    assumed: Assumed,
    /// The maximum number of calls that were open when they were forgotten.
    forgotten: usize,
    /// The number of the piece, minus one.
    pieces: u32,
}

impl Frames {
    /// The function of the innermost call, if known.
    #[inline]
    pub fn here(&self) -> FunctionId {
        self.open.last().map_or(self.base, |frame| frame.function)
    }

    /// The function around the innermost call, if known.
    fn outside(&self) -> FunctionId {
        let around = self.open.len().checked_sub(2);
        around.map_or(self.base, |index| self.open[index].function)
    }

    /// The function of the innermost call, if the course does not know that call; otherwise
    /// [`FunctionId::UNKNOWN`], which stands for the innermost call of the course.
    fn owner(&self) -> FunctionId {
        match self.open.last() {
            Some(frame) if self.open.len() > self.written => frame.function,
            _ => FunctionId::UNKNOWN,
        }
    }

    #[inline]
    fn node(&self) -> NodeId {
        match self.open.last() {
            Some(frame) if self.open.len() > self.written => frame.node,
            _ => NodeId::ROOT,
        }
    }

    /// Adds everything up to `now` that is not counted yet to the innermost call.
    #[inline]
    pub fn count(&mut self, now: u64) {
        let node = self.node();
        self.tree.get_mut(node).instructions += now - self.counted;
        self.counted = now;
    }

    /// Adds cycles to the innermost call.
    pub fn count_cycles(&mut self, cycles: u64) {
        let node = self.node();
        self.tree.get_mut(node).cycles += cycles;
    }

    /// Skips what was executed up to here, which the course counts.
    pub fn skip_to(&mut self, now: u64) {
        self.counted = now;
    }

    /// Subtracts cycles counted by [`Self::count_cycles`] that the course counts.
    pub fn take_back_cycles(&mut self, cycles: u64) {
        let node = self.node();
        let sum = &mut self.tree.get_mut(node).cycles;
        *sum = sum.saturating_sub(cycles);
    }

    /// Notes that a block without a symbol is executed for the first time in the piece.
    pub fn owns(&mut self, place: u32) {
        self.owners.push((place, self.owner()));
    }

    /// Follows execution from the end of a block, with an E atom, to another block. Returns false,
    /// and does nothing, if the meaning of the step depends on unknown calls.
    #[inline]
    pub fn follow(
        &mut self,
        from: &Info,
        to: &mut Info,
        now: Clocks,
        write: impl FnMut(Clocks, What),
        names: &Names,
    ) -> bool {
        match from.exit {
            Exit::Call => self.call(from, to, now),
            Exit::Return => self.returns(to, now, write, names),
            Exit::Jump => self.jump(to, true, now),
            Exit::Plain => self.jump(to, false, now),
        }
    }

    #[inline]
    fn call(&mut self, from: &Info, to: &Info, now: Clocks) -> bool {
        let returns_to = from.end;
        if to.start == returns_to {
            return self.is_in(to, self.here());
        }
        let unknown = from.function != FunctionId::UNKNOWN && self.here() == FunctionId::UNKNOWN;
        let pending = self.open.len() - self.written;
        if unknown || pending >= MOST_OPEN || self.tree.nodes().len() >= MOST_NODES {
            return false;
        }
        let owner = self.owner();
        let other = |known: &FunctionId| *known != owner;
        if from.ends_unnamed && self.returns.get(&from.end.0).is_some_and(other) {
            // The last caller counts, and open calls are written last.
            return false;
        }
        self.count(now.instructions);
        self.note_call(from, to);
        if from.ends_unnamed {
            self.returns.insert(from.end.0, owner);
        }
        let node = self.node();
        let node = self.tree.child(node, to.entered, Some(returns_to));
        self.push(node, to.entered, returns_to, CallKind::Call, now);
        true
    }

    #[inline]
    fn push(
        &mut self,
        node: NodeId,
        function: FunctionId,
        returns_to: Address,
        kind: CallKind,
        begin: Clocks,
    ) {
        if self.open.len() >= MAX_OPEN {
            // A course has fewer, and rejects the piece.
            self.forget();
        }
        self.open.push(Frame {
            node,
            function,
            returns_to,
            kind,
            begin,
        });
        self.assumed.depth = self.assumed.depth.max(self.forgotten + self.open.len());
    }

    /// Remembers the addresses that matter for jumps in code without symbols.
    #[inline]
    fn note_call(&mut self, from: &Info, to: &Info) {
        if to.function == FunctionId::UNKNOWN {
            self.targets.insert(to.start.0);
        }
        if from.ends_unnamed {
            self.places.insert(from.end.0);
        }
    }

    #[inline]
    fn returns(
        &mut self,
        to: &Info,
        now: Clocks,
        mut write: impl FnMut(Clocks, What),
        names: &Names,
    ) -> bool {
        let Some(top) = self.open.last() else {
            return false;
        };
        if top.returns_to != to.start || !self.is_in(to, self.outside()) {
            return false;
        }
        self.count(now.instructions);
        if self.open.len() > self.written {
            self.end_innermost();
        } else {
            self.flush(names, &mut write);
            write(now, What::Return);
            self.open.pop();
            self.written -= 1;
        }
        true
    }

    /// Whether a block belongs to a function; one without a symbol belongs to any.
    #[inline]
    fn is_in(&self, block: &Info, function: FunctionId) -> bool {
        block.function == FunctionId::UNKNOWN || block.function == function
    }

    /// Ends the innermost call, which the course does not know.
    #[inline]
    fn end_innermost(&mut self) {
        if let Some(frame) = self.open.pop() {
            self.tree.get_mut(frame.node).calls += u64::from(frame.kind.is_counted());
        }
    }

    /// Follows a branch without link, or falling through to the next block.
    #[inline(never)]
    fn jump(&mut self, to: &mut Info, indirect: bool, now: Clocks) -> bool {
        let named = to.function != FunctionId::UNKNOWN;
        let mut function = to.function;
        let mut begins = to.begins;
        if indirect {
            let mut searched = self.open.iter().rev().take(SEARCHED);
            let returns = searched.any(|frame| frame.returns_to == to.start);
            if returns
                || self.facts.doubtful.contains(&to.start.0)
                || self.places.contains(&to.start.0)
            {
                return false;
            }
            let target = if named || self.targets.contains(&to.start.0) {
                Target::Any
            } else if self.facts.starts.contains(&to.start.0) {
                Target::Start
            } else {
                Target::Within
            };
            if !named && target != Target::Within {
                (function, begins) = (to.entered, true);
            }
            if to.assumed != self.pieces + 1 {
                to.assumed = self.pieces + 1;
                self.assumed.targets.push((to.start, target));
            }
        }
        if function == FunctionId::UNKNOWN || function == self.here() {
            return true;
        }
        let is_full = self.tree.nodes().len() >= MOST_NODES;
        if self.open.len() == self.written || indirect && !begins || is_full {
            return false;
        }
        // The innermost call is replaced by one of another function.
        self.count(now.instructions);
        let returns_to = self.open[self.open.len() - 1].returns_to;
        self.end_innermost();
        let node = self.node();
        let node = self.tree.child(node, function, Some(returns_to));
        let kind = match begins {
            true => CallKind::Jump,
            false => CallKind::Middle,
        };
        self.push(node, function, returns_to, kind, now);
        true
    }

    /// Follows a step from one block to another that the course follows too; the course knows all
    /// open calls. Returns whether they are still known here.
    pub fn follow_course(&mut self, from: &Info, to: &Info) -> bool {
        match from.exit {
            Exit::Call if to.start == from.end => {}
            Exit::Call => {
                self.note_call(from, to);
                let clocks = Clocks::default();
                self.push(NodeId::ROOT, to.entered, from.end, CallKind::Call, clocks);
                self.written = self.open.len();
            }
            Exit::Return => {
                let outside = self.outside();
                match self.open.last() {
                    Some(top) if top.returns_to == to.start && self.is_in(to, outside) => {
                        self.open.pop();
                        self.written = self.open.len();
                    }
                    _ => return false,
                }
            }
            _ => return false,
        }
        true
    }

    /// Notes that, for the course, the innermost call is one of another function from now on.
    pub fn replace(&mut self, function: FunctionId) {
        match self.open.last_mut() {
            Some(frame) => frame.function = function,
            None => self.base = function,
        }
    }

    /// Forgets the open calls.
    pub fn forget(&mut self) {
        self.forgotten += self.open.len();
        let places = self.open.drain(..).map(|frame| frame.returns_to.0);
        self.places.extend(places);
        self.written = 0;
        self.base = FunctionId::UNKNOWN;
    }

    /// Notes that a function without a symbol may start here.
    pub fn doubt(&mut self, place: Address) {
        self.places.insert(place.0);
    }

    /// Notes the start of a call that is not tracked here; for an exception, also that of its
    /// handler.
    pub fn note_unknown(&mut self, returns_to: Option<Address>) {
        self.places.extend(returns_to.map(|place| place.0));
        self.forgotten += 2;
        self.assumed.depth = self.assumed.depth.max(self.forgotten + self.open.len());
    }

    /// Writes what the course does not know yet; everything executed must have been
    /// [counted](Self::count).
    pub fn flush(&mut self, names: &Names, write: &mut impl FnMut(Clocks, What)) {
        let root = &self.tree.nodes()[0];
        let some = root.instructions > 0 || root.cycles > 0 || self.tree.nodes().len() > 1;
        if some || !self.returns.is_empty() || !self.owners.is_empty() {
            let calls = self.calls(names);
            // Precedes everything that is written next; itself it takes no time.
            write(Clocks::default(), What::Calls(Box::new(calls)));
            self.tree.clear();
        }
        for frame in &self.open[self.written..] {
            let enter = What::Enter {
                function: names.start(frame.function).unwrap_or_default(),
                kind: frame.kind,
                returns_to: frame.returns_to,
            };
            write(frame.begin, enter);
        }
        self.written = self.open.len();
    }

    fn calls(&mut self, names: &Names) -> Calls {
        let nodes = self.tree.nodes().iter();
        let nodes = nodes.map(|node| Called {
            parent: node.parent.0,
            function: names.start(node.function).unwrap_or_default(),
            returns_to: node.returns_to,
            calls: node.calls,
            instructions: node.instructions,
            cycles: node.cycles,
        });
        let nodes = nodes.collect();
        let returns = self.returns.drain();
        let returns = returns.map(|(to, from)| (Address(to), names.start(from)));
        let returns = returns.collect();
        let owners = self.owners.drain(..);
        let owners = owners.map(|(place, function)| (place, names.start(function)));
        Calls {
            nodes,
            returns,
            owners: owners.collect(),
        }
    }

    /// Ends the piece; returns its assumptions.
    pub fn end(&mut self) -> Assumed {
        self.forget();
        self.forgotten = 0;
        self.pieces += 1;
        self.counted = 0;
        self.targets.clear();
        self.places.clear();
        std::mem::take(&mut self.assumed)
    }
}
