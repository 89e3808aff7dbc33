//! Searches for the accesses of past instructions that hit watchpoints. [`crate::recover`] finds them,
//! and those that may have hit.

use std::fmt::Write as _;
use std::sync::Arc;

use gdbstub::common::Tid;

use super::target::SnapshotTarget;
use super::watchpoints::Kind;
use crate::recover::{Limit, MayHave, Wanted};
use crate::stop::Cancel;
use crate::timeline::{Direction, Position};

/// Message where values, and so the addresses of accesses, are not recovered.
const PARTIAL: &str = "watchpoints do not stop at all accesses on the way: values of the past are not \
                       recovered there (`monitor recover`)\n";
/// Why an access may have hit a watchpoint.
const WHY: &str = "the addresses of these accesses are not known";

/// The result of a search for watched accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Search {
    /// The watchpoint that was hit, an address within it, and where the core stops for it.
    pub hit: Option<(Kind, u64, Position)>,
    /// Accesses on the way whose addresses are not known.
    pub may_have: Vec<MayHave>,
    /// Whether some accesses on the way were not examined.
    pub is_partial: bool,
    /// Why none can be found anywhere in the history.
    pub blind: Option<Limit>,
}

/// Searches for the first watched access between two positions. Returns `None` if it was cancelled.
///
/// A core stops just before an access in the direction of the move, as clients expect: at the
/// instruction when moving forward, after it when moving backward.
pub(super) fn search(
    target: &mut SnapshotTarget,
    (thread, from): (Tid, Position),
    mut until: Position,
    direction: Direction,
    cancel: &Cancel,
) -> Option<Search> {
    let mut found = Search::default();
    let mut nearest: Option<(Position, Kind, u64)> = None;
    let endpoint = Arc::clone(&target.endpoint);
    for &(address, length, kind) in &target.watchpoints.set {
        let wanted = Wanted {
            reads: kind != Kind::Write,
            writes: kind != Kind::Read,
        };
        let range = address..address.saturating_add(length);
        let (values, positions) = (&mut target.past_values, &mut target.positions);
        let Some((recovery, history)) = values.of(&endpoint, positions, thread) else {
            found.is_partial = true;
            break;
        };
        found.blind = recovery.blind();
        if found.blind.is_some() {
            break;
        }
        let between = (from, until);
        let accesses = recovery.accesses(history, between, range, direction, wanted, cancel)?;
        found.may_have.extend(accesses.may_have);
        found.is_partial |= accesses.skipped;
        match accesses.hit {
            Some(hit) if nearest.is_none_or(|(position, ..)| position != hit.position) => {
                nearest = Some((hit.position, kind, hit.address));
                until = hit.position;
            }
            Some(_) => {}
            None => found.is_partial |= !accesses.complete,
        }
    }
    if let Some((position, kind, address)) = nearest {
        let is_on_the_way = |other: &MayHave| match direction {
            Direction::Backward => other.nearest > position,
            Direction::Forward => other.nearest < position,
        };
        found.may_have.retain(is_on_the_way);
        let at = match direction {
            Direction::Forward => position,
            Direction::Backward => {
                let history = target.positions.history(thread)?;
                history
                    .step(position, Direction::Forward)
                    .unwrap_or(position)
            }
        };
        found.hit = Some((kind, address, at));
    }
    Some(found)
}

/// Returns the message about accesses that were not looked at or have unknown addresses; empty if there
/// were none.
pub(super) fn unresolved(target: &mut SnapshotTarget, thread: Tid, found: &Search) -> String {
    let symbols = target.symbols();
    let mut place = |position: Position| {
        let history = target.positions.history(thread);
        let pc = history.and_then(|history| history.place(position)?.pc());
        match pc.and_then(|pc| symbols.function(pc.0)) {
            Some((name, offset)) => format!("{position} <{name}+{offset}>"),
            None => position.to_string(),
        }
    };
    let mut text = String::new();
    if found.is_partial {
        text += PARTIAL;
    }
    if let Some(limit) = &found.blind {
        let _ = writeln!(
            text,
            "watchpoints do not stop at past accesses of this core: {limit}"
        );
    }
    for other in &found.may_have {
        let nearest = place(other.nearest);
        let _ = match other.count {
            0 | 1 => writeln!(text, "it may also have been accessed at {nearest}: {WHY}"),
            count => writeln!(
                text,
                "it may also have been accessed at {nearest} and at {} other places, the last one at \
                 {}: {WHY}",
                count - 1,
                place(other.farthest)
            ),
        };
    }
    text
}
