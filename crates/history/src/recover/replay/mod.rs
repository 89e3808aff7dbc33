//! Executes a recorded program again along its trace, from its start, with what was recorded of its
//! inputs.
//!
//! Whatever is not known is carried along as unknown; where the effect on memory is not known, the
//! replay ends. The trace is the check: where execution leads elsewhere, or a system call has other
//! arguments, nothing of the replay is shown at all.

mod calls;
mod machine;
mod memory;
mod watch;

use super::execution::address_space::AddressSpace;
use super::execution::blocks::Blocks;
use super::execution::steps::{Step, Stretch};
use super::execution::templates::Templates;
use super::facts::final_state::{FinalState, Others};
use super::queries::writes::{Hit, MayHave, Wanted};
use crate::timeline::{Direction, EndAgrees, History, Position};
use armsnap_arch::arch::{Architecture, RegisterFile};
use armsnap_arch::semantics::{Control, Location, Values};
use armsnap_snapshot::snapshot::model::Device;
use armsnap_snapshot::snapshot::replay::{Cursor, Error, Inputs};
use armsnap_snapshot::stop::Cancel;
use calls::Kernel;
use machine::Processor;
use memory::{Memory, ReplayedMemory};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use watch::Watch;

/// The number of positions that are decoded together, or a few more.
const BATCH: u64 = 1 << 16;
/// The largest offset in the trace to which a program is executed again.
const FARTHEST: u64 = 1 << 20;
/// The most states that are kept.
const MOST_SAVED: usize = 64;

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
    /// A file is damaged.
    #[error("the file is {0}")]
    Damaged(Error),
    /// The trace is long.
    #[error("only the first MiB of trace is executed again")]
    Far,
    /// The program writes more memory than is kept.
    #[error("the program uses too much memory")]
    Full,
    /// A system call has other arguments.
    #[error("a system call has other arguments than in the recording: none of them are used")]
    CallDiffers,
    /// Execution leads elsewhere than in the trace.
    #[error("execution leads elsewhere than in the trace: none of them are used")]
    PathDiffers,
    /// The last state differs from that of the snapshot.
    #[error("they lead to other registers or memory than the snapshot's: none of them are used")]
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

/// The program at one position.
#[derive(Clone)]
struct Moment {
    processor: Processor,
    kernel: Kernel,
    /// The next system call.
    call: Cursor,
    /// The address of the next instruction, if it is known.
    expected: Option<u64>,
}

/// The positions that are being executed.
struct Batch {
    stretch: Stretch,
    /// The position after them, and its address.
    end: Position,
    after: Option<u64>,
    /// The number of the next position.
    next: usize,
}

/// A replay, which goes on when a position is requested.
#[derive(Default)]
pub(super) struct Replay {
    is_started: bool,
    /// Whether everything was executed once.
    is_checked: bool,
    /// Whether the end was compared with the snapshot.
    is_compared: bool,
    templates: Templates,
    /// What is known at the start.
    first: Option<[bool; Location::KEPT]>,
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

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").finish_non_exhaustive()
    }
}

impl Replay {
    /// Where it ended, and why, as far as it got.
    pub fn stopped(&self) -> Option<(Position, Stopped)> {
        self.stopped
    }

    /// Whether everything that was known at the start is.
    pub fn is_complete(&self, values: &Values) -> bool {
        let wanted = self.first.iter().flatten();
        let mut both = wanted.zip(values);
        both.all(|(wanted, value)| !wanted || value.is_some())
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
        let inputs = facts.replay.as_ref()?;
        self.check(history, facts, inputs, cancel)?;
        if self.ends_before(position) || position >= history.end() {
            return None;
        }
        let none = &mut Watch::default();
        self.go_to(history, (facts, inputs), position, none, cancel)?;
        let (moment, _) = self.now.as_ref()?;
        Some(&moment.processor)
    }

