//! Searches for the loads and stores of an address range.

use super::Solved;
use crate::recover::bits::untagged;
use crate::recover::memory::access::{AccessKind, Place};
use crate::recover::memory::cells::Kind;
use crate::recover::status::{Level, Status};
use crate::timeline::{Direction, Position};
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

/// The most granules that accesses with unknown addresses are compared with individually.
const MOST_GRANULES: u64 = 64;

/// Which accesses are searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Loads.
    pub reads: bool,
    /// Stores.
    pub writes: bool,
}

/// An access to a range that was searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The instruction.
    pub position: Position,
    /// The first byte of the range that it accessed.
    pub address: u64,
    /// The first address that it accessed, and the number of bytes, if its instruction says so.
    pub whole: Option<(u64, u8)>,
    /// Whether it is a store.
    pub store: bool,
    /// The status of its address.
    pub status: Status,
}

/// Accesses with unknown addresses that may have hit the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayHave {
    /// The one nearest to where the search began.
    pub nearest: Position,
    /// The last one before the hit, in the direction of the search.
    pub farthest: Position,
    /// How many there are.
    pub count: u64,
}

impl MayHave {
    /// Those of two parts of the way.
    pub(in crate::recover) fn both(
        one: Option<Self>,
        other: Option<Self>,
        direction: Direction,
    ) -> Option<Self> {
        let (Some(one), Some(other)) = (one, other) else {
            return one.or(other);
        };
        let (nearest, farthest) = match direction {
            Direction::Forward => (
                one.nearest.min(other.nearest),
                one.farthest.max(other.farthest),
            ),
            Direction::Backward => (
                one.nearest.max(other.nearest),
                one.farthest.min(other.farthest),
            ),
        };
        Some(Self {
            nearest,
            farthest,
            count: one.count + other.count,
        })
    }
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accesses {
    /// The next access in the direction of the search.
    pub hit: Option<Hit>,
    /// Accesses on the way that may have hit the range too.
    pub may_have: Option<MayHave>,
    /// Without a hit: whether everything between the two positions was explored.
    pub complete: bool,
    /// Whether the first part of the way was not explored, in which there may be other accesses.
    pub skipped: bool,
}

impl Accesses {
    /// Nothing, because nothing was explored.
    pub(in crate::recover) const NONE: Self = Self {
        hit: None,
        may_have: None,
        complete: false,
        skipped: false,
    };
}

impl Solved<'_> {
    /// The next access to a range: backward, before a step; forward, at it or after it. Ends at
    /// another step, or where exploration ended.
    pub fn accesses(
        &mut self,
        (step, until): (u32, Option<u32>),
        range: Range<u64>,
        direction: Direction,
        wanted: Wanted,
        level: Level,
    ) -> Accesses {
        let start = untagged(range.start);
        let range = start..start.saturating_add(range.end.saturating_sub(range.start));
        let border = self.access_before(step);
        let until = until.map(|until| self.access_before(until));
        let limit = match direction {
            Direction::Backward => until
                .unwrap_or(self.solver.built.accesses.len() as u32)
                .max(border),
            Direction::Forward => until.unwrap_or(1).min(border),
        };
        let mut hit: Option<(u32, u64)> = None;
        let granules = range.start >> 3..=range.end.saturating_sub(1).max(range.start) >> 3;
        for (granule, cell) in self.solver.cells.within(granules.clone()) {
            let order = &self.solver.cells.all[cell as usize].events;
            let events = &self.solver.cells.events;
            let older = order.place(border);
            let is_between = |event: &u32| match direction {
                Direction::Backward => events[*event as usize].access < limit,
                Direction::Forward => events[*event as usize].access >= limit,
            };
            let here = |event: u32| {
                let event = &events[event as usize];
                let kind = match event.kind {
                    Kind::Load => wanted.reads,
                    Kind::Store | Kind::MayStore => wanted.writes,
                    Kind::Final | Kind::Nothing => false,
                };
                let shown = level.shows(self.placed(event.access));
                let bytes = (0..8).filter(|byte| event.bytes >> byte & 1 == 1);
                let mut bytes = bytes.map(|byte| (granule << 3) + byte);
                let first = bytes.find(|address| range.contains(address))?;
                (kind && shown).then_some((event.access, first))
            };
            let found = match direction {
                Direction::Backward => {
                    let mut order = order.from(older).take_while(is_between);
                    order.find_map(here)
                }
                Direction::Forward => {
                    let mut order = order.back_from(older).take_while(is_between);
                    order.find_map(here)
                }
            };
            let nearer = |(old, _): (u32, u64), (new, _): (u32, u64)| match direction {
                Direction::Backward => new < old,
                Direction::Forward => new > old,
            };
            if let Some(found) = found
                && hit.is_none_or(|hit| nearer(hit, found))
            {
                hit = Some(found);
            }
        }
        let between = match direction {
            Direction::Backward => border..hit.map_or(limit, |hit| hit.0),
            Direction::Forward => hit.map_or(limit, |hit| hit.0 + 1)..border,
        };
        let may_have = self.may_have(granules, between, direction, wanted, level);
        let hit = hit.and_then(|(access, address)| {
            let found = self.solver.built.accesses[access as usize];
            let relation = self.solver.built.graph.relations[found.relation as usize];
            let op = *self.templates().op(relation.op);
            let whole = op
                .access()
                .and_then(|bytes| Some((self.solver.address(found.relation, &op)?, bytes)));
            Some(Hit {
                position: self.steps().position(found.step)?,
                address,
                whole,
                store: found.kind == AccessKind::Store,
                status: self.placed(access),
            })
        });
        Accesses {
            hit,
            may_have,
            complete: until.is_some()
                || direction == Direction::Forward
                || self.steps().is_complete(),
            skipped: false,
        }
    }

