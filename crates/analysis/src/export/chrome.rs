//! Timelines in Chrome's tracing JSON ("Trace Event Format"), which Perfetto and others read.

use super::axis::{Axis, Clock};
use super::happenings::{Happenings, Joined, Taken, event_parts};
use super::spool::Spool;
use super::{Analysed, ExportError, hidden};
use crate::profile::{Call, CallKind, Ended, Functions, GapSeen, Moment, Track, gap_name};
use armsnap_trace::element::Mark;
use serde_json::{Value, json};
use std::io::Write;

/// A finished call.
#[derive(Debug)]
struct Slice {
    extent: (u64, u64),
    /// The number of enclosing calls.
    depth: usize,
    event: Value,
}

/// Writes the events of one track while it is decoded.
#[derive(Debug)]
pub struct Events {
    axis: Axis,
    process: usize,
    spool: Spool,
    /// Nested calls over the same time: the outermost is written first.
    held: Vec<Slice>,
    /// The times at which the open calls began.
    begun: Vec<u64>,
    /// The earliest time at which an unseen caller can begin.
    since: u64,
}

impl Events {
    /// Starts the events of a track; `process` is its number.
    pub fn new(clock: Clock, process: usize, track: &Track) -> Joined<Self> {
        Joined::new(Self {
            axis: Axis::new(clock, track),
            process,
            spool: Spool::new(),
            held: Vec::new(),
            begun: Vec::new(),
            since: 0,
        })
    }

    fn put(&mut self, event: &Value) {
        self.spool.put(b",\n");
        self.spool.put(event.to_string().as_bytes());
    }

    /// Writes the calls that were held.
    fn release(&mut self) {
        for slice in std::mem::take(&mut self.held).iter().rev() {
            self.put(&slice.event);
        }
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
        let mut events = joined.finish();
        events.release();
        events.spool.copy_to(out)?;
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
        let event = json!({
            "name": function.name, "cat": "call", "ph": "X", "ts": begin,
            "dur": end_at.saturating_sub(begin), "pid": process, "tid": 1, "args": arguments,
        });
        let (extent, depth) = ((begin, end_at), self.begun.len());
        let last = self.held.last();
        if last.is_some_and(|last| last.extent != extent || last.depth <= depth) {
            self.release();
        }
        self.held.push(Slice {
            extent,
            depth,
            event,
        });
    }

    fn exception(&mut self, taken: &Taken) {
        // Traced handlers are calls.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{FunctionId, Listener};

    /// Readers take the first of two slices over the same time as the outer one.
    #[test]
    fn the_outer_of_equal_slices_is_written_first() {
        let track = Track {
            name: "cpu0".to_owned(),
            core: Some(0),
            source: 0,
            source_name: "ETM".to_owned(),
            follows: true,
        };
        let functions = Functions::default();
        let mut events = Events::new(Clock::Instructions, 1, &track);
        let moment = |instructions| Moment {
            instructions,
            ..Moment::default()
        };
        let mut open = Vec::new();
        let calls = [CallKind::Call, CallKind::Jump, CallKind::Middle];
        // The last one is entered later.
        for (kind, at) in calls.into_iter().zip([3, 3, 5]) {
            let call = Call {
                function: FunctionId::UNKNOWN,
                kind,
                begin: moment(at),
                depth: 0,
                returns_to: None,
            };
            events.begin(&call, &functions);
            open.push(call);
        }
        for call in open.iter().rev() {
            events.end(call, &moment(9), Ended::Returned, &functions);
        }
        let mut events = events.finish();
        events.release();
        let mut text = Vec::new();
        events.spool.copy_to(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let events = text.split(",\n").skip(1);
        let entered: Vec<String> = events
            .map(|event| {
                let event: Value = serde_json::from_str(event).unwrap();
                event["args"]["entered"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(entered, ["middle", "call", "jump"]);
    }
}