    /// Searches for an access to a range of addresses as far as the replay gets: backward, before the
    /// first position and from the second one on; forward, the other way round.
    pub fn search(
        &mut self,
        history: &mut History,
        facts: &FinalState,
        (from, until): (Position, Position),
        (range, wanted, direction): (Range<u64>, Wanted, Direction),
        cancel: &Cancel,
    ) -> Option<Searched> {
        let Some(inputs) = facts.replay.as_ref() else {
            return Some(Searched::NOTHING);
        };
        self.check(history, facts, inputs, cancel)?;
        let given = (facts, inputs);
        let [first, last] = match direction {
            Direction::Forward => [from, until],
            Direction::Backward => [until, from],
        };
        let mut watch = Watch::new(range, wanted, direction);
        let none = &mut Watch::default();
        if self.ends_before(first) || self.go_to(history, given, first, none, cancel).is_none() {
            return (!cancel.is_requested()).then_some(Searched::NOTHING);
        }
        if direction == Direction::Forward {
            let reached = self.go_to(history, given, last, &mut watch, cancel);
            watch.settle();
            return self.searched(history, reached.map(|()| last), watch, cancel);
        }
        // The states that are kept on the way are where it continues backward.
        let reached = self.go_to(history, given, last, none, cancel);
        let end = match self.searched(history, reached.map(|()| last), watch.clone(), cancel)? {
            Searched { end: Some(end), .. } => end,
            nothing => return Some(nothing),
        };
        let is_found = |watch: &Watch| watch.hit.is_some();
        self.search_back(history, given, first..end, &mut watch, is_found, cancel)?;
        Some(Searched {
            end: Some(end),
            hit: watch.hit,
            may_have: watch.may_have,
        })
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
        let inputs = facts.replay.as_ref()?;
        self.at(history, facts, before, cancel)?;
        let mut watch = Watch::changes(location);
        let range = history.begin()..before;
        let is_found = |watch: &Watch| watch.changed.is_some();
        self.search_back(
            history,
            (facts, inputs),
            range,
            &mut watch,
            is_found,
            cancel,
        )?;
        watch.changed
    }

