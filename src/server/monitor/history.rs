//! `monitor where`, `history`, `goto`, `find`, `exceptions`: the history of the selected core.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use gdbstub::common::Tid;

use super::output::{Output, Stale};
use super::{STOPPED, recover};
use crate::server::memory::MemoryView;
use crate::server::target::SnapshotTarget;
use armsnap_analysis::report::history as words;
use armsnap_arch::arch::{Architecture, branch};
use armsnap_arch::quantity::{Address, Isa};
use armsnap_history::recover::Level;
use armsnap_history::timeline::{
    AddressSet, Cancelled, Direction, EndAgrees, Entry, Found, Gaps, HistoryPoint, PointKind,
    Position,
};
use armsnap_snapshot::program::disassembly::Disassembler;
use armsnap_snapshot::snapshot::model::Note;
use armsnap_snapshot::stop::Cancel;
use armsnap_trace::element::Exception;

/// Default number of positions listed before and after the current one.
const AROUND: u64 = 10;
/// Maximum number of positions and exceptions listed before and after the current position.
const MOST: u64 = 1000;
/// Maximum number of trace segments in which one command counts cycles: about 4 MiB of trace.
const COUNTED: u64 = 64;
/// Hint to flush the register cache of GDB.
const REREAD: &str = "GDB may show registers as they were: `maintenance flush register-cache` \
                      (`flushregs` before GDB 11) makes it ask again";

/// Returns the selected core and its name; an error message if it has no history.
pub(super) fn core(target: &mut SnapshotTarget) -> Result<(Tid, String), String> {
    let thread = target.selection.user();
    let name = target
        .core(thread)
        .map_or_else(String::new, |core| core.name.clone());
    match target.positions.history(thread) {
        Some(_) => Ok((thread, name)),
        None => Err(format!(
            "{name} has no history: there is no trace of it that can be followed (monitor info)\n"
        )),
    }
}

/// `monitor where`.
pub(super) fn position(target: &mut SnapshotTarget, cancel: &Cancel) -> Output {
    let (thread, name) = match core(target) {
        Ok(found) => found,
        Err(reason) => return reason.into(),
    };
    let mut output = Output::default();
    let Some(position) = target.positions.position(thread) else {
        return output;
    };
    let history = target.positions.history(thread);
    let ended = history.is_some_and(|history| history.end_agrees() == EndAgrees::Ended);
    let remark = match standing(target, thread) {
        Some(_) if ended => Some("where the thread ended"),
        remark => remark,
    };
    let core = ("core", name.clone());
    let at = ("position", position.to_string());
    match remark {
        Some(remark) => output.line(
            format!("{name} at {position}, {remark}"),
            [core, at, ("remark", remark.to_owned())],
        ),
        None => output.line(format!("{name} at {position}"), [core, at]),
    }
    about(&mut output, target, thread, position, cancel);
    output.text(&others(target, thread));
    if target.positions.past(thread).is_some() && target.past_values.level() != Level::Off {
        output.text(&format!("  {}", recover::here(target, thread, cancel)));
        for limit in recover::limits(target) {
            output.note(limit);
        }
    }
    for doubt in doubts(target, thread, &name) {
        output.note(doubt);
    }
    output
}

/// Describes the end of a core's history if the core is at it.
fn standing(target: &SnapshotTarget, thread: Tid) -> Option<&'static str> {
    match (
        target.positions.past(thread),
        target.positions.rests(thread),
    ) {
        (Some(_), _) => None,
        (None, false) => Some("the halted state"),
        (None, true) => Some("the end of the trace (the halted state is not in the snapshot)"),
    }
}

/// Adds what is known at a position, one line each.
fn about(
    output: &mut Output,
    target: &mut SnapshotTarget,
    thread: Tid,
    position: Position,
    cancel: &Cancel,
) {
    let symbols = target.symbols();
    let Some(history) = target.positions.history(thread) else {
        return;
    };
    let Some(place) = history.place(position) else {
        return;
    };
    let cycles = history.cycles_unless(position, &cancel.limited_to(COUNTED));
    let source = history.source().to_owned();
    let (begin, end) = (history.begin(), history.end());
    match place.kind {
        PointKind::Instruction { pc, isa, .. } => {
            let at = words::address(pc, &symbols);
            output.fact("pc", format!("{at}, {}", isa.name()));
        }
        PointKind::Gap(gap) => output.fact("gap", words::gap(&gap)),
        PointKind::Halted => {}
    }
    for (when, exception) in [
        ("taken before", place.exception_before),
        ("taken after ", place.exception_after),
    ] {
        if let Some(exception) = exception {
            output.text(&format!(
                "  {when} exception {}",
                words::exception(&exception)
            ));
        }
    }
    let state = place.context.as_ref().map(words::context);
    if let Some(state) = state.filter(|state| !state.is_empty()) {
        output.fact("state", state);
    }
    match place.time {
        Some(time) => output.fact(
            "time",
            format!("{time} or later (the last timestamp traced)"),
        ),
        None => output.fact("time", "not traced"),
    }
    match (cycles, place.segment_cycles) {
        (Ok(Some(cycles)), _) => {
            output.fact(
                "cycles",
                format!("{cycles} counted since the start of history"),
            );
        }
        (Err(Cancelled), cycles) => output.fact(
            "cycles",
            format!(
                "{} counted in this segment of the trace; counting those before it \
                 takes longer: repeat the command to continue",
                cycles.unwrap_or(0)
            ),
        ),
        (Ok(None), _) => {}
    }
    output.fact(
        "trace",
        format!(
            "offset {:#x} of {source}; history is from {begin} to {end}",
            place.offset.0
        ),
    );
}

