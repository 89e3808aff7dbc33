//! Past values of one core, on demand.

use super::apart::Apart;
use super::facts::final_state::{FinalState, Others, Recorded};
use super::queries::Solved;
use super::queries::executed::Executed;
use super::queries::origin::{End, Way, What};
use super::queries::writes::{Accesses, MayHave, Wanted};
use super::replay::Replay;
use super::replayed;
use super::status::{Known, Level, Limit, Registers, Status};
use super::window::{Reached, Window};
use crate::timeline::{Direction, History, Position};
use armsnap_arch::arch::Architecture;
use armsnap_arch::semantics::Location;
use armsnap_snapshot::stop::Cancel;
use std::ops::Range;

/// The memory for positions that the rest does not suffice to reach: this fraction of the whole,
/// but at least these bytes, which one window needs.
const APART: usize = 8;
const APART_BYTES: usize = 24 << 20;

/// Bounds of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The maximum memory that it uses, in bytes. Of positions that it does not suffice to reach
    /// from the end, only what is around the last one requested is known.
    pub most_bytes: usize,
    /// Which values are shown.
    pub level: Level,
}

impl Options {
    /// The bytes for positions that the rest does not suffice to reach.
    fn apart(self) -> usize {
        let least = APART_BYTES.min(self.most_bytes / 2);
        least.max(self.most_bytes / APART)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            most_bytes: 512 << 20,
            level: Level::Inferred,
        }
    }
}

/// Past registers and memory of one core.
///
/// Each query is answered from as much history before the end as it needs, which is decoded and
/// solved the first time. If the work is cancelled, the answer is `None`, and what was done so far
/// is kept.
#[derive(Debug)]
pub struct Recovery {
    facts: FinalState,
    options: Options,
    window: Window,
    /// The window for positions that memory does not suffice to reach from the end.
    apart: Apart,
    /// The program executed again from its start, if its inputs were recorded.
    replay: Replay,
    /// The code around the position requested last.
    pub(super) executed: Executed,
}

impl Recovery {
    /// Starts with nothing computed.
    #[must_use]
    pub fn new(facts: FinalState, options: Options) -> Self {
        Self {
            facts,
            options,
            window: Window::default(),
            apart: Apart::default(),
            replay: Replay::default(),
            executed: Executed::default(),
        }
    }

    /// The facts on which everything rests.
    pub(super) fn facts(&self) -> &FinalState {
        &self.facts
    }

    /// Whether an access is known to have written a byte at any explored time.
    pub(super) fn is_ever_written(&self, address: u64) -> bool {
        let mut windows = [&self.window].into_iter().chain(self.apart.window());
        windows.any(|window| window.cells().writes(address, 1..=u32::MAX))
    }

    /// The level that is shown.
    #[must_use]
    pub fn level(&self) -> Level {
        self.options.level
    }

    /// Changes the level, without computing anything again.
    pub fn set_level(&mut self, level: Level) {
        self.options.level = level;
    }

    /// Returns a version of the explored range; when it changes, more may be known.
    #[must_use]
    pub fn looked_at(&self) -> (u32, u32, u32) {
        let (count, steps) = self.apart.steps();
        (self.window.steps.len(), count, steps)
    }

    /// The step of a position; not reached if nothing is to be shown.
    fn reach(
        &mut self,
        history: &mut History,
        position: Position,
        cancel: &Cancel,
    ) -> Option<Reached<u32>> {
        if self.options.level == Level::Off {
            return Some(Reached::Not);
        }
        let most = self.options.most_bytes - self.options.apart();
        self.window
            .reach(history, &self.facts, position, most, cancel)
    }

    /// The window that contains a position, the main one or the separate one, and the step; not
    /// reached if no window contains it, or nothing is to be shown.
    pub(super) fn find(
        &mut self,
        history: &mut History,
        position: Position,
        cancel: &Cancel,
    ) -> Option<Reached<(Solved<'_>, u32)>> {
        let found = match self.reach(history, position, cancel)? {
            Reached::At(step) => Some((&mut self.window, step)),
            Reached::Not if self.options.level == Level::Off => None,
            Reached::Not => self.apart.find(position),
        };
        let Some((window, step)) = found else {
            return Some(Reached::Not);
        };
        let solved = window.solved(&self.facts);
        Some(solved.map(|solved| (solved, step)).into())
    }

