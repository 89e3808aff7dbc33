//! The threads of a program, of which one executes at a time: in turns, whose order was recorded.
//!
//! What is asked about is one of them, and its memory changes between its turns: so the turns of the
//! others are executed where one of its own ends, as a system call would be.

use super::machine::Processor;
use super::memory::Memory;
use super::moment::{Batch, Moment, Thread};
use super::watch::Watch;
use super::{Given, Stopped};
use crate::recover::execution::templates::Templates;
use crate::timeline::{History, Position};
use armsnap_arch::semantics::{Location, Values};
use armsnap_snapshot::snapshot::replay::Input;
use armsnap_snapshot::stop::Cancel;

/// The most instructions of other threads that are executed.
const MOST: u64 = 1 << 26;

/// The place of no thread: whose turn it is was not recorded.
const NOBODY: usize = usize::MAX;

/// Another thread.
#[derive(Clone)]
struct Other {
    thread: Thread,
    /// The position of its next instruction.
    position: Position,
}

/// The threads, by their places among those that were recorded.
#[derive(Clone, Default)]
pub(super) struct Threads {
    /// The one whose positions are executed.
    own: usize,
    /// The one whose turn it is.
    now: usize,
    /// The number of instructions left in this turn, if it is known.
    left: Option<u64>,
    others: Vec<Option<Box<Other>>>,
    /// Those that were started and have not executed anything.
    born: Vec<Option<Box<Thread>>>,
    /// The place of the next one to be started.
    next: usize,
    /// The number of instructions that the others executed.
    executed: u64,
}

/// The histories of other threads, and the positions of each that are being executed.
pub(super) struct Histories {
    all: Vec<Option<History>>,
    batches: Vec<Option<Batch>>,
}

impl Histories {
    pub fn new(all: Vec<Option<History>>) -> Self {
        Self {
            all,
            batches: Vec::new(),
        }
    }

    /// The history of the first thread.
    pub fn first(&mut self) -> Option<&mut History> {
        self.all.first_mut()?.as_mut()
    }

    /// The batch of a thread, at a position.
    fn batch(
        &mut self,
        place: usize,
        position: Position,
        templates: &mut Templates,
        cancel: &Cancel,
    ) -> Option<&mut Batch> {
        self.batches.resize_with(self.all.len(), || None);
        let batch = self.batches.get_mut(place)?;
        let find = |batch: &Batch| batch.stretch.find(position);
        if batch.as_ref().and_then(find).is_none() {
            let history = self.all.get_mut(place)?.as_mut()?;
            let range = position..history.end();
            *batch = Some(Batch::of(history, templates, range, cancel)?);
        }
        let batch = batch.as_mut()?;
        // It begins with whole runs of instructions.
        batch.next = batch.stretch.find(position)?;
        Some(batch)
    }
}

impl Threads {
    /// The threads of a program in which the first one executes, given the place of the one whose
    /// positions will be.
    pub fn new(own: usize) -> Self {
        Self {
            own,
            next: 1,
            ..Self::default()
        }
    }

    /// The place of the thread whose positions are executed.
    pub fn own(&self) -> usize {
        self.own
    }

    /// Counts an instruction in the turn of a thread.
    #[inline]
    pub fn count(&mut self, place: usize) -> Result<(), Stopped> {
        match &mut self.left {
            None if self.now == place => Ok(()),
            None if self.now == NOBODY => Err(Stopped::TurnMissing),
            Some(left) if self.now == place && *left > 0 => {
                *left -= 1;
                Ok(())
            }
            _ => Err(Stopped::PathDiffers),
        }
    }

    /// Whether the turn is over.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    /// A system call returns in a later turn, so that this one is over.
    pub fn begin(&mut self) -> Result<(), Stopped> {
        match self.left.unwrap_or(0) {
            0 => {
                self.left = Some(0);
                Ok(())
            }
            _ => Err(Stopped::PathDiffers),
        }
    }
}

impl Moment {
    /// Executes the first thread from a position of its history up to the first turn of another one.
    pub fn born(mut self, position: Position, given: &mut Given<'_>) -> Result<Self, Stopped> {
        let nothing: Values = [None; Location::KEPT];
        let unborn = Thread::new(Processor::new(nothing, Memory::default()), None);
        let mut first = std::mem::replace(&mut self.thread, unborn);
        std::mem::swap(
            &mut first.processor.memory,
            &mut self.thread.processor.memory,
        );
        let first = Other {
            thread: first,
            position,
        };
        self.threads.others.push(Some(Box::new(first)));
        self.turn_of(0, given, &mut Watch::default())?;
        self.others(given, &mut Watch::default())?;
        match self.threads.now == self.threads.own {
            true => Ok(self),
            false => Err(Stopped::CallMissing),
        }
    }

    /// Executes turns up to the next one of the thread whose positions are executed, or to the end of what
    /// was recorded.
    pub fn others(&mut self, given: &mut Given<'_>, watch: &mut Watch) -> Result<(), Stopped> {
        let mut seen = watch.of_others();
        self.thread.processor.settle(watch);
        while self.threads.is_over() {
            let turn = match self.next(given)? {
                Some((Input::Turn(turn), next)) => {
                    self.record = next;
                    turn
                }
                // The last turn is over.
                None => {
                    (self.threads.now, self.threads.left) = (NOBODY, None);
                    break;
                }
                Some(_) => return Err(Stopped::CallDiffers),
            };
            let place = turn.core as usize;
            (self.threads.now, self.threads.left) = (place, Some(turn.instructions));
            match place == self.threads.own {
                true => self.own_turn(given, watch)?,
                false => self.turn_of(place, given, &mut seen)?,
            }
        }
        watch.others(&seen);
        Ok(())
    }

