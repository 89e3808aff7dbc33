//! The calls that have not returned at a position.
//!
//! A history is examined backward from the position, in stretches of a fixed number of places, as
//! far as requested. For each stretch, the calls that it left open and its returns to earlier calls
//! are kept; for the last stretches, also the changes within. A call is identified by its first
//! place, independent of the position that the query starts from.

use super::call_stack::CallStack;
use super::code::{Code, ProgramCode};
use super::rules::{Decision, Frame};
use super::transitions::{How, Transition};
use crate::timeline::{Direction, Entry, Event, History, Position};
use armsnap_arch::quantity::Address;
use armsnap_snapshot::stop::Cancel;
use armsnap_trace::element::Context;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Number of places of a stretch.
const STRETCH: u64 = if cfg!(test) { 64 } else { 1 << 20 };
/// Maximum number of stretches examined before a position.
const MOST: usize = 64;
/// Number of stretches whose changes are kept.
const WHOLE: usize = 4;
/// Maximum number of calls kept for the ends of all stretches.
const KEPT: usize = 1 << 20;

/// A call that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCall {
    /// Its first place.
    pub entry: Position,
    /// The first instruction.
    pub function: Address,
    /// Where it returns to; unknown for some exceptions.
    pub returns_to: Option<Address>,
    /// Not a call: an exception was taken, and this is its handler.
    pub exception: bool,
    /// The exception was a signal of a program whose system is not traced, and this is its handler: it
    /// returns to code that asks the kernel to resume the program.
    pub signal: bool,
}

/// What is known of callers beyond those returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// There are more.
    More,
    /// Unknown: history starts, a gap lost the open calls, or they are too far back.
    Unknown,
    /// The search was stopped before its end; the stretches examined so far are kept.
    Unfinished,
}

/// The innermost open call of a stretch; or the calls open at its start, less some returns: the
/// return with this number, counted from 1, and those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Call(u32),
    Before(u32),
}

/// A return to an address that no call of the stretch leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Return {
    to: Address,
    /// The number of the return before it; 0 if it is the first one.
    before: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    call: OpenCall,
    /// Where its caller continues if it throws.
    lands_at: Option<Address>,
    outer: At,
}

impl Node {
    /// Returns where execution continues when the call ends: the return address, and the landing
    /// pad, if any.
    fn leads_to(&self) -> impl Iterator<Item = Option<Address>> + use<> {
        let lands_at = self.lands_at.map(Some);
        std::iter::once(self.call.returns_to).chain(lands_at)
    }
}

/// A part of a history. It starts at a multiple of [`STRETCH`].
#[derive(Debug)]
struct Stretch {
    nodes: Vec<Node>,
    /// The innermost open call from each position on.
    changes: Vec<(Position, At)>,
    end: At,
    /// Returns from calls opened before it.
    returns: Vec<Return>,
    begin: Position,
    /// The last position before it.
    before: Option<Position>,
}

/// The open calls of one core's history, as far as requested.
#[derive(Debug, Default)]
pub struct OpenCalls {
    code: ProgramCode,
    /// Stretches with their changes; the one used last is the last.
    whole: Vec<Arc<Stretch>>,
    /// Stretches without their changes, by their start.
    ends: HashMap<Position, Arc<Stretch>>,
    /// Number of calls in `ends`.
    kept: usize,
}

impl OpenCalls {
    /// Creates the open calls of a history of this code.
    pub fn new(code: ProgramCode) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }

    /// Returns the open calls at a position, innermost first: at most `count` of them, after the
    /// first `skip`. The search may be cancelled before each new stretch except the first.
    pub fn at(
        &mut self,
        history: &mut History,
        position: Position,
        skip: usize,
        count: usize,
        cancel: &Cancel,
    ) -> (Vec<OpenCall>, Outside) {
        let mut calls = Vec::new();
        let mut skip = skip;
        let first = begin(position);
        let mut looked = !self.whole.iter().any(|stretch| stretch.begin == first);
        let mut stretch = self.whole(history, first);
        let next = stretch.changes.partition_point(|(at, _)| *at <= position);
        let mut at = match next.checked_sub(1) {
            Some(last) => stretch.changes[last].1,
            None => At::Before(0),
        };
        let mut pending = VecDeque::new();
        for _ in 0..MOST {
            let before = loop {
                match (stretch.apply(&mut at, &mut pending), at) {
                    (_, At::Before(returns)) => break returns,
                    (_, At::Call(number)) => {
                        let node = stretch.nodes[number as usize];
                        if skip > 0 {
                            skip -= 1;
                        } else if calls.len() == count {
                            return (calls, Outside::More);
                        } else {
                            calls.push(node.call);
                        }
                        at = node.outer;
                    }
                }
            };
            let mut number = before;
            while let Some(last) = number.checked_sub(1) {
                let last = stretch.returns[last as usize];
                pending.push_front(last.to);
                number = last.before;
            }
            let Some(last) = stretch.before else {
                break;
            };
            let last = begin(last);
            if !self.ends.contains_key(&last) {
                if looked && cancel.is_requested() {
                    return (calls, Outside::Unfinished);
                }
                looked = true;
            }
            stretch = self.end(history, last);
            at = stretch.end;
        }
        (calls, Outside::Unknown)
    }

    /// Returns a stretch with its changes.
    fn whole(&mut self, history: &mut History, begin: Position) -> Arc<Stretch> {
        let found = self.whole.iter().position(|stretch| stretch.begin == begin);
        let stretch = match found {
            Some(found) => self.whole.remove(found),
            None => Arc::new(Stretch::of(history, begin, &self.code)),
        };
        if self.whole.len() == WHOLE {
            self.whole.remove(0);
        }
        self.whole.push(Arc::clone(&stretch));
        stretch
    }

    /// Returns a stretch without its changes: the state at its end.
    fn end(&mut self, history: &mut History, begin: Position) -> Arc<Stretch> {
        if let Some(end) = self.ends.get(&begin) {
            return Arc::clone(end);
        }
        let whole = self.whole.iter().find(|stretch| stretch.begin == begin);
        let end = match whole {
            Some(stretch) => stretch.ended(),
            None => Stretch::of(history, begin, &self.code).ended(),
        };
        self.kept = self.kept.saturating_add(end.size());
        if self.kept > KEPT {
            self.ends.clear();
            self.kept = end.size();
        }
        let end = Arc::new(end);
        self.ends.insert(begin, Arc::clone(&end));
        end
    }
}