    /// Explores the history around a position that memory does not suffice to reach from the end.
    /// Nothing is known of such positions otherwise; only what was found around the last one is
    /// kept.
    pub fn look_around(
        &mut self,
        history: &mut History,
        position: Position,
        cancel: &Cancel,
    ) -> Option<()> {
        match self.replayed(history, position, cancel) {
            Some((_, true)) => Some(()),
            _ => self.solve_around(history, position, cancel),
        }
    }

    fn solve_around(
        &mut self,
        history: &mut History,
        position: Position,
        cancel: &Cancel,
    ) -> Option<()> {
        let is_found = matches!(self.reach(history, position, cancel)?, Reached::At(_));
        // If the main window contradicts itself, there are no values nearby either.
        let is_beyond = self.options.level != Level::Off && self.window.is_beyond(position);
        if is_found || !is_beyond {
            return Some(());
        }
        let most = self.options.apart();
        let main = &mut self.window;
        self.apart
            .reach(history, &self.facts, main, position, most, cancel)
    }

    /// The registers before the instruction at a position by the replay, and whether all are known.
    fn replayed(
        &mut self,
        history: &mut History,
        position: Position,
        cancel: &Cancel,
    ) -> Option<(Registers, bool)> {
        if self.options.level == Level::Off {
            return None;
        }
        let (replay, facts) = (&mut self.replay, &self.facts);
        let values = replay.at(history, facts, position, cancel)?.values;
        let is_complete = replay.is_complete(&values);
        Some((
            Registers(values.map(|value| value.map(proved))),
            is_complete,
        ))
    }

    /// The registers before the instruction at a position is executed.
    pub fn registers(
        &mut self,
        history: &mut History,
        position: Position,
        cancel: &Cancel,
    ) -> Option<Registers> {
        let replayed = self.replayed(history, position, cancel);
        if cancel.is_requested() {
            return None;
        }
        let Some((replayed, is_complete)) = replayed else {
            return self.solved_registers(history, position, cancel);
        };
        if is_complete {
            return Some(replayed);
        }
        let mut found = self.solved_registers(history, position, cancel)?;
        for (slot, known) in found.0.iter_mut().zip(replayed.0) {
            *slot = known.or(*slot);
        }
        Some(found)
    }

    fn solved_registers(
        &mut self,
        history: &mut History,
        position: Position,
        cancel: &Cancel,
    ) -> Option<Registers> {
        let level = self.options.level;
        let Reached::At((mut solved, step)) = self.find(history, position, cancel)? else {
            return Some(Registers::unknown());
        };
        let mut found = solved.registers(step);
        for slot in &mut found.0 {
            *slot = slot.filter(|known| level.shows(known.status));
        }
        Some(found)
    }

    /// Memory before the instruction at a position is executed, byte by byte.
    pub fn memory(
        &mut self,
        history: &mut History,
        position: Position,
        address: u64,
        out: &mut [Option<Known<u8>>],
        cancel: &Cancel,
    ) -> Option<()> {
        let mut replayed = Vec::new();
        if self.options.level != Level::Off
            && let Some(there) = self.replay.at(history, &self.facts, position, cancel)
        {
            let addresses = (0..out.len() as u64).map(|offset| address.wrapping_add(offset));
            replayed.extend(addresses.map(|at| there.byte(at).map(proved)));
            if replayed.iter().all(Option::is_some) {
                out.copy_from_slice(&replayed);
                return Some(());
            }
        }
        if cancel.is_requested() {
            return None;
        }
        self.solved_memory(history, position, address, out, cancel)?;
        for (slot, known) in out.iter_mut().zip(replayed) {
            *slot = known.or(*slot);
        }
        Some(())
    }

