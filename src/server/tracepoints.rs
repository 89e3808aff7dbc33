//! Tracing packets: a snapshot is presented as a finished trace run (GDB manual, "Tracepoint
//! Packets").
//!
//! GDB requests the run, its tracepoints and its variables when it connects. These are answered
//! without decoding; `tfind` and later packets decode.

use std::fmt::Write as _;
use std::time::Duration;

use super::history_registers::{self, HistoryRegister};
use super::keepalive::with_keepalive;
use super::reply::{MALFORMED, NO_MEMORY, known_or_not, pair, transfer};
use super::target::SnapshotTarget;
use super::trace_buffer::Reading;
use super::trace_frames::{TraceFrames, Wanted};
use super::trace_runs::{FIRST, HALTED};
use super::trace_text;
use super::trace_values::{FrameValues, TraceValues};
use crate::remote_protocol::framing::MAX_PACKET;
use crate::remote_protocol::hex::{parse_hex, write_hex};
use armsnap_arch::arch::RegisterDescription;
use armsnap_arch::arch::registers::Bytes;

/// Time limit for the values of a frame while keepalive packets are sent.
const WHILE_ALIVE: Duration = Duration::from_secs(20);
/// Time limit otherwise: clients wait up to two seconds for a reply.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Returns the selected trace frames if they are available at once; the error is a reply for the
/// client.
fn frames(target: &SnapshotTarget) -> Result<Box<dyn TraceFrames + '_>, Vec<u8>> {
    let endpoint = &*target.endpoint;
    let traces = endpoint.traces.as_ref().ok_or(MALFORMED)?;
    if !traces.at_hand(target.trace.chosen) {
        return Err(format!("E.{FIRST}").into());
    }
    decoded(target).map_err(|reason| error(&reason))
}

/// Formats an error reply with a reason.
fn error(reason: &str) -> Vec<u8> {
    let reason = reason.replace(['#', '$', '}', '*'], "?");
    format!("E.{reason}").into()
}

/// Returns the selected trace frames; decodes them if necessary.
fn decoded(target: &SnapshotTarget) -> Result<Box<dyn TraceFrames + '_>, String> {
    let endpoint = &*target.endpoint;
    let Some(traces) = &endpoint.traces else {
        return Err("no core has trace that can be followed: monitor info says why".to_owned());
    };
    traces.frames(
        endpoint.described_cores(),
        target.trace.chosen,
        &target.unwind,
    )
}

/// Returns the frame whose registers and memory are read, after computing its known values; `None` if
/// those of a core are read.
fn shown(target: &mut SnapshotTarget) -> Option<usize> {
    let traces = target.endpoint.traces.as_ref()?;
    let frame = target.trace.frame.or_else(|| traces.resting())?;
    find_values(target, frame, PATIENCE);
    Some(frame)
}

/// Returns a register of a frame or, if the frame has none, what is known of the register there.
fn complete(target: &SnapshotTarget, bytes: Bytes, register: &RegisterDescription) -> Bytes {
    let is_missing = bytes.iter().all(Option::is_none);
    let known = target.trace.values.last().filter(|_| is_missing);
    let known = known.and_then(|known| known.register(&target.endpoint, register));
    known.unwrap_or(bytes)
}

/// Returns the general registers of the shown frame; `None` if there is none.
pub(super) fn frame_registers(target: &mut SnapshotTarget) -> Option<Bytes> {
    let frame = shown(target)?;
    let frames = frames(target).ok()?;
    let mut rest = frames.registers(frame).into_iter();
    let block = target.endpoint.described_cores().block();
    let bytes = block.flat_map(|register| {
        let own = rest.by_ref().take(register.bytes()).collect();
        complete(target, own, register)
    });
    let mut bytes: Bytes = bytes.collect();
    bytes.extend(rest);
    Some(bytes)
}

/// A register in a frame.
pub(super) enum FrameRegister {
    /// No frame is shown.
    NoFrame,
    /// The description has no register with the number.
    NoRegister,
    /// The register as sent.
    Value(Vec<u8>),
}