    /// A turn of the thread whose positions are executed begins.
    fn own_turn(&mut self, given: &mut Given<'_>, watch: &mut Watch) -> Result<(), Stopped> {
        if let Some(born) = self.threads.take_born(self.threads.own) {
            let memory = std::mem::take(&mut self.thread.processor.memory);
            self.thread = *born;
            self.thread.processor.memory = memory;
        }
        self.resume(given, watch)
    }

    /// The call in which the executing thread waits returns, if it is in one.
    fn resume(&mut self, given: &Given<'_>, watch: &mut Watch) -> Result<(), Stopped> {
        if self.thread.call.is_none() {
            return Ok(());
        }
        match self.next(given)? {
            Some((Input::Call(call), next)) => self.returns(&call, next, given, watch),
            _ => Err(Stopped::CallMissing),
        }
    }

    /// Executes a turn of another thread.
    fn turn_of(
        &mut self,
        place: usize,
        given: &mut Given<'_>,
        watch: &mut Watch,
    ) -> Result<(), Stopped> {
        let mut other = self.threads.take(place, given)?;
        self.exchange(&mut other.thread);
        let done = self.execute(&mut other.position, place, given, watch);
        self.thread.processor.settle(watch);
        self.exchange(&mut other.thread);
        self.threads.others[place] = Some(other);
        done
    }

    /// Exchanges the executing thread; the memory stays.
    fn exchange(&mut self, other: &mut Thread) {
        std::mem::swap(&mut self.thread, other);
        let (here, there) = (&mut self.thread.processor, &mut other.processor);
        std::mem::swap(&mut here.memory, &mut there.memory);
    }

    /// Executes the executing thread from a position to the end of its turn.
    fn execute(
        &mut self,
        position: &mut Position,
        place: usize,
        given: &mut Given<'_>,
        watch: &mut Watch,
    ) -> Result<(), Stopped> {
        if self.thread.is_interrupted {
            return Err(Stopped::Signal);
        }
        self.resume(given, watch)?;
        while !self.threads.is_over() {
            let others = given.others.take().ok_or(Stopped::NoHistory)?;
            let (templates, cancel) = (&mut *given.templates, given.cancel);
            let batch = others.batch(place, *position, templates, cancel);
            let done = match batch {
                _ if self.thread.is_interrupted => Err(Stopped::Signal),
                Some(batch) => self.execute_batch(batch, place, given, watch),
                None => Err(Stopped::NoHistory),
            };
            *position = done.unwrap_or(*position);
            given.others = Some(others);
            done?;
        }
        Ok(())
    }

    /// Executes a batch to the end of the turn, or of the batch; returns the next position.
    fn execute_batch(
        &mut self,
        batch: &mut Batch,
        place: usize,
        given: &mut Given<'_>,
        watch: &mut Watch,
    ) -> Result<Position, Stopped> {
        let next = batch.next;
        if next >= batch.stretch.len() {
            return Err(Stopped::NoHistory);
        }
        let mut taken = batch.stretch.taken.iter().map(|taken| taken.step as usize);
        let signal = taken.find(|at| *at >= next).unwrap_or(usize::MAX);
        while batch.next < batch.stretch.len() && !self.threads.is_over() {
            if batch.next == signal {
                return Err(Stopped::Signal);
            }
            let executed = self.thread.step(batch, given.templates, watch)?;
            self.threads.count(place)?;
            self.threads.executed += 1;
            batch.next += 1;
            self.enters(&executed, given, watch)?;
        }
        if batch.next == batch.stretch.len() && batch.ends_in_signal() {
            // At the end of a thread too; then no turn follows.
            self.thread.is_interrupted = true;
        }
        if given.cancel.is_requested() || self.threads.executed > MOST {
            return Err(Stopped::Far);
        }
        match self.thread.processor.memory.is_full() {
            true => Err(Stopped::Full),
            false => Ok(batch.position()),
        }
    }
}

impl Threads {
    /// Another thread, from its first instruction on if it has not executed any.
    fn take(&mut self, place: usize, given: &mut Given<'_>) -> Result<Box<Other>, Stopped> {
        if let Some(other) = self.others.get_mut(place).and_then(Option::take) {
            return Ok(other);
        }
        let histories = given.others.as_mut().ok_or(Stopped::NoHistory)?;
        let history = histories.all.get_mut(place).and_then(Option::as_mut);
        let position = history.ok_or(Stopped::NoHistory)?.begin();
        let thread = self.take_born(place).ok_or(Stopped::CallMissing)?;
        if self.others.len() <= place {
            self.others.resize_with(place + 1, || None);
        }
        Ok(Box::new(Other {
            thread: *thread,
            position,
        }))
    }

    fn take_born(&mut self, place: usize) -> Option<Box<Thread>> {
        self.born.get_mut(place)?.take()
    }

    /// Adds a thread that was started.
    pub fn add(&mut self, thread: Thread) {
        self.born.resize_with(self.next, || None);
        self.born.push(Some(Box::new(thread)));
        self.next += 1;
    }

    /// Removes the thread added last: it could not be started.
    pub fn remove_last(&mut self) {
        self.next -= 1;
        self.born.pop();
    }
}
