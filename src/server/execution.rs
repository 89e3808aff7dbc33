//! Moves of cores in their histories, and what a client is told of where they end.
//!
//! A core without trace that can be followed has one position, the halted state. That position
//! is both ends of its history: every move stops at once, with the end that it met.

mod together;

use std::ops::Range;

use gdbstub::common::Tid;

use super::breakpoints::Kind;
use super::isa_register;
use super::resume::{Extent, Resume};
use super::target::SnapshotTarget;
use crate::quantity::Address;
use crate::remote_protocol::framing::{hex_text, write_hex, write_packet};
use crate::report::history as words;
use crate::timeline::{AddressSet, Direction, EndAgrees, Found, Gaps, PlaceKind, Position};

/// Why a core stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// It has moved as far as it should.
    Moved,
    /// It is at a breakpoint.
    Breakpoint(Kind),
    /// History is not known here.
    Gap,
    /// It is at the first known position.
    HistoryBegins,
    /// It is at the last known position.
    HistoryEnds,
    /// The client does not want to wait any longer.
    Interrupted,
}

/// What the user is told who did not wait for the first move.
const UNFINISHED: &str = "stopped while the trace was decoded up to its end: the last place in it \
                          where decoding can begin is far before; the next move goes on with that\n";

/// Where and why a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stop {
    thread: Tid,
    reason: Reason,
}

/// Moves cores and appends what the client is told: text for the user, and the stop.
pub(super) fn run(
    target: &mut SnapshotTarget,
    resume: Resume,
    goes_on: &mut dyn FnMut() -> bool,
    out: &mut Vec<u8>,
) {
    let halted = target.positions.past(resume.thread).is_none();
    let mut text = String::new();
    let stop = if target.positions.reach_end(resume.thread, goes_on) {
        go(target, resume, goes_on)
    } else {
        text += UNFINISHED;
        let (thread, reason) = (resume.thread, Reason::Interrupted);
        Stop { thread, reason }
    };
    target.selection.stopped(stop.thread);
    if halted && target.positions.past(resume.thread).is_some() {
        text += &end_disagrees(target, resume.thread);
    }
    if stop.reason == Reason::Gap {
        text += &gap(target, stop.thread);
    }
    if !text.is_empty() {
        write_packet(format!("O{}", hex_text(&text)).as_bytes(), out);
    }
    write_packet(stop.reply(target).as_bytes(), out);
}

/// What a client is told of a move that was ended before anything came of it: the cores stand
/// where they stood.
pub(super) fn interrupted(target: &mut SnapshotTarget, thread: Tid, why: &str, out: &mut Vec<u8>) {
    target.selection.stopped(thread);
    if !why.is_empty() {
        write_packet(format!("O{}", hex_text(why)).as_bytes(), out);
    }
    let reason = Reason::Interrupted;
    let stop = Stop { thread, reason };
    write_packet(stop.reply(target).as_bytes(), out);
}

/// Moves the core, and the others with it unless it moves alone.
fn go(target: &mut SnapshotTarget, resume: Resume, goes_on: &mut dyn FnMut() -> bool) -> Stop {
    let thread = resume.thread;
    let Some(from) = target.positions.position(thread) else {
        return Stop {
            thread,
            reason: end(resume.direction),
        };
    };
    let time = target.positions.time(thread);
    let reason = match resume.extent {
        Extent::Step => step(target, resume, from),
        Extent::Within(first, end) => step_within(target, resume, first..end, goes_on),
        Extent::On => search(target, resume, from, goes_on),
    };
    let stop = Stop { thread, reason };
    if resume.alone {
        return stop;
    }
    if resume.extent == Extent::On {
        return together::settle(target, resume.direction, from, stop, goes_on);
    }
    // Between two timestamps no order among cores is known.
    if target.positions.time(thread) != time {
        target.positions.along(thread);
    }
    stop
}

/// Steps until the core leaves some addresses.
fn step_within(
    target: &mut SnapshotTarget,
    resume: Resume,
    range: Range<u64>,
    goes_on: &mut dyn FnMut() -> bool,
) -> Reason {
    while let Some(from) = target.positions.position(resume.thread) {
        let reason = step(target, resume, from);
        let past = target.positions.past(resume.thread);
        let pc = past.and_then(|past| past.pc);
        if reason != Reason::Moved || !pc.is_some_and(|pc| range.contains(&pc.0)) {
            return reason;
        }
        if !goes_on() {
            return Reason::Interrupted;
        }
    }
    end(resume.direction)
}

fn end(direction: Direction) -> Reason {
    match direction {
        Direction::Forward => Reason::HistoryEnds,
        Direction::Backward => Reason::HistoryBegins,
    }
}

