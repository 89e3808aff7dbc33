//! Signals of A64 programs that were traced without their kernel.

use super::{Builder, CALL, DEBUG_HALT, PRESERVED_MOST, RESET, Sink, Through};
use crate::recover::execution::steps::Taken;
use crate::recover::execution::template::{SIGNAL_ARGUMENTS, SIGNAL_FRAME};
use crate::recover::graph::nodes::NONE;
use armsnap_arch::quantity::Isa;
use armsnap_arch::semantics::Location;

/// The cause of an exception in a program without its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// A signal was delivered while execution was at this address.
    Delivered(u64),
    /// A signal handler returned.
    Returned,
}

/// A return of a signal handler whose signal is not found yet.
#[derive(Clone, Debug)]
pub(super) struct SignalReturn {
    to: Option<u64>,
    /// The nodes of the locations that a function preserves, after the return.
    preserved: [u32; PRESERVED_MOST],
    /// The number of returns that were open after it.
    returns: usize,
    /// The stack pointer with which the handler returned, and the first access of its return.
    frame: (u32, u32),
}

impl Builder {
    /// The cause of an exception in an A64 program without its kernel, if it is known.
    pub(super) fn signal(&self, through: &Through<'_>, taken: Taken) -> Option<Signal> {
        let passed = self.counts.taken;
        let same = |at: usize| {
            let other = through.steps.taken.get(at);
            other.is_some_and(|other| other.step == taken.step)
        };
        let alone = !(same(passed) || passed >= 2 && same(passed - 2));
        if !through.without_kernel || through.templates.is_narrow() || taken.step == 0 || !alone {
            return None;
        }
        let template = |step| through.steps.template(through.templates, step);
        match taken.number {
            RESET | DEBUG_HALT => None,
            CALL => template(taken.step + 1)
                .is_some_and(|call| call.sigreturn)
                .then_some(Signal::Returned),
            _ => {
                // Execution did not continue where it was.
                let handler = template(taken.step)?;
                let from = taken.return_to?;
                (handler.pc != from).then_some(Signal::Delivered(from))
            }
        }
    }

    /// Builds the delivery of a signal before a step: the kernel stored all registers in a frame.
    pub(super) fn deliver(
        &mut self,
        through: &Through<'_>,
        taken: Taken,
        from: u64,
        sink: &mut impl Sink,
    ) {
        // The kernel acted before the state in which the handler starts.
        let step = taken.step + 1;
        let handler = self.node(Location::SP.index(), sink);
        let [number, information, context] = [0, 1, 2].map(|register| self.node(register, sink));
        self.counts.relations += 1;
        sink.relation(SIGNAL_ARGUMENTS, [number, information, context, handler]);
        self.relations_of(through, &through.templates.delivery, step, sink);
        let before = self.node(Location::SP.index(), sink);
        self.frame(handler, before, sink);
        if let Some(open) = self.signals.last() {
            let (returned, first) = open.frame;
            sink.handled([handler, returned], first..self.counts.accesses);
        }
        self.counts.accesses += 1;
        sink.signal(step);
        if !self.follows_returns {
            return;
        }
        match self.signals.pop() {
            Some(open) if open.to == Some(from) => {
                // The handler returned to the interrupted code.
                self.returns.truncate(open.returns);
                self.same(&open.preserved, Isa::A64, sink);
            }
            _ => {
                self.returns.clear();
                self.signals.clear();
            }
        }
    }

    /// Builds the return of a signal handler at a step: registers are loaded from the frame.
    pub(super) fn handler_returns(
        &mut self,
        through: &Through<'_>,
        to: Option<u64>,
        step: u32,
        sink: &mut impl Sink,
    ) {
        let preserved = self.preserved(Isa::A64);
        let first = self.counts.accesses;
        let after = self.node(Location::SP.index(), sink);
        self.relations_of(through, &through.templates.sigreturn, step, sink);
        let handler = self.node(Location::SP.index(), sink);
        if self.follows_returns {
            self.signals.push(SignalReturn {
                to,
                preserved,
                returns: self.returns.len(),
                frame: (handler, first),
            });
        }
        self.frame(handler, after, sink);
    }

    /// Relates the stack pointers of a handler and of the program that it interrupts.
    fn frame(&mut self, handler: u32, interrupted: u32, sink: &mut impl Sink) {
        sink.switches_stack();
        self.counts.relations += 1;
        sink.relation(SIGNAL_FRAME, [handler, interrupted, NONE, NONE]);
    }
}
