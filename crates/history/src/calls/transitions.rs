//! Transitions between straight lines: calls, returns, exceptions.
//!
//! Follows the branches of a history, entry by entry. Callers keep track of open calls.

use crate::timeline::{Entry, Event, Gap, Position};
use armsnap_arch::quantity::{Address, ExceptionLevel};
use armsnap_trace::element::{Context, Mark, TraceOnReason};
use armsnap_trace::flow::{InstructionKind, LastInstruction, Range};

/// An exception: its name and its return address, if known.
pub type Taken = (&'static str, Option<Address>);

/// How execution reached an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A branch with link.
    Called {
        /// The instruction after it.
        returns_to: Address,
    },
    /// A return.
    Returned,
    /// A branch without link other than a return.
    Jumped {
        /// The straight line that contains the branch.
        from: Address,
        /// Whether the target was in a register: old code also returns like this.
        indirect: bool,
    },
    /// An exception was taken; this is its handler.
    Took(Taken),
    /// Execution continues after a gap.
    Resumed {
        /// The gap.
        gap: Gap,
        /// The exception at EL0 after which tracing was off: the kernel that took it was not
        /// traced. It may have returned, or called a signal handler of the program.
        taken: Option<Taken>,
    },
}

impl How {
    /// Returns whether execution continues at `to`, which it had reached before an exception: the
    /// untraced code that took the exception returned. No call ended.
    pub fn stays_at(&self, to: Address) -> bool {
        matches!(self, Self::Resumed { taken: Some((_, Some(returns_to))), .. } if *returns_to == to)
    }
}

/// A transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The first place after it.
    pub position: Position,
    /// The instruction there.
    pub to: Address,
    /// How execution reached it.
    pub how: How,
}

/// Follows the entries of a history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transitions {
    /// The last straight line, not followed yet.
    pending: Option<Range>,
    gap: Option<Gap>,
    exception: Option<Taken>,
    /// Whether execution is known to be at EL0.
    program: bool,
}

impl Transitions {
    /// Starts at a place with this state of the core.
    pub fn in_context(context: Option<&Context>) -> Self {
        Self {
            program: context.is_some_and(is_program),
            ..Self::default()
        }
    }

    /// Processes the next event in the order of execution.
    pub fn event(&mut self, event: &Event) -> Option<Transition> {
        match event.entry {
            Entry::Run { range, .. } => {
                let transition = self.continue_at(event.position, range.start);
                self.pending = Some(range);
                transition
            }
            Entry::Gap(gap) => {
                let reached = gap.reached();
                let transition = reached.and_then(|to| self.continue_at(event.position, to));
                self.pending = None;
                if !matches!(gap, Gap::TraceOff(_)) {
                    self.exception = None;
                }
                self.gap = Some(gap);
                transition
            }
            Entry::Exception(exception) => {
                // A call or return whose target was not executed before the exception.
                let address = exception.return_address;
                let transition = address.and_then(|to| self.continue_at(event.position, to));
                self.pending = None;
                self.exception = Some((exception.name, address));
                transition
            }
            // Contexts of PTM and ETMv3 have no exception level.
            Entry::Mark(Mark::Context(context)) if context.el.is_some() => {
                self.program = is_program(&context);
                None
            }
            // Recordings of programs have no gap there.
            Entry::Mark(Mark::TraceOn(reason)) if self.exception.is_some() => {
                self.gap.get_or_insert(Gap::TraceOff(reason));
                self.program = true;
                None
            }
            Entry::Mark(_) | Entry::Halted => None,
        }
    }

    /// Returns the return address of the last event, if it is a call or an exception.
    pub fn returns_to(&self) -> Option<Address> {
        let calls = |range: &Range| range.last.taken && range.last.link;
        match self.exception {
            Some((_, returns_to)) => returns_to,
            None => self.pending.filter(calls).map(|range| range.end),
        }
    }

    /// Forgets the last straight line: execution continued after it, or within its function.
    pub fn pass(&mut self) {
        self.pending = None;
    }

    /// Ends the history at a position; execution continues at this address.
    pub fn ends(&mut self, position: Position, to: Address) -> Option<Transition> {
        match self.exception {
            // The core halted before the handler.
            Some((_, Some(returns_to))) if returns_to == to => None,
            _ => self.continue_at(position, to),
        }
    }

    /// Continues execution at an address.
    fn continue_at(&mut self, position: Position, to: Address) -> Option<Transition> {
        let taken = self.exception.take();
        let how = if let Some(gap) = self.gap.take() {
            // A debugger may have changed where execution continues.
            let taken = taken.filter(|(_, returns_to)| match gap {
                Gap::TraceOff(TraceOnReason::BeginOrFilter) => self.program,
                Gap::TraceOff(TraceOnReason::DebugRestart) => *returns_to == Some(to),
                _ => false,
            });
            How::Resumed { gap, taken }
        } else if let Some(taken) = taken {
            How::Took(taken)
        } else {
            let range = self.pending.take()?;
            let LastInstruction {
                kind,
                taken,
                link,
                returns,
                ..
            } = range.last;
            if !taken || !matches!(kind, InstructionKind::Branch | InstructionKind::Indirect) {
                return None;
            }
            if link {
                How::Called {
                    returns_to: range.end,
                }
            } else if returns {
                How::Returned
            } else {
                How::Jumped {
                    from: range.start,
                    indirect: kind == InstructionKind::Indirect,
                }
            }
        };
        Some(Transition { position, to, how })
    }
}

fn is_program(context: &Context) -> bool {
    context.el == Some(ExceptionLevel(0))
}
