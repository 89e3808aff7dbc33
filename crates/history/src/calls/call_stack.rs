//! The open calls at a point of an execution, followed event by event.

use super::code::Code;
use super::rules::{self, Decision, Frame, MAX_OPEN, Place, Restorers, SEARCHED, Signal};
use super::suspended::Suspended;
use super::transitions::{How, Transition, Transitions};
use crate::timeline::{Entry, Event, Position};
use armsnap_arch::quantity::Address;
use armsnap_trace::element::{Context, Mark};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

/// A function, identified by its first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// It starts here.
    At(Address),
    /// Code without a symbol that was not called. Each time that execution begins in such code, it is
    /// another function, with the next number.
    Unknown(u32),
}

/// An open call, with what its user keeps for it.
#[derive(Clone, Copy, Debug)]
pub struct Open<T> {
    /// What the user keeps.
    pub value: T,
    /// The function; for an exception, its handler.
    function: Function,
    returns_to: Option<Address>,
    exception: bool,
    context_id: Option<u32>,
    signal: Option<Signal>,
}

impl<T: Default> Open<T> {
    fn of(function: Function, returns_to: Option<Address>) -> Self {
        Self {
            value: T::default(),
            function,
            returns_to,
            exception: false,
            context_id: None,
            signal: None,
        }
    }
}

impl<T> Frame for Open<T> {
    type Function = Function;

    fn function(&self) -> Function {
        self.function
    }

    fn returns_to(&self) -> Option<Address> {
        self.returns_to
    }

    fn is_exception(&self) -> bool {
        self.exception
    }

    fn is_joined(&self) -> bool {
        false
    }

    fn context_id(&self) -> Option<u32> {
        self.context_id
    }

    fn signal(&self) -> Option<Signal> {
        self.signal
    }
}

/// The open calls of a context, outermost first, with an index of where they return to.
#[derive(Debug)]
struct Calls<T> {
    open: Vec<Open<T>>,
    /// The number of calls around them that were forgotten.
    forgotten: usize,
    /// Their numbers by the addresses that they return to, outermost first. The outermost call has the
    /// number `forgotten`.
    by_end: HashMap<Address, VecDeque<usize>>,
}

impl<T> Default for Calls<T> {
    fn default() -> Self {
        Self {
            open: Vec::new(),
            forgotten: 0,
            by_end: HashMap::new(),
        }
    }
}

impl<T> Calls<T> {
    fn push(&mut self, call: Open<T>) {
        let number = self.forgotten + self.open.len();
        if let Some(end) = call.returns_to {
            self.by_end.entry(end).or_default().push_back(number);
        }
        self.open.push(call);
    }

    fn pop(&mut self) -> Option<Open<T>> {
        let call = self.open.pop()?;
        self.remove(&call, VecDeque::pop_back);
        Some(call)
    }

    fn truncate(&mut self, keep: usize) {
        while self.open.len() > keep {
            self.pop();
        }
    }

    /// Forgets all but the innermost calls.
    fn keep_innermost(&mut self, most: usize) {
        let outer = self.open.len().saturating_sub(most);
        let calls: Vec<_> = self.open.drain(..outer).collect();
        self.forgotten += outer;
        for call in calls {
            self.remove(&call, VecDeque::pop_front);
        }
        self.open.shrink_to_fit();
    }

    /// Removes a call from the index.
    fn remove(&mut self, call: &Open<T>, pop: fn(&mut VecDeque<usize>) -> Option<usize>) {
        if let Some(end) = call.returns_to
            && let Some(numbers) = self.by_end.get_mut(&end)
        {
            pop(numbers);
            if numbers.is_empty() {
                self.by_end.remove(&end);
            }
        }
    }

    /// Returns the depth of the innermost call that returns to an address.
    fn returning(&self, place: &Place<Function>) -> Option<usize> {
        let numbers = self.by_end.get(&place.to)?.iter().rev();
        // Exceptions of other contexts are taken at the same addresses.
        let mut depths = numbers.take(SEARCHED).map(|number| number - self.forgotten);
        depths.find(|depth| rules::ends_at(&self.open[*depth], place))
    }
}