/// Formats the positions of the other cores.
fn others(target: &mut SnapshotTarget, thread: Tid) -> String {
    let mut text = String::new();
    let along = target.positions.tied(thread);
    let threads: Vec<Tid> = target.endpoint.threads().filter(|t| *t != thread).collect();
    for other in threads {
        let name = target
            .core(other)
            .map_or_else(String::new, |core| core.name.clone());
        let Some(position) = target.positions.position(other) else {
            let _ = writeln!(text, "  {name} has no history");
            continue;
        };
        let state = standing(target, other);
        let state = state.map_or_else(String::new, |state| format!(", {state}"));
        let moves = if along.contains(&other) {
            "moves with it, by timestamps"
        } else {
            "no timestamps in common with this core: it does not move with it"
        };
        let _ = writeln!(text, "  {name} at {position}{state}; {moves}");
    }
    text
}

/// Names the cores with a history that do not move together with this core.
fn left_behind(target: &mut SnapshotTarget, thread: Tid) -> String {
    let mut text = String::new();
    for other in target.positions.untied(thread) {
        let name = target
            .core(other)
            .map_or_else(String::new, |core| core.name.clone());
        if let Some(position) = target.positions.position(other) {
            let _ = writeln!(
                text,
                "  {name} stays at {position}: no timestamps in common with this core"
            );
        }
    }
    text
}

/// Returns the notes on the reliability of what is shown.
fn doubts(target: &mut SnapshotTarget, thread: Tid, name: &str) -> Vec<String> {
    let mut doubts = Vec::new();
    match target
        .positions
        .history(thread)
        .map(|history| history.end_agrees())
    {
        Some(EndAgrees::No { trace_end, halted }) => {
            doubts.push(
                words::end_disagrees(trace_end, halted)
                    .trim_end()
                    .to_owned(),
            );
        }
        Some(EndAgrees::Unknown) if target.positions.rests(thread) => {}
        Some(EndAgrees::Unknown) => doubts.push(
            "the trace does not contain where execution continued after its end: this may not be \
             where the core halted"
                .to_owned(),
        ),
        Some(EndAgrees::Ended) => doubts.push(
            "the thread ended here: only the address of its last instruction is known".to_owned(),
        ),
        Some(EndAgrees::Yes) | None => {}
    }
    let core = target.core(thread);
    let own = core.into_iter().flat_map(|core| &core.notes);
    doubts.extend(own.map(ToString::to_string));
    if target.positions.past(thread).is_some() {
        if target.past_values.level() == Level::Off {
            doubts.push("no register but the pc is known in the past".to_owned());
        }
        doubts.push(target.past_memory.describe().to_owned());
        doubts.push(sameness(target, thread));
    }
    let prefix = format!("{name}: ");
    let notes = target.positions.notes();
    doubts.extend(
        notes
            .iter()
            .map(Note::to_string)
            .map(|note| note.strip_prefix(&prefix).unwrap_or(&note).to_owned()),
    );
    doubts
}

/// Returns a note on whether code changed while the trace was made.
fn sameness(target: &SnapshotTarget, thread: Tid) -> String {
    let changed = target.core(thread).map(|core| core.memory.changed());
    let past = target.positions.past(thread);
    let pc = past.and_then(|past| past.pc);
    let version = target.positions.version(thread);
    match (changed, pc, version) {
        (Some(changed), Some(pc), Some(version)) if changed.contains(pc.0) => {
            let known = changed.code(version, pc.0).known().is_some();
            format!(
                "the code here changed while the trace was made: {}",
                if known {
                    format!("version {version}, which ran, is shown")
                } else {
                    "what ran is not known".to_owned()
                }
            )
        }
        (Some(changed), ..) if !changed.is_empty() => {
            "the code here is not known to have changed; code elsewhere did".to_owned()
        }
        _ => "the code is assumed to be the same at all times".to_owned(),
    }
}