    /// Executes a range of positions that the replay gets through: its parts between the states that
    /// are kept, the last part first, until something is found. `None` if it was cancelled.
    fn search_back(
        &mut self,
        history: &mut History,
        given: (&FinalState, &Inputs),
        Range {
            start: first,
            mut end,
        }: Range<Position>,
        watch: &mut Watch,
        is_found: impl Fn(&Watch) -> bool,
        cancel: &Cancel,
    ) -> Option<()> {
        while end > first && !is_found(watch) {
            let before = self.saved.partition_point(|(at, _)| *at < end);
            let kept = self.saved[..before].last();
            let start = kept.map_or(first, |(at, _)| *at).max(first);
            let none = &mut Watch::default();
            self.go_to(history, given, start, none, cancel)?;
            self.go_to(history, given, end, watch, cancel);
            watch.settle();
            if cancel.is_requested() {
                return None;
            }
            end = start;
        }
        Some(())
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
            is_plain_microcontroller: false,
            aligns_frames: false,
            main_stack_only: false,
            status: facts.status,
            registers: processor.values,
            memory: Arc::new(ReplayedMemory {
                memory: processor.memory,
                last: Arc::clone(&facts.memory),
            }),
            others: Others::None,
            without_kernel: facts.without_kernel,
            addresses: None,
            replay: None,
            landing_pads: facts.landing_pads.clone(),
            go: facts.go.clone(),
        };
        Some((there, pc))
    }

    /// The result of a search up to a position, if that was reached; `None` if it was cancelled.
    fn searched(
        &mut self,
        history: &mut History,
        reached: Option<Position>,
        watch: Watch,
        cancel: &Cancel,
    ) -> Option<Searched> {
        if reached.is_none() && cancel.is_requested() {
            return None;
        }
        let stopped = self.stopped.map(|(at, _)| at);
        let end = reached.or(stopped).unwrap_or_else(|| history.end());
        Some(Searched {
            end: Some(end),
            // After a contradiction, nothing that was seen counts.
            hit: watch.hit.filter(|hit| hit.position < end),
            may_have: watch.may_have.filter(|loads| loads.nearest < end),
        })
    }

    /// Executes everything once, so that contradictions are found before a value is shown. `None` if
    /// it was cancelled.
    fn check(
        &mut self,
        history: &mut History,
        facts: &FinalState,
        inputs: &Inputs,
        cancel: &Cancel,
    ) -> Option<()> {
        if self.is_checked {
            return Some(());
        }
        self.start(history, facts, inputs);
        let (end, none) = (history.end(), &mut Watch::default());
        if self.stopped.is_none() {
            self.go_to(history, (facts, inputs), end, none, cancel);
        }
        self.is_checked = !cancel.is_requested();
        self.is_checked.then_some(())
    }

    fn start(&mut self, history: &mut History, facts: &FinalState, inputs: &Inputs) {
        if std::mem::replace(&mut self.is_started, true) {
            return;
        }
        self.templates.architecture = facts.architecture;
        self.templates.without_model = facts.has_no_model();
        self.every = 1;
        let begin = history.begin();
        match first(facts, inputs) {
            Ok(moment) => {
                self.first = Some(moment.processor.values.map(|value| value.is_some()));
                let is_full = moment.processor.memory.is_full();
                self.stopped = is_full.then_some((begin, Stopped::Full));
                self.saved.push((begin, moment));
            }
            Err(error) => self.stopped = Some((begin, Stopped::Damaged(error))),
        }
    }

    /// Executes up to a position. `None` if that is not possible, or it was cancelled.
    fn go_to(
        &mut self,
        history: &mut History,
        (facts, inputs): (&FinalState, &Inputs),
        position: Position,
        watch: &mut Watch,
        cancel: &Cancel,
    ) -> Option<()> {
        let is_ahead = self.now.as_ref().is_some_and(|(_, batch)| {
            let next = batch.stretch.position(batch.next);
            position >= batch.end || next.is_none_or(|next| position >= next)
        });
        if !is_ahead {
            let after = self.saved.partition_point(|(at, _)| *at <= position);
            let (at, moment) = self.saved.get(after.checked_sub(1)?)?.clone();
            self.now = Some((moment, self.batch(history, at, cancel)?));
        }
        loop {
            if cancel.is_requested() {
                return None;
            }
            let (moment, batch) = self.now.as_mut()?;
            let target = batch.stretch.find(position);
            let given = (&self.templates, facts, inputs);
            let result = moment.run(batch, target, given, watch);
            if let Err(stopped) = result {
                let at = batch.stretch.position(batch.next).unwrap_or(batch.end);
                self.stop(at, stopped);
                return None;
            }
            if target.is_some() || watch.is_done() {
                return Some(());
            }
            let end = batch.end;
            let mut taken = batch.stretch.taken.iter().map(|taken| taken.step as usize);
            let is_signal = taken.any(|at| at == batch.stretch.len());
            let is_at_end = end >= history.end();
            match (is_at_end, is_signal) {
                (true, _) => self.finish(history, facts, is_signal),
                (false, true) => self.stop(end, Stopped::Signal),
                (false, false) => {}
            }
            if is_signal || end >= history.end() {
                return None;
            }
            if is_too_far(end) {
                self.stop(end, Stopped::Far);
                return None;
            }
            let (moment, _) = self.now.as_ref()?;
            let moment = moment.clone();
            if self.saved.last().is_some_and(|(at, _)| *at < end) {
                self.keep(end, &moment);
            }
            self.now = None;
            self.now = Some((moment, self.batch(history, end, cancel)?));
        }
    }

    /// Whether a position is known not to be reached.
    fn ends_before(&self, position: Position) -> bool {
        self.stopped.is_some_and(|(at, _)| position >= at)
    }

    fn stop(&mut self, at: Position, stopped: Stopped) {
        let at = match stopped.contradicts() {
            true => self.saved.first().map_or(at, |(first, _)| *first),
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
    fn batch(&mut self, history: &mut History, from: Position, cancel: &Cancel) -> Option<Batch> {
        let mut places = 0;
        let mut end = None;
        for event in history.entries(from, Direction::Forward) {
            if places >= BATCH {
                end = Some(event.position);
                break;
            }
            places += event.entry.places();
        }
        let last = history.end();
        let end = end.unwrap_or(last).min(last);
        let space = AddressSpace::default();
        let stretch = Stretch::of(history, &mut self.templates, from..end, space, cancel)?;
        let after = history.place(end).and_then(|place| place.pc());
        Some(Batch {
            stretch,
            end,
            after: after.map(|address| address.0),
            next: 0,
        })
    }

    /// Compares the state at the end of the trace with that of the snapshot.
    /// An exception that was taken last, at a fault or an exit, has not changed the state yet if
    /// execution would continue where the core halted.
    fn finish(&mut self, history: &mut History, facts: &FinalState, is_exception: bool) {
        let halted = history.halted().map(|halted| halted.0);
        let expected = self.now.as_ref().and_then(|(moment, _)| moment.expected);
        if std::mem::replace(&mut self.is_compared, true) {
            self.now = None;
            return;
        }
        if is_exception && (expected.is_none() || expected != halted) {
            self.now = None;
            return;
        }
        let Some((moment, _)) = &mut self.now else {
            return;
        };
        if history.end_agrees() != EndAgrees::Yes {
            return;
        }
        let end = history.end();
        if let (Some(range), Some(halted)) = (history.rest(), halted) {
            let context = history.place(end).and_then(|place| place.context);
            let view = history.view(context.as_ref());
            let mut addresses = history.range_instructions(view, &range);
            addresses.retain(|(address, _)| address.0 < halted);
            let templates = &mut self.templates;
            let rest =
                templates.instructions(history, view, addresses, &mut Blocks::default(), false);
            for number in rest {
                let template = templates.all[number as usize];
                if moment
                    .processor
                    .execute(templates, &template, None, &mut Watch::default())
                    .is_err()
                {
                    return;
                }
            }
        }
        moment.processor.settle(&mut Watch::default());
        let values = moment.processor.values.iter().zip(&facts.registers);
        let mut differing = values.filter(|(found, last)| {
            last.is_some_and(|last| found.is_some_and(|found| found != last))
        });
        let differs =
            differing.next().is_some() || moment.processor.memory.differs_from(&*facts.memory);
        self.now = None;
        if differs {
            self.stop(end, Stopped::EndDiffers);
        }
    }
}

fn is_too_far(position: Position) -> bool {
    position.session > 0 || position.segment > FARTHEST
}

/// The state at the start.
fn first(facts: &FinalState, inputs: &Inputs) -> Result<Moment, Error> {
    let start = inputs.start()?;
    let device = Device {
        registers: start.registers,
        ..Device::default()
    };
    let file = RegisterFile::read(&device, facts.architecture);
    let mut memory = Memory::default();
    for piece in &start.memory {
        calls::add(&mut memory, piece, &*facts.memory);
        if memory.is_full() {
            break;
        }
    }
    let values: Values = FinalState::locations(&file);
    Ok(Moment {
        processor: Processor::new(values, memory),
        kernel: Kernel::default(),
        call: inputs.calls(),
        expected: file.value("pc"),
    })
}

impl Moment {
    /// Executes a batch up to one of its positions, or to its end.
    fn run(
        &mut self,
        batch: &mut Batch,
        target: Option<usize>,
        (templates, facts, inputs): (&Templates, &FinalState, &Inputs),
        watch: &mut Watch,
    ) -> Result<(), Stopped> {
        let Batch {
            stretch,
            next,
            after,
            ..
        } = batch;
        let until = target.unwrap_or(stretch.len());
        let mut taken = stretch.taken.iter().map(|taken| taken.step as usize);
        let signal = taken.find(|at| at >= next).unwrap_or(usize::MAX);
        while *next < until.min(signal) {
            let Step::Instruction(number) = stretch.step(*next) else {
                return Err(Stopped::Gap);
            };
            let template = &templates.all[number as usize];
            if self
                .expected
                .is_some_and(|expected| expected != template.pc)
            {
                return Err(Stopped::PathDiffers);
            }
            self.expected = if template.control == Control::SystemCall {
                self.call(template.pc, facts, inputs, watch)?;
                Some(template.end())
            } else {
                let after = match (*next + 1 < stretch.len()).then(|| stretch.step(*next + 1)) {
                    Some(Step::Instruction(number)) => Some(templates.all[number as usize].pc),
                    Some(Step::Halted | Step::Gap) => None,
                    None => *after,
                };
                self.processor.execute(templates, template, after, watch)?
            };
            watch.executed(|| stretch.position(*next));
            let changes = |location| machine::writes(templates, template, location);
            watch.instruction(changes, || stretch.position(*next));
            *next += 1;
            if watch.is_done() {
                return Ok(());
            }
        }
        // What is known before a signal is not known at the first position after it.
        if *next == signal && signal < stretch.len() {
            return Err(Stopped::Signal);
        }
        match self.processor.memory.is_full() {
            true => Err(Stopped::Full),
            false => Ok(()),
        }
    }

    fn call(
        &mut self,
        pc: u64,
        facts: &FinalState,
        inputs: &Inputs,
        watch: &mut Watch,
    ) -> Result<(), Stopped> {
        self.processor.settle(watch);
        let narrow = facts.architecture != Architecture::AArch64;
        if narrow && calls::is_private(&mut self.processor.values) {
            return Ok(());
        }
        let call = inputs.call(self.call).map_err(Stopped::Damaged)?;
        let (call, next) = call.ok_or(Stopped::CallMissing)?;
        if call.pc != pc {
            return Err(Stopped::CallDiffers);
        }
        self.call = next;
        let Processor { values, memory, .. } = &mut self.processor;
        let saved = &*facts.memory;
        let changed = self
            .kernel
            .call(&call, facts.architecture, values, memory, saved)?;
        watch.range(changed);
        Ok(())
    }
}
