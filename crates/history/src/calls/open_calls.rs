//! The calls that have not returned at a position.
//!
//! A history is examined backward from the position, in stretches of a fixed number of places, as
//! far as requested. For each stretch, the calls that it left open and its returns to earlier calls
//! are kept; for the last stretches, also the changes within. A call is identified by its first
//! place, independent of the position that the query starts from.

use super::rules::{self, Restorers};
use super::transitions::{How, Transition, Transitions};
use crate::timeline::{Direction, Entry, History, Position};
use armsnap_arch::quantity::Address;
use armsnap_snapshot::program::landing_pads;
use armsnap_snapshot::stop::Cancel;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

/// Number of places of a stretch.
const STRETCH: u64 = if cfg!(test) { 64 } else { 1 << 20 };
/// Maximum number of stretches examined before a position.
const MOST: usize = 64;
/// Number of stretches whose changes are kept.
const WHOLE: usize = 4;
/// Maximum number of calls kept for the ends of all stretches.
const KEPT: usize = 1 << 20;

/// Where functions continue when an exception passes through them.
pub trait LandingPads: fmt::Debug + Send + Sync {
    /// Returns where execution continues if the call that returns to an address throws.
    fn of_call(&self, returns_to: Address) -> Option<Address>;
    /// Returns whether an address is a landing pad.
    fn contains(&self, address: Address) -> bool;
}

impl LandingPads for landing_pads::LandingPads {
    fn of_call(&self, returns_to: Address) -> Option<Address> {
        self.of_call(returns_to.0).map(Address)
    }

    fn contains(&self, address: Address) -> bool {
        self.contains(address.0)
    }
}

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

/// The innermost open call of a stretch; or the calls open at its start, less a number of returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Call(u32),
    Before(u32),
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
    /// Addresses of returns from calls opened before it, in order.
    returns: Vec<Address>,
    begin: Position,
    /// The last position before it.
    before: Option<Position>,
}

/// The open calls of one core's history, as far as requested.
#[derive(Debug, Default)]
pub struct OpenCalls {
    landing_pads: Option<Arc<dyn LandingPads>>,
    /// Stretches with their changes; the one used last is the last.
    whole: Vec<Arc<Stretch>>,
    /// Stretches without their changes, by their start.
    ends: HashMap<Position, Arc<Stretch>>,
    /// Number of calls in `ends`.
    kept: usize,
}

