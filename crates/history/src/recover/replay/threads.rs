//! The threads of a program, of which one executes at a time: in turns, whose order was recorded.

use super::thread::{Batch, Thread};
use super::{Given, Stopped};
use crate::recover::execution::templates::Templates;
use crate::timeline::{History, Position};
use armsnap_snapshot::stop::Cancel;

/// The most instructions of other threads that are executed.
pub(super) const MOST: u64 = 1 << 26;

/// The place of no thread: whose turn it is was not recorded.
const NOBODY: usize = usize::MAX;

/// Another thread.
#[derive(Clone)]
pub(super) struct Other {
    pub thread: Thread,
    /// The position of its next instruction.
    pub position: Position,
}

/// The threads, by their places among those that were recorded.
#[derive(Clone, Default)]
pub(super) struct Threads {
    /// The one whose positions are executed.
    own: usize,
    /// The one whose turn it is.
    pub now: usize,
    /// The number of instructions left in this turn, if it is known.
    left: Option<u64>,
    pub others: Vec<Option<Box<Other>>>,
    /// Those that were started and have not executed anything.
    born: Vec<Option<Box<Thread>>>,
    /// The place of the next one to be started.
    next: usize,
    /// The number of instructions and turns that the others executed.
    pub executed: u64,
    /// Whether the one whose positions are executed was started.
    pub is_born: bool,
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
    pub fn batch(
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
            is_born: own == 0,
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

impl Threads {
    /// Another thread, from its first instruction on if it has not executed any.
    pub fn take(&mut self, place: usize, given: &mut Given<'_>) -> Result<Box<Other>, Stopped> {
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

    pub fn take_born(&mut self, place: usize) -> Option<Box<Thread>> {
        self.born.get_mut(place)?.take()
    }

    /// Adds a thread that was started.
    pub fn add(&mut self, thread: Thread) {
        self.born.resize_with(self.next, || None);
        self.born.push(Some(Box::new(thread)));
        self.next += 1;
    }

    /// The thread added last could not be started; whether it has no number either.
    pub fn is_not_started(&mut self, has_no_number: bool) {
        if has_no_number {
            self.next -= 1;
            self.born.pop();
        } else if let Some(last) = self.born.last_mut() {
            *last = None;
        }
    }

    /// A turn begins.
    pub fn turn(&mut self, place: usize, instructions: u64) {
        (self.now, self.left) = (place, Some(instructions));
    }

    /// The last turn is over.
    pub fn end(&mut self) {
        (self.now, self.left) = (NOBODY, None);
    }

    /// Whether all turns were executed.
    pub fn are_over(&self) -> bool {
        self.now == NOBODY
    }
}
