//! The open calls of a course: carries out the decisions of the rules.

use super::super::functions::{FunctionId, FunctionKind};
use super::super::stack::{Call, CallKind, Ended, Frame, Listener};
use super::super::tree::NodeId;
use super::Course;
use armsnap_arch::quantity::Address;
use armsnap_history::calls::{self, Decision, How, MAX_OPEN, Place, SEARCHED, Signal, Transition};

impl<L: Listener> Course<'_, L> {
    /// Notes that execution reaches an instruction.
    pub(super) fn reach(&mut self, to: Address, function: u32, transition: Option<Transition>) {
        let mut how = transition.map(|transition| transition.how);
        if self.open.is_empty() && !matches!(how, Some(How::Took(_) | How::Called { .. })) {
            let function = self.function_at(to);
            return self.begin_root(function, CallKind::Unseen);
        }
        if how.is_none() {
            if function == 0 || function == self.function {
                return;
            }
            // By a direct branch, or by falling through from the function before.
            how = Some(How::Jumped {
                from: to,
                indirect: false,
            });
        }
        if let Some(how) = how {
            self.follow(to, how, function);
            if self.open.is_empty() {
                let function = self.function_at(to);
                self.begin_root(function, CallKind::Unseen);
            }
        }
    }

    /// Updates the open calls. `function` is the one that contains the instruction; 0 to look it
    /// up.
    pub(super) fn follow(&mut self, to: Address, how: How, function: u32) {
        let function = match function {
            0 => self.function_at(to),
            known => Some(FunctionId(known)),
        };
        let start = function.and_then(|function| self.counted.functions.get(function).start);
        // Code without a symbol belongs to the function that made a call returning there.
        let caller = match function {
            None => self.return_places.get(&to.0).copied(),
            Some(_) => None,
        };
        let place = Place {
            to,
            function,
            caller,
            begins: start == Some(to),
            context_id: self.context.and_then(|context| context.context_id),
            asked: self.restorers.asked(&how),
        };
        let decision = calls::decide(&self.open, &how, &place);
        if self.draft.active && !self.repeats(&decision, &how, &place) {
            self.draft.varies();
        }
        match decision {
            Decision::Stay => {}
            Decision::Enter { returns_to } => {
                let function = match function {
                    Some(known) => known,
                    None => self.entered(to),
                };
                self.enter(function, CallKind::Call, Some(returns_to), false, None);
            }
            Decision::Take((name, returns_to)) => {
                let exception = self.counted.functions.exception(name);
                let context = place.context_id;
                self.enter(exception, CallKind::Exception, returns_to, false, context);
                let handler = self.entered(to);
                self.enter(handler, CallKind::Handler, returns_to, true, context);
            }
            Decision::Signal((_, returns_to)) => {
                let function = self.entered(to);
                self.enter(function, CallKind::Signal, returns_to, false, None);
                self.set_signal(Some(Signal::Handled));
            }
            Decision::NextSignal(_) => {
                if let Some(depth) = self.open.len().checked_sub(1) {
                    let returns_to = self.open[depth].call.returns_to;
                    self.return_from(depth);
                    let function = self.entered(to);
                    self.enter(function, CallKind::Signal, returns_to, false, None);
                    self.set_signal(Some(Signal::Handled));
                }
            }
            Decision::SignalOver => {
                self.restorers.insert(to);
                self.set_signal(Some(Signal::Over));
            }
            Decision::Return(depth) => self.return_from(depth),
            Decision::Unwind { keep, unseen } => {
                let how = match unseen {
                    true => Ended::Unseen,
                    false => Ended::Unwound,
                };
                self.close_down_to(keep, how);
            }
            Decision::Replace { begins } => {
                let kind = match begins {
                    true => CallKind::Jump,
                    false => CallKind::Middle,
                };
                self.replace(function, kind);
            }
            Decision::Discover => self.discover(function),
            Decision::Switch => self.switch(&place),
            Decision::Forget => {
                self.forget_callers();
                self.begin_root(function, CallKind::Unseen);
            }
        }
    }

    /// Adds the instructions executed so far to the innermost call.
    pub(super) fn settle(&mut self) {
        let instructions = self.now.instructions - self.settled;
        if self.active && instructions > 0 {
            self.recent.get_mut(self.node).instructions += instructions;
        }
        self.settled = self.now.instructions;
    }

    pub(super) fn begin_root(&mut self, function: Option<FunctionId>, kind: CallKind) {
        let function = function.unwrap_or(FunctionId::UNKNOWN);
        self.draft.varies();
        self.settle();
        let node = self.recent.root(function);
        self.push(function, kind, None, false, None, node);
    }

    pub(super) fn enter(
        &mut self,
        function: FunctionId,
        kind: CallKind,
        returns_to: Option<Address>,
        joined: bool,
        context_id: Option<u32>,
    ) {
        if self.open.len() >= MAX_OPEN {
            self.forget_callers();
        }
        let caller = self.open.last().map(|frame| frame.call.function);
        if let Some(to) = returns_to
            && self
                .return_places
                .insert(to.0, caller.unwrap_or_default())
                .is_none()
        {
            self.found_at(to);
        }
        self.settle();
        let parent = self.open.last().map_or(NodeId::ROOT, |frame| frame.node);
        let node = match self.open.is_empty() {
            true => self.recent.root(function),
            false => self.recent.child(parent, function, returns_to),
        };
        self.push(function, kind, returns_to, joined, context_id, node);
        self.note_change(kind, returns_to);
    }

    pub(super) fn push(
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
            signal: None,
        });
        self.function = function.0;
        self.node = node;
        self.note_entered(function);
        if self.active {
            if kind.is_counted() {
                self.draft.calls(function);
                self.recent.get_mut(node).calls += 1;
                self.counted.functions.get_mut(function).calls += 1;
            }
            self.listener.begin(&call, &self.counted.functions);
        }
    }

    /// Notes that a function is entered.
    pub(super) fn note_entered(&mut self, function: FunctionId) {
        let kind = self.counted.functions.get(function).kind;
        if matches!(kind, FunctionKind::Symbol | FunctionKind::Target) {
            self.note_level(Some(function), self.el());
        }
    }

    /// Sets the progress of the signal handler in the innermost call.
    fn set_signal(&mut self, signal: Option<Signal>) {
        if let Some(last) = self.open.last_mut() {
            last.signal = signal;
        }
    }

    /// Removes the innermost call.
    pub(super) fn pop(&mut self, how: Ended) -> Option<Frame> {
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

    /// Makes the innermost remaining call the current one.
    pub(super) fn back(&mut self) {
        let last = self.open.last();
        self.function = last.map_or(0, |frame| frame.call.function.0);
        self.node = last.map_or(NodeId::ROOT, |frame| frame.node);
    }

    pub(super) fn close_down_to(&mut self, keep: usize, how: Ended) {
        self.draft.varies();
        self.settle();
        while self.open.len() > keep {
            self.pop(how);
        }
        self.back();
    }

    /// Ends the calls from a depth on: the one at that depth, with those joined to it, by
    /// returning.
    pub(super) fn return_from(&mut self, depth: usize) {
        self.settle();
        self.note_return(depth);
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

    pub(super) fn replace(&mut self, function: Option<FunctionId>, kind: CallKind) {
        self.settle();
        let function = function.unwrap_or(FunctionId::UNKNOWN);
        self.note_replaced();
        let Some(frame) = self.pop(Ended::Jumped) else {
            return;
        };
        let parent = self.open.last().map(|frame| frame.node);
        let node = match parent {
            Some(parent) => self.recent.child(parent, function, frame.call.returns_to),
            None => {
                // A root may have been found to have a caller.
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
            last.signal = frame.signal;
        }
        self.note_change(kind, frame.call.returns_to);
    }

    /// Handles a return of the outermost call to a function that was entered before the trace.
    pub(super) fn discover(&mut self, function: Option<FunctionId>) {
        self.draft.varies();
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
            signal: None,
        });
        self.function = function.0;
        self.node = node;
        if self.active {
            self.listener.begin(&call, &self.counted.functions);
        }
    }

    /// Resumes another context: one that was left and has a call that returns here, or a new one.
    pub(super) fn switch(&mut self, place: &Place<FunctionId>) {
        self.draft.varies();
        self.settle();
        self.since = self.now;
        let mut left = std::mem::take(&mut self.open);
        for frame in left.iter().rev() {
            self.end_call(frame, Ended::Switched);
        }
        // Only these are searched for the call to resume, and a hostile trace may switch often.
        left.drain(..left.len().saturating_sub(SEARCHED));
        left.shrink_to_fit();
        let returning = |frames: &Vec<Frame>| calls::returning(frames, place);
        let resumed = self.suspended.exchange(left, returning);
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

    pub(super) fn end_call(&mut self, frame: &Frame, how: Ended) {
        if self.active {
            self.listener
                .end(&frame.call, &self.now, how, &self.counted.functions);
        }
    }

    /// Restarts the open calls.
    pub(super) fn continue_open(&mut self) {
        for frame in &mut self.open {
            frame.call.begin = self.now;
            frame.call.kind = CallKind::Continued;
            if self.active {
                self.listener.begin(&frame.call, &self.counted.functions);
            }
        }
    }

    /// Ends all calls: their callers are no longer known.
    pub(super) fn forget_callers(&mut self) {
        self.spread();
        self.close_down_to(0, Ended::Unseen);
        self.suspended.clear();
        self.return_places.clear();
        if self.active {
            self.counted.tree.merge(&self.recent);
        }
        self.recent.clear();
        self.since = self.now;
    }

    /// Handles a transition to an instruction that cannot be followed.
    pub(super) fn follow_into_gap(&mut self, to: Address, how: How) {
        if !self.open.is_empty() {
            self.follow(to, how, 0);
        }
    }
}
