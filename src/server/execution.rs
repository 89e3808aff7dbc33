//! Moves cores in their histories, and says why they stopped.
//!
//! A core without decodable trace has one position, the halted state. That position is both ends
//! of its history: every move stops at once at the respective end.

mod together;

use std::ops::Range;

use gdbstub::common::{Signal, Tid};
use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::base::reverse_exec::ReplayLogPosition;
use gdbstub::target::ext::breakpoints::WatchKind;

use super::breakpoints::Kind;
use super::endpoint::HistoryMode;
use super::resume::{Extent, Resume};
use super::target::SnapshotTarget;
use super::watched::{self, Access, Search};
use super::watchpoints;
use crate::remote_protocol::hex;
use armsnap_analysis::report::history as words;
use armsnap_arch::quantity::Address;
use armsnap_history::timeline::{
    AddressSet, Direction, EndAgrees, Found, Gaps, PointKind, Position,
};
use armsnap_snapshot::stop::Cancel;

/// Why a core stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// The move is complete.
    Moved,
    /// It is at a breakpoint.
    Breakpoint(Kind),
    /// It is before an access to this address, as seen in the direction of the move.
    Watchpoint(watchpoints::Kind, u64),
    /// It is just after a store to this watched address, in the direction of the move. The value is
    /// not known on either side, so GDB, which compares the two, would not stop.
    UnknownStore(u64),
    /// It is at a gap.
    Gap,
    /// It is at the first known position.
    HistoryBegins,
    /// It is at the last known position.
    HistoryEnds,
    /// It is at the first or last known position, where GDB is stepping over one of its breakpoints. GDB 13
    /// keeps doing so at the end of history, and does not resume in the next move.
    EndsOverBreakpoint,
    /// The client interrupted the move.
    Interrupted,
}

/// Message shown when the first move is interrupted.
const UNFINISHED: &str = "interrupted while decoding the trace to its end, because the last place \
                          where decoding can start is far before the end; the next move \
                          continues\n";

/// GDB's message at an end of history, for stops that do not report the end to GDB.
const NO_MORE: &str = "\nNo more reverse-execution history.\n";

/// Where and why a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    thread: Tid,
    reason: Reason,
}

/// What a client learns of a move.
pub(super) struct Moved {
    /// Text for the user.
    pub text: String,
    /// Its end.
    pub stop: Stop,
}

/// Moves cores.
pub(super) fn run(target: &mut SnapshotTarget, resume: Resume, cancel: &Cancel) -> Moved {
    let halted = target.positions.past(resume.thread).is_none();
    let mut text = String::new();
    let mut stop = if target.positions.reach_end(resume.thread, cancel) {
        go(target, resume, &mut text, cancel)
    } else {
        text += UNFINISHED;
        let (thread, reason) = (resume.thread, Reason::Interrupted);
        Stop { thread, reason }
    };
    target.selection.stopped(stop.thread);
    if halted && target.positions.past(resume.thread).is_some() {
        text += &end_disagrees(target, resume.thread);
    }
    if target.positions.past(stop.thread).is_some() {
        let (endpoint, positions) = (&target.endpoint, &mut target.positions);
        text += target
            .past_values
            .first_stop(endpoint, positions, stop.thread, cancel);
    }
    if stop.reason == Reason::Gap {
        text += &gap(target, stop.thread);
    }
    if stop.reason == Reason::Moved && resume.extent == Extent::Continue {
        text += &chosen_by(target, stop.thread);
    }
    let is_end = matches!(stop.reason, Reason::HistoryBegins | Reason::HistoryEnds);
    if is_end && steps_over_breakpoint(target, resume) {
        text += NO_MORE;
        stop.reason = Reason::EndsOverBreakpoint;
    }
    Moved { text, stop }
}

