//! Calls, exceptions, gaps and events in the Common Trace Format 1.8 (diamon.org/ctf), for
//! babeltrace2: a directory with the description `metadata` and a stream for each track.

use super::axis::{Axis, Clock};
use super::happenings::{Happenings, Joined, Taken, event_parts};
use super::spool::Spool;
use super::{Analysed, ExportError, hidden};
use crate::profile::{Call, CallKind, Ended, Functions, GapSeen, Moment, Track, gap_name};
use armsnap_trace::element::Mark;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

/// The number at the start of each stream.
const MAGIC: u32 = 0xc1fc_1fc1;

/// Numbers of event kinds, as in the description.
mod kind {
    pub const CALL: u16 = 0;
    pub const RETURN: u16 = 1;
    pub const EXCEPTION: u16 = 2;
    pub const GAP: u16 = 3;
    pub const EVENT: u16 = 4;
}

/// Writes the stream of one track while it is decoded.
#[derive(Debug)]
pub struct Stream {
    axis: Axis,
    spool: Spool,
    event: Vec<u8>,
    first: Option<u64>,
    /// Size of the events in bytes.
    size: u64,
}

impl Stream {
    /// Starts the stream of a track.
    pub fn new(clock: Clock, track: &Track) -> Joined<Self> {
        Joined::new(Self {
            axis: Axis::new(clock, track),
            spool: Spool::new(),
            event: Vec::new(),
            first: None,
            size: 0,
        })
    }

    fn begin_event(&mut self, kind: u16, at: u64) {
        self.event.clear();
        self.event.extend(kind.to_le_bytes());
        self.event.extend(at.to_le_bytes());
        self.first.get_or_insert(at);
    }

    fn text(&mut self, text: &str) {
        let clean = text.bytes().filter(|byte| *byte != 0);
        self.event.extend(clean);
        self.event.push(0);
    }

    fn number(&mut self, number: u64) {
        self.event.extend(number.to_le_bytes());
    }

    fn end_event(&mut self) {
        self.size += self.event.len() as u64;
        self.spool.put(&self.event);
    }
}

/// Writes the directory.
///
/// # Errors
///
/// If the trace has no such clock, or the output cannot be written.
pub fn write(
    clock: Clock,
    analysed: &Analysed<'_>,
    streams: Vec<Joined<Stream>>,
    directory: &Path,
) -> Result<(), ExportError> {
    if let Some(why) = clock.lacks(analysed.tracks) {
        return Err(ExportError::Unfit(why));
    }
    std::fs::write(directory.join("metadata"), metadata(clock, analysed))?;
    for (index, joined) in streams.into_iter().enumerate() {
        let stream = joined.finish();
        let file = std::fs::File::create_new(directory.join(format!("stream_{index}")))?;
        let mut out = std::io::BufWriter::new(file);
        out.write_all(&MAGIC.to_le_bytes())?;
        out.write_all(&0_u32.to_le_bytes())?;
        // The context of the only packet: the sizes of the packet and of its contents in bits, its
        // first and last time, and the number of the track.
        let header = 8 + 5 * 8_u64;
        let bits = (header + stream.size) * 8;
        let (first, last) = (stream.first.unwrap_or(0), stream.axis.last());
        for number in [bits, bits, first, last, index as u64] {
            out.write_all(&number.to_le_bytes())?;
        }
        stream.spool.copy_to(&mut out)?;
        out.flush()?;
    }
    Ok(())
}

/// A string in the description language.
fn quoted(text: &str) -> String {
    let clean = |c: char| match c {
        '"' | '\\' => '\'',
        c if c.is_control() || !c.is_ascii() => '?',
        c => c,
    };
    format!("\"{}\"", text.chars().map(clean).collect::<String>())
}

