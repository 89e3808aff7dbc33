//! Time lines in the JSON of Chrome's tracing ("Trace Event Format"), which Perfetto and others read.

use super::axis::{Axis, Clock};
use super::happenings::{Happenings, Joined, Taken, event_parts};
use super::spool::Spool;
use super::{Analysed, ExportError, hidden};
use crate::element::Mark;
use crate::profile::{Call, CallKind, Ended, Functions, GapSeen, Moment, Track, gap_name};
use serde_json::{Value, json};
use std::io::Write;

/// Writes the events of one track while it is decoded.
#[derive(Debug)]
pub struct Events {
    axis: Axis,
    process: usize,
    spool: Spool,
    /// The times at which the open calls began.
    begun: Vec<u64>,
    /// The earliest time at which an unseen caller may begin.
    since: u64,
}

impl Events {
    /// Starts the events of a track; `process` is its number.
    pub fn new(clock: Clock, process: usize, track: &Track) -> Joined<Self> {
        Joined::new(Self {
            axis: Axis::new(clock, track),
            process,
            spool: Spool::new(),
            begun: Vec::new(),
            since: 0,
        })
    }

    fn put(&mut self, event: &Value) {
        self.spool.put(b",\n");
        self.spool.put(event.to_string().as_bytes());
    }

    fn instant(&mut self, name: &str, category: &str, moment: &Moment, arguments: Value) {
        let at = self.axis.now(moment);
        let process = self.process;
        self.put(&json!({
            "name": name, "cat": category, "ph": "i", "s": "t", "ts": at, "pid": process, "tid": 1,
            "args": arguments,
        }));
    }
}

/// Writes all tracks.
///
/// # Errors
///
/// If the trace has no such clock, or the output cannot be written.
pub fn write(
    clock: Clock,
    analysed: &Analysed<'_>,
    events: Vec<Joined<Events>>,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    if let Some(why) = clock.lacks(analysed.tracks) {
        return Err(ExportError::Unfit(why));
    }
    let gaps = analysed.tracks.iter();
    let gaps = gaps.filter_map(|(track, profile)| hidden(track, profile));
    let about = json!({
        "producer": concat!("armsnap ", env!("CARGO_PKG_VERSION")),
        "clock": format!("1 us is 1 of: {}", clock.name()),
        "gaps": gaps.collect::<Vec<_>>(),
    });
    write!(out, "{{\"otherData\":{about},\n\"traceEvents\":[")?;
    for (index, (joined, (track, _))) in events.into_iter().zip(analysed.tracks).enumerate() {
        let separator = if index == 0 { "\n" } else { ",\n" };
        let name = json!({
            "name": "process_name", "ph": "M", "pid": index + 1, "tid": 1,
            "args": { "name": track.name },
        });
        write!(out, "{separator}{name}")?;
        joined.finish().spool.copy_to(out)?;
    }
    writeln!(out, "\n]}}")?;
    Ok(())
}

impl Happenings for Events {
    fn begin(&mut self, call: &Call, _: &Functions) {
        let at = match call.kind {
            CallKind::Caller => self.since,
            _ => self.axis.now(&call.begin),
        };
        if self.begun.is_empty() && call.kind != CallKind::Caller {
            self.since = at;
        }
        self.begun.push(at);
    }

    fn call(&mut self, call: &Call, end: &Moment, how: Ended, functions: &Functions) {
        let end_at = self.axis.now(end);
        let begin = self.begun.pop().unwrap_or(end_at);
        let function = functions.get(call.function);
        let mut arguments = json!({ "ended": how.name(), "entered": call.kind.name() });
        arguments["instructions"] = end
            .instructions
            .saturating_sub(call.begin.instructions)
            .into();
        if let Some(start) = function.start {
            arguments["address"] = start.to_string().into();
        }
        let process = self.process;
        self.put(&json!({
            "name": function.name, "cat": "call", "ph": "X", "ts": begin,
            "dur": end_at.saturating_sub(begin), "pid": process, "tid": 1, "args": arguments,
        }));
    }

    fn exception(&mut self, taken: &Taken) {
        // Handlers that were traced are calls.
        if !taken.traced {
            let exception = &taken.exception;
            let arguments = json!({ "number": exception.number });
            self.instant(exception.name, "exception", &taken.begin, arguments);
        }
    }

    fn gap(&mut self, gap: &GapSeen) {
        let name = format!("gap: {}", gap_name(&gap.gap));
        let resumes_at = gap.resumes_at.map(|to| to.to_string());
        self.instant(&name, "gap", &gap.from, json!({ "resumes_at": resumes_at }));
    }

    fn event(&mut self, moment: &Moment, mark: &Mark) {
        let parts = event_parts(mark);
        let arguments = parts
            .numbers()
            .map(|(name, value)| (name.to_owned(), value.into()));
        let arguments = Value::Object(arguments.collect());
        self.instant(parts.kind, "event", moment, arguments);
        self.axis.count();
    }
}