/// `monitor history`: the positions around the current one.
pub(super) fn around(target: &mut SnapshotTarget, count: &str) -> String {
    let (thread, _) = match core(target) {
        Ok(found) => found,
        Err(reason) => return reason,
    };
    let count = match count {
        "" => AROUND,
        _ => match number(count) {
            Some(count) => count.min(MOST),
            None => return format!("expected a number, found {count:?}\n"),
        },
    };
    let Some(here) = target.positions.position(thread) else {
        return String::new();
    };
    let Some(history) = target.positions.history(thread) else {
        return String::new();
    };
    let mut at = here;
    for _ in 0..count {
        match history.step(at, Direction::Backward) {
            Some(before) => at = before,
            None => break,
        }
    }
    let mut places = Vec::new();
    let mut after = 0;
    loop {
        places.extend(history.place(at));
        after += u64::from(at >= here);
        match history.step(at, Direction::Forward) {
            Some(next) if after <= count => at = next,
            _ => break,
        }
    }
    list(target, thread, here, &places)
}

/// Lists positions, one line each; `here` is marked.
pub(super) fn list(
    target: &SnapshotTarget,
    thread: Tid,
    here: Position,
    places: &[HistoryPoint],
) -> String {
    let m_profile = target.endpoint.architecture() == Architecture::MProfile;
    let disassembler = Disassembler::new(m_profile);
    let symbols = target.symbols();
    let mut text = String::new();
    for place in places {
        if let Some(exception) = place.exception_before {
            let _ = writeln!(text, "  -- exception {}", words::exception(&exception));
        }
        let mark = if place.position == here { '>' } else { ' ' };
        let name = place.position.to_string();
        let what = match place.kind {
            PointKind::Instruction { pc, isa, .. } => {
                let at = words::address(pc, &symbols);
                let instruction = match (&disassembler, code(target, thread, place, pc, isa)) {
                    (Ok(d), Some(bytes)) => d.text(isa, pc.0, &bytes),
                    _ => String::new(),
                };
                format!("{at:<32}  {instruction}")
            }
            PointKind::Gap(gap) => format!("-- gap: {}", words::gap(&gap)),
            PointKind::Halted if target.positions.rests(thread) => "-- end of the trace".to_owned(),
            PointKind::Halted => "-- halted".to_owned(),
        };
        let _ = writeln!(text, "{mark} {name:<14}  {}", what.trim_end());
    }
    text
}

/// Returns the bytes of an instruction.
fn code(
    target: &SnapshotTarget,
    thread: Tid,
    place: &HistoryPoint,
    pc: Address,
    isa: Isa,
) -> Option<Vec<u8>> {
    let core = target.core(thread)?;
    let context = place.context.unwrap_or_default();
    let moment = core
        .memory
        .moment(context.el, context.context_id, context.vmid);
    let mut bytes = [0; 4];
    let known = target
        .endpoint
        .read(core, &MemoryView::Current, moment, pc.0, &mut bytes);
    let size = branch::size(isa, [bytes[0], bytes[1]]);
    Some(bytes[..known.min(size)].to_vec())
}

/// Parses a number typed by the user.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `monitor goto`.
pub(super) fn goto(target: &mut SnapshotTarget, wanted: &str, cancel: &Cancel) -> Output {
    let (thread, name) = match core(target) {
        Ok(found) => found,
        Err(reason) => return reason.into(),
    };
    let words: Vec<&str> = wanted.split_whitespace().collect();
    let Some(history) = target.positions.history(thread) else {
        return Output::default();
    };
    let found = match words[..] {
        ["begin"] => Some(history.begin()),
        ["end"] => Some(history.end()),
        ["time" | "cycle", text] if number(text).is_none() => {
            return format!("expected a number, found {text:?}\n").into();
        }
        ["time", time] => number(time).and_then(|time| history.seek_time(time)),
        ["cycle", cycle] => match number(cycle) {
            Some(cycle) => match history.seek_cycle_unless(cycle, cancel) {
                Ok(found) => found,
                Err(Cancelled) => return STOPPED.to_owned().into(),
            },
            None => None,
        },
        [position] => match position.parse::<Position>() {
            Ok(position) => Some(position),
            Err(error) => return format!("{error}, begin, end, time T or cycle N\n").into(),
        },
        _ => {
            return "expected a position, begin, end, time T or cycle N: monitor goto 14+100\n"
                .to_owned()
                .into();
        }
    };
    match found {
        Some(position) if target.positions.set(thread, position) => {
            if words[..] == ["begin"] {
                target.positions.begin(thread);
            } else {
                target.positions.along(thread, Direction::Backward);
            }
            let mut output = Output::from(format!("{name} at {position}\n"));
            about(&mut output, target, thread, position, cancel);
            output.text(&left_behind(target, thread));
            output.stale(Stale::Position, REREAD);
            output
        }
        _ => format!("{name}: the trace has no {wanted}\n").into(),
    }
}