impl OpenCalls {
    /// Creates the open calls of a history in which exceptions end calls.
    pub fn new(landing_pads: Arc<dyn LandingPads>) -> Self {
        Self {
            landing_pads: Some(landing_pads),
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
            for to in stretch.returns[..before as usize].iter().rev() {
                pending.push_front(*to);
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
            None => Arc::new(Stretch::of(history, begin, self.landing_pads.as_deref())),
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
            None => Stretch::of(history, begin, self.landing_pads.as_deref()).ended(),
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
    fn of(history: &mut History, begin: Position, landing_pads: Option<&dyn LandingPads>) -> Self {
        let before = history.step(begin, Direction::Backward);
        let mut builder = Builder {
            landing_pads,
            ..Builder::default()
        };
        let from = before.unwrap_or(begin);
        let context = history.place(from).and_then(|place| place.context);
        let mut transitions = Transitions::in_context(context.as_ref());
        let mut halted = None;
        // How execution reached the first place depends on the entries before it.
        for event in history.entries(from, Direction::Forward) {
            if event.position > begin && self::begin(event.position) != begin {
                break;
            }
            if event.entry == Entry::Halted {
                halted = Some(event.position);
            }
            if let Some(transition) = transitions.event(&event) {
                builder.take(transition);
            }
        }
        if let Some(end) = halted
            && let Some((to, _)) = history.continues_at()
            && let Some(transition) = transitions.ends(end, to)
        {
            builder.take(transition);
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

/// The open calls of a stretch, walked from the innermost outward as far as searched, each only
/// once.
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
#[derive(Debug, Default)]
struct Builder<'p> {
    landing_pads: Option<&'p dyn LandingPads>,
    nodes: Vec<Node>,
    changes: Vec<(Position, At)>,
    returns: Vec<Address>,
    /// The open calls, outermost first.
    open: Vec<u32>,
    /// Their depths by where they lead to, outermost first.
    expected: HashMap<Option<Address>, Vec<usize>>,
    /// First instructions of signal handlers.
    handlers: HashSet<Address>,
    restorers: Restorers,
    /// Whether the innermost one is the handler of a signal, and has returned to the code that asks
    /// the kernel to resume the program.
    signal_over: bool,
}

impl Builder<'_> {
    fn innermost(&self) -> At {
        let before = At::Before(self.returns.len() as u32);
        self.open.last().map_or(before, |last| At::Call(*last))
    }

    fn handles_signal(&self) -> bool {
        let last = self.open.last();
        last.is_some_and(|last| self.nodes[*last as usize].call.signal)
    }

    fn take(&mut self, Transition { position, to, how }: Transition) {
        if how.stays_at(to) {
            return;
        }
        let signal_over = std::mem::take(&mut self.signal_over);
        match how {
            How::Called { returns_to } => {
                self.enter(position, to, Some(returns_to), Kind::Call);
            }
            How::Took((_, returns_to)) => self.enter(position, to, returns_to, Kind::Exception),
            How::Returned => {
                if !self.close(Some(to)) && !self.close(None) {
                    if self.handles_signal() {
                        self.restorers.insert(to);
                        self.signal_over = true;
                        return;
                    }
                    self.leave(to);
                }
            }
            How::Jumped { indirect, .. } => {
                if !indirect {
                    self.signal_over = signal_over;
                    return;
                }
                if !self.close(Some(to)) {
                    if !self.landing_pads.is_some_and(|pads| pads.contains(to)) {
                        self.signal_over = signal_over;
                        return;
                    }
                    self.leave(to);
                }
            }
            How::Resumed { taken, .. } => {
                if !self.close(Some(to)) {
                    match taken {
                        Some(_) if signal_over || self.restorers.asked(&how) => {
                            self.resume_elsewhere(position, to, signal_over);
                        }
                        Some((_, returns_to)) => {
                            self.handlers.insert(to);
                            self.enter(position, to, returns_to, Kind::Signal);
                        }
                        None => self.leave(to),
                    }
                }
            }
        }
        self.changes.push((position, self.innermost()));
    }

    fn enter(
        &mut self,
        entry: Position,
        function: Address,
        returns_to: Option<Address>,
        kind: Kind,
    ) {
        let call = OpenCall {
            entry,
            function,
            returns_to,
            exception: kind != Kind::Call,
            signal: kind == Kind::Signal,
        };
        let pads = self.landing_pads.filter(|_| kind == Kind::Call);
        let node = Node {
            call,
            lands_at: pads.and_then(|pads| pads.of_call(returns_to?)),
            outer: self.innermost(),
        };
        let depth = self.open.len();
        for leads_to in node.leads_to() {
            self.expected.entry(leads_to).or_default().push(depth);
        }
        self.open.push(self.nodes.len() as u32);
        self.nodes.push(node);
    }

    /// Continues after the handler of a signal at an address that no open call leads to. `is_open`: the handler is
    /// the innermost call.
    fn resume_elsewhere(&mut self, position: Position, to: Address, is_open: bool) {
        let Some(handler) = self.open.len().checked_sub(1).filter(|_| is_open) else {
            return self.leave(to);
        };
        let interrupted = self.nodes[self.open[handler] as usize].call.returns_to;
        self.close_down_to(handler);
        if rules::skips(interrupted, to) {
            return;
        }
        // A signal was pending: its handler interrupts the same code.
        match self.handlers.contains(&to) {
            true => self.enter(position, to, interrupted, Kind::Signal),
            false => self.leave(to),
        }
    }

    /// Closes the innermost call that leads to an address, and the calls within it.
    fn close(&mut self, to: Option<Address>) -> bool {
        let depths = self.expected.get(&to);
        let Some(&depth) = depths.and_then(|depths| depths.last()) else {
            return false;
        };
        self.close_down_to(depth);
        true
    }

    fn close_down_to(&mut self, depth: usize) {
        for number in self.open.drain(depth..) {
            for leads_to in self.nodes[number as usize].leads_to() {
                if let Some(depths) = self.expected.get_mut(&leads_to) {
                    depths.pop();
                    if depths.is_empty() {
                        self.expected.remove(&leads_to);
                    }
                }
            }
        }
    }

    /// Records a return to an address that no call of this stretch leads to.
    fn leave(&mut self, to: Address) {
        self.close_down_to(0);
        self.returns.push(to);
    }
}

#[cfg(test)]
mod tests;