    fn solved_memory(
        &mut self,
        history: &mut History,
        position: Position,
        address: u64,
        out: &mut [Option<Known<u8>>],
        cancel: &Cancel,
    ) -> Option<()> {
        out.fill(None);
        let level = self.options.level;
        let Reached::At((mut solved, step)) = self.find(history, position, cancel)? else {
            return Some(());
        };
        solved.memory(step, address, out);
        for slot in out {
            *slot = slot.filter(|known| level.shows(known.status));
        }
        Some(())
    }

    /// The next load or store of a range of addresses, from the first position towards the second:
    /// backward, before the instruction at the first; forward, from that instruction on and before
    /// the one at the second. Explores more history while nothing is found there and memory is
    /// left. Forward from a position that memory does not suffice for, the first accesses may be
    /// missed.
    pub fn accesses(
        &mut self,
        history: &mut History,
        (from, until): (Position, Position),
        range: Range<u64>,
        direction: Direction,
        wanted: Wanted,
        cancel: &Cancel,
    ) -> Option<Accesses> {
        if self.options.level == Level::Off {
            return Some(Accesses::NONE);
        }
        let search = (range.clone(), wanted, direction);
        let facts = &self.facts;
        let searched = self
            .replay
            .search(history, facts, (from, until), search, cancel)?;
        let replayed = Accesses {
            hit: searched.hit,
            may_have: searched.may_have,
            complete: true,
            ..Accesses::NONE
        };
        let Some(end) = searched.end else {
            return self.solved_accesses(history, (from, until), range, direction, wanted, cancel);
        };
        if end >= from.max(until) || direction == Direction::Forward && replayed.hit.is_some() {
            return Some(replayed);
        }
        // The replay ends on the way; the rest is solved.
        let rest = match direction {
            Direction::Forward => (end.max(from), until),
            Direction::Backward => (from, end.max(until)),
        };
        let found = self.solved_accesses(history, rest, range, direction, wanted, cancel)?;
        let may_have = MayHave::both(replayed.may_have, found.may_have, direction);
        match direction == Direction::Backward && found.hit.is_none() && found.complete {
            true => Some(Accesses {
                may_have,
                ..replayed
            }),
            false if direction == Direction::Forward => Some(Accesses { may_have, ..found }),
            false => Some(found),
        }
    }

    fn solved_accesses(
        &mut self,
        history: &mut History,
        (from, until): (Position, Position),
        range: Range<u64>,
        direction: Direction,
        wanted: Wanted,
        cancel: &Cancel,
    ) -> Option<Accesses> {
        loop {
            let Reached::At(step) = self.reach(history, from, cancel)? else {
                return match direction {
                    Direction::Backward => Some(Accesses::NONE),
                    Direction::Forward => self.late_accesses(history, until, range, wanted, cancel),
                };
            };
            let steps = (step, self.window.steps.find(until));
            let level = self.options.level;
            let Some(mut solved) = self.window.solved(&self.facts) else {
                return Some(Accesses::NONE);
            };
            let found = solved.accesses(steps, range.clone(), direction, wanted, level);
            if found.hit.is_some() || found.complete {
                return Some(found);
            }
            if !self.grow(history, cancel)? {
                return Some(found);
            }
        }
    }

    /// The first load or store of a range of addresses up to a position that memory suffices to find.
    fn late_accesses(
        &mut self,
        history: &mut History,
        until: Position,
        range: Range<u64>,
        wanted: Wanted,
        cancel: &Cancel,
    ) -> Option<Accesses> {
        let is_at_end = until >= history.end();
        if matches!(self.reach(history, until, cancel)?, Reached::Not) && !is_at_end {
            return Some(Accesses::NONE);
        }
        while self.grow(history, cancel)? {}
        let until = self.window.steps.find(until);
        let first = self.window.steps.len().checked_sub(1);
        let level = self.options.level;
        let solved = self.window.solved(&self.facts);
        let (Some(first), Some(mut solved)) = (first, solved) else {
            return Some(Accesses::NONE);
        };
        let found = solved.accesses((first, until), range, Direction::Forward, wanted, level);
        Some(Accesses {
            complete: false,
            skipped: true,
            ..found
        })
    }