/// Returns a register of the shown frame, for `p`.
pub(super) fn frame_register(target: &mut SnapshotTarget, number: u32) -> FrameRegister {
    let Some(frame) = shown(target) else {
        return FrameRegister::NoFrame;
    };
    let Ok(frames) = frames(target) else {
        return FrameRegister::NoFrame;
    };
    let history = target.endpoint.history_registers;
    let is_big = target.endpoint.is_big_endian();
    match history.and_then(|registers| registers.find(number)) {
        // Only the frame of the halted state has a position.
        Some(HistoryRegister::Position) => {
            return FrameRegister::Value(match frames.tracepoint(frame) {
                HALTED => history_registers::position_value(0, false).into(),
                _ => vec![b'x'; 16],
            });
        }
        Some(HistoryRegister::Isa) => {
            let isa = history_registers::isa_value(frames.isa(frame), is_big);
            return FrameRegister::Value(isa.into());
        }
        None => {}
    }
    let description = target.endpoint.described_cores().description;
    let Some(mut bytes) = frames.register(frame, number) else {
        return FrameRegister::NoRegister;
    };
    if let Some(register) = description.register(number) {
        bytes = complete(target, bytes, register);
    }
    FrameRegister::Value(match bytes.contains(&None) {
        true if target.takes_unknown_for_value => NO_MEMORY.to_vec(),
        _ => known_or_not(&bytes),
    })
}

/// Returns the known bytes of the shown frame from an address; `None` if no frame is shown.
pub(super) fn frame_memory(
    target: &mut SnapshotTarget,
    address: u64,
    length: usize,
) -> Option<Vec<u8>> {
    let frame = shown(target)?;
    let frames = frames(target).ok()?;
    let known = target.trace.values.last();
    Some(read(&memory(&*frames, frame, known), address, length))
}

/// Computes the known values of a frame that the frame itself does not contain.
fn find_values(target: &mut SnapshotTarget, frame: usize, patience: Duration) {
    let place = frames(target).ok().and_then(|frames| frames.place(frame));
    let past = (&mut target.past_values, &mut target.positions);
    let values = &mut target.trace.values;
    values.find(place, &target.endpoint, past, patience);
}

/// Returns the memory of a frame, including the known stack memory.
fn memory<'a>(
    frames: &'a dyn TraceFrames,
    frame: usize,
    known: Option<&'a FrameValues>,
) -> Vec<(u64, &'a [u8])> {
    let mut pieces = frames.memory(frame);
    let stack = known.map_or(&[][..], |known| &known.stack);
    pieces.extend(stack.iter().map(|(start, bytes)| (*start, &**bytes)));
    pieces
}

/// Returns the contiguous known bytes from an address. The first of overlapping pieces is used.
fn read(pieces: &[(u64, &[u8])], address: u64, length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < length {
        let at = address.wrapping_add(out.len() as u64);
        let rest = pieces.iter().find_map(|(start, bytes)| {
            let skip = usize::try_from(at.checked_sub(*start)?).ok()?;
            bytes.get(skip..).filter(|rest| !rest.is_empty())
        });
        let Some(rest) = rest else { break };
        out.extend_from_slice(&rest[..rest.len().min(length - out.len())]);
    }
    out
}

/// `qTStatus`. Never decodes while a client connects, nor if decoding would take long: GDB sends
/// this repeatedly, and when it quits.
pub(super) fn status(target: &mut SnapshotTarget, _: &[u8]) -> Option<Vec<u8>> {
    let target = &*target;
    let traces = target.endpoint.traces.as_ref()?;
    let decoded = || {
        with_keepalive(target.alive.as_ref(), || {
            Some(frames(target).ok()?.status())
        })
    };
    let status = target.trace.connected.then(decoded).flatten();
    let status = status.unwrap_or_else(|| traces.standing());
    Some(format!("T{}", trace_text::status(status).write()).into_bytes())
}

/// `qTfP`.
pub(super) fn first_tracepoint(target: &mut SnapshotTarget, rest: &[u8]) -> Option<Vec<u8>> {
    target.trace.tracepoints = tracepoints(target);
    next_tracepoint(target, rest)
}

/// `qTsP`.
pub(super) fn next_tracepoint(target: &mut SnapshotTarget, _: &[u8]) -> Option<Vec<u8>> {
    let view = &mut target.trace;
    view.connected |= view.tracepoints.is_empty();
    Some(next(&mut view.tracepoints))
}

/// `qTfV`.
pub(super) fn first_variable(target: &mut SnapshotTarget, rest: &[u8]) -> Option<Vec<u8>> {
    target.trace.variables = variables(target);
    next_variable(target, rest)
}