    fn placed(&self, access: u32) -> Status {
        if self.solver.is_placed_by_inference(access) {
            Status::Inferred
        } else {
            Status::Proved
        }
    }

    /// Accesses among some that may have hit granules. If there are more than [`MOST_GRANULES`],
    /// each access with an unknown address may have.
    fn may_have(
        &mut self,
        granules: RangeInclusive<u64>,
        between: Range<u32>,
        direction: Direction,
        wanted: Wanted,
        level: Level,
    ) -> Option<MayHave> {
        let are_few = granules.end() - granules.start() < MOST_GRANULES;
        let mut found = BTreeSet::new();
        if wanted.writes && !are_few {
            found.extend(self.solver.unresolved_writes(between.clone()));
        } else if wanted.writes {
            let narrow = self.templates().is_narrow();
            for granule in granules.clone() {
                let class = self.solver.class_at(granule, level);
                let mut search = self.solver.search((class, granule), narrow, &between);
                let mut at = between.start;
                while let Some(access) = self.solver.next_barrier(&mut search, at) {
                    found.insert(access);
                    at = access + 1;
                }
            }
        }
        let is_constant = |mut granules: RangeInclusive<u64>| {
            are_few && granules.all(|granule| self.facts.memory.is_constant(granule << 3))
        };
        if wanted.reads && !is_constant(granules) {
            let loads =
                self.solver.built.accesses[between.start as usize..between.end as usize].iter();
            for (access, load) in (between.start..).zip(loads) {
                let is_open = load.kind == AccessKind::Load && load.place == Place::Open;
                if is_open || load.kind == AccessKind::Lost && !wanted.writes {
                    found.insert(access);
                }
            }
        }
        let (first, last) = (*found.first()?, *found.last()?);
        let count = found.len() as u64;
        let (nearest, farthest) = match direction {
            Direction::Backward => (first, last),
            Direction::Forward => (last, first),
        };
        let position = |access: u32| {
            let step = self.solver.built.accesses[access as usize].step;
            self.steps().position(step)
        };
        Some(MayHave {
            nearest: position(nearest)?,
            farthest: position(farthest)?,
            count,
        })
    }
}
