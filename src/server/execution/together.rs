//! Moves of several cores: each stops at its own breakpoints, in the order of the timestamps.
//!
//! A core without timestamps in common with the core that the user moves keeps its position.

use gdbstub::common::Tid;

use super::{Reason, Stop, arrived, stops};
use crate::server::target::SnapshotTarget;
use crate::stop::Cancel;
use crate::timeline::{AddressSet, Direction, Found, Gaps, History, Position};

/// A breakpoint that another core reaches during the move.
struct Hit {
    thread: Tid,
    position: Position,
    time: u64,
}

/// The client interrupted the move.
struct Interrupted;

/// After one core moved from `from` to `stop`: determines whether another core reaches a breakpoint
/// before, and updates the positions of all cores.
pub(super) fn settle(
    target: &mut SnapshotTarget,
    direction: Direction,
    from: Position,
    stop: Stop,
    cancel: &Cancel,
) -> Stop {
    if stop.reason == Reason::Interrupted {
        return stop;
    }
    let mut hits: Vec<Hit> = Vec::new();
    if target.breakpoints.addresses().next().is_some() {
        for thread in target.positions.tied(stop.thread) {
            let wanted = stops(target, thread);
            match first_hit(target, thread, direction, &wanted, cancel) {
                Ok(hit) => hits.extend(hit),
                Err(Interrupted) => {
                    target.positions.set(stop.thread, from);
                    let reason = Reason::Interrupted;
                    return Stop { reason, ..stop };
                }
            }
        }
    }
    let time = target.positions.time(stop.thread);
    // The order of two stops at the same time is unknown: the core that the user moves wins.
    let first = hits
        .iter()
        .filter(|hit| ends(stop.reason) || time.is_some_and(|t| before(direction, hit.time, t)))
        .reduce(|first, hit| {
            if before(direction, hit.time, first.time) {
                hit
            } else {
                first
            }
        });
    let Some(first) = first else {
        if stop.reason == Reason::HistoryBegins {
            // There is no timestamp before the start of history: the others go to theirs.
            for other in target.positions.tied(stop.thread) {
                if let Some(start) = target.positions.history(other).map(History::begin) {
                    target.positions.set(other, start);
                }
            }
        }
        for (other, position) in target.positions.others(stop.thread) {
            let hit = hits.iter().find(|hit| hit.thread == other);
            take_to(
                target,
                other,
                position,
                direction,
                hit.map(|hit| hit.position),
            );
        }
        return stop;
    };
    // The core that the user moves passed the stop.
    let met = target.positions.position(stop.thread);
    target.positions.set(stop.thread, from);
    target.positions.set(first.thread, first.position);
    for (other, position) in target.positions.others(first.thread) {
        let hit = hits.iter().find(|hit| hit.thread == other);
        let hit = hit.map(|hit| hit.position);
        let limit = if other == stop.thread { met } else { hit };
        take_to(target, other, position, direction, limit);
    }
    Stop {
        thread: first.thread,
        reason: arrived(target, first.thread),
    }
}

fn ends(reason: Reason) -> bool {
    matches!(reason, Reason::HistoryBegins | Reason::HistoryEnds)
}

/// Returns whether a move in `direction` reaches `time` before `other`.
fn before(direction: Direction, time: u64, other: u64) -> bool {
    match direction {
        Direction::Forward => time < other,
        Direction::Backward => time > other,
    }
}

/// Finds the first breakpoint of a core during the move. Passes gaps, since the user does not move
/// this core.
fn first_hit(
    target: &mut SnapshotTarget,
    thread: Tid,
    direction: Direction,
    wanted: &AddressSet,
    cancel: &Cancel,
) -> Result<Option<Hit>, Interrupted> {
    let from = target.positions.position(thread);
    let (Some(from), Some(history)) = (from, target.positions.history(thread)) else {
        return Ok(None);
    };
    match history.search_unless(from, direction, wanted, Gaps::Pass, cancel) {
        Some(Found::At(position)) => {
            let time = history.place(position).and_then(|place| place.time);
            Ok(time.map(|time| Hit {
                thread,
                position,
                time,
            }))
        }
        Some(Found::Gap(_) | Found::End(_)) => Ok(None),
        None => Err(Interrupted),
    }
}

/// Moves a core to a position in the direction of the move, but never the other way, and only to
/// a place before `limit`, where it will stop.
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
