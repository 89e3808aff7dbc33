//! Accesses to a range of addresses that are noticed while instructions are executed.

use crate::recover::queries::writes::{Hit, MayHave, Wanted};
use crate::recover::status::Status;
use crate::timeline::{Direction, Position};
use armsnap_arch::semantics::Location;
use std::ops::Range;

/// An access to the watched range.
#[derive(Clone, Copy, Debug)]
struct Access {
    /// The first address in the range.
    first: u64,
    /// The first address of all, and the number of bytes, if it is by a load or store.
    whole: Option<(u64, u8)>,
    is_store: bool,
    status: Status,
}

/// What is watched, and what was seen. By default nothing is.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    range: Range<u64>,
    reads: bool,
    writes: bool,
    /// Whether the first access suffices; otherwise the last one counts.
    ends_at_first: bool,
    /// An access of the instruction being executed.
    seen: Option<Access>,
    /// The same for an exclusive store, which may not happen.
    seen_exclusive: Option<Access>,
    /// An exclusive store of which it is not known yet whether it happened.
    exclusive: Option<Hit>,
    /// A location whose change is watched.
    location: Option<Location>,
    /// The position of its change.
    pub changed: Option<Position>,
    /// The access that counts.
    pub hit: Option<Hit>,
    /// Whether the instruction being executed loads from an address that is not known.
    pub loses_load: bool,
    /// Such loads on the way to the access that counts.
    pub may_have: Option<MayHave>,
}

impl Watch {
    /// Watches accesses to a range of addresses without tags. Backward, the last one counts.
    pub fn new(range: Range<u64>, wanted: Wanted, direction: Direction) -> Self {
        Self {
            range,
            reads: wanted.reads,
            writes: wanted.writes,
            ends_at_first: direction == Direction::Forward,
            ..Self::default()
        }
    }

    /// Watches changes of a location; the last one counts.
    pub fn changes(location: Location) -> Self {
        Self {
            location: Some(location),
            ..Self::default()
        }
    }

    /// Notices which instruction changes the location.
    #[inline]
    pub fn instruction(
        &mut self,
        changes: impl FnOnce(Location) -> bool,
        position: impl FnOnce() -> Option<Position>,
    ) {
        if self.location.is_some_and(changes) {
            self.changed = position();
        }
    }

    /// Whether nothing more needs to be executed.
    pub fn is_done(&self) -> bool {
        self.ends_at_first && self.hit.is_some()
    }

    /// Notices a load or store.
    #[inline]
    pub fn access(&mut self, address: u64, size: u8, is_store: bool) {
        let end = address.saturating_add(size.into());
        if address < self.range.end && self.range.start < end {
            self.notice(address..end, Some((address, size)), is_store);
        }
    }

    /// Notices that a range is written in another way.
    pub fn range(&mut self, written: Range<u64>) {
        self.notice(written, None, true);
    }

    fn notice(&mut self, accessed: Range<u64>, whole: Option<(u64, u8)>, is_store: bool) {
        let found = self.overlap(&accessed, whole, is_store);
        self.seen = [self.seen, found]
            .into_iter()
            .flatten()
            .min_by_key(|access| access.first);
    }

    /// Notices an exclusive store.
    pub fn exclusive(&mut self, address: u64, size: u8) {
        let accessed = address..address.saturating_add(size.into());
        let found = self.overlap(&accessed, Some((address, size)), true);
        self.seen_exclusive = self.seen_exclusive.or(found);
    }

    fn overlap(
        &self,
        accessed: &Range<u64>,
        whole: Option<(u64, u8)>,
        is_store: bool,
    ) -> Option<Access> {
        let is_wanted = if is_store { self.writes } else { self.reads };
        let both = accessed.start.max(self.range.start)..accessed.end.min(self.range.end);
        (is_wanted && !both.is_empty()).then_some(Access {
            first: both.start,
            whole,
            is_store,
            status: Status::Proved,
        })
    }

    /// Whether the exclusive store just noticed happened will never be known.
    pub fn undecided(&mut self) {
        if let Some(access) = self.seen_exclusive.take() {
            let status = Status::Inferred;
            self.seen.get_or_insert(Access { status, ..access });
        }
    }

    /// The exclusive store happened, or it did not.
    pub fn decide(&mut self, happened: bool) {
        if let Some(hit) = self.exclusive.take().filter(|_| happened) {
            self.hit = Some(hit);
        }
    }

    /// Whether the exclusive store happened is not known: it counts, as inferred.
    pub fn settle(&mut self) {
        if let Some(hit) = self.exclusive.take() {
            self.hit = Some(Hit {
                status: Status::Inferred,
                ..hit
            });
        }
    }

    fn lost(&mut self, position: Option<Position>) {
        let Some(position) = position else { return };
        let all = self.may_have.get_or_insert(MayHave {
            nearest: position,
            farthest: position,
            count: 0,
        });
        all.count += 1;
        let (first, last) = match self.ends_at_first {
            true => (&mut all.nearest, &mut all.farthest),
            false => (&mut all.farthest, &mut all.nearest),
        };
        *first = position.min(*first);
        *last = position.max(*last);
    }

    /// Attributes what was seen to the instruction at a position.
    #[inline]
    pub fn executed(&mut self, position: impl Fn() -> Option<Position>) {
        if std::mem::take(&mut self.loses_load) && self.reads {
            self.lost(position());
        }
        if self.seen.is_none() && self.seen_exclusive.is_none() {
            return;
        }
        let hit = |access: Access| {
            Some(Hit {
                position: position()?,
                address: access.first,
                whole: access.whole,
                store: access.is_store,
                status: access.status,
            })
        };
        if let Some(seen) = self.seen.take() {
            self.hit = hit(seen);
            if !self.ends_at_first {
                self.may_have = None;
            }
        }
        if let Some(seen) = self.seen_exclusive.take() {
            self.exclusive = hit(seen);
        }
    }
}
