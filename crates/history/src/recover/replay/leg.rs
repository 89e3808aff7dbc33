//! The execution between two places where the state was recorded: from the start or a checkpoint to
//! the next checkpoint or the end.
//!
//! Everything is executed once and compared with the state at the end before anything is shown.

use super::thread::Batch;
use super::turns::Moment;
use super::watch::Watch;
use super::{Given, Searched, Stopped};
use crate::recover::execution::blocks::Blocks;
use crate::recover::queries::writes::Wanted;
use crate::timeline::{Direction, EndAgrees, Position};
use armsnap_arch::semantics::{Location, Values};
use std::ops::Range;

/// The number of bytes of trace that are executed if there are no checkpoints.
const FARTHEST: u64 = 2 << 20;
/// The same if there are some: fewer instructions are between them.
const FARTHEST_CHECKED: u64 = 8 << 20;
/// The most states that are kept.
const MOST_SAVED: usize = 16;

/// An execution from a known state to the next one.
pub(super) struct Leg {
    /// The first position, and the one after the last.
    range: Range<Position>,
    /// The state at its end, if that is a checkpoint.
    next: Option<Box<Moment>>,
    /// Whether it begins or ends at a checkpoint.
    has_checkpoint: bool,
    /// Whether everything was executed once.
    is_checked: bool,
    /// Whether the end was compared.
    is_compared: bool,
    /// What is known at the start.
    first: [bool; Location::KEPT],
    /// States at the starts of batches, in order.
    saved: Vec<(Position, Moment)>,
    /// Every how many batches a state is kept.
    every: usize,
    /// The number of batches since the last kept state.
    since: usize,
    now: Option<(Moment, Batch)>,
    /// Where it ended, and why.
    stopped: Option<(Position, Stopped)>,
}

impl Leg {
    /// An execution from a state that could be read, over a range of positions.
    pub fn new(
        range: Range<Position>,
        first: Result<Moment, Stopped>,
        next: Option<Box<Moment>>,
        has_checkpoint: bool,
    ) -> Self {
        let mut leg = Self {
            has_checkpoint,
            next,
            is_checked: false,
            is_compared: false,
            first: [false; Location::KEPT],
            saved: Vec::new(),
            every: 1,
            since: 0,
            now: None,
            stopped: None,
            range,
        };
        match first {
            Ok(moment) => {
                leg.first = moment.thread.processor.values.map(|value| value.is_some());
                let is_full = moment.thread.processor.memory.is_full();
                leg.stopped = is_full.then_some((leg.range.start, Stopped::Full));
                leg.saved.push((leg.range.start, moment));
            }
            Err(stopped) => leg.stopped = Some((leg.range.start, stopped)),
        }
        leg
    }

    /// Its positions.
    pub fn range(&self) -> Range<Position> {
        self.range.clone()
    }

    /// Where it ended before its last position, and why, as far as it got.
    pub fn stopped(&self) -> Option<(Position, Stopped)> {
        self.stopped
    }

    /// Whether everything that was known at the start is.
    pub fn is_complete(&self, values: &Values) -> bool {
        let mut both = self.first.iter().zip(values);
        both.all(|(wanted, value)| !wanted || value.is_some())
    }

    /// Goes to one of its positions; `None` if it does not get there, or was cancelled.
    pub fn go(&mut self, given: &mut Given<'_>, position: Position) -> Option<()> {
        self.check(given, &mut Watch::default())?;
        if self.ends_before(position) {
            return None;
        }
        self.go_to(given, position, &mut Watch::default())
    }

    /// The program before the instruction at the position that it went to.
    pub fn now(&self) -> Option<&Moment> {
        self.now.as_ref().map(|(moment, _)| moment)
    }

    /// Searches some of its positions for an access to a range of addresses, as far as it gets.
    /// `None` if it was cancelled.
    pub fn search(
        &mut self,
        given: &mut Given<'_>,
        positions: Range<Position>,
        (range, wanted, direction): (Range<u64>, Wanted, Direction),
    ) -> Option<Searched> {
        let mut watch = Watch::new(range, wanted, direction);
        if direction == Direction::Backward && positions == self.range && !self.is_checked {
            self.check(given, &mut watch)?;
            return self.searched(given, None, watch);
        }
        self.check(given, &mut Watch::default())?;
        let (first, last) = (positions.start, positions.end);
        let none = &mut Watch::default();
        if self.ends_before(first) || self.go_to(given, first, none).is_none() {
            return (!given.cancel.is_requested()).then_some(Searched::NOTHING);
        }
        if direction == Direction::Forward {
            let reached = self.go_to(given, last, &mut watch);
            watch.settle();
            return self.searched(given, reached.map(|()| last), watch);
        }
        // The states that are kept on the way are where it continues backward.
        let reached = self.go_to(given, last, none);
        let end = match self.searched(given, reached.map(|()| last), watch.clone())? {
            Searched { end: Some(end), .. } => end,
            nothing => return Some(nothing),
        };
        let is_found = |watch: &Watch| watch.hit.is_some();
        self.search_back(given, first..end, &mut watch, is_found)?;
        Some(Searched {
            end: Some(end),
            hit: watch.hit,
            may_have: watch.may_have,
        })
    }