/// `monitor find`: the next or previous visit of an address. Moves nothing.
pub(super) fn find(target: &mut SnapshotTarget, wanted: &str, cancel: &Cancel) -> Output {
    let (thread, name) = match core(target) {
        Ok(found) => found,
        Err(reason) => return reason.into(),
    };
    // A name may contain spaces.
    let (what, direction) = match wanted.rsplit_once(char::is_whitespace) {
        Some((what, "back")) => (what.trim(), Direction::Backward),
        _ => (wanted, Direction::Forward),
    };
    if matches!(what, "" | "back") {
        return "expected an address or a function, optionally followed by back\n"
            .to_owned()
            .into();
    }
    let symbols = target.symbols();
    // GDB's `armsnap find` passes all addresses of a location, separated by commas.
    let places: Option<_> = what
        .split(',')
        .map(|place| number(place.strip_prefix('*').unwrap_or(place)))
        .collect();
    let addresses: BTreeSet<u64> = places.unwrap_or_else(|| symbols.addresses(what));
    // With a star the address itself is meant; without one, an IFUNC is replaced by the chosen
    // function.
    let addresses = match what.starts_with('*') {
        true => addresses,
        false => target.chosen().instead_of(addresses),
    };
    if addresses.is_empty() {
        let mut output = Output::default();
        output.line(
            format!(
                "{what:?} is neither an address nor a function of the program (--elf names it)"
            ),
            [("unknown", what.to_owned())],
        );
        return output;
    }
    let set: AddressSet = addresses.into_iter().map(Address).collect();
    let (Some(here), Some(history)) = (
        target.positions.position(thread),
        target.positions.history(thread),
    ) else {
        return Output::default();
    };
    let found = match history.search_unless(here, direction, &set, Gaps::Pass, cancel) {
        Some(Found::At(at)) => Some(at),
        Some(Found::Gap(_) | Found::End(_)) => None,
        None => return STOPPED.to_owned().into(),
    };
    let way = match direction {
        Direction::Forward => "after",
        Direction::Backward => "before",
    };
    let place = found.and_then(|at| history.place(at));
    let Some((at, place)) = found.zip(place) else {
        return format!("{name} does not execute {what} {way} {here}\n").into();
    };
    let time = place
        .time
        .map_or_else(String::new, |time| format!(", time {time}"));
    let shown = place
        .pc()
        .map_or_else(String::new, |pc| words::address(pc, &symbols));
    let mut output = Output::default();
    output.line(
        format!("{at}: {shown}{time}; monitor goto {at} goes there"),
        [("position", at.to_string())],
    );
    output
}

/// `monitor exceptions`: the exceptions before and after the current position.
pub(super) fn exceptions(target: &mut SnapshotTarget, count: &str) -> String {
    let (thread, name) = match core(target) {
        Ok(found) => found,
        Err(reason) => return reason,
    };
    let count = match count {
        "" => 2 * AROUND,
        _ => match number(count) {
            Some(count) => count.min(MOST),
            None => return format!("expected a number, found {count:?}\n"),
        },
    } as usize;
    let symbols = target.symbols();
    let (Some(here), Some(history)) = (
        target.positions.position(thread),
        target.positions.history(thread),
    ) else {
        return String::new();
    };
    let mut taken = |direction| {
        let events = history.entries(here, direction);
        let taken = events.filter_map(|event| match event.entry {
            Entry::Exception(exception) => Some((event.position, exception)),
            _ => None,
        });
        taken.take(count).collect::<Vec<_>>()
    };
    let (mut before, after) = (taken(Direction::Backward), taken(Direction::Forward));
    if before.is_empty() && after.is_empty() {
        return format!("{name}: no exception was traced\n");
    }
    before.reverse();
    let mut line = |(at, exception): &(Position, Exception)| {
        let handler = history.place(*at).and_then(|place| place.pc());
        let handler = handler.map_or_else(String::new, |pc| {
            format!(", continues at {}", words::address(pc, &symbols))
        });
        let name = at.to_string();
        format!("  {name:<14}  {}{handler}\n", words::exception(exception))
    };
    let mut text: String = before.iter().map(&mut line).collect();
    let _ = writeln!(text, "> {here}");
    text.extend(after.iter().map(&mut line));
    text
}
