//! Executes a recorded program again along its trace, with what was recorded of its inputs.
//!
//! Execution begins at the start of the recording or at a checkpoint, and continues to the next one: a
//! leg. Whatever is not known is carried along as unknown; where the effect on memory is not known, the
//! leg ends. The trace is the check: where execution leads elsewhere, a system call has other
//! arguments, or the next checkpoint has other values, nothing of the leg is shown.

mod calls;
mod clones;
mod leg;
mod machine;
mod memory;
mod points;
mod thread;
mod threads;
mod turns;
mod watch;

use super::execution::templates::Templates;
use super::facts::final_state::{FinalState, Others};
use super::queries::writes::{Hit, MayHave, Wanted};
use crate::timeline::{Direction, History, Position};
use armsnap_arch::semantics::{Location, Values};
use armsnap_snapshot::snapshot::replay::{Error, Inputs};
use armsnap_snapshot::stop::Cancel;
use leg::Leg;
use machine::Processor;
use memory::ReplayedMemory;
use points::Points;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use threads::Histories;
use watch::Watch;

/// The most legs that are kept.
const MOST_LEGS: usize = 2;

/// Why a replay does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stopped {
    /// An instruction may write any memory.
    #[error("what an instruction does is not modelled")]
    NoModel,
    /// A store to an address that is not known.
    #[error("the address of a store depends on something that was not recorded")]
    UnknownAddress,
    /// A gap in the trace.
    #[error("a gap in the trace")]
    Gap,
    /// A signal.
    #[error("a signal was delivered")]
    Signal,
    /// A system call whose effect is not known.
    #[error("what system call {0} wrote was not recorded")]
    Call(u64),
    /// There is no record of a system call.
    #[error("a system call was not recorded")]
    CallMissing,
    /// There is no record of the order in which threads executed.
    #[error("the order of the threads was not recorded")]
    TurnMissing,
    /// There is no trace of another thread.
    #[error("there is no trace of what another thread executed")]
    NoHistory,
    /// A file is damaged.
    #[error("the file is {0}")]
    Damaged(Error),
    /// There is no checkpoint within a reasonable distance.
    #[error("too much trace without a checkpoint follows")]
    Far,
    /// The program writes more memory than is kept.
    #[error("the program uses too much memory")]
    Full,
    /// A system call has other arguments.
    #[error(
        "a system call has other arguments than in the recording: nothing is used before the next checkpoint"
    )]
    CallDiffers,
    /// Execution leads elsewhere than in the trace.
    #[error(
        "execution leads elsewhere than in the trace: nothing is used before the next checkpoint"
    )]
    PathDiffers,
    /// The last state differs from that of the snapshot.
    #[error(
        "they lead to other registers or memory than the snapshot's: nothing is used before the next checkpoint"
    )]
    EndDiffers,
}

impl Stopped {
    /// Whether something before was wrong.
    fn contradicts(self) -> bool {
        matches!(
            self,
            Self::CallDiffers | Self::PathDiffers | Self::EndDiffers
        )
    }
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Searched {
    /// The position that the replay reaches: everything wanted before it was examined; `None` if
    /// nothing was.
    pub end: Option<Position>,
    /// The next access, in the direction of the search.
    pub hit: Option<Hit>,
    /// Loads on the way from addresses that are not known.
    pub may_have: Option<MayHave>,
}

impl Searched {
    const NOTHING: Self = Self {
        end: None,
        hit: None,
        may_have: None,
    };
}

/// What a replay rests on.
struct Given<'g> {
    history: &'g mut History,
    templates: &'g mut Templates,
    facts: &'g FinalState,
    inputs: &'g Inputs,
    others: Option<&'g mut Histories>,
    cancel: &'g Cancel,
}

/// A replay, which goes on when a position is requested.
#[derive(Default)]
pub(super) struct Replay {
    templates: Templates,
    /// Where it can begin, once that was read.
    points: Option<Points>,
    /// The histories of the program's threads, if it has several.
    histories: Option<Histories>,
    /// The legs used last, each with the number of its first place; the last one is used now.
    legs: Vec<(usize, Leg)>,
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").finish_non_exhaustive()
    }
}

impl Replay {
    /// Where the leg used last ended, and why, as far as it got.
    pub fn stopped(&self) -> Option<(Position, Stopped)> {
        self.legs.last()?.1.stopped()
    }

    /// Whether everything that was known at the start of the leg used last is.
    pub fn is_complete(&self, values: &Values) -> bool {
        let last = self.legs.last();
        last.is_none_or(|(_, leg)| leg.is_complete(values))
    }

    /// The program before the instruction at a position; `None` if the replay does not get there,
    /// or was cancelled.
    pub fn at(
        &mut self,
        history: &mut History,
        facts: &FinalState,
        position: Position,
        cancel: &Cancel,
    ) -> Option<&Processor> {
        if position >= history.end() {
            return None;
        }
        let (leg, mut given) = self.leg(history, facts, position, cancel)?;
        leg.go(&mut given, position)?;
        Some(&self.legs.last()?.1.now()?.thread.processor)
    }

