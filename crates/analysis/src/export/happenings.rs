//! What exports over time consist of: calls and exceptions with both ends, gaps, events.

use crate::profile::shards::Piece;
use crate::profile::{Call, CallKind, Ended, FunctionKind, Functions, GapSeen, Listener, Moment};
use armsnap_trace::element::{Context, Exception, Itm, Mark};
use armsnap_trace::flow::Range;

/// An exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// What was taken.
    pub exception: Exception,
    /// When.
    pub begin: Moment,
    /// Whether its handler was traced; then it is a call, too.
    pub traced: bool,
    /// When its handler returned; `None` if that was not traced.
    pub end: Option<Moment>,
    /// Whether the handler returned to where the exception was taken.
    pub returned: bool,
}

/// Receives what happened, each item once, when it is over.
pub trait Happenings {
    /// Whether [`Self::straight`] and [`Self::unknown_path`] are wanted.
    const STRAIGHT: bool = false;

    /// A function was entered. Calls are nested.
    fn begin(&mut self, call: &Call, functions: &Functions) {
        let _ = (call, functions);
    }

    /// A call ended.
    fn call(&mut self, call: &Call, end: &Moment, how: Ended, functions: &Functions);

    /// An exception was taken, and is over.
    fn exception(&mut self, taken: &Taken);

    /// A gap.
    fn gap(&mut self, gap: &GapSeen);

    /// A message or an event.
    fn event(&mut self, moment: &Moment, mark: &Mark);

    /// Instructions were executed in a straight line.
    fn straight(&mut self, moment: &Moment, line: &Range, context: Option<&Context>) {
        let _ = (moment, line, context);
    }

    /// Instructions were executed on an unknown path.
    fn unknown_path(&mut self, moment: &Moment, instructions: u32, context: Option<&Context>) {
        let _ = (moment, instructions, context);
    }

    /// A piece of a shard follows.
    fn piece(&mut self, begin: &Moment, piece: &Piece) {
        let _ = (begin, piece);
    }
}

/// A listener that pairs exceptions with their ends.
#[derive(Debug, Default)]
pub struct Joined<H> {
    /// Receives what happened.
    pub inner: H,
    /// The exception whose handler has not been executed yet.
    pending: Option<(Moment, Exception)>,
    /// Exceptions whose handlers are running; `None` if taken before listening began.
    open: Vec<Option<(Moment, Exception)>>,
}

impl<H: Happenings> Joined<H> {
    /// Passes on to `inner`.
    pub fn new(inner: H) -> Self {
        Self {
            inner,
            pending: None,
            open: Vec::new(),
        }
    }

    /// Ends the trace.
    pub fn finish(mut self) -> H {
        self.untraced();
        self.inner
    }

    /// Reports the pending exception as one whose handler is not traced.
    fn untraced(&mut self) {
        if let Some((begin, exception)) = self.pending.take() {
            self.inner.exception(&Taken {
                exception,
                begin,
                traced: false,
                end: None,
                returned: false,
            });
        }
    }
}

fn is_exception(call: &Call, functions: &Functions) -> bool {
    matches!(
        functions.get(call.function).kind,
        FunctionKind::Exception(_)
    )
}

impl<H: Happenings> Listener for Joined<H> {
    const STRAIGHT: bool = H::STRAIGHT;

    #[inline]
    fn straight(&mut self, moment: &Moment, line: &Range, context: Option<&Context>) {
        self.inner.straight(moment, line, context);
    }

    fn unknown_path(&mut self, moment: &Moment, instructions: u32, context: Option<&Context>) {
        self.inner.unknown_path(moment, instructions, context);
    }

    fn piece(&mut self, begin: &Moment, piece: &Piece) {
        self.inner.piece(begin, piece);
    }

    fn begin(&mut self, call: &Call, functions: &Functions) {
        let handled = match call.kind {
            CallKind::Exception => self.pending.take(),
            _ => None,
        };
        self.untraced();
        if is_exception(call, functions) {
            self.open.push(handled);
        }
        self.inner.begin(call, functions);
    }

    fn end(&mut self, call: &Call, end: &Moment, how: Ended, functions: &Functions) {
        self.untraced();
        if is_exception(call, functions)
            && let Some((begin, exception)) = self.open.pop().flatten()
        {
            self.inner.exception(&Taken {
                exception,
                begin,
                traced: true,
                end: (how != Ended::Unseen && how != Ended::Open).then_some(*end),
                returned: how == Ended::Returned,
            });
        }
        self.inner.call(call, end, how, functions);
    }

    fn exception(&mut self, moment: &Moment, exception: &Exception) {
        self.untraced();
        self.pending = Some((*moment, *exception));
    }

    fn gap(&mut self, gap: &GapSeen) {
        self.untraced();
        self.inner.gap(gap);
    }

    fn event(&mut self, moment: &Moment, mark: &Mark) {
        // Its handler may still follow if nothing was executed since.
        if let Some((begin, _)) = &self.pending
            && begin.instructions < moment.instructions
        {
            self.untraced();
        }
        self.inner.event(moment, mark);
    }
}

/// The parts of an event: its kind, its origin (port, channel, number), and its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventParts {
    /// Its kind.
    pub kind: &'static str,
    /// Master of an STM message.
    pub master: Option<u64>,
    /// Stimulus port, channel, or number of the event.
    pub channel: Option<u64>,
    /// Size of the value in bits.
    pub bits: Option<u64>,
    /// Value.
    pub value: Option<u64>,
}

impl EventParts {
    /// The known numbers with their names.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [
            ("master", self.master),
            ("channel", self.channel),
            ("bits", self.bits),
            ("value", self.value),
        ];
        let known = all.into_iter();
        known.filter_map(|(name, value)| Some((name, value?)))
    }
}

