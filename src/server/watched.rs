//! Searches for the accesses of past instructions that hit watchpoints.
//!
//! [`crate::recover`] finds the accesses of a range of addresses, and those that may have hit it. For
//! single steps the addresses are computed from the registers known before each instruction.

use std::fmt::Write as _;
use std::sync::Arc;

use gdbstub::common::Tid;

use super::memory::MemoryView;
use super::past_values::PastValues;
use super::target::SnapshotTarget;
use super::watchpoints::{Kind, Touch};
use crate::quantity::{Address, Isa};
use crate::recover::{MayHave, Wanted};
use crate::semantics::{Location, Machine, Operation, Semantics, Values, a64, execute};
use crate::stop::Cancel;
use crate::timeline::{Direction, PointKind, Position};

/// Maximum number of instructions whose semantics are kept.
const KEPT: usize = 1 << 16;
/// Why an access may have hit a watchpoint.
const WHY: &str = "the addresses of these accesses are not known";

/// The end of a search for watched accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Search {
    /// The watchpoint that was hit, an address within it, and where the core stops for it.
    pub hit: Option<(Kind, u64, Position)>,
    /// Accesses on the way whose addresses are not known.
    pub may_have: Vec<MayHave>,
}

/// The accesses of an instruction, in order.
#[derive(Default)]
struct Touches {
    all: Vec<Touch>,
}

impl Touches {
    fn add(&mut self, store: bool, address: Option<u64>, bytes: u64) {
        self.all.push(Touch {
            store,
            address,
            bytes,
        });
    }
}

impl Machine for Touches {
    fn load(&mut self, address: u64, size: u8) -> Option<u64> {
        self.add(false, Some(address), size.into());
        None
    }

    fn store(&mut self, address: Option<u64>, size: u8, _: Option<u64>) {
        self.add(true, address, size.into());
    }

    fn may_store_anywhere(&mut self) {
        self.add(true, None, 1);
    }
}

/// Returns what an instruction does if it accesses memory.
fn semantics(target: &mut SnapshotTarget, thread: Tid, pc: Address) -> Option<Arc<Semantics>> {
    if let Some(known) = target.watchpoints.code.get(&pc.0) {
        return known.clone();
    }
    let version = target.version(thread);
    let core = target.core(thread)?;
    let mut bytes = [0; 4];
    let endpoint = &target.endpoint;
    let count = endpoint.read(core, MemoryView::Current, version, pc.0, &mut bytes);
    let found = (count == 4).then(|| a64::decode(u32::from_le_bytes(bytes), pc.0));
    let found = found.filter(|semantics| {
        let mut relations = semantics.relations.iter();
        semantics.may_store_anywhere
            || relations.any(|relation| {
                matches!(
                    relation.operation,
                    Operation::Load { .. } | Operation::Store { .. }
                )
            })
    });
    let found = found.map(Arc::new);
    if target.watchpoints.code.len() >= KEPT {
        target.watchpoints.code.clear();
    }
    target.watchpoints.code.insert(pc.0, found.clone());
    found
}

/// Returns the accesses of the instruction at a position.
fn touches(
    target: &mut SnapshotTarget,
    (thread, position): (Tid, Position),
    cancel: &Cancel,
) -> Vec<Touch> {
    let history = target.positions.history(thread);
    let place = history.and_then(|history| history.place(position));
    let Some(PointKind::Instruction { pc, isa, .. }) = place.map(|place| place.kind) else {
        return Vec::new();
    };
    let found = match isa {
        Isa::A64 => semantics(target, thread, pc),
        _ => None,
    };
    let Some(found) = found else {
        return Vec::new();
    };
    let mut values: Values = [None; Location::KEPT];
    let endpoint = Arc::clone(&target.endpoint);
    let known: &mut PastValues = &mut target.past_values;
    let known = known.registers(&endpoint, &mut target.positions, (thread, position), cancel);
    if let Some(known) = known {
        for (value, known) in values.iter_mut().zip(known.0) {
            *value = known.map(|known| known.value);
        }
    }
    let mut made = Touches::default();
    execute(&found, pc.0, &mut values, &mut made);
    made.all
}

/// Searches for a watched access in a few steps between two positions. Returns `None` if it was
/// cancelled.
///
/// A core stops just before an access in the direction of the move, as clients expect: at the
/// instruction when moving forward, after it when moving backward.
pub(super) fn in_steps(
    target: &mut SnapshotTarget,
    (thread, from): (Tid, Position),
    until: Position,
    direction: Direction,
    cancel: &Cancel,
) -> Option<Search> {
    let mut found = Search::default();
    let mut at = from;
    loop {
        let history = target.positions.history(thread);
        let Some(next) = history.and_then(|history| history.step(at, direction)) else {
            return Some(found);
        };
        let passed = match direction {
            Direction::Backward if next < until => return Some(found),
            Direction::Forward if at >= until => return Some(found),
            Direction::Backward => next,
            Direction::Forward => at,
        };
        for touch in touches(target, (thread, passed), cancel) {
            if let Some((kind, address)) = target.watchpoints.hit(touch) {
                found.hit = Some((kind, address, at));
                return Some(found);
            }
        }
        if cancel.is_requested() {
            return None;
        }
        at = next;
    }
}

/// Searches for the first watched access between two positions, as [`in_steps`], anywhere in history.
pub(super) fn search(
    target: &mut SnapshotTarget,
    (thread, from): (Tid, Position),
    until: Position,
    direction: Direction,
    cancel: &Cancel,
) -> Option<Search> {
    let mut found = Search::default();
    let mut nearest: Option<(Position, Kind, u64)> = None;
    let between = |position: Position| match direction {
        Direction::Backward => position >= until,
        Direction::Forward => position < until,
    };
    let is_nearer = |one: Position, other: Position| match direction {
        Direction::Backward => one > other,
        Direction::Forward => one < other,
    };
    let endpoint = Arc::clone(&target.endpoint);
    let set: Vec<_> = target.watchpoints.set.iter().copied().collect();
    for (address, length, kind) in set {
        let wanted = Wanted {
            reads: kind != Kind::Write,
            writes: kind != Kind::Read,
        };
        let range = address..address.saturating_add(length);
        let (values, positions) = (&mut target.past_values, &mut target.positions);
        let Some((recovery, history)) = values.of(&endpoint, positions, thread) else {
            continue;
        };
        let accesses = recovery.accesses(history, from, range, direction, wanted, cancel)?;
        if let Some(hit) = accesses.hit.filter(|hit| between(hit.position))
            && nearest.is_none_or(|(position, ..)| is_nearer(hit.position, position))
        {
            nearest = Some((hit.position, kind, hit.address));
        }
        found
            .may_have
            .extend(accesses.may_have.filter(|other| between(other.nearest)));
    }
    if let Some((position, kind, address)) = nearest {
        found
            .may_have
            .retain(|other| is_nearer(other.nearest, position));
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

/// Returns the message about accesses at unknown addresses; empty if there were none.
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
