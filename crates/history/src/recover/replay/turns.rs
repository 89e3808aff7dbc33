//! The execution of the replayed program: of one thread, and of the turns of the others where one of its
//! own ends, as a system call would be.

use super::calls::Kernel;
use super::machine::{self, Processor};
use super::memory::Memory;
use super::thread::{Batch, Thread};
use super::threads::{MOST, Other, Threads};
use super::watch::Watch;
use super::{Given, Stopped, calls, clones};
use crate::timeline::Position;
use armsnap_arch::arch::Architecture;
use armsnap_arch::semantics::{Location, Values};
use armsnap_snapshot::snapshot::replay::{Call, Cursor, Input};

/// The program at one position of a thread.
#[derive(Clone)]
pub(super) struct Moment {
    pub thread: Thread,
    pub kernel: Kernel,
    /// The next record of the inputs.
    pub record: Cursor,
    /// The other threads.
    pub threads: Threads,
}

impl Moment {
    /// Executes a batch up to one of its positions, or to its end.
    pub fn run(
        &mut self,
        batch: &mut Batch,
        target: Option<usize>,
        given: &mut Given<'_>,
        watch: &mut Watch,
    ) -> Result<(), Stopped> {
        let until = target.unwrap_or(batch.stretch.len());
        let next = batch.next;
        let mut taken = batch.stretch.taken.iter().map(|taken| taken.step as usize);
        let signal = taken.find(|at| *at >= next).unwrap_or(usize::MAX);
        while batch.next < until.min(signal) {
            let executed = self.thread.step(batch, given.templates, watch)?;
            self.threads.count(self.threads.own())?;
            if let Some(pc) = executed.call {
                self.call(pc, given, watch)?;
            }
            if self.threads.is_over() {
                self.others(given, watch)?;
            }
            watch.executed(|| batch.stretch.position(batch.next));
            let templates = &*given.templates;
            let template = &templates.all[executed.number as usize];
            let changes = |location| machine::writes(templates, template, location);
            watch.instruction(changes, || batch.stretch.position(batch.next));
            batch.next += 1;
            if watch.is_done() {
                return Ok(());
            }
        }
        // What is known before a signal is not known at the first position after it.
        if batch.next == signal && signal < batch.stretch.len() {
            return Err(Stopped::Signal);
        }
        match self.thread.processor.memory.is_full() {
            true => Err(Stopped::Full),
            false => Ok(()),
        }
    }

    /// Makes a system call of the thread, or begins one that returns in a later turn.
    fn call(&mut self, pc: u64, given: &Given<'_>, watch: &mut Watch) -> Result<(), Stopped> {
        let narrow = given.facts.architecture != Architecture::AArch64;
        if narrow && calls::is_private(&mut self.thread.processor.values) {
            return Ok(());
        }
        clones::begins(&mut self.thread, &mut self.threads, narrow)?;
        self.thread.call = Some(pc);
        match self.next(given)? {
            Some((Input::Call(call), next)) => self.returns(&call, next, given, watch),
            Some((Input::Turn(_), _)) => {
                self.threads.begin()?;
                self.waits(given)
            }
            _ => Err(Stopped::CallMissing),
        }
    }

    /// Applies the call that the thread is in, which returns.
    pub fn returns(
        &mut self,
        call: &Call<'_>,
        next: Cursor,
        given: &Given<'_>,
        watch: &mut Watch,
    ) -> Result<(), Stopped> {
        if self.thread.call.take() != Some(call.pc) {
            return Err(Stopped::CallDiffers);
        }
        self.record = next;
        let memory = &mut self.thread.processor.memory;
        memory.has_returned(self.threads.now);
        let (architecture, saved) = (given.facts.architecture, &*given.facts.memory);
        let is_last = clones::is_one(call, architecture) && self.next(given)?.is_none();
        let (thread, threads) = (&mut self.thread, &mut self.threads);
        if clones::returns(thread, threads, call, architecture, is_last)? {
            return Ok(());
        }
        let Processor { values, memory, .. } = &mut self.thread.processor;
        let changed = self
            .kernel
            .call(call, architecture, values, memory, saved)?;
        changed.into_iter().for_each(|range| watch.range(range));
        Ok(())
    }

