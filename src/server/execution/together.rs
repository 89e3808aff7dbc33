//! Moves of several cores: each stops at its own breakpoints and watched accesses, ordered by
//! timestamps.
//!
//! A core without timestamps in common with the core that the user moves keeps its position.

use gdbstub::common::Tid;

use super::{Reason, Stop, arrive_at, arrived, stops};
use crate::server::target::SnapshotTarget;
use crate::server::watched::{self, Access, Search};
use armsnap_history::timeline::{Direction, Found, Gaps, Position};
use armsnap_snapshot::stop::Cancel;

/// A breakpoint or a watched access that another core reaches during the move.
struct Hit {
    thread: Tid,
    position: Position,
    /// `None` before the first timestamp.
    time: Option<u64>,
    /// The access.
    access: Option<Access>,
}

/// The client interrupted the move.
struct Interrupted;

/// After one core moved from `from` to `stop`: determines whether another core reaches a breakpoint or a
/// watched access before it, and updates the positions of all cores. Also returns the results of the
/// searches for accesses of the other cores.
pub(super) fn settle(
    target: &mut SnapshotTarget,
    direction: Direction,
    from: Position,
    stop: Stop,
    cancel: &Cancel,
) -> (Stop, Vec<(Tid, Search)>) {
    let mut searches = Vec::new();
    if stop.reason == Reason::Interrupted {
        return (stop, searches);
    }
    let mut hits: Vec<Hit> = Vec::new();
    let has_breakpoints = target.breakpoints.addresses().next().is_some();
    if has_breakpoints || !target.watchpoints.is_empty() {
        for thread in target.positions.tied(stop.thread) {
            let found = first_hit(target, (thread, stop), direction, cancel);
            let Ok((hit, search)) = found else {
                target.positions.set(stop.thread, from);
                let reason = Reason::Interrupted;
                return (Stop { reason, ..stop }, Vec::new());
            };
            hits.extend(hit);
            searches.push((thread, search));
        }
    }
    let time = target.positions.time(stop.thread);
    // The order of two stops at the same time is unknown: the core that the user moves wins.
    let first = hits
        .iter()
        .filter(|hit| ends(stop.reason) || before(direction, hit.time, time))
        .reduce(|first, hit| {
            if before(direction, hit.time, first.time) {
                hit
            } else {
                first
            }
        });
    let Some(first) = first else {
        for (other, position) in others(target, stop.thread, direction) {
            let hit = hits.iter().find(|hit| hit.thread == other);
            take_to(
                target,
                other,
                position,
                direction,
                hit.map(|hit| hit.position),
            );
        }
        return (stop, searches);
    };
    // The core that the user moves went past the stop.
    let met = target.positions.position(stop.thread);
    target.positions.set(stop.thread, from);
    target.positions.set(first.thread, first.position);
    for (other, position) in others(target, first.thread, direction) {
        let hit = hits.iter().find(|hit| hit.thread == other);
        let hit = hit.map(|hit| hit.position);
        let limit = if other == stop.thread { met } else { hit };
        take_to(target, other, position, direction, limit);
    }
    let thread = first.thread;
    let reason = match first.access {
        Some(access) => arrive_at(target, thread, access, direction),
        None => arrived(target, thread),
    };
    (Stop { thread, reason }, searches)
}

fn ends(reason: Reason) -> bool {
    matches!(reason, Reason::HistoryBegins | Reason::HistoryEnds)
}

/// Returns the other cores with their positions when a core is where a move in `direction` ended. A
/// backward move takes cores whose first timestamp is later to the starts of their histories; if it
/// ended before the core's own first timestamp, it takes all of them there.
fn others(target: &mut SnapshotTarget, thread: Tid, direction: Direction) -> Vec<(Tid, Position)> {
    if direction == Direction::Forward {
        return target.positions.others(thread);
    }
    let positions = &mut target.positions;
    let tied = positions.tied(thread).into_iter();
    let at = |other| {
        let timed = positions.at_same_time(thread, other);
        let begin = timed.or_else(|| positions.history(other).map(|history| history.begin()));
        Some((other, begin?))
    };
    tied.filter_map(at).collect()
}

/// Returns whether a move in `direction` reaches `time` before `other`. A position without a time
/// is before the first timestamp, and therefore before all positions that have one.
fn before(direction: Direction, time: Option<u64>, other: Option<u64>) -> bool {
    match direction {
        Direction::Forward => time < other,
        Direction::Backward => time > other,
    }
}

/// Finds the first breakpoint or watched access of a core during the move of another one, which
/// ended at `stop`. Passes gaps, since the user does not move this core.
fn first_hit(
    target: &mut SnapshotTarget,
    (thread, stop): (Tid, Stop),
    direction: Direction,
    cancel: &Cancel,
) -> Result<(Option<Hit>, Search), Interrupted> {
    let wanted = stops(target, thread);
    let from = target.positions.position(thread);
    let (Some(from), Some(history)) = (from, target.positions.history(thread)) else {
        return Ok((None, Search::default()));
    };
    let at = match target.breakpoints.addresses().next() {
        Some(_) => history.search_unless(from, direction, &wanted, Gaps::Pass, cancel),
        None => Some(Found::End(from)),
    };
    let at = match at {
        Some(Found::At(position)) => Some(position),
        Some(Found::Gap(_) | Found::End(_)) => None,
        None => return Err(Interrupted),
    };
    let end = match direction {
        Direction::Forward => history.end(),
        Direction::Backward => history.begin(),
    };
    let mut search = Search::default();
    if !target.watchpoints.is_empty() {
        let mut until = at.unwrap_or(end);
        if !ends(stop.reason)
            && let Some(met) = target.positions.at_same_time(stop.thread, thread)
        {
            until = match direction {
                Direction::Forward => until.min(met).max(from),
                Direction::Backward => until.max(met).min(from),
            };
        }
        let found = watched::search(target, (thread, from), until, direction, cancel);
        search = found.ok_or(Interrupted)?;
    }
    let access = search.hit;
    let hit = match access {
        Some(access) => Some(access.stops_at),
        None => at,
    };
    let Some((position, history)) = hit.zip(target.positions.history(thread)) else {
        return Ok((None, search));
    };
    let time = history.place(position).and_then(|place| place.time);
    let hit = Hit {
        thread,
        position,
        time,
        access,
    };
    Ok((Some(hit), search))
}

/// Moves a core to a position in the direction of the move, never the other way, and only up to a
/// position before `limit`, where it will stop.
fn take_to(
    target: &mut SnapshotTarget,
    thread: Tid,
    position: Position,
    direction: Direction,
    limit: Option<Position>,
) {
    let (Some(now), Some(history)) = (
        target.positions.position(thread),
        target.positions.history(thread),
    ) else {
        return;
    };
    let mut short = |back| {
        let limit = limit?;
        Some(history.step(limit, back).unwrap_or(limit))
    };
    let position = match direction {
        Direction::Forward => {
            let end = short(Direction::Backward).unwrap_or(position);
            position.min(end).max(now)
        }
        Direction::Backward => {
            let end = short(Direction::Forward).unwrap_or(position);
            position.max(end).min(now)
        }
    };
    target.positions.set(thread, position);
}