    /// The last of its positions before another one whose instruction changes a location. `None` if it
    /// does not get to that position, or was cancelled; `Some(None)` if there is no such instruction.
    pub fn last_change(
        &mut self,
        given: &mut Given<'_>,
        before: Position,
        location: Location,
    ) -> Option<Option<Position>> {
        let mut watch = Watch::changes(location);
        if before == self.range.end && !self.is_checked {
            self.check(given, &mut watch)?;
            return self.stopped.is_none().then_some(watch.changed);
        }
        self.check(given, &mut Watch::default())?;
        if self.stopped.is_some_and(|(at, _)| before > at) {
            return None;
        }
        let is_found = |watch: &Watch| watch.changed.is_some();
        let range = self.range.start..before;
        self.search_back(given, range, &mut watch, is_found)?;
        Some(watch.changed)
    }

    /// Executes positions that it gets through: the parts between the states that are kept, the last
    /// part first, until something is found. `None` if it was cancelled.
    fn search_back(
        &mut self,
        given: &mut Given<'_>,
        Range {
            start: first,
            mut end,
        }: Range<Position>,
        watch: &mut Watch,
        is_found: impl Fn(&Watch) -> bool,
    ) -> Option<()> {
        while end > first && !is_found(watch) {
            let before = self.saved.partition_point(|(at, _)| *at < end);
            let kept = self.saved[..before].last();
            let start = kept.map_or(first, |(at, _)| *at).max(first);
            self.go_to(given, start, &mut Watch::default())?;
            self.go_to(given, end, watch);
            watch.settle();
            if given.cancel.is_requested() {
                return None;
            }
            end = start;
        }
        Some(())
    }

    /// The result of a search up to a position, if that was reached; `None` if it was cancelled.
    fn searched(
        &self,
        given: &Given<'_>,
        reached: Option<Position>,
        watch: Watch,
    ) -> Option<Searched> {
        if reached.is_none() && given.cancel.is_requested() {
            return None;
        }
        let stopped = self.stopped.map(|(at, _)| at);
        let end = reached.or(stopped).unwrap_or(self.range.end);
        Some(Searched {
            end: Some(end),
            // After a contradiction, nothing that was seen counts.
            hit: watch.hit.filter(|hit| hit.position < end),
            may_have: watch.may_have.filter(|loads| loads.nearest < end),
        })
    }

    /// Executes everything once, so that contradictions are found before a value is shown, and watches
    /// what happens the first time. `None` if it was cancelled.
    fn check(&mut self, given: &mut Given<'_>, watch: &mut Watch) -> Option<()> {
        if self.is_checked {
            return Some(());
        }
        if self.stopped.is_none() {
            self.go_to(given, self.range.end, watch);
            watch.settle();
        }
        self.is_checked = !given.cancel.is_requested();
        self.is_checked.then_some(())
    }

    /// Executes up to a position. `None` if that is not possible, or it was cancelled; also at the end
    /// of the leg.
    fn go_to(
        &mut self,
        given: &mut Given<'_>,
        position: Position,
        watch: &mut Watch,
    ) -> Option<()> {
        let is_ahead = self.now.as_ref().is_some_and(|(_, batch)| {
            let next = batch.stretch.position(batch.next);
            position >= batch.end || next.is_none_or(|next| position >= next)
        });
        if !is_ahead {
            let after = self.saved.partition_point(|(at, _)| *at <= position);
            let (at, moment) = self.saved.get(after.checked_sub(1)?)?.clone();
            self.now = Some((moment, self.batch(given, at)?));
        }
        loop {
            if given.cancel.is_requested() {
                return None;
            }
            let (moment, batch) = self.now.as_mut()?;
            let target = batch.stretch.find(position);
            let result = moment.run(batch, target, given, watch);
            if let Err(stopped) = result {
                if given.cancel.is_requested() {
                    self.now = None;
                    return None;
                }
                let at = batch.position();
                self.stop(at, stopped);
                return None;
            }
            if target.is_some() || watch.is_done() {
                return Some(());
            }
            let end = batch.end;
            let is_signal = batch.ends_in_signal();
            let is_last = end >= self.range.end;
            match (is_last, is_signal) {
                (true, _) => self.finish(given, is_signal),
                (false, true) => self.stop(end, Stopped::Signal),
                (false, false) => {}
            }
            if is_signal || is_last {
                return None;
            }
            if self.is_too_far(end) {
                self.stop(end, Stopped::Far);
                return None;
            }
            let (moment, _) = self.now.as_ref()?;
            let moment = moment.clone();
            if self.saved.last().is_some_and(|(at, _)| *at < end) {
                self.keep(end, &moment);
            }
            self.now = None;
            self.now = Some((moment, self.batch(given, end)?));
        }
    }

