//! The open calls at a point of an execution, followed event by event.

use super::rules::{self, Decision, Frame, MAX_OPEN, MAX_SUSPENDED, Place, SEARCHED, Signal};
use super::transitions::{How, Transition, Transitions};
use crate::timeline::{Entry, Event};
use armsnap_arch::quantity::Address;
use armsnap_trace::element::Mark;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

/// A function, identified by its first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// It starts here.
    At(Address),
    /// Code without a symbol that was not called.
    Unknown,
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

/// The open calls. The outermost is the function in which execution starts, or continues where its
/// callers are unknown.
#[derive(Debug)]
pub struct CallStack<T> {
    transitions: Transitions,
    open: Vec<Open<T>>,
    /// The open calls of contexts that were left.
    suspended: VecDeque<Vec<Open<T>>>,
    /// First instructions of called functions without a symbol.
    targets: HashSet<Address>,
    /// Where calls return to, in code without a symbol, with the calling function.
    callers: HashMap<Address, Function>,
    context_id: Option<u32>,
    /// The symbol that contains the place that was reached last.
    symbol: Range<u64>,
}

impl<T> Default for CallStack<T> {
    fn default() -> Self {
        Self {
            transitions: Transitions::default(),
            open: Vec::new(),
            suspended: VecDeque::new(),
            targets: HashSet::new(),
            callers: HashMap::new(),
            context_id: None,
            symbol: 0..0,
        }
    }
}

impl<T: Default> CallStack<T> {
    /// The open calls, outermost first.
    pub fn open(&self) -> &[Open<T>] {
        &self.open
    }

    /// The innermost open call.
    pub fn innermost_mut(&mut self) -> Option<&mut Open<T>> {
        self.open.last_mut()
    }

    /// Processes the next event, in the order of execution. `symbol` returns the extent of the
    /// symbol that contains an address. Returns what was reached, and what that meant for the open
    /// calls.
    pub fn event(
        &mut self,
        event: &Event,
        symbol: impl Fn(Address) -> Option<Range<u64>>,
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
        let Transition { to, how, .. } = reached;
        if matches!(how, How::Jumped { indirect, .. } if !indirect) && !self.open.is_empty() {
            // Within a function, or in code without a symbol.
            if self.symbol.contains(&to.0) || symbol(to).is_none() {
                return None;
            }
        }
        if self.open.is_empty() {
            let first = match how {
                How::Took((_, Some(returns_to))) => self.function_at(returns_to, &symbol),
                How::Took((_, None)) => None,
                _ => self.function_at(to, &symbol),
            };
            self.begin(first);
            transition?;
        }
        let decision = self.follow(to, &how, &symbol);
        Some((reached, decision))
    }

    /// Returns the function that contains an address.
    fn function_at(
        &mut self,
        address: Address,
        symbol: impl Fn(Address) -> Option<Range<u64>>,
    ) -> Option<Function> {
        if let Some(extent) = symbol(address) {
            self.symbol = extent;
            return Some(Function::At(Address(self.symbol.start)));
        }
        self.symbol = 0..0;
        let known = self.targets.contains(&address);
        known.then_some(Function::At(address))
    }

    /// Updates the open calls.
    fn follow(
        &mut self,
        to: Address,
        how: &How,
        symbol: impl Fn(Address) -> Option<Range<u64>>,
    ) -> Decision {
        let function = self.function_at(to, symbol);
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
        };
        let decision = rules::decide(&self.open, how, &place);
        match decision {
            Decision::Stay => {}
            Decision::Enter { returns_to } => self.enter(&place, Some(returns_to)),
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
            Decision::SignalOver => self.set_signal(Signal::Over),
            Decision::Return(depth) => self.open.truncate(depth),
            Decision::Unwind { keep, .. } => self.open.truncate(keep),
            Decision::Replace { .. } => {
                if let Some(last) = self.open.last_mut() {
                    last.function = function.unwrap_or(Function::Unknown);
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
        self.open.push(Open {
            value: T::default(),
            function: function.unwrap_or(Function::Unknown),
            returns_to: None,
            exception: false,
            context_id: None,
            signal: None,
        });
    }

    fn enter(&mut self, place: &Place<Function>, returns_to: Option<Address>) {
        if self.open.len() >= MAX_OPEN {
            self.forget();
            self.begin(None);
        }
        let caller = self.open.last().map(|caller| caller.function);
        if let Some(to) = returns_to {
            self.callers.insert(to, caller.unwrap_or(Function::Unknown));
        }
        if place.function.is_none() {
            self.targets.insert(place.to);
        }
        self.begin(Some(Function::At(match place.function {
            Some(Function::At(start)) => start,
            Some(Function::Unknown) | None => place.to,
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
        if let Some((index, depth)) = found.next()
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