    /// Searches for an access to a range of addresses as far as the replay gets: backward, before the
    /// first position and from the second one on; forward, the other way round.
    pub fn search(
        &mut self,
        history: &mut History,
        facts: &FinalState,
        (from, until): (Position, Position),
        search: (Range<u64>, Wanted, Direction),
        cancel: &Cancel,
    ) -> Option<Searched> {
        if facts.replay.is_none() {
            return Some(Searched::NOTHING);
        }
        let direction = search.2;
        let [first, last] = match direction {
            Direction::Forward => [from, until],
            Direction::Backward => [until, from],
        };
        let mut all = Searched {
            end: (direction == Direction::Backward).then_some(last),
            ..Searched::NOTHING
        };
        // Positions that remain.
        let mut rest = first..last;
        while rest.start < rest.end {
            let at = match direction {
                Direction::Forward => rest.start,
                Direction::Backward => match history.step(rest.end, Direction::Backward) {
                    Some(at) => at,
                    None => break,
                },
            };
            let (leg, mut given) = self.leg(history, facts, at, cancel)?;
            let range = leg.range();
            let part = range.start.max(rest.start)..range.end.min(rest.end);
            let found = leg.search(&mut given, part.clone(), search.clone())?;
            let is_whole = found.end.is_some_and(|end| end >= part.end);
            if direction == Direction::Backward && !is_whole {
                // What was examined after this is not connected with it.
                all = Searched {
                    end: found.end,
                    ..Searched::NOTHING
                };
            }
            if direction == Direction::Forward {
                all.end = found.end.or(all.end);
            }
            all.hit = found.hit;
            all.may_have = MayHave::both(all.may_have, found.may_have, direction);
            if found.hit.is_some() || direction == Direction::Forward && !is_whole {
                return Some(all);
            }
            match direction {
                Direction::Forward => rest.start = part.end,
                Direction::Backward => rest.end = part.start,
            }
        }
        Some(all)
    }

    /// The last position before another one whose instruction changes a location; `None` if there is
    /// none, the replay does not get there, or was cancelled.
    pub fn last_change(
        &mut self,
        history: &mut History,
        facts: &FinalState,
        before: Position,
        location: Location,
        cancel: &Cancel,
    ) -> Option<Position> {
        if before >= history.end() {
            // The solver gets farther from there than in the few steps that are solved after a change.
            return None;
        }
        let begin = history.begin();
        let mut end = before;
        while end > begin {
            let at = history.step(end, Direction::Backward)?;
            let (leg, mut given) = self.leg(history, facts, at, cancel)?;
            if let Some(found) = leg.last_change(&mut given, end, location)? {
                return Some(found);
            }
            end = leg.range().start;
        }
        None
    }

    /// The state before the instruction at a position as one from which the past is computed, and
    /// the address of that instruction; `None` if the replay does not get there, or was cancelled.
    pub fn facts_at(
        &mut self,
        history: &mut History,
        facts: &FinalState,
        position: Position,
        cancel: &Cancel,
    ) -> Option<(FinalState, u64)> {
        let pc = history.place(position).and_then(|place| place.pc())?.0;
        let mut processor = self.at(history, facts, position, cancel)?.clone();
        processor.settle(&mut Watch::default());
        let there = FinalState {
            architecture: facts.architecture,
            microcontroller: None,
            status: facts.status,
            registers: processor.values,
            memory: Arc::new(ReplayedMemory {
                memory: processor.memory,
                last: Arc::clone(&facts.memory),
            }),
            others: match &facts.replay {
                Some(recorded) if recorded.has_threads() => facts.others,
                _ => Others::None,
            },
            without_kernel: facts.without_kernel,
            addresses: None,
            replay: None,
            landing_pads: facts.landing_pads.clone(),
            go: facts.go.clone(),
        };
        Some((there, pc))
    }

    /// The leg with a position; `None` if no inputs were recorded.
    fn leg<'g>(
        &'g mut self,
        history: &'g mut History,
        facts: &'g FinalState,
        position: Position,
        cancel: &'g Cancel,
    ) -> Option<(&'g mut Leg, Given<'g>)> {
        let recorded = facts.replay.as_ref()?;
        let inputs = &recorded.inputs;
        if self.points.is_none() {
            self.templates.architecture = facts.architecture;
            self.templates.without_model = facts.has_no_model();
            self.histories = recorded.histories().map(Histories::new);
            let first = self.histories.as_mut().and_then(Histories::first);
            let first = first.filter(|_| recorded.core > 0);
            let begin = first.map_or_else(|| history.begin(), |first| first.begin());
            self.points = Some(Points::read(begin, facts, inputs, cancel)?);
        }
        let points = self.points.as_mut()?;
        let known = self
            .legs
            .iter()
            .position(|(_, leg)| leg.range().contains(&position));
        match known {
            // The last one is used now.
            Some(index) => self.legs[index..].rotate_left(1),
            None if recorded.core > 0 => {
                let first = self.histories.as_mut().and_then(Histories::first)?;
                let (index, start) = points.last(first);
                let moment = points.moment(index, facts, recorded.core);
                let mut given = Given {
                    history: &mut *history,
                    templates: &mut self.templates,
                    facts,
                    inputs,
                    others: self.histories.as_mut(),
                    cancel,
                };
                let moment = moment.and_then(|moment| moment.born(start, &mut given));
                if cancel.is_requested() {
                    return None;
                }
                let range = history.begin()..history.end();
                self.legs.push((index, Leg::new(range, moment, None, true)));
            }
            None => {
                let index = points.before(history, position);
                let start = points.position(history, index)?;
                let next = points.after(history, index);
                let end = next.map_or_else(|| history.end(), |(_, end)| end);
                let first = points.moment(index, facts, 0);
                let has_checkpoint = index > 0 || next.is_some();
                let next = next.and_then(|(next, _)| points.moment(next, facts, 0).ok());
                if self.legs.len() >= MOST_LEGS {
                    self.legs.remove(0);
                }
                let leg = Leg::new(start..end, first, next.map(Box::new), has_checkpoint);
                self.legs.push((index, leg));
            }
        }
        let (_, leg) = self.legs.last_mut()?;
        let given = Given {
            history,
            templates: &mut self.templates,
            facts,
            inputs,
            others: self.histories.as_mut(),
            cancel,
        };
        Some((leg, given))
    }
}
