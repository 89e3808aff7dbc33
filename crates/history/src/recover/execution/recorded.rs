//! Recorded addresses of accesses, matched with the operations of instructions.

use super::steps::{Step, Steps};
use super::template::Template;
use super::templates::Templates;
use crate::recover::facts::final_state::RecordedAddresses;
use armsnap_trace::data_addresses::Accessed;

/// The recorded accesses around the step being built.
#[derive(Debug, Default)]
pub(in crate::recover) struct Recorded {
    /// Accesses of some instructions, in order.
    accesses: Vec<Accessed>,
    /// The steps that they belong to.
    steps: std::ops::Range<u32>,
    /// Before this step in time, they cannot be counted.
    lost: Option<u32>,
    /// Why none of them can be trusted.
    pub fault: Option<String>,
}

impl Recorded {
    /// Reads the accesses of some steps.
    pub fn read(&mut self, log: &dyn RecordedAddresses, steps: std::ops::Range<u32>) {
        let number = |step: u32| (log.instructions() + 1).saturating_sub(step.into());
        match log.accesses(number(steps.end)..number(steps.start)) {
            Ok(accesses) => self.accesses = accesses,
            Err(error) => self.fault = Some(error.to_string()),
        }
        self.steps = steps;
    }

    /// The accesses of a step; `None` if a fault was found: they could not be read, or were
    /// recorded for another instruction.
    pub fn of<'a>(
        &'a mut self,
        log: &dyn RecordedAddresses,
        steps: &Steps,
        templates: &Templates,
        step: u32,
    ) -> Option<&'a [Accessed]> {
        if self.fault.is_some() {
            return None;
        }
        if steps.step(step) == Step::Gap {
            // The number of instructions in a gap is unknown.
            self.lost.get_or_insert(step);
        }
        let number = log.instructions().checked_sub(step.into());
        let (Some(template), Some(number), None) =
            (steps.template(templates, step), number, self.lost)
        else {
            return Some(&[]);
        };
        debug_assert!(self.steps.contains(&step), "read before");
        let first = self
            .accesses
            .partition_point(|access| access.instruction < number);
        let count = self.accesses[first..]
            .iter()
            .take_while(|access| access.instruction == number)
            .count();
        let here = &self.accesses[first..first + count];
        if let Some(other) = here.iter().find(|access| access.pc != template.pc) {
            let text = format!(
                "instruction {number} is at {:#x} there, and at {:#x} in the trace: they are of another \
                 execution",
                other.pc, template.pc
            );
            self.fault = Some(text);
            return None;
        }
        Some(&self.accesses[first..first + count])
    }
}

/// The address of the access of an operation, from the accesses recorded for its instruction: its
/// operations access the recorded bytes one after another.
pub(in crate::recover) fn address(
    template: &Template,
    templates: &Templates,
    recorded: &[Accessed],
    wanted: u32,
) -> Option<u64> {
    let stores = templates.op(wanted).is_store();
    // An atomic instruction is recorded as one store.
    let alike = recorded
        .iter()
        .any(|accessed| accessed.access.store == stores);
    let mut blocks = recorded
        .iter()
        .map(|accessed| accessed.access)
        .filter(|access| !alike || access.store == stores);
    let mut block = blocks.next()?;
    let mut used = 0;
    for number in template.first..=wanted {
        let op = templates.op(number);
        let Some(size) = op.access().filter(|_| op.is_store() == stores) else {
            continue;
        };
        if used == block.bytes {
            (block, used) = (blocks.next()?, 0);
        }
        let size = u32::from(size);
        if used + size > block.bytes {
            return None;
        }
        if number == wanted {
            return Some(block.address.wrapping_add(used.into()));
        }
        used += size;
    }
    None
}
