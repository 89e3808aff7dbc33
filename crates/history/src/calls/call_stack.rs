//! The open calls at a point of an execution, followed event by event.

use super::code::Code;
use super::rules::{
    self, Decision, Frame, MAX_OPEN, MAX_SUSPENDED, Place, Restorers, SEARCHED, Signal,
};
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
    lands_at: Option<Address>,
    exception: bool,
    context_id: Option<u32>,
    signal: Option<Signal>,
}

impl<T> Frame for Open<T> {
    type Function = Function;

    const SEARCHED: usize = 1 << 14;

    fn function(&self) -> Function {
        self.function
    }

    fn returns_to(&self) -> Option<Address> {
        self.returns_to
    }

    fn lands_at(&self) -> Option<Address> {
        self.lands_at
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

/// The open calls. The outermost is the function in which execution starts, or continues where its
/// callers are unknown.
#[derive(Debug)]
pub struct CallStack<T> {
    transitions: Transitions,
    open: Vec<Open<T>>,
    /// The maximum number of open calls. When it is exceeded, all are forgotten.
    most: usize,
    /// The open calls of contexts that were left.
    suspended: VecDeque<Vec<Open<T>>>,
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
            open: Vec::new(),
            most: MAX_OPEN,
            suspended: VecDeque::new(),
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

    /// Keeps any number of open calls, instead of [`MAX_OPEN`].
    pub fn without_limit(self) -> Self {
        Self {
            most: usize::MAX,
            ..self
        }
    }

    /// The open calls, outermost first.
    pub fn open(&self) -> &[Open<T>] {
        &self.open
    }

    /// Whether the last [`Decision::Switch`] resumed a context that was left, not a new one.
    pub fn has_resumed(&self) -> bool {
        self.resumed
    }

    /// What the user keeps for the outermost call.
    pub fn outermost_value(&mut self) -> Option<&mut T> {
        Some(&mut self.open.first_mut()?.value)
    }

    /// What the user keeps for the innermost call.
    pub fn innermost_value(&mut self) -> Option<&mut T> {
        Some(&mut self.open.last_mut()?.value)
    }

    /// Forgets the callers of the function that is executed.
    pub fn forget_callers(&mut self) {
        let function = self.open.last().map(|last| last.function);
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
            if self.open.is_empty() {
                let function = self.function_at(to, code);
                self.begin(function);
            }
            return None;
        }
        if self.open.is_empty() {
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
            lands: matches!(how, How::Jumped { indirect: true, .. }) && code.lands(to),
            context_id: self.context_id,
            asked: self.restorers.asked(how),
        };
        let decision = rules::decide(&self.open, how, &place);
        match decision {
            Decision::Stay => {}
            Decision::Enter { returns_to } => {
                self.enter(&place, Some(returns_to));
                if let Some(last) = self.open.last_mut() {
                    last.lands_at = code.landing_pad(returns_to);
                }
            }
            Decision::Take((_, returns_to)) => {
                self.enter(&place, returns_to);
                if let Some(last) = self.open.last_mut() {
                    last.exception = true;
                    last.context_id = place.context_id;
                }
            }
            Decision::Signal((_, returns_to)) => {
                self.enter(&place, returns_to);
                self.set_signal(Signal::Handled);
            }
            Decision::NextSignal(_) => {
                let interrupted = self.open.pop().and_then(|handler| handler.returns_to);
                self.enter(&place, interrupted);
                self.set_signal(Signal::Handled);
            }
            Decision::SignalOver => {
                self.restorers.insert(to);
                self.set_signal(Signal::Over);
            }
            Decision::Return(depth) => self.open.truncate(depth),
            Decision::Unwind { keep, .. } => self.open.truncate(keep),
            Decision::Replace { .. } => {
                if let (Some(last), Some(function)) = (self.open.last_mut(), function) {
                    last.function = function;
                }
            }
            Decision::Discover => {
                self.open.clear();
                self.begin(function);
            }
            Decision::Switch => self.switch(&place),
            Decision::Forget => {
                self.forget();
                self.begin(function);
            }
        }
        if self.open.is_empty() {
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
        self.open.push(Open {
            value: T::default(),
            function,
            returns_to: None,
            lands_at: None,
            exception: false,
            context_id: None,
            signal: None,
        });
    }

    fn enter(&mut self, place: &Place<Function>, returns_to: Option<Address>) {
        if self.open.len() >= self.most {
            self.forget();
        }
        if let (Some(to), Some(caller)) = (returns_to, self.open.last()) {
            self.callers.insert(to, caller.function);
        }
        if place.function.is_none() {
            self.targets.insert(place.to);
        }
        self.begin(Some(Function::At(match place.function {
            Some(Function::At(start)) => start,
            Some(Function::Unknown(_)) | None => place.to,
        })));
        if let Some(last) = self.open.last_mut() {
            last.returns_to = returns_to;
        }
    }

    fn set_signal(&mut self, signal: Signal) {
        if let Some(last) = self.open.last_mut() {
            last.signal = Some(signal);
        }
    }

    /// Resumes another context: one that was left and has a call that returns here, or a new one.
    fn switch(&mut self, place: &Place<Function>) {
        let mut left = std::mem::take(&mut self.open);
        let contexts = self.suspended.iter().enumerate().rev();
        let mut found =
            contexts.filter_map(|(index, open)| Some((index, rules::returning(open, place)?)));
        let found = found.next();
        self.resumed = found.is_some();
        if let Some((index, depth)) = found
            && let Some(mut open) = self.suspended.remove(index)
        {
            open.truncate(depth);
            self.open = open;
        }
        left.drain(..left.len().saturating_sub(SEARCHED));
        left.shrink_to_fit();
        self.suspended.push_back(left);
        if self.suspended.len() > MAX_SUSPENDED {
            self.suspended.pop_front();
        }
    }

    fn forget(&mut self) {
        self.open.clear();
        self.suspended.clear();
        self.callers.clear();
    }
}
