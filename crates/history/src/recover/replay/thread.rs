//! One thread at one position, and its execution from there.

use super::Stopped;
use super::machine::Processor;
use super::watch::Watch;
use crate::recover::execution::address_space::AddressSpace;
use crate::recover::execution::steps::{Step, Stretch, ends_in_branch};
use crate::recover::execution::templates::Templates;
use crate::timeline::{Direction, History, Position};
use armsnap_arch::semantics::Control;
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
    pub number: u32,
    /// Its address, if it is a system call.
    pub call: Option<u64>,
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
            });
        }
        let following = batch.next + 1;
        let after = match (following < stretch.len()).then(|| stretch.step(following)) {
            Some(Step::Instruction(number)) => Some(templates.all[number as usize].pc),
            Some(Step::Halted | Step::Gap) => None,
            None => batch.after,
        };
        self.expected = self.processor.execute(templates, template, after, watch)?;
        Ok(Executed { number, call: None })
    }
}