/// Returns the start of the stretch of a position.
fn begin(position: Position) -> Position {
    Position {
        index: position.index - position.index % STRETCH,
        ..position
    }
}

impl Stretch {
    fn of(history: &mut History, begin: Position, code: &dyn Code) -> Self {
        let before = history.step(begin, Direction::Backward);
        let from = before.unwrap_or(begin);
        let context = history.place(from).and_then(|place| place.context);
        let mut builder = Builder::new(code, context.as_ref());
        let mut halted = None;
        // How execution reached the first place depends on the entries before it.
        for event in history.entries(from, Direction::Forward) {
            if event.position > begin && self::begin(event.position) != begin {
                break;
            }
            if event.entry == Entry::Halted {
                halted = Some(event.position);
            }
            builder.event(&event);
        }
        if let Some(end) = halted
            && let Some((to, _)) = history.continues_at()
        {
            builder.ends(end, to);
        }
        Self {
            end: builder.innermost(),
            nodes: builder.nodes,
            changes: builder.changes,
            returns: builder.returns,
            begin,
            before,
        }
    }

    /// Closes the calls that the `pending` return addresses belong to, in order, and removes these
    /// addresses. Stops at an address that no call here leads to: that return closed all of them.
    fn apply(&self, at: &mut At, pending: &mut VecDeque<Address>) {
        let mut chain = Chain {
            stretch: self,
            outermost: *at,
            outer: Vec::new(),
            closed: 0,
            by_end: HashMap::new(),
        };
        while let Some(to) = pending.front() {
            match chain.close(*to) {
                Some(outer) => *at = outer,
                None => {
                    *at = chain.outermost;
                    return;
                }
            }
            pending.pop_front();
        }
    }

    /// Returns a copy with only the calls that it left open, and its returns.
    fn ended(&self) -> Self {
        let mut open = Vec::new();
        let mut at = self.end;
        while let At::Call(number) = at {
            let node = self.nodes[number as usize];
            open.push(node);
            at = node.outer;
        }
        let mut nodes: Vec<Node> = Vec::with_capacity(open.len());
        for node in open.into_iter().rev() {
            nodes.push(Node { outer: at, ..node });
            at = At::Call(nodes.len() as u32 - 1);
        }
        Self {
            nodes,
            changes: Vec::new(),
            end: at,
            returns: self.returns.clone(),
            begin: self.begin,
            before: self.before,
        }
    }

    fn size(&self) -> usize {
        self.nodes.len() + self.returns.len() + 1
    }
}

/// The open calls of a stretch, walked from the innermost outward, no further than a search needs,
/// each only once.
struct Chain<'a> {
    stretch: &'a Stretch,
    /// The first call not yet walked; at the end, the calls before the stretch.
    outermost: At,
    /// What each walked call is within.
    outer: Vec<At>,
    /// The number of closed calls.
    closed: usize,
    /// The walked calls by where they lead to, innermost first.
    by_end: HashMap<Option<Address>, VecDeque<usize>>,
}

