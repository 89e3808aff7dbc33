//! What an export of time is made of: calls and exceptions with both ends, gaps, events.

use crate::element::{Context, Exception, Itm, Mark};
use crate::flow::Range;
use crate::profile::shards::Piece;
use crate::profile::{Call, Ended, FunctionKind, Functions, GapSeen, Listener, Moment};

/// An exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// What was taken.
    pub exception: Exception,
    /// When.
    pub begin: Moment,
    /// When its handler was left; `None` if that was not traced.
    pub end: Option<Moment>,
    /// Whether the handler was left by a return to where the exception was taken.
    pub returned: bool,
}

/// Receives what happened, each thing once, when it is over.
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

/// Listens, and joins exceptions with their ends.
#[derive(Debug, Default)]
pub struct Joined<H> {
    /// Receives what happened.
    pub inner: H,
    /// The exception whose handler was not executed so far.
    pending: Option<(Moment, Exception)>,
    /// Those whose handlers are executed.
    open: Vec<(Moment, Exception)>,
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

    /// The handler of the pending exception is not traced.
    fn untraced(&mut self) {
        if let Some((begin, exception)) = self.pending.take() {
            self.inner.exception(&Taken {
                exception,
                begin,
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
        if is_exception(call, functions) {
            self.open.extend(self.pending.take());
        }
        self.inner.begin(call, functions);
    }

    fn end(&mut self, call: &Call, end: &Moment, how: Ended, functions: &Functions) {
        if is_exception(call, functions)
            && let Some((begin, exception)) = self.open.pop()
        {
            self.inner.exception(&Taken {
                exception,
                begin,
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
        self.inner.gap(gap);
    }

    fn event(&mut self, moment: &Moment, mark: &Mark) {
        self.inner.event(moment, mark);
    }
}

/// The parts of an event: its kind, where it is from (port, channel, number), and its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventParts {
    /// What it is.
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