    /// Where a value before the instruction at a position came from: at most `most` instructions.
    pub fn origin(
        &mut self,
        history: &mut History,
        position: Position,
        what: What,
        most: usize,
        cancel: &Cancel,
    ) -> Option<Way> {
        // The steps before a change are solved as if only this thread wrote memory.
        let recorded = self.facts.replay.as_ref();
        let is_alone = !recorded.is_some_and(Recorded::has_threads);
        if self.options.level != Level::Off && is_alone {
            let given = (&mut self.replay, &mut *history, &self.facts);
            let shown = (self.options.level, most);
            if let Some(way) = replayed::origin(given, position, what, shown, cancel)? {
                return Some(way);
            }
        }
        self.solve_around(history, position, cancel)?;
        loop {
            let shown = (self.options.level, most);
            let Reached::At((mut solved, step)) = self.find(history, position, cancel)? else {
                return Some(Way::nowhere());
            };
            let (way, _) = solved.origin(step, what, shown, Way::new(), cancel)?;
            let is_apart = self.window.steps.find(position).is_none();
            if way.end != End::Older || is_apart || !self.grow(history, cancel)? {
                return Some(way);
            }
        }
    }

    /// What became of a value before the instruction at a position: at most `most` instructions
    /// that used it, or what was computed from it.
    pub fn uses(
        &mut self,
        history: &mut History,
        position: Position,
        location: Location,
        most: usize,
        cancel: &Cancel,
    ) -> Option<Way> {
        let Reached::At(step) = self.reach(history, position, cancel)? else {
            return Some(Way::nowhere());
        };
        let shown = (self.options.level, most);
        match self.window.solved(&self.facts) {
            Some(mut solved) => solved.uses(step, location, shown, cancel),
            None => Some(Way::nowhere()),
        }
    }

    /// Explores more history; returns whether there was more.
    fn grow(&mut self, history: &mut History, cancel: &Cancel) -> Option<bool> {
        let most = self.options.most_bytes;
        let more = self.window.grow(history, most, cancel)?;
        self.window.solve(history, &self.facts, cancel)?;
        Some(more)
    }

    /// Why no accessed addresses are known in the whole history, if that is so.
    #[must_use]
    pub fn blind(&self) -> Option<Limit> {
        if self.facts.has_no_model() {
            Some(match self.facts.architecture {
                Architecture::MProfile => Limit::NoCoreModel,
                _ => Limit::NoModel,
            })
        } else if !self.facts.memory.is_unique() {
            Some(Limit::Translated)
        } else {
            None
        }
    }

    /// What ends proof in the explored history.
    pub fn limits(&mut self, history: &mut History) -> Vec<Limit> {
        let mut out = Vec::new();
        self.window.start(history, &self.facts);
        if !self.window.ends {
            out.push(Limit::EndUnknown);
        }
        out.extend(self.blind());
        if self.window.steps.changes_security && self.blind().is_none() {
            out.push(Limit::SecurityChanges);
        }
        let stopped = self.replay.stopped();
        let recorded = self.facts.replay.as_ref();
        let order_known = recorded.is_some_and(Recorded::has_threads) && stopped.is_none();
        if matches!(self.facts.others, Others::EndedBy(_) | Others::Always) {
            out.extend((!order_known).then_some(Limit::OtherWriters));
        } else if self.window.sharing().contradicts {
            out.push(Limit::Contradiction);
        } else if self.facts.others == Others::Devices && self.blind().is_none() {
            out.push(Limit::Devices);
        } else if !self.window.sharing().mappings.is_empty() {
            out.push(Limit::SharedMapping);
        }
        let fault = self.window.addresses_fault();
        out.extend(fault.map(|fault| Limit::Addresses(fault.to_owned())));
        out.extend(stopped.map(|(position, why)| Limit::Replay(position, why.to_string())));
        out
    }
}

/// A value of the replay.
fn proved<T>(value: T) -> Known<T> {
    let status = Status::Proved;
    Known { value, status }
}