/// The open calls. The outermost is the function in which execution starts, or continues where its
/// callers are unknown.
#[derive(Debug)]
pub struct CallStack<T> {
    transitions: Transitions,
    calls: Calls<T>,
    suspended: Suspended<Calls<T>>,
    /// First instructions of called functions without a symbol.
    targets: HashSet<Address>,
    /// Where calls return to, in code without a symbol, with the calling function.
    callers: HashMap<Address, Function>,
    restorers: Restorers,
    context_id: Option<u32>,
    /// Whether the last switch resumed a context that was left.
    resumed: bool,
    /// The number of unknown functions.
    unknown: u32,
    /// The symbol that contains the place that was reached last.
    symbol: Range<u64>,
}

impl<T> Default for CallStack<T> {
    fn default() -> Self {
        Self {
            transitions: Transitions::default(),
            calls: Calls::default(),
            suspended: Suspended::default(),
            targets: HashSet::new(),
            callers: HashMap::new(),
            restorers: Restorers::default(),
            context_id: None,
            resumed: false,
            unknown: 0,
            symbol: 0..0,
        }
    }
}

impl<T: Default> CallStack<T> {
    /// Starts at a place with this state of the core.
    pub fn in_context(context: Option<&Context>) -> Self {
        Self {
            transitions: Transitions::in_context(context),
            context_id: context.and_then(|context| context.context_id),
            ..Self::default()
        }
    }

    /// The open calls, outermost first.
    pub fn open(&self) -> &[Open<T>] {
        &self.calls.open
    }

    /// Whether the last [`Decision::Switch`] resumed a context that was left, not a new one.
    pub fn has_resumed(&self) -> bool {
        self.resumed
    }

    /// What the user keeps for the innermost call.
    pub fn innermost_value(&mut self) -> Option<&mut T> {
        Some(&mut self.calls.open.last_mut()?.value)
    }

    /// Forgets the callers of the function that is executed.
    pub fn forget_callers(&mut self) {
        let function = self.calls.open.last().map(|last| last.function);
        self.forget();
        self.begin(function);
    }

    /// Ends the history at a position; execution continues at this address.
    pub fn ends(
        &mut self,
        position: Position,
        to: Address,
        code: &(impl Code + ?Sized),
    ) -> Option<(Transition, Decision)> {
        let transition = self.transitions.ends(position, to)?;
        self.reach(transition, code)
    }

    /// Processes the next event, in the order of execution. Returns what was reached, and what that
    /// meant for the open calls.
    pub fn event(
        &mut self,
        event: &Event,
        code: &(impl Code + ?Sized),
    ) -> Option<(Transition, Decision)> {
        if let Entry::Mark(Mark::Context(context)) = &event.entry {
            self.context_id = context.context_id;
        }
        let transition = self.transitions.event(event);
        let reached = match (transition, event.entry) {
            (Some(transition), _) => transition,
            // By falling through from the function before.
            (None, Entry::Run { range, .. }) => Transition {
                position: event.position,
                to: range.start,
                how: How::Jumped {
                    from: range.start,
                    indirect: false,
                },
            },
            _ => return None,
        };
        self.reach(reached, code)
    }

    fn reach(
        &mut self,
        reached: Transition,
        code: &(impl Code + ?Sized),
    ) -> Option<(Transition, Decision)> {
        let Transition { to, how, .. } = reached;
        let direct = matches!(
            how,
            How::Jumped {
                indirect: false,
                ..
            }
        );
        // Within a function, or in code without a symbol.
        if direct && (self.symbol.contains(&to.0) || code.symbol(to).is_none()) {
            if self.calls.open.is_empty() {
                let function = self.function_at(to, code);
                self.begin(function);
            }
            return None;
        }
        if self.calls.open.is_empty() {
            let first = match how {
                How::Took((_, Some(returns_to))) => self.function_at(returns_to, code),
                How::Took((_, None)) => None,
                _ => self.function_at(to, code),
            };
            self.begin(first);
        }
        let decision = self.follow(to, &how, code);
        Some((reached, decision))
    }

