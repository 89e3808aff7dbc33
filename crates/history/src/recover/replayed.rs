//! Where values of replayed history came from.
//!
//! The replay finds the instruction that wrote a value last, however far back, and knows all values
//! after it. The instructions before that are solved as if execution were halted there.

use super::facts::final_state::FinalState;
use super::queries::origin::{End, Way, What};
use super::queries::writes::Wanted;
use super::replay::Replay;
use super::status::Level;
use super::window::Window;
use crate::timeline::{Direction, History, Position};
use armsnap_arch::semantics::Location;
use armsnap_snapshot::stop::Cancel;
use std::collections::BTreeMap;

/// The number of positions that are solved together.
const SOLVED: u32 = 1 << 12;

/// Values that are to be found, each at the position after the instruction that wrote it last.
type Wrote = BTreeMap<Position, Vec<What>>;

/// Where a value before the instruction at a position came from, in at most `most` instructions.
/// `Some(None)` if the replay does not know; `None` if it was cancelled.
pub(super) fn origin(
    (replay, history, facts): (&mut Replay, &mut History, &FinalState),
    position: Position,
    what: What,
    (level, most): (Level, usize),
    cancel: &Cancel,
) -> Option<Option<Way>> {
    if what == What::Location(Location::SP) {
        // Its way through frames is short from the end only.
        return Some(None);
    }
    let mut way = Way::new();
    let mut open = Wrote::new();
    let mut given = (replay, history, facts);
    if !find(&mut given, position, what, &mut open, cancel)? {
        return Some(None);
    }
    while let Some((position, wanted)) = open.pop_last() {
        let (replay, history, facts) = &mut given;
        let end = run_end(history, position);
        let is_at_end = end >= history.end();
        let (there, pc) = match replay.facts_at(history, facts, end, cancel) {
            Some((there, pc)) => (Some(there), Some(pc)),
            None if cancel.is_requested() => return None,
            None if is_at_end => (None, None),
            None => return Some(None),
        };
        let there = there.as_ref().unwrap_or(facts);
        let at = pc.map(|pc| (end, pc));
        let mut window = Window::before(history, there, at, SOLVED, cancel)?;
        let Some(step) = window.steps.find(position) else {
            return Some(None);
        };
        let begin = window.steps.begin(history);
        for what in wanted {
            let Some(mut solved) = window.solved(there) else {
                return Some(None);
            };
            let before = way.end;
            let (longer, rest) = solved.origin(step, what, (level, most), way, cancel)?;
            way = longer;
            let mut end = way.end;
            if rest.is_stack && end == End::Older {
                end = End::Stack;
            } else {
                let mut is_found = true;
                for what in rest.values {
                    is_found &= find(&mut given, begin, what, &mut open, cancel)?;
                }
                if end == End::Older && is_found {
                    end = End::Reached;
                }
            }
            way.end = if end == End::Reached { before } else { end };
            if end == End::Long {
                return Some(Some(way));
            }
        }
    }
    Some(Some(way))
}

/// The end of the consecutive instructions that a position is among: steps are built from whole runs.
fn run_end(history: &mut History, position: Position) -> Position {
    let end = history.end();
    let mut events = history.entries(position, Direction::Forward);
    let next = events.find(|event| event.position >= position && event.entry.places() > 0);
    next.map_or(end, |event| event.position)
}

/// Finds the instruction that wrote a value last before a position; whether there is one. `None` if
/// it was cancelled.
fn find(
    (replay, history, facts): &mut (&mut Replay, &mut History, &FinalState),
    before: Position,
    what: What,
    open: &mut Wrote,
    cancel: &Cancel,
) -> Option<bool> {
    let found = match what {
        What::Location(location) => replay.last_change(history, facts, before, location, cancel),
        What::Byte(address) => {
            let between = (before, history.begin());
            let range = address..address.saturating_add(1);
            let writes = Wanted {
                reads: false,
                writes: true,
            };
            let search = (range, writes, Direction::Backward);
            let found = replay.search(history, facts, between, search, cancel)?;
            let is_known = found.end.is_some_and(|end| end >= before);
            found.hit.filter(|_| is_known).map(|hit| hit.position)
        }
    };
    if cancel.is_requested() {
        return None;
    }
    let after = found.and_then(|found| history.step(found, Direction::Forward));
    if let Some(after) = after {
        let wanted = open.entry(after).or_default();
        if !wanted.contains(&what) {
            wanted.push(what);
        }
    }
    Some(after.is_some())
}
