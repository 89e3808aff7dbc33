//! Cores that move together: each stops at its own breakpoints, in the order that timestamps
//! tell.
//!
//! A core that timestamps do not tie to the one that the user moves stays where it is.

use gdbstub::common::Tid;

use super::{Reason, Stop, arrived};
use crate::quantity::Address;
use crate::server::target::SnapshotTarget;
use crate::timeline::{AddressSet, Direction, Found, Gaps, History, Position};

/// A breakpoint of another core on the way.
struct Hit {
    thread: Tid,
    position: Position,
    time: u64,
}

/// The client does not want to wait any longer.
struct Interrupted;

/// After one core went on from a place to a stop: whether another came to a breakpoint before,
/// and where all are then.
pub(super) fn settle(
    target: &mut SnapshotTarget,
    direction: Direction,
    from: Position,
    stop: Stop,
    goes_on: &mut dyn FnMut() -> bool,
) -> Stop {
    if stop.reason == Reason::Interrupted {
        return stop;
    }
    let wanted: AddressSet = target.breakpoints.addresses().map(Address).collect();
    let mut hits: Vec<Hit> = Vec::new();
    if !wanted.addresses().is_empty() {
        for thread in target.positions.tied(stop.thread) {
            match first_hit(target, thread, direction, &wanted, goes_on) {
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
    // Of two at the same time the order is not known: the core that the user moves comes first.
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
            // No timestamp comes before the begin: the others go back to theirs.
            for other in target.positions.tied(stop.thread) {
                if let Some(begin) = target.positions.history(other).map(History::begin) {
                    target.positions.set(other, begin);
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
    // The core that the user moves went too far.
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

/// Whether a time is passed before another one.
fn before(direction: Direction, time: u64, other: u64) -> bool {
    match direction {
        Direction::Forward => time < other,
        Direction::Backward => time > other,
    }
}

/// The first breakpoint of a core on its way. Gaps are passed: it is not this core that the user
/// moves.
fn first_hit(
    target: &mut SnapshotTarget,
    thread: Tid,
    direction: Direction,
    wanted: &AddressSet,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Hit>, Interrupted> {
    let from = target.positions.position(thread);
    let (Some(from), Some(history)) = (from, target.positions.history(thread)) else {
        return Ok(None);
    };
    match history.search_while(from, direction, wanted, Gaps::Pass, goes_on) {
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

/// Takes a core to a place on its way: never back, and never up to `limit`, where it will stop.
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
