//! How execution came from one straight line to the next: by a call, a return, an exception.
//!
//! Follows the branches of a history, entry by entry. Which calls are open, its users keep.

use super::entry::{Entry, Event, Gap};
use super::position::Position;
use crate::element::{Context, Mark, TraceOnReason};
use crate::flow::{self, Last, LastKind, Range};
use crate::quantity::{Address, ExceptionLevel};

/// An exception that was taken: its name, and where it returns to, if that is known.
pub type Taken = (&'static str, Option<Address>);

/// How execution came to an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A branch with link.
    Called {
        /// The instruction behind it.
        returns_to: Address,
    },
    /// A return.
    Returned,
    /// A branch without link that is no return.
    Jumped {
        /// The line that it comes from.
        from: Address,
        /// The target was in a register: old code returns in this way too.
        indirect: bool,
    },
    /// An exception was taken, and this is its handler.
    Took(Taken),
    /// Execution goes on behind a gap.
    Resumed {
        /// The gap.
        gap: Gap,
        /// The exception of a program at EL0 after which tracing was off: the system that took it was
        /// not traced. It may have returned, or called a handler of the program (a signal of Linux).
        taken: Option<Taken>,
    },
}

/// A transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The first place after it.
    pub position: Position,
    /// The instruction there.
    pub to: Address,
    /// How execution came there.
    pub how: How,
}

/// Follows the entries of a history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transitions {
    /// The straight line that was executed last, not yet followed.
    pending: Option<Range>,
    gap: Option<Gap>,
    exception: Option<Taken>,
    /// Execution is known to be at EL0.
    program: bool,
}

impl Transitions {
    /// Begins where this is the state of the core.
    pub fn in_context(context: Option<&Context>) -> Self {
        Self {
            program: context.is_some_and(is_program),
            ..Self::default()
        }
    }

    /// Takes the next event, in the order of history.
    pub fn event(&mut self, event: &Event) -> Option<Transition> {
        match event.entry {
            Entry::Run { range, .. } => {
                let transition = self.goes_on(event.position, range.start);
                self.pending = Some(range);
                transition
            }
            Entry::Gap(gap) => {
                // Execution was there, though it cannot be followed.
                let transition = match gap {
                    Gap::Flow(
                        flow::Gap::MemoryMissing(address) | flow::Gap::NotFollowed { address, .. },
                    ) => self.goes_on(event.position, address),
                    _ => None,
                };
                self.pending = None;
                if !matches!(gap, Gap::TraceOff(_)) {
                    self.exception = None;
                }
                self.gap = Some(gap);
                transition
            }
            Entry::Exception(exception) => {
                // A call or return that led to an instruction which was not executed any more.
                let address = exception.return_address;
                let transition = address.and_then(|to| self.goes_on(event.position, to));
                self.pending = None;
                self.exception = Some((exception.name, address));
                transition
            }
            Entry::Mark(Mark::Context(context)) => {
                self.program = is_program(&context);
                None
            }
            // Recordings of programs have no gap there.
            Entry::Mark(Mark::TraceOn(reason)) if self.exception.is_some() => {
                self.gap.get_or_insert(Gap::TraceOff(reason));
                None
            }
            Entry::Mark(_) | Entry::Halted => None,
        }
    }

    /// Execution goes on at an address.
    fn goes_on(&mut self, position: Position, to: Address) -> Option<Transition> {
        let taken = self.exception.take();
        let how = if let Some(gap) = self.gap.take() {
            // A debugger may have changed where execution goes on.
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
            let Last {
                kind,
                taken,
                link,
                returns,
                ..
            } = range.last;
            if !taken || !matches!(kind, LastKind::Branch | LastKind::Indirect) {
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
                    indirect: kind == LastKind::Indirect,
                }
            }
        };
        Some(Transition { position, to, how })
    }
}

fn is_program(context: &Context) -> bool {
    context.el == Some(ExceptionLevel(0))
}
