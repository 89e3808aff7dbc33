//! Searches for accesses of past instructions that hit watchpoints. [`armsnap_history::recover`] finds these
//! accesses, and those that may have hit.

use std::fmt::Write as _;
use std::sync::Arc;

use gdbstub::common::Tid;

use super::shown_memory;
use super::target::SnapshotTarget;
use super::watchpoints::Kind;
use armsnap_history::recover::{Limit, MayHave, Wanted};
use armsnap_history::timeline::{Direction, Position};
use armsnap_snapshot::stop::Cancel;

/// Message shown if values, and therefore the addresses of accesses, are not recovered.
const PARTIAL: &str = "watchpoints do not stop at all accesses on the way: values of the past are not \
                       recovered there (`monitor recover`)\n";
/// Why an access may have hit a watchpoint.
const WHY: &str = "the addresses of these accesses are not known";

/// An access that hits a watchpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    /// The kind of the watchpoint.
    pub kind: Kind,
    /// The first watched address that is accessed.
    pub address: u64,
    /// The watched addresses: the first one, and their number.
    range: (u64, u64),
    /// The instruction that accesses it.
    instruction: Position,
    /// Where a core stops for it: just before the access in the direction of the move.
    pub stops_at: Position,
    /// Where the move began.
    from: Position,
}

/// The result of a search for watched accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Search {
    /// The access that was found.
    pub hit: Option<Access>,
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
    let mut nearest: Option<(Position, Kind, u64, (u64, u64))> = None;
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
                nearest = Some((hit.position, kind, hit.address, (address, length)));
                until = hit.position;
            }
            Some(_) => {}
            None => found.is_partial |= !accesses.complete,
        }
    }
    if let Some((position, kind, address, range)) = nearest {
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
        found.hit = Some(Access {
            kind,
            address,
            range,
            instruction: position,
            stops_at: at,
            from,
        });
    }
    Some(found)
}

/// Returns where a core stops for a store that GDB would pass silently: after the store, in the direction
/// of the move. `None` for other accesses.
///
/// GDB compares the value that it knew before with the one after the store, and continues if neither can be
/// read. LLDB stops at each hit.
pub(super) fn unseen(
    target: &mut SnapshotTarget,
    thread: Tid,
    access: &Access,
    direction: Direction,
) -> Option<Position> {
    if access.kind != Kind::Write || target.takes_unknown_for_value {
        return None;
    }
    let after = match direction {
        Direction::Backward => access.instruction,
        Direction::Forward => {
            let history = target.positions.history(thread)?;
            history.step(access.instruction, direction)?
        }
    };
    let ranges = compared(target, thread, access);
    let mut are_known = |at| {
        target.positions.set(thread, at);
        let mut ranges = ranges.iter();
        ranges.all(|range| is_known(target, thread, *range))
    };
    let is_seen = are_known(after) || (are_known(access.stops_at) && are_known(access.from));
    (!is_seen).then_some(after)
}

/// Returns the ranges whose values GDB compares at an access: the accessed one and, if that is a pointer
/// in a watched expression, what it points to.
fn compared(target: &mut SnapshotTarget, thread: Tid, access: &Access) -> Vec<(u64, u64)> {
    /// Maximum distance of a structure's members from the address in a pointer to the structure.
    const NEAR: u64 = 1 << 12;
    let mut ranges = vec![access.range];
    let (start, length) = access.range;
    if length != 4 && length != 8 {
        return ranges;
    }
    target.positions.set(thread, access.from);
    let bytes = shown_memory::read(target, thread, start, length as usize);
    let Some(bytes) = bytes.filter(|bytes| bytes.len() as u64 == length) else {
        return ranges;
    };
    let is_big = target.endpoint.is_big_endian();
    let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let pointer = match is_big {
        true => bytes.iter().fold(0, fold),
        false => bytes.iter().rev().fold(0, fold),
    };
    let watched = target.watchpoints.set.iter();
    let near = watched.filter(|(at, _, kind)| {
        *kind == Kind::Write && at.checked_sub(pointer).is_some_and(|after| after < NEAR)
    });
    ranges.extend(near.map(|(at, length, _)| (*at, *length)));
    ranges
}

/// Returns whether all bytes of a range are known at the position of a core.
fn is_known(target: &mut SnapshotTarget, thread: Tid, (start, length): (u64, u64)) -> bool {
    /// Maximum size read at once; an expression may have any size.
    const PIECE: u64 = 1 << 12;
    let mut at = 0;
    while at < length {
        let piece = PIECE.min(length - at);
        let known = shown_memory::read(target, thread, start.wrapping_add(at), piece as usize);
        if known.is_none_or(|known| (known.len() as u64) < piece) {
            return false;
        }
        at += piece;
    }
    true
}

/// Returns the message for a store to a watched address that GDB would pass.
pub(super) fn unknown_store(address: u64) -> String {
    format!(
        "a store to the watched address {address:#x}: what is watched is not known before and after it\n"
    )
}

/// Returns the message about accesses that were not checked or have unknown addresses; empty if there
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