/// `qTsV`.
pub(super) fn next_variable(target: &mut SnapshotTarget, _: &[u8]) -> Option<Vec<u8>> {
    Some(next(&mut target.trace.variables))
}

/// The replies to `qTfP` and `qTsP`, the next one last.
fn tracepoints(target: &SnapshotTarget) -> Vec<String> {
    let endpoint = &*target.endpoint;
    let (Some(traces), view) = (&endpoint.traces, &target.trace) else {
        return Vec::new();
    };
    let list = match view.connected.then(|| frames(target)) {
        Some(Ok(frames)) => frames.tracepoints(),
        _ if !view.connected && !endpoint.reports_tracepoints => Vec::new(),
        _ => traces.list(&endpoint.cores, view.chosen),
    };
    let mut lines = Vec::new();
    for tracepoint in list {
        trace_text::tracepoint(tracepoint).write(&mut |line| lines.push(line));
    }
    lines.reverse();
    lines
}

fn variables(target: &SnapshotTarget) -> Vec<String> {
    let variables = target.endpoint.traces.iter().flat_map(|t| t.variables());
    let variables = variables.map(trace_text::variable);
    let mut lines: Vec<String> = variables.map(|variable| variable.write()).collect();
    lines.reverse();
    lines
}

/// Returns the next line of a list; `l` at its end.
fn next(lines: &mut Vec<String>) -> Vec<u8> {
    lines.pop().map_or(b"l".to_vec(), String::into_bytes)
}

/// `QTFrame`: a frame number, or a condition to search for from the next frame.
pub(super) fn select(target: &mut SnapshotTarget, wanted: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(wanted).ok()?;
    let (kind, rest) = text.split_once(':').unwrap_or(("", text));
    let number = |text: &str| parse_hex(text.as_bytes());
    let range = || pair(rest.as_bytes(), b':');
    let wanted = match kind {
        "" => None,
        "pc" => Some(Wanted::Inside(number(rest)?, number(rest)?)),
        "tdp" => Some(Wanted::Tracepoint(number(rest)?)),
        "range" => range().map(|(first, last)| Some(Wanted::Inside(first, last)))?,
        "outside" => range().map(|(first, last)| Some(Wanted::Outside(first, last)))?,
        _ => return None,
    };
    const NONE: &[u8] = b"F-1";
    if wanted.is_none() && number(rest)? >= 0x8000_0000 {
        target.trace.frame = None;
        return Some(NONE.to_vec());
    }
    let asked = match wanted {
        None => number(rest).and_then(|number| usize::try_from(number).ok()),
        Some(_) => None,
    };
    // This may decode the trace, or scan all frames of a large file.
    let found = with_keepalive(target.alive.as_ref(), || {
        let frames = match target.alive {
            Some(_) => decoded(target).map_err(|reason| error(&reason))?,
            None => frames(target)?,
        };
        let found = match wanted {
            None => asked,
            Some(wanted) => {
                let from = target.trace.frame.map_or(0, |frame| frame + 1);
                frames.find(from, wanted)
            }
        };
        let found = found.filter(|frame| frames.has(*frame));
        Ok(found.map(|frame| (frame, frames.tracepoint(frame))))
    });
    match found {
        Ok(Some((frame, tracepoint))) => {
            target.trace.frame = Some(frame);
            let alive = target.alive.clone();
            let patience = alive.as_ref().map_or(PATIENCE, |_| WHILE_ALIVE);
            with_keepalive(alive.as_ref(), || find_values(target, frame, patience));
            Some(format!("F{frame:x}T{tracepoint:x}").into_bytes())
        }
        Ok(None) => Some(NONE.to_vec()),
        Err(reply) => Some(reply),
    }
}

/// `qTP`: the hit count of a tracepoint. The buffer usage of its frames has no meaning here.
pub(super) fn hits(target: &mut SnapshotTarget, arguments: &[u8]) -> Option<Vec<u8>> {
    let (number, address) = pair(arguments, b':')?;
    let frames = target.trace.connected.then(|| frames(target));
    let hits = match frames {
        Some(Ok(frames)) => frames.hits(number, address),
        _ => 0,
    };
    Some(format!("V{hits:x}:0").into_bytes())
}