    /// Whether a position is known not to be reached.
    fn ends_before(&self, position: Position) -> bool {
        self.stopped.is_some_and(|(at, _)| position >= at)
    }

    fn is_too_far(&self, position: Position) -> bool {
        let start = self.range.start;
        let most = match self.has_checkpoint {
            true => FARTHEST_CHECKED,
            false => FARTHEST,
        };
        position.session != start.session || position.segment - start.segment > most
    }

    fn stop(&mut self, at: Position, stopped: Stopped) {
        let at = match stopped.contradicts() {
            true => self.range.start,
            false => at,
        };
        self.stopped = Some((at, stopped));
        self.now = None;
    }

    fn keep(&mut self, at: Position, moment: &Moment) {
        self.since += 1;
        if self.since < self.every {
            return;
        }
        self.since = 0;
        self.saved.push((at, moment.clone()));
        if self.saved.len() > MOST_SAVED {
            self.every *= 2;
            let mut number = 0;
            self.saved.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
    }

    /// The positions from one on.
    fn batch(&mut self, given: &mut Given<'_>, from: Position) -> Option<Batch> {
        let range = from..self.range.end;
        Batch::of(given.history, given.templates, range, given.cancel)
    }

    /// Compares the state at the end with the one that was recorded there.
    fn finish(&mut self, given: &mut Given<'_>, is_exception: bool) {
        if std::mem::replace(&mut self.is_compared, true) {
            self.now = None;
            return;
        }
        let differs = match (&self.next, self.now.take()) {
            (_, None) => false,
            (Some(next), Some((mut moment, _))) => {
                moment.thread.processor.settle(&mut Watch::default());
                differ(
                    &moment.thread.processor.values,
                    &next.thread.processor.values,
                ) || moment
                    .thread
                    .processor
                    .memory
                    .differs(&next.thread.processor.memory)
            }
            (None, Some((moment, _))) => differs_at_end(given, moment, is_exception),
        };
        if differs {
            self.stop(self.range.end, Stopped::EndDiffers);
        }
    }
}

/// Whether the state at the end of the trace differs from that of the snapshot.
/// An exception that was taken last, at a fault or an exit, has not changed the state yet if
/// execution would continue where the core halted.
fn differs_at_end(given: &mut Given<'_>, mut moment: Moment, is_exception: bool) -> bool {
    let Given {
        history,
        templates,
        facts,
        ..
    } = given;
    // All threads were executed to their ends, also if this one ended earlier.
    if moment.threads.are_over() {
        moment.thread.processor.settle(&mut Watch::default());
        if moment.thread.processor.memory.differs_from(&*facts.memory) {
            return true;
        }
    }
    let halted = history.halted().map(|halted| halted.0);
    if is_exception && (moment.thread.expected.is_none() || moment.thread.expected != halted) {
        return false;
    }
    if history.end_agrees() != EndAgrees::Yes {
        return false;
    }
    let end = history.end();
    if let (Some(range), Some(halted)) = (history.rest(), halted) {
        let context = history.place(end).and_then(|place| place.context);
        let view = history.view(context.as_ref());
        let mut addresses = history.range_instructions(view, &range);
        addresses.retain(|(address, _)| address.0 < halted);
        let rest = templates.instructions(history, view, addresses, &mut Blocks::default(), false);
        let none = &mut Watch::default();
        for number in rest {
            let template = templates.all[number as usize];
            let executed = moment
                .thread
                .processor
                .execute(templates, &template, None, none);
            if executed.is_err() {
                return false;
            }
        }
    }
    moment.thread.processor.settle(&mut Watch::default());
    differ(&moment.thread.processor.values, &facts.registers)
        || moment.thread.processor.memory.differs_from(&*facts.memory)
}

/// Whether a value is known in both and differs.
fn differ(found: &Values, last: &Values) -> bool {
    let mut both = found.iter().zip(last);
    both.any(|(found, last)| last.is_some_and(|last| found.is_some_and(|found| found != last)))
}
