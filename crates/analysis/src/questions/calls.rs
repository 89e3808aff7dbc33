//! `calls`: the calls of a function.

use super::answer::{Answer, Call};
use super::arguments;
use super::core::Core;
use super::note::{AskError, Unknown};
use super::{Scope, Sink};
use armsnap_history::calls::{CallStack, Decision, How, Transition};
use armsnap_history::timeline::{Direction, Entry, Event, Position};
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::program::symbols::variables::Signature;
use armsnap_snapshot::stop::Cancel;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// The number of entries between two checks for a request to cancel.
const OFTEN: usize = 1 << 12;
/// How long calls that have ended wait for their answers at first; then twice as long each time,
/// because the history must be entered again.
const PATIENCE: Duration = Duration::from_millis(200);

/// A call, as far as the trace says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Traced {
    position: Position,
    function: u64,
    caller: Option<u64>,
    /// Its last instruction, and the position after its return if it returned.
    end: Option<(Position, Option<Position>)>,
}

/// Follows the calls of some functions.
struct Follower<'a> {
    symbols: &'a Symbols,
    wanted: &'a BTreeSet<u64>,
    /// The part of the history in which calls are wanted, and the most of them.
    scope: Scope,
    /// Each open call with the wanted calls that end with it: several, if one jumped to another.
    stack: CallStack<Vec<usize>>,
    /// The open wanted calls with their depths, outermost first.
    open: Vec<(usize, usize)>,
    found: Vec<Traced>,
    /// The calls of `found` that may still end, also on other stacks.
    pending: BTreeSet<usize>,
    /// The last instruction before the current event.
    last: Option<Position>,
}

impl Follower<'_> {
    fn event(&mut self, event: &Event) {
        let is_first = self.stack.open().is_empty();
        let Some((transition, decision)) = self.stack.event(event, self.symbols) else {
            if let Entry::Run { range, .. } = event.entry {
                if is_first && self.wanted.contains(&range.start.0) {
                    self.begin(event.position, range.start.0, None);
                }
                self.ran(event);
            }
            return;
        };
        let Transition { position, to, how } = transition;
        let depth = self.stack.open().len().saturating_sub(1);
        let is_wanted = self.wanted.contains(&to.0);
        match decision {
            Decision::Enter { returns_to } => {
                self.end(depth, position, None);
                if is_wanted {
                    self.begin(position, to.0, Some(returns_to.0.wrapping_sub(1)));
                }
            }
            Decision::Take(_) | Decision::Signal(_) | Decision::NextSignal(_) => {
                self.end(depth, position, None);
                if is_wanted {
                    self.begin(position, to.0, None);
                }
            }
            Decision::Replace { begins: true } if is_wanted => {
                let from = match how {
                    How::Jumped { from, .. } => Some(from.0),
                    _ => None,
                };
                self.begin(position, to.0, from);
            }
            Decision::Return(depth) => self.end(depth, position, Some(depth)),
            Decision::Unwind { keep, .. } => self.end(keep, position, None),
            Decision::Discover => self.end(0, position, Some(0)),
            Decision::Forget => {
                for (_, number) in self.open.drain(..) {
                    self.pending.remove(&number);
                }
            }
            Decision::Switch => {
                let open = self.stack.open().iter().enumerate();
                let calls = open.flat_map(|(depth, call)| {
                    call.value.iter().map(move |number| (depth, *number))
                });
                self.open = calls.collect();
            }
            Decision::Stay | Decision::SignalOver | Decision::Replace { .. } => {}
        }
        self.ran(event);
    }

    /// Notes the last instruction of a run.
    fn ran(&mut self, event: &Event) {
        if let Entry::Run { range, .. } = event.entry {
            let before = u64::from(range.instructions).saturating_sub(1);
            self.last = Some(event.position.after(before));
        }
    }

    fn begin(&mut self, position: Position, function: u64, caller: Option<u64>) {
        let Scope { from, to, most } = self.scope;
        let is_within = from.is_none_or(|from| position >= from)
            && to.is_none_or(|to| position < to)
            // One more says where to continue.
            && self.found.len() <= most;
        if !is_within {
            return;
        }
        let number = self.found.len();
        self.found.push(Traced {
            position,
            function,
            caller,
            end: None,
        });
        let depth = self.stack.open().len().saturating_sub(1);
        self.open.push((depth, number));
        self.pending.insert(number);
        if let Some(value) = self.stack.innermost_value() {
            value.push(number);
        }
    }

    /// The number of calls, from the first on, that have ended.
    fn ended(&self) -> usize {
        let first = self.pending.first().copied();
        first.unwrap_or(self.found.len()).min(self.scope.most)
    }

    /// Ends the calls from a depth on; the one at the depth `returns` returned.
    fn end(&mut self, from: usize, after: Position, returns: Option<usize>) {
        while let Some((depth, number)) = self.open.last().copied()
            && depth >= from
        {
            self.open.pop();
            self.pending.remove(&number);
            let returned = (Some(depth) == returns).then_some(after);
            if let (Some(call), Some(last)) = (self.found.get_mut(number), self.last) {
                call.end = Some((last, returned));
            }
        }
    }
}