/// `qTV`: the value of a variable in the selected frame.
pub(super) fn value(target: &mut SnapshotTarget, number: &[u8]) -> Option<Vec<u8>> {
    let number = i32::try_from(parse_hex(number)?).ok()?;
    let values = match (target.trace.frame, frames_if_selected(target)) {
        (Some(frame), Some(frames)) => frames.values(frame),
        _ => Vec::new(),
    };
    let found = values.into_iter().find(|(known, _)| *known == number);
    Some(match found {
        Some((_, value)) => format!("V{:x}", value.cast_unsigned()).into_bytes(),
        None => b"U".to_vec(),
    })
}

fn frames_if_selected(target: &SnapshotTarget) -> Option<Box<dyn TraceFrames + '_>> {
    target.trace.frame.and_then(|_| frames(target).ok())
}

/// `qTBuffer`: bytes of the trace buffer.
pub(super) fn buffer(target: &mut SnapshotTarget, arguments: &[u8]) -> Option<Vec<u8>> {
    let (offset, length) = pair(arguments, b',')?;
    let length = usize::try_from(length).ok()?.min(MAX_PACKET / 2 - 8);
    let mut reading = std::mem::take(&mut target.trace.buffer);
    let reply = match frames(target) {
        Err(reply) => reply,
        Ok(frames) => match reading.read(&*frames, offset, length) {
            Err(_) => MALFORMED.to_vec(),
            Ok([]) => b"l".to_vec(),
            Ok(bytes) => {
                let mut reply = Vec::with_capacity(2 * bytes.len());
                write_hex(bytes, &mut reply);
                reply
            }
        },
    };
    target.trace.buffer = reading;
    Some(reply)
}

/// `qXfer:traceframe-info:read`: the contents of the selected frame other than registers.
pub(super) fn contents(target: &mut SnapshotTarget, arguments: &[u8]) -> Option<Vec<u8>> {
    let of = (target.trace.frame?, target.past_values.level());
    let kept = target.trace.contents.take();
    let document = match kept.filter(|(kept, _)| *kept == of) {
        Some((_, document)) => document,
        None => {
            let (frame, _) = of;
            find_values(target, frame, PATIENCE);
            let known = target.trace.values.last();
            let frames = frames(target).ok()?;
            let mut text = "<traceframe-info version=\"1.0\">\n".to_owned();
            for (start, bytes) in memory(&*frames, frame, known) {
                let _ = writeln!(
                    text,
                    "<memory start=\"{start:#x}\" length=\"{:#x}\"/>",
                    bytes.len()
                );
            }
            for (number, _) in frames.values(frame) {
                let _ = writeln!(text, "<tvar id=\"{number}\"/>");
            }
            text.push_str("</traceframe-info>\n");
            text
        }
    };
    let reply = transfer(document.as_bytes(), arguments);
    target.trace.contents = Some((of, document));
    reply
}

/// `monitor trace`.
pub(super) fn monitor(target: &mut SnapshotTarget, name: &str) -> String {
    let endpoint = target.endpoint.clone();
    let Some(traces) = &endpoint.traces else {
        return "no core has trace that can be followed: monitor info says why\n".to_owned();
    };
    let names: Vec<&str> = traces
        .cores()
        .into_iter()
        .filter_map(|core| endpoint.cores.get(core))
        .map(|core| core.name.as_str())
        .collect();
    if !name.is_empty() {
        let Some(chosen) = names.iter().position(|n| n.eq_ignore_ascii_case(name)) else {
            return format!(
                "expected a core with trace, found {name:?}: {}\n",
                names.join(", ")
            );
        };
        if target.trace.frame.is_some() {
            return "a trace frame is selected: first leave it with tfind none\n".to_owned();
        }
        target.trace.chosen = chosen;
        target.trace.contents = None;
        target.trace.buffer = Reading::default();
        target.trace.values = TraceValues::default();
    }
    let chosen = target.trace.chosen;
    let mut text = format!("trace of {}", names.get(chosen).unwrap_or(&""));
    match decoded(target) {
        Ok(frames) => {
            let _ = writeln!(text, ": {} trace frames", frames.count());
            if let Some(notes) = frames.status().notes {
                let _ = writeln!(text, "{notes}");
            }
        }
        Err(reason) => {
            let _ = writeln!(text, ": {reason}");
        }
    }
    if names.len() > 1 {
        let _ = writeln!(text, "cores with trace: {}", names.join(", "));
    }
    for note in traces.notes(chosen, &target.unwind) {
        let _ = writeln!(text, "note: {note}");
    }
    text
}
