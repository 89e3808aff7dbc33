//! Code that was executed near a position: memory held its bytes then.

use super::facts::final_state::FinalState;
use super::memory::cells::{Kind, byte_bits, untagged};
use super::memory::regions::Class;
use super::recovery::Recovery;
use super::status::{Known, Level, Status};
use super::window::Window;
use crate::timeline::{Direction, Entry, History, PointKind, Position};
use armsnap_arch::quantity::Address;
use armsnap_snapshot::stop::Cancel;
use armsnap_trace::flow::View;
use std::collections::HashSet;
use std::ops::RangeInclusive;

/// Entries before and after a position that are examined.
const ENTRIES: usize = 4096;

/// A straight line of code, and a position at which it was executed.
type Line = (RangeInclusive<u64>, Position);

/// The code around a position.
#[derive(Debug, Default)]
pub(super) struct Executed {
    at: Option<Position>,
    /// The straight line that contains the position.
    here: Option<RangeInclusive<u64>>,
    /// The lines executed before and after it, each where it is nearest.
    before: Vec<Line>,
    after: Vec<Line>,
}

impl Executed {
    /// Examines what was executed around a position.
    fn look(&mut self, history: &mut History, position: Position) {
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
}

/// The addresses of the bytes of a straight line. The end of a line up to the last address is 0.
fn bytes(start: Address, end: Address) -> RangeInclusive<u64> {
    start.0..=end.0.wrapping_sub(1).max(start.0)
}

/// The view of memory at a position.
fn view(history: &mut History, position: Position) -> View {
    let context = history.place(position).and_then(|place| place.context);
    history.view(context.as_ref())
}

/// What is known of a byte between two steps.
enum Between {
    /// An access is known to have written it, or may have.
    Written,
    /// Nothing wrote it.
    Kept(Status),
    /// Nothing is known to have; this is the class of its memory.
    Unknown(Class),
}

impl Window {
    /// What happened to a byte between two steps: from before the instruction at the one to before
    /// that at the other.
    fn between(&mut self, facts: &FinalState, address: u64, (one, other): (u32, u32)) -> Between {
        let granule = address >> 3;
        let (later, earlier) = (one.min(other), one.max(other));
        let (from, to) = (self.access_before(later), self.access_before(earlier));
        if self.writes(address, from..=to.saturating_sub(1)) {
            return Between::Written;
        }
        let class = self.solver.regions.class_of(granule);
        if self
            .solver
            .reaches(facts, (Class::Anything, granule, earlier), from, to)
        {
            Between::Kept(Status::Proved)
        } else if self
            .solver
            .reaches(facts, (class, granule, earlier), from, to)
        {
            Between::Kept(Status::Inferred)
        } else {
            Between::Unknown(class)
        }
    }

    /// Whether any of some accesses is known to have written a byte, or to do so on a condition.
    fn writes(&self, address: u64, accesses: RangeInclusive<u32>) -> bool {
        let Some(cell) = self.solver.cells.find(address >> 3) else {
            return false;
        };
        let cells = &self.solver.cells;
        let order = &cells.all[cell as usize].events;
        let first = order.place(*accesses.start());
        let mut events = order.from(first).map(|event| cells.events[event as usize]);
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

impl Recovery {
    /// Adds code to the memory before the instruction at a position: code that was executed nearby
    /// and not written in between, and functions of programs.
    pub fn code(
        &mut self,
        history: &mut History,
        position: Position,
        address: u64,
        out: &mut [Option<Known<u8>>],
        cancel: &Cancel,
    ) -> Option<()> {
        if self.level() == Level::Off {
            return Some(());
        }
        self.executed.look(history, position);
        let here = view(history, position);
        for (offset, slot) in (0_u64..).zip(out) {
            if cancel.is_requested() {
                return None;
            }
            if slot.is_some_and(|known| known.status == Status::Proved) {
                continue;
            }
            let address = untagged(address.wrapping_add(offset));
            let found = self.code_byte(history, (position, here), address, cancel)?;
            let found = found.filter(|known| self.level().shows(known.status));
            if slot.is_none() || found.is_some_and(|known| known.status == Status::Proved) {
                *slot = found;
            }
        }
        Some(())
    }

    /// A byte of code before the instruction at a position, where memory is seen through a view.
    fn code_byte(
        &mut self,
        history: &mut History,
        (position, here): (Position, View),
        address: u64,
        cancel: &Cancel,
    ) -> Option<Option<Known<u8>>> {
        let known = |value, status| Some(Some(Known { value, status }));
        let is_in = |line: &&Line| line.0.contains(&address);
        let executed = &self.executed;
        let is_here = executed.here.iter().any(|line| line.contains(&address));
        let before = executed.before.iter().find(is_in).map(|line| line.1);
        let after = executed.after.iter().find(is_in).map(|line| line.1);
        let kept = self.facts().memory.kept(address);
        if !is_here && before.is_none() && after.is_none() && kept.is_none() {
            return Some(None);
        }
        let Some(&value) = history.code(here, Address(address)).first() else {
            return Some(None);
        };
        if is_here {
            return known(value, Status::Proved);
        }
        let mut is_inferred = false;
        for (at, is_before) in [(before, true), (after, false)] {
            let Some(at) = at else {
                continue;
            };
            let there = view(history, at);
            if history.code(there, Address(address)).first() != Some(&value) {
                continue;
            }
            let between = self.between(history, address, (position, at), cancel)?;
            let is_written = self.facts().memory.is_written(address);
            match between {
                Some(Between::Kept(Status::Proved)) => return known(value, Status::Proved),
                Some(Between::Kept(Status::Inferred)) => is_inferred = true,
                // Code not known to change after it ran stays; before it ran, it may not be there
                // yet.
                None => is_inferred |= is_before && !is_written,
                Some(Between::Unknown(class)) => {
                    is_inferred |= is_before && !is_written && class != Class::Stack;
                }
                Some(Between::Written) => {}
            }
        }
        let is_kept = kept == Some(value) && !self.is_ever_written(address);
        Some((is_inferred || is_kept).then_some(Known {
            value,
            status: Status::Inferred,
        }))
    }

    /// What happened to a byte between two positions. The inner `None` if that is not explored.
    fn between(
        &mut self,
        history: &mut History,
        address: u64,
        (one, other): (Position, Position),
        cancel: &Cancel,
    ) -> Option<Option<Between>> {
        if self.blind().is_some() {
            return Some(None);
        }
        let Some((window, facts, step)) = self.find(history, one, cancel)? else {
            return Some(None);
        };
        let other = window.course.find(other);
        Some(other.map(|other| window.between(facts, address, (step, other))))
    }

    /// Whether an access is known to have written a byte at any explored time.
    fn is_ever_written(&self, address: u64) -> bool {
        self.windows()
            .any(|window| window.writes(address, 1..=u32::MAX))
    }
}