fn metadata(clock: Clock, analysed: &Analysed<'_>) -> String {
    let mut text = "/* CTF 1.8 */\n\n".to_owned();
    text.push_str(
        "typealias integer { size = 16; align = 8; signed = false; } := uint16_t;\n\
         typealias integer { size = 32; align = 8; signed = false; } := uint32_t;\n\
         typealias integer { size = 64; align = 8; signed = false; } := uint64_t;\n\n\
         trace {\n\tmajor = 1;\n\tminor = 8;\n\tbyte_order = le;\n\
         \tpacket.header := struct { uint32_t magic; uint32_t stream_id; };\n};\n\n",
    );
    let _ = writeln!(
        text,
        "env {{\n\ttracer_name = \"armsnap\";\n\tclock = {};",
        quoted(clock.name())
    );
    for (index, (track, profile)) in analysed.tracks.iter().enumerate() {
        let _ = writeln!(text, "\ttrack_{index} = {};", quoted(&track.name));
        if let Some(gaps) = hidden(track, profile) {
            let _ = writeln!(text, "\tgaps_{index} = {};", quoted(&gaps));
        }
    }
    text.push_str("};\n\n");
    // A frequency is required; one tick is shown as one nanosecond.
    text.push_str(
        "clock { name = ticks; freq = 1000000000; };\n\
         typealias integer { size = 64; align = 8; signed = false; map = clock.ticks.value; } \
         := time_t;\n\n\
         stream {\n\tid = 0;\n\tpacket.context := struct { uint64_t packet_size; \
         uint64_t content_size; time_t timestamp_begin; time_t timestamp_end; uint64_t track; };\n\
         \tevent.header := struct { uint16_t id; time_t timestamp; };\n};\n\n",
    );
    let events: [(&str, u16, &str); 5] = [
        (
            "call",
            kind::CALL,
            "string function; string address; string entered; uint64_t instruction;",
        ),
        (
            "return",
            kind::RETURN,
            "string function; string ended; uint64_t instruction;",
        ),
        (
            "exception",
            kind::EXCEPTION,
            "string name; uint64_t number; uint64_t instruction;",
        ),
        ("gap", kind::GAP, "string kind; uint64_t instruction;"),
        (
            "event",
            kind::EVENT,
            "string kind; string origin; string value; uint64_t instruction;",
        ),
    ];
    for (name, id, fields) in events {
        let _ = writeln!(
            text,
            "event {{\n\tname = \"{name}\";\n\tid = {id};\n\tstream_id = 0;\n\tfields := struct {{ {fields} }};\n}};\n"
        );
    }
    text
}

impl Happenings for Stream {
    fn begin(&mut self, call: &Call, functions: &Functions) {
        let at = match call.kind {
            CallKind::Caller => self.axis.last(),
            _ => self.axis.now(&call.begin),
        };
        let function = functions.get(call.function);
        self.begin_event(kind::CALL, at);
        self.text(&function.name);
        // Unknown values are empty.
        let start = function.start.map(|start| start.to_string());
        self.text(&start.unwrap_or_default());
        self.text(call.kind.name());
        self.number(call.begin.instructions);
        self.end_event();
    }

    fn call(&mut self, call: &Call, end: &Moment, how: Ended, functions: &Functions) {
        let at = self.axis.now(end);
        self.begin_event(kind::RETURN, at);
        self.text(&functions.get(call.function).name);
        self.text(how.name());
        self.number(end.instructions);
        self.end_event();
    }

    fn exception(&mut self, taken: &Taken) {
        // Traced handlers are calls.
        if !taken.traced {
            let at = self.axis.now(&taken.begin);
            self.begin_event(kind::EXCEPTION, at);
            self.text(taken.exception.name);
            self.number(taken.exception.number.into());
            self.number(taken.begin.instructions);
            self.end_event();
        }
    }

    fn gap(&mut self, gap: &GapSeen) {
        let at = self.axis.now(&gap.from);
        self.begin_event(kind::GAP, at);
        self.text(gap_name(&gap.gap));
        self.number(gap.from.instructions);
        self.end_event();
    }

    fn event(&mut self, moment: &Moment, mark: &Mark) {
        let at = self.axis.now(moment);
        let parts = event_parts(mark);
        self.begin_event(kind::EVENT, at);
        self.text(parts.kind);
        let origin = [("master", parts.master), ("channel", parts.channel)];
        let known = origin
            .iter()
            .filter_map(|(name, part)| Some((name, (*part)?)));
        let known = known.map(|(name, part)| format!("{name} {part}"));
        self.text(&known.collect::<Vec<_>>().join(", "));
        let value = parts.value.map(|value| format!("{value:#x}"));
        self.text(&value.unwrap_or_default());
        self.number(moment.instructions);
        self.end_event();
        self.axis.count();
    }
}
