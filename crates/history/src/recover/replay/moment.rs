//! The replayed program at one position, and its execution from there.

use super::calls::Kernel;
use super::machine::{self, Processor};
use super::threads::Threads;
use super::watch::Watch;
use super::{Given, Stopped, calls, clones};
use crate::recover::execution::address_space::AddressSpace;
use crate::recover::execution::steps::{Step, Stretch, ends_in_branch};
use crate::recover::execution::templates::Templates;
use crate::timeline::{Direction, History, Position};
use armsnap_arch::arch::Architecture;
use armsnap_arch::semantics::{Control, Location};
use armsnap_snapshot::snapshot::replay::{Call, Cursor, Input};
use armsnap_snapshot::stop::Cancel;
use std::ops::Range;

/// The number of positions that are decoded together, or a few more.
const BATCH: u64 = 1 << 16;

/// A thread at one position.
#[derive(Clone)]
pub(super) struct Thread {
    /// Its registers, and the memory while it executes.
    pub processor: Processor,
    /// The address of the next instruction, if it is known.
    pub expected: Option<u64>,
    /// The address of the system call that it is in.
    pub call: Option<u64>,
    /// The address at which the kernel clears its ID when it ends, 0 for none, if that is known.
    pub clears: Option<u64>,
    /// Whether it was interrupted by a signal.
    pub is_interrupted: bool,
}

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

/// The positions of a thread that are being executed.
pub(super) struct Batch {
    pub stretch: Stretch,
    /// The position after them, and its address.
    pub end: Position,
    after: Option<u64>,
    /// The number of the next position.
    pub next: usize,
}

impl Batch {
    /// The positions of a range, or the first ones.
    pub fn of(
        history: &mut History,
        templates: &mut Templates,
        Range { start, end: last }: Range<Position>,
        cancel: &Cancel,
    ) -> Option<Self> {
        let mut places = 0;
        let mut end = None;
        // After a branch, no IT block is open.
        let mut may_end = false;
        for event in history.entries(start, Direction::Forward) {
            if places >= BATCH && may_end || event.position >= last {
                end = Some(event.position);
                break;
            }
            places += event.entry.places();
            may_end = ends_in_branch(&event.entry) || places >= 2 * BATCH;
        }
        let end = end.unwrap_or(last).min(last);
        let space = AddressSpace::default();
        let stretch = Stretch::of(history, templates, start..end, space, cancel)?;
        let after = history.place(end).and_then(|place| place.pc());
        Some(Self {
            stretch,
            end,
            after: after.map(|address| address.0),
            next: 0,
        })
    }

    /// The next position.
    pub fn position(&self) -> Position {
        self.stretch.position(self.next).unwrap_or(self.end)
    }

    /// Whether an exception was taken before its end.
    pub fn ends_in_signal(&self) -> bool {
        let mut taken = self.stretch.taken.iter();
        taken.any(|taken| taken.step as usize == self.stretch.len())
    }
}

/// What a thread executed.
pub(super) struct Executed {
    /// The instruction, by its number among the templates.
    number: u32,
    /// Its address, if it is a system call.
    pub call: Option<u64>,
    /// Its address, and the register into which it reads a counter, if it does.
    pub counter: Option<(u64, Location)>,
}

impl Thread {
    /// A thread before an instruction.
    pub fn new(processor: Processor, expected: Option<u64>) -> Self {
        Self {
            processor,
            expected,
            call: None,
            clears: None,
            is_interrupted: false,
        }
    }

    /// Executes the next instruction of a batch; the effect of a system call is up to the caller.
    #[inline]
    pub fn step(
        &mut self,
        batch: &Batch,
        templates: &Templates,
        watch: &mut Watch,
    ) -> Result<Executed, Stopped> {
        let stretch = &batch.stretch;
        let Step::Instruction(number) = stretch.step(batch.next) else {
            return Err(Stopped::Gap);
        };
        let template = &templates.all[number as usize];
        let mut expected = self.expected.into_iter();
        if expected.any(|expected| expected != template.pc) {
            return Err(Stopped::PathDiffers);
        }
        if template.control == Control::SystemCall {
            self.processor.settle(watch);
            self.expected = Some(template.end());
            return Ok(Executed {
                number,
                call: Some(template.pc),
                counter: None,
            });
        }
        let following = batch.next + 1;
        let after = match (following < stretch.len()).then(|| stretch.step(following)) {
            Some(Step::Instruction(number)) => Some(templates.all[number as usize].pc),
            Some(Step::Halted | Step::Gap) => None,
            None => batch.after,
        };
        self.expected = self.processor.execute(templates, template, after, watch)?;
        Ok(Executed {
            number,
            call: None,
            counter: template.counter.map(|register| (template.pc, register)),
        })
    }
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
            self.enters(&executed, given, watch)?;
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

    /// Applies what enters the program by an instruction that was executed.
    #[inline]
    pub fn enters(
        &mut self,
        executed: &Executed,
        given: &Given<'_>,
        watch: &mut Watch,
    ) -> Result<(), Stopped> {
        match (executed.call, executed.counter) {
            (None, None) => Ok(()),
            (Some(pc), _) => self.call(pc, given, watch),
            (None, Some((pc, register))) => {
                let found = given.inputs.input(self.record).map_err(Stopped::Damaged)?;
                if let Some((Input::Counter(read), next)) = found
                    && read.pc == pc
                {
                    self.thread.processor.values[register.index()] = Some(read.value);
                    self.record = next;
                }
                Ok(())
            }
        }
    }

    /// Makes a system call of the thread, or begins one that returns in a later turn.
    fn call(&mut self, pc: u64, given: &Given<'_>, watch: &mut Watch) -> Result<(), Stopped> {
        let narrow = given.facts.architecture != Architecture::AArch64;
        if narrow && calls::is_private(&mut self.thread.processor.values) {
            return Ok(());
        }
        clones::begins(self, narrow)?;
        self.thread.call = Some(pc);
        match self.next(given)? {
            Some((Input::Call(call), next)) => self.returns(&call, next, given, watch),
            Some((Input::Turn(_), _)) => self.threads.begin(),
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
        if clones::returns(self, call, given.facts.architecture)? {
            return Ok(());
        }
        let Processor { values, memory, .. } = &mut self.thread.processor;
        let (architecture, saved) = (given.facts.architecture, &*given.facts.memory);
        let changed = self
            .kernel
            .call(call, architecture, values, memory, saved)?;
        changed.into_iter().for_each(|range| watch.range(range));
        Ok(())
    }

    /// The next record of the inputs that is not a checkpoint or a counter, and the place after it.
    pub fn next<'g>(&self, given: &Given<'g>) -> Result<Option<(Input<'g>, Cursor)>, Stopped> {
        let inputs = given.inputs;
        let mut at = self.record;
        loop {
            match inputs.input(at).map_err(Stopped::Damaged)? {
                Some((Input::Checkpoint(_) | Input::Counter(_), next)) => at = next,
                found => return Ok(found),
            }
        }
    }
}