    /// Returns the function that contains an address.
    fn function_at(&mut self, address: Address, code: &(impl Code + ?Sized)) -> Option<Function> {
        if let Some(extent) = code.symbol(address) {
            self.symbol = extent;
            return Some(Function::At(Address(self.symbol.start)));
        }
        self.symbol = 0..0;
        let known = self.targets.contains(&address);
        known.then_some(Function::At(address))
    }

    /// Updates the open calls.
    fn follow(&mut self, to: Address, how: &How, code: &(impl Code + ?Sized)) -> Decision {
        let function = self.function_at(to, code);
        // Code without a symbol belongs to the function that made a call returning there.
        let caller = match function {
            None => self.callers.get(&to).copied(),
            Some(_) => None,
        };
        let place = Place {
            to,
            function,
            caller,
            begins: function == Some(Function::At(to)),
            context_id: self.context_id,
            asked: self.restorers.asked(how),
        };
        let returning = || self.calls.returning(&place);
        let decision = rules::decide_with(&self.calls.open, how, &place, returning);
        match decision {
            Decision::Stay => {}
            Decision::Enter { returns_to } => {
                let call = self.called(&place, Some(returns_to));
                self.enter(call);
            }
            Decision::Take((_, returns_to)) => {
                let mut call = self.called(&place, returns_to);
                call.exception = true;
                call.context_id = place.context_id;
                self.enter(call);
            }
            Decision::Signal((_, returns_to)) => {
                let mut call = self.called(&place, returns_to);
                call.signal = Some(Signal::Handled);
                self.enter(call);
            }
            Decision::NextSignal(_) => {
                let interrupted = self.calls.pop().and_then(|handler| handler.returns_to);
                let mut call = self.called(&place, interrupted);
                call.signal = Some(Signal::Handled);
                self.enter(call);
            }
            Decision::SignalOver => {
                self.restorers.insert(to);
                self.set_signal(Signal::Over);
            }
            Decision::Return(depth) => self.calls.truncate(depth),
            Decision::Unwind { keep, .. } => self.calls.truncate(keep),
            Decision::Replace { .. } => {
                if let (Some(last), Some(function)) = (self.calls.open.last_mut(), function) {
                    last.function = function;
                }
            }
            Decision::Discover => {
                self.calls = Calls::default();
                self.begin(function);
            }
            Decision::Switch => self.switch(&place),
            Decision::Forget => {
                self.forget();
                self.begin(function);
            }
        }
        if self.calls.open.is_empty() {
            self.begin(function);
        }
        decision
    }

    /// Begins with a function whose callers are unknown.
    fn begin(&mut self, function: Option<Function>) {
        let function = function.unwrap_or_else(|| {
            self.unknown = self.unknown.wrapping_add(1);
            Function::Unknown(self.unknown)
        });
        self.calls.push(Open::of(function, None));
    }

    /// Returns a call of the function at a place.
    fn called(&mut self, place: &Place<Function>, returns_to: Option<Address>) -> Open<T> {
        if place.function.is_none() {
            self.targets.insert(place.to);
        }
        let start = match place.function {
            Some(Function::At(start)) => start,
            Some(Function::Unknown(_)) | None => place.to,
        };
        Open::of(Function::At(start), returns_to)
    }

    fn enter(&mut self, call: Open<T>) {
        if self.calls.open.len() >= MAX_OPEN {
            self.forget();
        }
        if let (Some(to), Some(caller)) = (call.returns_to, self.calls.open.last()) {
            self.callers.insert(to, caller.function);
        }
        self.calls.push(call);
    }

    fn set_signal(&mut self, signal: Signal) {
        if let Some(last) = self.calls.open.last_mut() {
            last.signal = Some(signal);
        }
    }

    /// Resumes another context: one that was left and has a call that returns here, or a new one.
    fn switch(&mut self, place: &Place<Function>) {
        let mut left = std::mem::take(&mut self.calls);
        left.keep_innermost(SEARCHED);
        let returning = |calls: &Calls<T>| calls.returning(place);
        let resumed = self.suspended.exchange(left, returning);
        self.resumed = resumed.is_some();
        if let Some((mut calls, depth)) = resumed {
            calls.truncate(depth);
            self.calls = calls;
        }
    }

    fn forget(&mut self) {
        self.calls = Calls::default();
        self.suspended.clear();
        self.callers.clear();
    }
}