/// Whether a step may be one of GDB itself, over a breakpoint that does not stop it (its condition is false, or it
/// applies to another frame). Such a step moves one core alone; with several cores, the user may have asked for
/// that as well.
fn steps_over_breakpoint(target: &SnapshotTarget, resume: Resume) -> bool {
    let is_only = target.endpoint.cores.len() == 1;
    resume.alone && resume.extent == Extent::Step && is_only && target.is_gdb
}

/// Returns the end of a move that had no effect; `text` says why.
pub(super) fn interrupted(target: &mut SnapshotTarget, thread: Tid, text: String) -> Moved {
    target.selection.stopped(thread);
    let reason = Reason::Interrupted;
    let stop = Stop { thread, reason };
    Moved { text, stop }
}

/// Moves the core and, unless it moves alone, the others with it.
fn go(target: &mut SnapshotTarget, resume: Resume, text: &mut String, cancel: &Cancel) -> Stop {
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
        Extent::Within(first, end) => step_within(target, resume, first..end, cancel),
        Extent::Continue => search(target, resume, from, cancel),
    };
    let (reason, accesses) = watched(target, resume, from, reason, cancel);
    let mut stop = Stop { thread, reason };
    let mut searches = vec![(thread, accesses)];
    if !resume.alone && resume.extent == Extent::Continue {
        let (first, others) = together::settle(target, resume.direction, from, stop, cancel);
        stop = first;
        searches.extend(others);
        // Another core may have stopped the move earlier.
        for (core, accesses) in &mut searches {
            if let Some(now) = target.positions.position(*core) {
                accesses.may_have.retain(|other| match resume.direction {
                    Direction::Backward => other.nearest >= now,
                    Direction::Forward => other.nearest < now,
                });
            }
        }
    } else if !resume.alone && target.positions.time(thread) != time {
        // Between two timestamps the order among cores is not known.
        target.positions.along(thread, resume.direction);
    }
    for (core, accesses) in &searches {
        let more = watched::unresolved(target, *core, accesses);
        if !text.contains(&more) {
            *text += &more;
        }
    }
    if let Reason::UnknownStore(address) = stop.reason {
        *text += &watched::unknown_store(address);
    }
    if matches!(stop.reason, Reason::HistoryBegins | Reason::HistoryEnds) {
        *text += &not_moved(target, thread);
    }
    stop
}

/// Returns a message if the breakpoints of some cores were not checked because these cores do not move
/// with the core that the user moves.
fn not_moved(target: &mut SnapshotTarget, thread: Tid) -> String {
    if target.breakpoints.addresses().next().is_none() && target.watchpoints.is_empty() {
        return String::new();
    }
    let others = target.positions.untied(thread);
    let names: Vec<&str> = others
        .iter()
        .filter_map(|other| Some(target.core(*other)?.name.as_str()))
        .collect();
    if names.is_empty() {
        return String::new();
    }
    let names = names.join(", ");
    format!("{names} did not move: no timestamps in common with this core\n")
}

/// Moves the core back to the first watched access of its move, if there is one. An interrupted move is
/// undone, because not all accesses on its way were checked.
fn watched(
    target: &mut SnapshotTarget,
    resume: Resume,
    from: Position,
    reason: Reason,
    cancel: &Cancel,
) -> (Reason, Search) {
    let thread = resume.thread;
    let until = target.positions.position(thread);
    let (Some(until), false) = (until, target.watchpoints.is_empty()) else {
        return (reason, Search::default());
    };
    let found = match reason {
        Reason::Interrupted => None,
        _ => watched::search(target, (thread, from), until, resume.direction, cancel),
    };
    let Some(found) = found else {
        target.positions.set(thread, from);
        return (Reason::Interrupted, Search::default());
    };
    match found.hit {
        Some(access) => (arrive_at(target, thread, access, resume.direction), found),
        None => (reason, found),
    }
}

/// Moves a core to a watched access, and returns why it stops there.
fn arrive_at(
    target: &mut SnapshotTarget,
    thread: Tid,
    access: Access,
    direction: Direction,
) -> Reason {
    if let Some(after) = watched::unseen(target, thread, &access, direction) {
        target.positions.set(thread, after);
        return Reason::UnknownStore(access.address);
    }
    target.positions.set(thread, access.stops_at);
    Reason::Watchpoint(access.kind, access.address)
}