/// One place on.
fn step(target: &mut SnapshotTarget, resume: Resume, from: Position) -> Reason {
    let history = target.positions.history(resume.thread);
    let next = history.and_then(|history| history.step(from, resume.direction));
    match next {
        Some(next) => {
            target.positions.set(resume.thread, next);
            arrived(target, resume.thread)
        }
        None => end(resume.direction),
    }
}

/// Why a core stops where it stands.
fn arrived(target: &SnapshotTarget, thread: Tid) -> Reason {
    let Some(past) = target.positions.past(thread) else {
        return Reason::Moved;
    };
    if let PlaceKind::Gap(_) = past.place.kind {
        return Reason::Gap;
    }
    let kind = past.pc.and_then(|pc| target.breakpoints.at(pc.0));
    kind.map_or(Reason::Moved, Reason::Breakpoint)
}

/// On to a breakpoint, a gap or an end.
fn search(
    target: &mut SnapshotTarget,
    resume: Resume,
    from: Position,
    goes_on: &mut dyn FnMut() -> bool,
) -> Reason {
    let wanted: AddressSet = target.breakpoints.addresses().map(Address).collect();
    let Some(history) = target.positions.history(resume.thread) else {
        return end(resume.direction);
    };
    let found = history.search_while(from, resume.direction, &wanted, Gaps::Stop, goes_on);
    let Some(found) = found else {
        return Reason::Interrupted;
    };
    match found {
        Found::At(at) | Found::Gap(at) => {
            target.positions.set(resume.thread, at);
            arrived(target, resume.thread)
        }
        Found::End(at) => {
            target.positions.set(resume.thread, at);
            end(resume.direction)
        }
    }
}

/// What the user is told who leaves a halted state that the trace does not lead to.
fn end_disagrees(target: &mut SnapshotTarget, thread: Tid) -> String {
    let history = target.positions.history(thread);
    match history.map(|history| history.end_agrees()) {
        Some(EndAgrees::No { trace_end, halted }) => words::end_disagrees(trace_end, halted),
        _ => String::new(),
    }
}

fn gap(target: &SnapshotTarget, thread: Tid) -> String {
    match target.positions.past(thread).map(|past| past.place.kind) {
        Some(PlaceKind::Gap(gap)) => {
            let what = words::gap(&gap);
            format!("gap in history: {what}\n")
        }
        _ => String::new(),
    }
}

impl Stop {
    /// The reply that tells a client (GDB manual, E.3).
    ///
    /// GDB reads `replaylog`. LLDB does not know it and, when a step leaves the pc where it is,
    /// steps again without end; an exception with a description makes it stop and say why. A gap
    /// is a stop that no kind of step passes: the signal SIGLOST, "Resource lost", as GDB numbers
    /// signals.
    fn reply(self, target: &SnapshotTarget) -> String {
        let (signal, why) = match self.reason {
            Reason::Moved => (5, String::new()),
            Reason::Breakpoint(Kind::Software) => (5, "swbreak:;".to_owned()),
            Reason::Breakpoint(Kind::Hardware) => (5, "hwbreak:;".to_owned()),
            Reason::Gap => (29, exception("gap in history")),
            Reason::HistoryBegins => {
                let told = exception("beginning of history");
                (5, format!("replaylog:begin;{told}"))
            }
            Reason::HistoryEnds => {
                let told = exception("end of history");
                (5, format!("replaylog:end;{told}"))
            }
            Reason::Interrupted => (2, String::new()),
        };
        let thread = self.thread;
        let registers = registers(target, thread);
        format!("T{signal:02x}thread:{thread:x};{registers}{why}")
    }
}

fn exception(words: &str) -> String {
    format!("reason:exception;description:{};", hex_text(words))
}

/// Registers in a reply, which GDB then need not ask for: the program counter, and `$isa`.
fn registers(target: &SnapshotTarget, thread: Tid) -> String {
    let mut text = String::new();
    let mut described = target.endpoint.description.registers();
    if let Some(pc) = described.find(|register| register.name == "pc") {
        let bytes = target.positions.register(thread, pc).unwrap_or_default();
        let bytes: Option<Vec<u8>> = bytes.into_iter().collect();
        if let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) {
            let mut value = Vec::new();
            write_hex(&bytes, &mut value);
            let value = String::from_utf8_lossy(&value).into_owned();
            text += &format!("{:x}:{value};", pc.number);
        }
    }
    let isa = target.positions.isa(thread);
    if let (Some(number), Some(_)) = (target.endpoint.isa_register, isa) {
        text += &format!("{number:x}:{};", isa_register::value(isa));
    }
    text
}

/// What a client is told of a thread that has not moved: it stands where the snapshot was taken.
/// LLDB wants its name, and a reason to stop for no more than the `current` one.
pub fn standing(thread: Tid, name: &str, current: bool) -> String {
    let signal = if current { 5 } else { 0 };
    format!("T{signal:02}thread:{thread:x};hexname:{};", hex_text(name))
}
