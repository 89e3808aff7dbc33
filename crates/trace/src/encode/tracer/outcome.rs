//! Determines the outcome of a waypoint or exception from the next address, and passes it to the
//! trace unit.

use super::{Pending, Tracer};
use crate::element::TraceOnReason;
use crate::encode::{CodeAddress, TakenException, TraceUnit, Waypoint};
use crate::flow::{CodeImage, ContextKey};
pub(super) use armsnap_arch::arch::branch::Kind;
use armsnap_arch::quantity::Isa;

impl<U: TraceUnit, C: CodeImage> Tracer<U, C> {
    /// Continues execution at `place`.
    pub(super) fn arrive(&mut self, place: CodeAddress) {
        let new_context = self.next_context(place);
        if self.here != Some(place) {
            let returned = self.pending.is_some_and(|p| p.instruction.exception_return);
            self.it_blocks.go(place, returned);
        }
        if let Some(pending) = self.pending.take() {
            self.resolve(pending, place, new_context);
        } else if self.exception.is_some() {
            self.except(Some(place));
        } else if self.here.is_some() && self.here != Some(place) {
            self.gaps += 1;
            self.gap(TraceOnReason::BeginOrFilter);
        }
        if self.here.is_none() {
            if !self.begun {
                let written = self.written();
                self.start_points.push(written);
            }
            self.unit.trace_on(self.reason, place);
            self.reason = TraceOnReason::BeginOrFilter;
            self.stack.clear();
            self.last = None;
            if !std::mem::replace(&mut self.begun, true) {
                self.synchronised = self.written();
                self.marks();
            }
        } else if self.last.is_none() {
            self.synchronise(place);
        }
        self.here = Some(place);
    }

    /// Traces a waypoint that led to `next`. `new_context` tells whether the state of the core changed.
    pub(super) fn resolve(&mut self, waypoint: Pending, next: CodeAddress, new_context: bool) {
        let Pending {
            instruction, after, ..
        } = waypoint;
        let falls = next == after;
        let (taken, connected) = match instruction.kind {
            Kind::Branch { target, isa } => {
                let leads = next
                    == CodeAddress {
                        address: target,
                        isa,
                    };
                // After an exception return into an IT block, a branch that looks unconditional may
                // fall through.
                let conditional = instruction.conditional || after.isa == Isa::T32 && !leads;
                let taken = !conditional || leads && !falls;
                (taken, if taken { leads } else { falls })
            }
            Kind::Indirect => (!falls || !instruction.conditional, true),
            _ => (true, falls),
        };
        let direct = matches!(instruction.kind, Kind::Branch { .. });
        let indirect = instruction.kind == Kind::Indirect;
        let broadcast = self.options.branch_broadcast;
        let mut target_traced = taken && (indirect || direct && broadcast);
        if taken
            && indirect
            && !broadcast
            && !instruction.link
            && !instruction.exception_return
            && !new_context
            && self.stack.last() == Some(&next)
        {
            self.stack.pop();
            target_traced = false;
        }
        if taken && instruction.link && self.options.return_stack > 0 {
            if self.stack.len() >= self.options.return_stack {
                self.stack.remove(0);
            }
            self.stack.push(after);
        }
        self.unit.waypoint(&Waypoint {
            taken,
            target_traced: target_traced && connected,
            exception_return: taken && instruction.exception_return,
            next,
        });
        self.marks();
        self.here = Some(next);
        if !connected {
            self.gaps += 1;
            self.here = None;
        }
    }

    /// Traces the pending exception, which led to `handler`.
    pub(super) fn except(&mut self, handler: Option<CodeAddress>) {
        if let Some(exception) = self.exception.take() {
            // A point after the exception is not the one that was asked for.
            self.asked.take_if(|(_, at)| at.is_none());
            let last = self.last.take();
            self.unit.exception(&TakenException {
                number: exception.number,
                return_to: exception.return_to,
                last,
                chained: exception.chained,
                handler,
            });
            if let Some(handler) = handler {
                self.here = Some(handler);
            }
            self.marks();
        }
    }

    /// Traces the pending waypoint and exception before a gap. A branch with an unknown outcome is
    /// omitted.
    pub(super) fn settle(&mut self) {
        if let Some(pending) = self.pending.take() {
            let certain = match pending.instruction.kind {
                Kind::Branch { target, isa } if !pending.instruction.conditional => {
                    Some(CodeAddress {
                        address: target,
                        isa,
                    })
                }
                // Its target is not traced.
                Kind::Indirect if !pending.instruction.conditional => {
                    self.unit.waypoint(&Waypoint {
                        taken: true,
                        target_traced: false,
                        exception_return: pending.instruction.exception_return,
                        next: pending.after,
                    });
                    None
                }
                Kind::Branch { .. } | Kind::Indirect => None,
                _ => Some(pending.after),
            };
            if let Some(next) = certain {
                self.resolve(pending, next, false);
            }
        }
        self.except(None);
        self.marks();
    }

    pub(super) fn marks(&mut self) {
        if !self.begun {
            return;
        }
        for mark in self.marks.drain(..) {
            self.unit.mark(&mark);
        }
    }

    /// Passes the new context, if there is one, to the trace unit. Returns whether there was one.
    pub(super) fn next_context(&mut self, place: CodeAddress) -> bool {
        let Some(context) = self.next_context.take() else {
            return false;
        };
        self.view = self.code.view(&ContextKey::from(&context));
        let continues = self.pending.is_none() && self.exception.is_none();
        let at = (continues && self.here == Some(place)).then_some(place);
        self.unit.context(&context, at);
        true
    }

    #[inline]
    pub(super) fn synchronise(&mut self, place: CodeAddress) {
        let written = self.written();
        if self.sync_bytes > 0 && written.wrapping_sub(self.synchronised) >= self.sync_bytes {
            self.write_synchronisation(place, written);
        }
    }

    #[cold]
    fn write_synchronisation(&mut self, place: CodeAddress, written: usize) {
        self.unit.flush();
        let start_point = self.written();
        self.start_points.push(start_point);
        // A point at another place is not the one that was asked for.
        self.asked = self.asked.take().and_then(|(wanted, at)| match at {
            None if wanted == place => Some((wanted, Some(start_point))),
            None => None,
            Some(_) => Some((wanted, at)),
        });
        self.unit.synchronise(place);
        self.stack.clear();
        self.synchronised = written;
    }

    #[inline]
    pub(super) fn written(&mut self) -> usize {
        self.taken.wrapping_add(self.unit.bytes().len())
    }

    /// Traces a gap where code is missing or its instruction set is not followed.
    pub(super) fn lose(&mut self) {
        self.gaps += 1;
        self.gap(TraceOnReason::BeginOrFilter);
    }
}