impl Chain<'_> {
    /// Closes the innermost call that leads to `to`, or else the innermost with an unknown return
    /// address, and the calls within it. Returns the call around it; `None` if there is neither.
    fn close(&mut self, to: Address) -> Option<At> {
        let found = match self.innermost(Some(to)) {
            Some(found) => found,
            None => self.walk_to(to).or_else(|| self.innermost(None))?,
        };
        self.closed = found + 1;
        Some(self.outer[found])
    }

    /// Returns the innermost call that is walked, open, and leads to `to`.
    fn innermost(&mut self, to: Option<Address>) -> Option<usize> {
        let walked = self.by_end.get_mut(&to)?;
        while walked.front().is_some_and(|call| *call < self.closed) {
            walked.pop_front();
        }
        walked.front().copied()
    }

    /// Walks on to the next call that leads to `to`.
    fn walk_to(&mut self, to: Address) -> Option<usize> {
        while let At::Call(number) = self.outermost {
            let node = &self.stretch.nodes[number as usize];
            let walked = self.outer.len();
            self.outermost = node.outer;
            self.outer.push(node.outer);
            for leads_to in node.leads_to() {
                self.by_end.entry(leads_to).or_default().push_back(walked);
            }
            if node.leads_to().any(|end| end == Some(to)) {
                return Some(walked);
            }
        }
        None
    }
}

/// What opened a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Call,
    Exception,
    Signal,
}

/// Builds a stretch.
struct Builder<'p> {
    code: &'p dyn Code,
    /// The open calls, each with the state within it. The outermost is a function entered before
    /// the stretch.
    stack: CallStack<Option<At>>,
    nodes: Vec<Node>,
    changes: Vec<(Position, At)>,
    returns: Vec<Return>,
}

impl<'p> Builder<'p> {
    fn new(code: &'p dyn Code, context: Option<&Context>) -> Self {
        Self {
            code,
            // The number of places of a stretch is limited.
            stack: CallStack::in_context(context).without_limit(),
            nodes: Vec::new(),
            changes: Vec::new(),
            returns: Vec::new(),
        }
    }

    fn innermost(&self) -> At {
        let last = self.stack.open().last().and_then(|last| last.value);
        last.unwrap_or(At::Before(0))
    }

    fn event(&mut self, event: &Event) {
        let (innermost, outermost) = (self.innermost(), self.outermost());
        let is_first = self.stack.open().is_empty();
        let reached = self.stack.event(event, self.code);
        if is_first && let Some(value) = self.stack.outermost_value() {
            *value = Some(At::Before(0));
        }
        if let Some((transition, decision)) = reached {
            self.take((innermost, outermost), transition, decision);
        }
    }

    /// Ends the history at a position; execution continues at this address.
    fn ends(&mut self, position: Position, to: Address) {
        let (innermost, outermost) = (self.innermost(), self.outermost());
        if let Some((transition, decision)) = self.stack.ends(position, to, self.code) {
            self.take((innermost, outermost), transition, decision);
        }
    }

    fn outermost(&self) -> At {
        let first = self.stack.open().first().and_then(|first| first.value);
        first.unwrap_or(At::Before(0))
    }

    /// Records a decision. `before`: the innermost and the outermost call when it was made.
    fn take(&mut self, (before, outermost): (At, At), reached: Transition, decision: Decision) {
        let Transition { position, to, how } = reached;
        match decision {
            Decision::Stay | Decision::SignalOver | Decision::Replace { .. } => return,
            Decision::Enter { .. } => self.enter(position, to, before, Kind::Call),
            Decision::Take(_) => self.enter(position, to, before, Kind::Exception),
            Decision::Signal(_) => self.enter(position, to, before, Kind::Signal),
            Decision::NextSignal(_) => {
                let around = match before {
                    At::Call(handler) => self.nodes[handler as usize].outer,
                    At::Before(_) => before,
                };
                self.enter(position, to, around, Kind::Signal);
            }
            Decision::Unwind { unseen: true, .. }
                if matches!(how, How::Resumed { taken: None, .. }) =>
            {
                // That it is still the same call is only a guess.
                self.stack.forget_callers();
                self.leave(to, outermost);
            }
            Decision::Return(_)
            | Decision::Unwind { .. }
            | Decision::Discover
            | Decision::Switch
            | Decision::Forget => {
                let last = self.stack.open().last();
                if last.is_none_or(|last| last.value.is_none()) {
                    self.leave(to, outermost);
                }
            }
        }
        self.changes.push((position, self.innermost()));
    }

    /// Records the call that just began, within `outer`.
    fn enter(&mut self, entry: Position, function: Address, outer: At, kind: Kind) {
        let Some(open) = self.stack.open().last() else {
            return;
        };
        let call = OpenCall {
            entry,
            function,
            returns_to: open.returns_to(),
            exception: kind != Kind::Call,
            signal: kind == Kind::Signal,
        };
        let node = Node {
            call,
            lands_at: open.lands_at(),
            outer,
        };
        if let Some(value) = self.stack.innermost_value() {
            *value = Some(At::Call(self.nodes.len() as u32));
            self.nodes.push(node);
        }
    }

    /// Records a return to an address that no call of this stretch leads to. `outermost`: the
    /// outermost call until then.
    fn leave(&mut self, to: Address, outermost: At) {
        let mut outermost = outermost;
        let before = loop {
            match outermost {
                At::Call(number) => outermost = self.nodes[number as usize].outer,
                At::Before(number) => break number,
            }
        };
        self.returns.push(Return { to, before });
        if let Some(value) = self.stack.innermost_value() {
            *value = Some(At::Before(self.returns.len() as u32));
        }
    }
}

#[cfg(test)]
mod tests;
