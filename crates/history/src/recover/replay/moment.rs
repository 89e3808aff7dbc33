//! The replayed program at one position, and its execution from there.

use super::calls::{self, Kernel};
use super::machine::{self, Processor};
use super::watch::Watch;
use super::{Given, Stopped};
use crate::recover::execution::steps::{Step, Stretch};
use crate::recover::facts::final_state::FinalState;
use crate::timeline::Position;
use armsnap_arch::arch::Architecture;
use armsnap_arch::semantics::Control;
use armsnap_snapshot::snapshot::replay::{Cursor, Inputs};

/// The program at one position.
#[derive(Clone)]
pub(super) struct Moment {
    pub processor: Processor,
    pub kernel: Kernel,
    /// The next system call.
    pub call: Cursor,
    /// The address of the next instruction, if it is known.
    pub expected: Option<u64>,
}

/// The positions that are being executed.
pub(super) struct Batch {
    pub stretch: Stretch,
    /// The position after them, and its address.
    pub end: Position,
    pub after: Option<u64>,
    /// The number of the next position.
    pub next: usize,
}

impl Moment {
    /// Executes a batch up to one of its positions, or to its end.
    pub fn run(
        &mut self,
        batch: &mut Batch,
        target: Option<usize>,
        given: &Given<'_>,
        watch: &mut Watch,
    ) -> Result<(), Stopped> {
        let Given {
            templates,
            facts,
            inputs,
            ..
        } = given;
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
