//! Gaps, exceptions, events and the window of a course.

use super::super::clock::Moment;
use super::super::stack::{Call, Ended, GapSeen, Listener};
use super::super::window::Bound;
use super::{Course, DEBUG_HALT};
use armsnap_arch::quantity::{Address, BufferOffset};
use armsnap_history::timeline::{Entry, Event, Gap, Position};
use armsnap_trace::element::{Context, Itm, Mark, NoSyncReason, TraceOnReason};
use armsnap_trace::flow::{self, CodeImage, ContextKey, Range};

/// A gap that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenGap {
    pub gap: Gap,
    pub from: Moment,
}

impl<L: Listener> Course<'_, L> {
    /// Opens or closes the window before a straight line.
    pub(super) fn look_at_window(&mut self, range: &Range) {
        if self.packet.0 != self.now.at {
            self.packet = (self.now.at, 0);
        }
        let skipped = self.packet.1;
        self.packet.1 += u64::from(range.instructions);
        let now = self.now;
        self.move_window(|bound| bound.is_reached(&now, range, skipped));
    }

    fn move_window(&mut self, reached: impl Fn(&Bound) -> bool) {
        let (from, to) = (
            self.window.from.as_ref().is_some_and(&reached),
            self.window.to.as_ref().is_some_and(&reached),
        );
        if from {
            self.window.from = None;
            self.open_window();
        } else if to && self.active {
            self.close_window(Ended::Open);
            self.window.to = None;
            self.active = false;
            self.waiting = false;
        }
    }

    pub(super) fn open_window(&mut self) {
        self.spread();
        self.settle();
        self.active = true;
        self.waiting = self.window.to.is_some();
        self.opened = (self.now.instructions, self.now.cycles.unwrap_or(0));
        self.since = self.now;
        self.recent.clear();
        let mut parent = None;
        for depth in 0..self.open.len() {
            let Call {
                function,
                returns_to,
                ..
            } = self.open[depth].call;
            let node = match parent {
                Some(parent) => self.recent.child(parent, function, returns_to),
                None => self.recent.root(function),
            };
            self.open[depth].node = node;
            parent = Some(node);
        }
        self.suspended.clear();
        self.continue_open();
        self.back();
    }

    pub(super) fn close_window(&mut self, how: Ended) {
        if !self.active {
            return;
        }
        self.slow();
        self.close_down_to(0, how);
        self.spread();
        self.counted.tree.merge(&self.recent);
        self.recent.clear();
        // Their nodes no longer exist.
        self.suspended.clear();
        self.counted.instructions = self.now.instructions - self.opened.0;
        let cycles = self.now.cycles;
        self.counted.cycles = cycles.map(|cycles| cycles.saturating_sub(self.opened.1));
        self.counted.last_time = self.now.time;
    }

    pub(super) fn lose(&mut self, gap: Gap) {
        self.slow();
        self.edge = None;
        self.transitions.event(&Event {
            position: Position::default(),
            offset: self.now.at,
            entry: Entry::Gap(gap),
        });
        self.arm();
        if self.gap.is_none() {
            let from = self.now;
            self.gap = Some(OpenGap { gap, from });
        }
    }

    pub(super) fn end_gap(&mut self, to: Address) {
        if let Some(gap) = self.gap.take()
            && self.active
        {
            // Before the first instruction there is nothing to lose.
            let start = matches!(gap.gap, Gap::NoSync(NoSyncReason::Start) | Gap::TraceOff(_));
            if gap.from.instructions > 0 || !start {
                self.report_gap(&gap, Some(to));
            }
        }
    }

    pub(super) fn report_gap(&mut self, gap: &OpenGap, to: Option<Address>) {
        *self.counted.gaps.entry(gap_name(&gap.gap)).or_default() += 1;
        self.listener.gap(&GapSeen {
            gap: gap.gap,
            from: gap.from,
            to: to.map(|_| self.now),
            resumes_at: to,
        });
    }

    /// Handles an element without code, from any source.
    pub(super) fn event_mark(&mut self, mark: &Mark) {
        if self.waiting {
            // Some sources have only such elements.
            let now = self.now;
            self.move_window(|bound| bound.is_past(&now));
        }
        if self.active {
            self.counted.events += 1;
            self.listener.event(&self.now, mark);
        }
    }

    pub(super) fn any_mark(&mut self, at: BufferOffset, mark: &Mark) {
        self.counted.elements += u64::from(self.active);
        self.now.at = at;
        match mark {
            Mark::Cycles(cycles) => self.count_cycles((*cycles).into()),
            Mark::Timestamp(time) => {
                self.now.time = Some(*time);
                if self.active {
                    self.listener.time(&self.now);
                }
            }
            Mark::Context(context) => self.enter_context(context, mark),
            Mark::NoSync(reason) => self.lose(Gap::NoSync(*reason)),
            Mark::TraceOn(reason) => self.trace_on(*reason, mark),
            Mark::Stm(stm) => {
                if let Some(time) = stm.timestamp {
                    self.now.time = Some(time);
                }
                self.event_mark(mark);
            }
            Mark::Itm(itm) => match itm {
                Itm::LocalTimestamp { total, .. } => self.now.time = Some(*total),
                Itm::GlobalTimestamp(_) => {}
                _ => self.event_mark(mark),
            },
            Mark::Event(_)
            | Mark::Trigger
            | Mark::Marker(_)
            | Mark::Transaction(_)
            | Mark::Instrumentation { .. } => self.event_mark(mark),
            Mark::ExceptionReturn | Mark::Data { .. } | Mark::End => {}
        }
    }

    pub(super) fn enter_context(&mut self, context: &Context, mark: &Mark) {
        let before = self.context;
        let context = context.completed(before.as_ref());
        self.context = Some(context);
        self.view = self.image.view(&ContextKey::from(&context));
        self.pass_mark(mark);
        if self.active && before != Some(context) {
            self.listener.context(&self.now, &context);
        }
    }

    pub(super) fn pass_mark(&mut self, mark: &Mark) {
        self.transitions.event(&Event {
            position: Position::default(),
            offset: self.now.at,
            entry: Entry::Mark(*mark),
        });
    }

    pub(super) fn trace_on(&mut self, reason: TraceOnReason, mark: &Mark) {
        let returned = self.exception.is_some_and(|exception| {
            self.alone && self.gap.is_none() && exception.number != DEBUG_HALT
        });
        // The untraced kernel returned to the program: nothing of the program is lost.
        if returned && reason == TraceOnReason::BeginOrFilter {
            self.edge = None;
            self.arm();
            self.pass_mark(mark);
        } else {
            self.lose(Gap::TraceOff(reason));
        }
    }
}

/// The name of a kind of gap, in tables.
pub fn gap_name(gap: &Gap) -> &'static str {
    match gap {
        Gap::Flow(flow::Gap::MemoryMissing(_)) => "code_missing",
        Gap::Flow(flow::Gap::NotFollowed { .. }) => "not_followed",
        Gap::Flow(flow::Gap::ReturnStackEmpty) => "return_stack_empty",
        Gap::Flow(flow::Gap::TargetNotTraced { .. }) => "target_not_traced",
        Gap::Flow(_) => "not_reached",
        Gap::NoSync(NoSyncReason::Overflow) => "overflow",
        Gap::NoSync(_) => "no_sync",
        Gap::TraceOff(TraceOnReason::Overflow) => "overflow",
        Gap::TraceOff(_) => "trace_off",
        Gap::UnknownPath(_) => "unknown_path",
        Gap::Buffer => "buffer",
    }
}