/// Answers with the calls of a function, as soon as they and those before them have ended.
pub(super) fn list(
    core: &mut Core<'_>,
    function: &str,
    scope: Scope,
    cancel: &Cancel,
    sink: &mut Sink<'_>,
) -> Result<Vec<Unknown>, AskError> {
    let wanted = functions(core.symbols, function)?;
    let mut follower = Follower {
        symbols: core.symbols,
        wanted: &wanted,
        scope,
        stack: CallStack::default(),
        open: Vec::new(),
        found: Vec::new(),
        pending: BTreeSet::new(),
        last: None,
    };
    let mut signatures: HashMap<u64, Option<Signature>> = HashMap::new();
    // The callers of functions are only known from the start.
    let mut next = Some(core.history.begin());
    let (mut answered, mut patience) = (0, PATIENCE);
    while let Some(from) = next {
        let until = Instant::now() + patience;
        patience = patience.saturating_mul(2);
        next = follow(core, &mut follower, (from, answered), until, cancel)?;
        let ready = match next {
            Some(_) => follower.ended(),
            None => follower.found.len().min(scope.most),
        };
        for call in &follower.found[answered..ready] {
            let signature = signatures
                .entry(call.function)
                .or_insert_with(|| core.symbols.signature(call.function));
            sink(answer(core, call, signature.as_ref(), cancel)?)?;
        }
        answered = ready;
    }
    let mut unknown = Vec::new();
    let (most, beyond) = (scope.most, follower.found.get(scope.most));
    unknown.extend(beyond.map(|call| Unknown::More {
        most,
        next: call.position,
    }));
    if answered == 0 {
        unknown.push(Unknown::NotCalled(function.to_owned()));
    }
    Ok(unknown)
}

fn answer(
    core: &mut Core<'_>,
    call: &Traced,
    signature: Option<&Signature>,
    cancel: &Cancel,
) -> Result<Answer, AskError> {
    let at = (call.position, call.function);
    let arguments = arguments::of_call(core, signature, at, cancel)?;
    let after = call.end.and_then(|(_, after)| after);
    let returns = match after {
        Some(after) => arguments::returned(core, signature, after, cancel)?,
        None => None,
    };
    Ok(Answer::Call(Call {
        position: call.position,
        thread: core.name.to_owned(),
        function: core
            .function(call.function)
            .unwrap_or_else(|| format!("{:#x}", call.function)),
        caller: call.caller.and_then(|caller| core.function(caller)),
        arguments,
        end: call.end.map(|(last, _)| last),
        returns,
    }))
}

/// The first instructions of the functions with a name, or at an address.
fn functions(symbols: &Symbols, name: &str) -> Result<BTreeSet<u64>, AskError> {
    let found = match name.strip_prefix("0x") {
        Some(address) => u64::from_str_radix(address, 16).into_iter().collect(),
        None => symbols.addresses(name),
    };
    match found.is_empty() {
        true => Err(AskError::NoFunction(name.to_owned())),
        false => Ok(found),
    }
}

/// Follows the calls from a position on. Returns where to continue if it took until `until` and
/// further calls than the answered ones have ended.
fn follow(
    core: &mut Core<'_>,
    follower: &mut Follower<'_>,
    (from, answered): (Position, usize),
    until: Instant,
    cancel: &Cancel,
) -> Result<Option<Position>, AskError> {
    let Scope { to, most, .. } = follower.scope;
    let events = core.history.entries(from, Direction::Forward);
    let mut is_late = false;
    for (number, event) in events.enumerate() {
        if number.is_multiple_of(OFTEN) {
            if cancel.is_requested() {
                return Err(AskError::Interrupted);
            }
            is_late = Instant::now() >= until;
        }
        let is_after = to.is_some_and(|to| event.position >= to);
        let is_full = follower.found.len() > most;
        if (is_after || is_full) && follower.open.is_empty() {
            break;
        }
        // The next run is where the history can be entered again.
        let is_run = matches!(event.entry, Entry::Run { .. });
        if is_late && is_run && follower.ended() > answered {
            return Ok(Some(event.position));
        }
        follower.event(&event);
    }
    Ok(None)
}
