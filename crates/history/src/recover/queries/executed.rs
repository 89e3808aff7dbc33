//! Code that was executed near a position: memory held its bytes then.

use super::Solved;
use crate::recover::memory::cells::{Cells, Kind, byte_bits};
use crate::recover::memory::regions::Class;
use crate::recover::status::Status;
use crate::timeline::{Direction, Entry, History, PointKind, Position};
use armsnap_arch::quantity::Address;
use std::collections::HashSet;
use std::ops::RangeInclusive;

/// Entries before and after a position that are examined.
const ENTRIES: usize = 4096;

/// A straight line of code, and a position at which it was executed.
type Line = (RangeInclusive<u64>, Position);

/// The code around a position.
#[derive(Debug, Default)]
pub(in crate::recover) struct Executed {
    at: Option<Position>,
    /// The straight line that contains the position.
    here: Option<RangeInclusive<u64>>,
    /// The lines executed before and after it, each where it is nearest.
    before: Vec<Line>,
    after: Vec<Line>,
}

impl Executed {
    /// Examines what was executed around a position.
    pub fn look(&mut self, history: &mut History, position: Position) {
        if self.at == Some(position) {
            return;
        }
        let place = history.place(position);
        let here = place.and_then(|place| match place.kind {
            PointKind::Instruction { range, .. } => Some(bytes(range.start, range.end)),
            PointKind::Gap(_) | PointKind::Halted => None,
        });
        let mut lines = |direction| {
            let mut seen = HashSet::new();
            let entries = history.entries(position, direction);
            // The first is the line that contains the position.
            let lines = entries.take(ENTRIES).skip(1).filter_map(|event| {
                let Entry::Run { range, .. } = event.entry else {
                    return None;
                };
                let is_new = seen.insert((range.start, range.end));
                is_new.then(|| (bytes(range.start, range.end), event.position))
            });
            lines.collect()
        };
        *self = Self {
            at: Some(position),
            here,
            before: lines(Direction::Backward),
            after: lines(Direction::Forward),
        };
    }

    /// When an address was executed.
    pub fn times(&self, address: u64) -> Times {
        let at = |lines: &[Line]| {
            let line = lines.iter().find(|line| line.0.contains(&address));
            line.map(|line| line.1)
        };
        Times {
            now: self.here.iter().any(|line| line.contains(&address)),
            before: at(&self.before),
            after: at(&self.after),
        }
    }
}

/// When code at an address was executed, relative to a position.
#[derive(Clone, Copy, Debug)]
pub(in crate::recover) struct Times {
    /// Whether it is part of the straight line that contains the position.
    pub now: bool,
    /// Where it was executed last before the position.
    pub before: Option<Position>,
    /// Where it was executed first after the position.
    pub after: Option<Position>,
}

/// The addresses of the bytes of a straight line. The end of a line up to the last address is 0.
fn bytes(start: Address, end: Address) -> RangeInclusive<u64> {
    start.0..=end.0.wrapping_sub(1).max(start.0)
}

/// What is known of a byte between two steps.
pub(in crate::recover) enum Between {
    /// An access is known to have written it, or may have.
    Written,
    /// Nothing wrote it.
    Kept(Status),
    /// Nothing is known to have; this is the class of its memory.
    Unknown(Class),
    /// The steps are not both explored.
    Unexplored,
}

impl Solved<'_> {
    /// What happened to a byte between two steps: from before the instruction at the one to before
    /// that at the other.
    pub fn between(&mut self, address: u64, (one, other): (u32, u32)) -> Between {
        let granule = address >> 3;
        let (later, earlier) = (one.min(other), one.max(other));
        let (from, to) = (self.access_before(later), self.access_before(earlier));
        if self
            .solver
            .cells
            .writes(address, from..=to.saturating_sub(1))
        {
            return Between::Written;
        }
        let class = self.solver.class_of(granule);
        if self.reaches((Class::Anything, granule, earlier), from, to) {
            Between::Kept(Status::Proved)
        } else if self.reaches((class, granule, earlier), from, to) {
            Between::Kept(Status::Inferred)
        } else {
            Between::Unknown(class)
        }
    }
}

impl Cells {
    /// Whether any of some accesses is known to have written a byte, or to do so on a condition.
    pub fn writes(&self, address: u64, accesses: RangeInclusive<u32>) -> bool {
        let Some(cell) = self.find(address >> 3) else {
            return false;
        };
        let order = &self.all[cell as usize].events;
        let first = order.place(*accesses.start());
        let mut events = order.from(first).map(|event| self.events[event as usize]);
        let by = 8 * (address & 7);
        events
            .by_ref()
            .take_while(|event| event.access <= *accesses.end())
            .any(|event| {
                matches!(event.kind, Kind::Store | Kind::MayStore)
                    && byte_bits(event.bytes) >> by & 1 == 1
            })
    }
}