/// Steps until the core leaves some addresses.
fn step_within(
    target: &mut SnapshotTarget,
    resume: Resume,
    range: Range<u64>,
    cancel: &Cancel,
) -> Reason {
    while let Some(from) = target.positions.position(resume.thread) {
        let reason = step(target, resume, from);
        let past = target.positions.past(resume.thread);
        let pc = past.and_then(|past| past.pc);
        if reason != Reason::Moved || !pc.is_some_and(|pc| range.contains(&pc.0)) {
            return reason;
        }
        if cancel.is_requested() {
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

/// Moves by one position.
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

/// Returns why a core stops at its position.
fn arrived(target: &SnapshotTarget, thread: Tid) -> Reason {
    let Some(past) = target.positions.past(thread) else {
        return Reason::Moved;
    };
    if let PointKind::Gap(_) = past.place.kind {
        return Reason::Gap;
    }
    let kind = past.pc.and_then(|pc| target.breakpoints.at(pc.0));
    kind.map_or(Reason::Moved, Reason::Breakpoint)
}

/// Returns the addresses at which a core stops.
///
/// For `break strlen`, where `strlen` is an IFUNC, GDB sets a breakpoint at the resolver to learn
/// which function was chosen. At past positions it cannot learn that: values are unknown, and GDB 13
/// crashes if it finds no caller. The core stops in the chosen function instead, except on the way
/// back from inside the resolver to its start.
fn stops(target: &SnapshotTarget, thread: Tid) -> AddressSet {
    let mut wanted = Vec::new();
    let mut chosen = None;
    let pc = target.positions.past(thread).and_then(|past| past.pc);
    for address in target.breakpoints.addresses() {
        let chosen = chosen.get_or_insert_with(|| target.chosen());
        let inside = pc.is_some_and(|pc| chosen.is_within(pc.0, address));
        match chosen.by(address).filter(|_| !inside) {
            Some(functions) => wanted.extend(functions.iter().copied().map(Address)),
            None => wanted.push(Address(address)),
        }
    }
    wanted.into_iter().collect()
}

/// Moves to a breakpoint, a gap or an end of history.
fn search(target: &mut SnapshotTarget, resume: Resume, from: Position, cancel: &Cancel) -> Reason {
    let wanted = stops(target, resume.thread);
    let Some(history) = target.positions.history(resume.thread) else {
        return end(resume.direction);
    };
    let found = history.search_unless(from, resume.direction, &wanted, Gaps::Stop, cancel);
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

/// Returns the message for leaving a halted state that does not agree with the end of the trace.
fn end_disagrees(target: &mut SnapshotTarget, thread: Tid) -> String {
    let history = target.positions.history(thread);
    match history.map(|history| history.end_agrees()) {
        Some(EndAgrees::No { trace_end, halted }) => words::end_disagrees(trace_end, halted),
        _ => String::new(),
    }
}

fn gap(target: &SnapshotTarget, thread: Tid) -> String {
    match target.positions.past(thread).map(|past| past.place.kind) {
        Some(PointKind::Gap(gap)) => {
            let what = words::gap(&gap);
            format!("gap in history: {what}\n")
        }
        _ => String::new(),
    }
}

/// Returns a message if the breakpoint of a resolver stopped a core in the chosen function, where the
/// client has no breakpoint of its own.
fn chosen_by(target: &SnapshotTarget, thread: Tid) -> String {
    let pc = target.positions.past(thread).and_then(|past| past.pc);
    let (chosen, symbols) = (target.chosen(), target.symbols());
    let mut resolvers = target.breakpoints.addresses().filter(|address| {
        let functions = chosen.by(*address);
        pc.is_some_and(|pc| functions.is_some_and(|functions| functions.contains(&pc.0)))
    });
    let Some(resolver) = resolvers.next() else {
        return String::new();
    };
    let name = symbols.function(resolver).map_or("a function", |(n, _)| n);
    format!("breakpoint at {name}: the implementation that was chosen when the program started\n")
}

impl Stop {
    /// Returns whether the client interrupted the move.
    pub(super) fn is_interrupted(self) -> bool {
        self.reason == Reason::Interrupted
    }

    /// Returns the reason as gdbstub reports it.
    ///
    /// No kind of step passes a gap: its signal is SIGLOST, "Resource lost".
    pub(super) fn reason(self, target: &SnapshotTarget) -> MultiThreadStopReason<u64> {
        let tid = self.thread;
        let signal = |signal| MultiThreadStopReason::SignalWithThread { tid, signal };
        let end = |pos| match is_reversible(target) {
            true => MultiThreadStopReason::ReplayLog {
                tid: Some(tid),
                pos,
            },
            false => signal(Signal::SIGTRAP),
        };
        match self.reason {
            Reason::Moved => signal(Signal::SIGTRAP),
            Reason::Breakpoint(Kind::Software) => MultiThreadStopReason::SwBreak(tid),
            Reason::Breakpoint(Kind::Hardware) => MultiThreadStopReason::HwBreak(tid),
            Reason::Watchpoint(kind, addr) => {
                let kind = match kind {
                    watchpoints::Kind::Write => WatchKind::Write,
                    watchpoints::Kind::Read => WatchKind::Read,
                    watchpoints::Kind::Access => WatchKind::ReadWrite,
                };
                MultiThreadStopReason::Watch { tid, kind, addr }
            }
            // Without a signal GDB stops regardless of the value.
            Reason::UnknownStore(_) | Reason::EndsOverBreakpoint => signal(Signal::SIGZERO),
            Reason::Gap => signal(Signal::SIGLOST),
            Reason::HistoryBegins => end(ReplayLogPosition::Begin),
            Reason::HistoryEnds => end(ReplayLogPosition::End),
            Reason::Interrupted => signal(Signal::SIGINT),
        }
    }

    /// Returns what gdbstub's stop reply lacks.
    ///
    /// GDB reads `replaylog`, which gdbstub reports only for a target with reverse execution. LLDB does
    /// not know it and, when a step does not change the pc, steps again endlessly; an exception with
    /// a description makes it stop and print the reason.
    pub(super) fn more(self, target: &SnapshotTarget) -> String {
        let (end, words) = match self.reason {
            Reason::Gap => ("", "gap in history"),
            Reason::HistoryBegins => ("replaylog:begin;", "beginning of history"),
            Reason::HistoryEnds => ("replaylog:end;", "end of history"),
            _ => return String::new(),
        };
        let end = if is_reversible(target) { "" } else { end };
        let words = hex::encode(words);
        format!("{end}reason:exception;description:{words};")
    }

    /// Returns the numbers and bytes of the registers in a stop reply, which saves GDB requests: the
    /// program counter and the registers of the history.
    pub(super) fn registers(self, target: &SnapshotTarget) -> Vec<(u32, Vec<u8>)> {
        let thread = self.thread;
        let mut all = Vec::new();
        let mut described = target.endpoint.description.registers();
        if let Some(pc) = described.find(|register| register.name == "pc") {
            let bytes = target.positions.register(thread, pc).unwrap_or_default();
            let bytes = target.endpoint.in_order(bytes);
            let bytes: Option<Vec<u8>> = bytes.into_iter().collect();
            let bytes = bytes.filter(|bytes| !bytes.is_empty());
            all.extend(bytes.map(|bytes| (pc.number, bytes)));
        }
        if let Some(registers) = target.endpoint.history_registers {
            let isa = target.positions.isa(thread);
            let is_big = target.endpoint.is_big_endian();
            all.extend(registers.expedited(target.shown_position(thread), isa, is_big));
        }
        all
    }
}

fn is_reversible(target: &SnapshotTarget) -> bool {
    target.endpoint.history == HistoryMode::Replay
}