    /// The next record of the inputs that is not a checkpoint, and the place after it.
    pub fn next<'g>(&self, given: &Given<'g>) -> Result<Option<(Input<'g>, Cursor)>, Stopped> {
        let inputs = given.inputs;
        let mut at = self.record;
        loop {
            match inputs.input(at).map_err(Stopped::Damaged)? {
                Some((Input::Checkpoint(_), next)) => at = next,
                found => return Ok(found),
            }
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
        match self.threads.now == self.threads.own() {
            true => Ok(self),
            false => Err(Stopped::CallMissing),
        }
    }

    /// Executes turns up to the next one of the thread whose positions are executed, or to the end of what
    /// was recorded.
    pub fn others(&mut self, given: &mut Given<'_>, watch: &mut Watch) -> Result<(), Stopped> {
        self.thread.processor.settle(watch);
        while self.threads.is_over() {
            self.threads.executed += 1;
            if given.cancel.is_requested() || self.threads.executed > MOST {
                return Err(Stopped::Far);
            }
            let turn = match self.next(given)? {
                Some((Input::Turn(turn), next)) => {
                    self.record = next;
                    turn
                }
                // The last turn is over.
                None => {
                    self.threads.end();
                    break;
                }
                Some(_) => return Err(Stopped::CallDiffers),
            };
            let place = turn.core as usize;
            self.threads.turn(place, turn.instructions);
            match place == self.threads.own() {
                true => self.own_turn(given, watch)?,
                // The history of the other thread has what it writes.
                false => self.turn_of(place, given, &mut Watch::default())?,
            }
        }
        Ok(())
    }

    /// A turn of the thread whose positions are executed begins.
    fn own_turn(&mut self, given: &mut Given<'_>, watch: &mut Watch) -> Result<(), Stopped> {
        if let Some(born) = self.threads.take_born(self.threads.own()) {
            let memory = std::mem::take(&mut self.thread.processor.memory);
            self.thread = *born;
            self.thread.processor.memory = memory;
            self.threads.is_born = true;
        }
        if !self.threads.is_born {
            return Err(Stopped::TurnMissing);
        }
        self.resume(given, watch)
    }

    /// Determines what the call that the executing thread is in may write before it returns.
    pub fn waits(&mut self, given: &Given<'_>) -> Result<(), Stopped> {
        let architecture = given.facts.architecture;
        let values = &self.thread.processor.values;
        let number = match architecture {
            Architecture::AArch64 => values[8],
            _ => values[7],
        };
        let arguments: [Option<u64>; 6] = std::array::from_fn(|index| values[index]);
        if number.is_some_and(|number| calls::writes_nothing(architecture, number, arguments)) {
            return Ok(());
        }
        let ranges = match self.returning(given)? {
            Some(call) if clones::is_one(&call, architecture) => Vec::new(),
            Some(call) => calls::written(&call, architecture)?,
            None => {
                // It does not return: whatever it can write may have been written.
                let number = number.ok_or(Stopped::CallMissing)?;
                let call = Call {
                    pc: 0,
                    number,
                    arguments: arguments.map(Option::unwrap_or_default),
                    result: match architecture {
                        Architecture::AArch64 => i64::MAX.cast_unsigned(),
                        _ => i32::MAX as u64,
                    },
                    memory: Vec::new(),
                };
                if arguments.contains(&None) {
                    return Err(Stopped::Call(number));
                }
                calls::written(&call, architecture)?
            }
        };
        for range in ranges {
            let memory = &mut self.thread.processor.memory;
            memory.waits(self.threads.now, range);
        }
        Ok(())
    }

    /// The record with which the call that the executing thread is in returns, if it does.
    fn returning<'g>(&self, given: &Given<'g>) -> Result<Option<Call<'g>>, Stopped> {
        let (mut at, mut now) = (self.record, None);
        let inputs = given.inputs;
        while let Some((input, next)) = inputs.input(at).map_err(Stopped::Damaged)? {
            match input {
                Input::Turn(turn) => now = Some(turn.core as usize),
                Input::Call(call) if now == Some(self.threads.now) => return Ok(Some(call)),
                Input::Call(_) | Input::Checkpoint(_) => {}
            }
            if given.cancel.is_requested() {
                return Err(Stopped::Far);
            }
            at = next;
        }
        Ok(None)
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
            if let Some(pc) = executed.call {
                self.call(pc, given, watch)?;
            }
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