/// Takes an event apart.
pub fn event_parts(mark: &Mark) -> EventParts {
    let kind = |kind| EventParts {
        kind,
        ..EventParts::default()
    };
    match *mark {
        Mark::Itm(Itm::Stimulus { port, bytes, value }) => EventParts {
            kind: "itm",
            channel: Some(port.into()),
            bits: Some(u64::from(bytes) * 8),
            value: Some(value.into()),
            ..EventParts::default()
        },
        Mark::Itm(Itm::Hardware { port, bytes, value }) => EventParts {
            kind: "dwt",
            channel: Some(port.into()),
            bits: Some(u64::from(bytes) * 8),
            value: Some(value.into()),
            ..EventParts::default()
        },
        Mark::Itm(_) => kind("itm_overflow"),
        Mark::Stm(stm) => EventParts {
            kind: match (
                stm.master_error || stm.global_error,
                stm.trigger,
                stm.frequency,
            ) {
                (true, ..) => "stm_error",
                (_, true, _) => "stm_trigger",
                (_, _, true) => "stm_frequency",
                _ if stm.marker => "stm_marked",
                _ => "stm",
            },
            master: stm.master.map(u64::from),
            channel: stm.channel.map(u64::from),
            bits: Some(stm.bits.into()),
            value: Some(stm.value),
        },
        Mark::Event(number) => EventParts {
            channel: Some(number.into()),
            ..kind("event")
        },
        Mark::Trigger => kind("trigger"),
        Mark::Marker(value) => EventParts {
            value: Some(value.into()),
            ..kind("marker")
        },
        Mark::Transaction(transaction) => EventParts {
            kind: match transaction.name() {
                "init" => "transaction_init",
                "start" => "transaction_start",
                "commit" => "transaction_commit",
                _ => "transaction_fail",
            },
            ..EventParts::default()
        },
        Mark::Instrumentation { el, value } => EventParts {
            channel: Some(el.0.into()),
            bits: Some(64),
            value: Some(value),
            ..kind("instrumentation")
        },
        _ => kind("other"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::FunctionId;

    /// What happened, and after how many instructions.
    #[derive(Default)]
    struct Log(Vec<(String, u64)>);

    impl Happenings for Log {
        fn begin(&mut self, call: &Call, _: &Functions) {
            self.0
                .push((call.kind.name().to_owned(), call.begin.instructions));
        }

        fn call(&mut self, _: &Call, end: &Moment, how: Ended, _: &Functions) {
            self.0.push((how.name().to_owned(), end.instructions));
        }

        fn exception(&mut self, taken: &Taken) {
            let name = taken.exception.name;
            let word = if taken.traced { "handled" } else { "taken" };
            self.0
                .push((format!("{word} {name}"), taken.begin.instructions));
        }

        fn gap(&mut self, gap: &GapSeen) {
            self.0.push(("gap".to_owned(), gap.from.instructions));
        }

        fn event(&mut self, moment: &Moment, _: &Mark) {
            self.0.push(("event".to_owned(), moment.instructions));
        }
    }

    fn moment(instructions: u64) -> Moment {
        Moment {
            instructions,
            ..Moment::default()
        }
    }

    fn call(function: FunctionId, kind: CallKind, begin: u64) -> Call {
        Call {
            function,
            kind,
            begin: moment(begin),
            depth: 0,
            returns_to: None,
        }
    }

    fn taken(name: &'static str) -> Exception {
        Exception {
            number: 14,
            name,
            return_address: None,
        }
    }

    #[track_caller]
    fn check(joined: Joined<Log>, wanted: &[(&str, u64)]) {
        let log = joined.finish().0;
        let log: Vec<(&str, u64)> = log.iter().map(|(what, at)| (&**what, *at)).collect();
        assert_eq!(log, wanted);
    }

    #[test]
    fn exceptions_without_a_traced_handler_come_in_their_place() {
        let functions = Functions::default();
        let function = FunctionId::UNKNOWN;
        let mut joined = Joined::new(Log::default());
        joined.exception(&moment(3), &taken("SVC"));
        // Its handler may still follow.
        joined.event(&moment(3), &Mark::Trigger);
        joined.begin(&call(function, CallKind::Call, 5), &functions);
        joined.exception(&moment(6), &taken("IRQ"));
        joined.event(&moment(7), &Mark::Trigger);
        joined.exception(&moment(8), &taken("SVC"));
        let ended = call(function, CallKind::Call, 5);
        joined.end(&ended, &moment(9), Ended::Returned, &functions);
        let wanted = [
            ("event", 3),
            ("taken SVC", 3),
            ("call", 5),
            ("taken IRQ", 6),
            ("event", 7),
            ("taken SVC", 8),
            ("returned", 9),
        ];
        check(joined, &wanted);
    }

    /// Its handler is a call, even if it never ends.
    #[test]
    fn exceptions_belong_to_the_handler_that_is_entered() {
        let mut functions = Functions::default();
        let irq = functions.exception("IRQ");
        let mut joined = Joined::new(Log::default());
        // Another task continues in its handler, which is not that of the system call.
        joined.exception(&moment(3), &taken("SVC"));
        let continued = call(irq, CallKind::Continued, 3);
        joined.begin(&continued, &functions);
        joined.exception(&moment(4), &taken("IRQ"));
        let entered = call(irq, CallKind::Exception, 4);
        joined.begin(&entered, &functions);
        joined.end(&entered, &moment(5), Ended::Unseen, &functions);
        joined.end(&continued, &moment(6), Ended::Returned, &functions);
        let wanted = [
            ("taken SVC", 3),
            ("continued", 3),
            ("exception", 4),
            ("handled IRQ", 4),
            ("unseen", 5),
            ("returned", 6),
        ];
        check(joined, &wanted);
    }
}
