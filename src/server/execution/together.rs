//! Moves of several cores: each stops at its own breakpoints, in the order of the timestamps.
//!
//! A core without timestamps in common with the core that the user moves keeps its position.

use gdbstub::common::Tid;

use super::{Reason, Stop, arrived, stops};
use crate::server::target::SnapshotTarget;
use crate::stop::Cancel;
use crate::timeline::{AddressSet, Direction, Found, Gaps, Position};

/// A breakpoint that another core reaches during the move.
struct Hit {
    thread: Tid,
    position: Position,
    /// `None` before the first timestamp.
    time: Option<u64>,
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
        return stop;
    };
    // The core that the user moves passed the stop.
    let met = target.positions.position(stop.thread);
    target.positions.set(stop.thread, from);
    target.positions.set(first.thread, first.position);
    for (other, position) in others(target, first.thread, direction) {
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

/// Returns the other cores with their positions when a core is where a move in `direction` ended. Where
/// that is before the first timestamp of the core, a move backward takes the others to their starts.
fn others(target: &mut SnapshotTarget, thread: Tid, direction: Direction) -> Vec<(Tid, Position)> {
    if direction == Direction::Forward || target.positions.time(thread).is_some() {
        return target.positions.others(thread);
    }
    let tied = target.positions.tied(thread).into_iter();
    let start = |thread| Some((thread, target.positions.history(thread)?.begin()));
    tied.filter_map(start).collect()
}

/// Returns whether a move in `direction` reaches `time` before `other`. A place without a time is
/// before the first timestamp, and so before all that have one.
fn before(direction: Direction, time: Option<u64>, other: Option<u64>) -> bool {
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
            Ok(Some(Hit {
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
