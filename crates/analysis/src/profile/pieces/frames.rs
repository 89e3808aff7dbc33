//! The calls that a piece knows: those that began in it.
//!
//! A call that began is open until a return leads to its return address. If both are in the piece,
//! and nothing between them depends on what was executed before, then the call is only counted, in a
//! small tree. Otherwise the course has to know of it: [`Frames::flush`] writes steps for the calls that
//! are open, and what follows is counted in the innermost of them.
//!
//! Decides what [`rules`](super::super::rules) would, with the calls that are known here; and not at all
//! where others matter. What is taken for granted of those others is [`Assumed`].

use super::super::code::{FastMap, FastSet};
use super::super::functions::FunctionId;
use super::super::rules::{MAX_OPEN, SEARCHED};
use super::super::stack::CallKind;
use super::super::tree::{NodeId, Tree};
use super::facts::KnownFacts;
use super::names::Names;
use super::piece::{Assumed, Called, Calls, Target, What};
use armsnap_arch::quantity::Address;

/// The most calls that are open and not written yet: no chain of callers in the tree is longer.
const MOST_OPEN: usize = 256;
/// The most nodes of the tree.
const MOST_NODES: usize = 1 << 16;

/// How a block with an E atom leads to the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Exit {
    /// Along the code, or by a direct branch.
    #[default]
    Plain,
    /// By a branch with link.
    Call,
    Return,
    /// By another indirect branch.
    Jump,
}

/// What decides what a step between two blocks means.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Info {
    pub start: Address,
    pub end: Address,
    pub instructions: u32,
    /// The function of the symbol around it.
    pub function: FunctionId,
    /// The function that is entered by a call of it.
    pub entered: FunctionId,
    /// It is the first one of the symbol's function.
    pub begins: bool,
    /// No symbol names the code after it.
    pub ends_unnamed: bool,
    pub exit: Exit,
    pub indirect: bool,
    /// The piece that it was last executed in, and its place there. Pieces are numbered from 1 on.
    pub piece: u32,
    pub place: u32,
    /// The last piece that assumes that nothing returns here.
    pub assumed: u32,
}

/// A moment, as far as steps tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clocks {
    pub instructions: u64,
    pub cycles: Option<u64>,
}

/// A call that is open.
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
    /// The number of them that the course knows.
    written: usize,
    /// The function of the call around them, if it is known.
    base: FunctionId,
    /// What was executed since the last step for the open calls, by calls. The root stands for the
    /// innermost call that the course knows.
    tree: Tree,
    /// Instructions up to which the tree is complete.
    counted: u64,
    returns: FastMap<u64, FunctionId>,
    owners: Vec<(u32, FunctionId)>,
    /// Where functions without a symbol were called.
    targets: FastSet<u64>,
    /// Where calls returned to code without a symbol, where those return that were forgotten, and
    /// where calls that are not known may have led to.
    places: FastSet<u64>,
    /// What was found out when assumptions failed.
    pub facts: KnownFacts,
    assumed: Assumed,
    /// The most calls that were open when they were forgotten.
    forgotten: usize,
    /// The number of the piece, less one.
    pieces: u32,
}

impl Frames {
    /// The function of the innermost call, if it is known.
    #[inline]
    pub fn here(&self) -> FunctionId {
        self.open.last().map_or(self.base, |frame| frame.function)
    }

    /// The function around the innermost call, if it is known.
    fn outside(&self) -> FunctionId {
        let around = self.open.len().checked_sub(2);
        around.map_or(self.base, |index| self.open[index].function)
    }

    /// The function of the innermost call, if the course does not know of it; otherwise that of the course's
    /// innermost one, which stands for itself.
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

    /// The innermost call executed everything up to `now` that is not counted yet.
    #[inline]
    pub fn count(&mut self, now: u64) {
        let node = self.node();
        self.tree.get_mut(node).instructions += now - self.counted;
        self.counted = now;
    }

    /// The innermost call takes cycles.
    pub fn count_cycles(&mut self, cycles: u64) {
        let node = self.node();
        self.tree.get_mut(node).cycles += cycles;
    }

    /// The course counts what was executed up to here.
    pub fn skip_to(&mut self, now: u64) {
        self.counted = now;
    }

    /// Cycles were counted by [`Self::count_cycles`] that the course counts.
    pub fn take_back_cycles(&mut self, cycles: u64) {
        let node = self.node();
        let sum = &mut self.tree.get_mut(node).cycles;
        *sum = sum.saturating_sub(cycles);
    }

    /// A block without a symbol is executed for the first time in the piece.
    pub fn owns(&mut self, place: u32) {
        self.owners.push((place, self.owner()));
    }

    /// Execution goes on from the end of a block, with an E atom, to another block. Returns false, and
    /// does nothing, if what that means depends on calls that are not known.
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
            // The last one counts, and calls that are open are written last.
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
            // A course has fewer, and refuses the piece.
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

    /// Remembers the addresses that matter to jumps in code without symbols.
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

    /// Whether a block belongs to a function, or to any, as it has no symbol.
    #[inline]
    fn is_in(&self, block: &Info, function: FunctionId) -> bool {
        block.function == FunctionId::UNKNOWN || block.function == function
    }

    /// The innermost call ends, of which the course does not know.
    #[inline]
    fn end_innermost(&mut self) {
        if let Some(frame) = self.open.pop() {
            self.tree.get_mut(frame.node).calls += u64::from(frame.kind.is_counted());
        }
    }

    /// A branch without link, or the next block along the code.
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
        // The innermost call becomes one of another function.
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

    /// The course follows a step from one block to another; it knows all open calls. Returns whether they
    /// are still known here.
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

    /// The course knows that the innermost call is one of another function from now on.
    pub fn replace(&mut self, function: FunctionId) {
        match self.open.last_mut() {
            Some(frame) => frame.function = function,
            None => self.base = function,
        }
    }

    /// Nothing is known of the open calls any more.
    pub fn forget(&mut self) {
        self.forgotten += self.open.len();
        let places = self.open.drain(..).map(|frame| frame.returns_to.0);
        self.places.extend(places);
        self.written = 0;
        self.base = FunctionId::UNKNOWN;
    }

    /// A function without a symbol may start here.
    pub fn doubt(&mut self, place: Address) {
        self.places.insert(place.0);
    }

    /// A call begins, which is not known here any further; of an exception, with its handler.
    pub fn note_unknown(&mut self, returns_to: Option<Address>) {
        self.places.extend(returns_to.map(|place| place.0));
        self.forgotten += 2;
        self.assumed.depth = self.assumed.depth.max(self.forgotten + self.open.len());
    }

    /// Writes what the course does not know yet; all that was executed is [counted](Self::count).
    pub fn flush(&mut self, names: &Names, write: &mut impl FnMut(Clocks, What)) {
        let root = &self.tree.nodes()[0];
        let some = root.instructions > 0 || root.cycles > 0 || self.tree.nodes().len() > 1;
        if some || !self.returns.is_empty() || !self.owners.is_empty() {
            let calls = self.calls(names);
            // Before all that is written next; itself it takes no time.
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

    /// Ends the piece; returns what it assumed.
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
