//! Polling loops, which go around more often in one run than in the other.

use super::super::core::Core;
use super::super::note::AskError;
use super::course::{Course, Item, Piece};
use super::{interrupts, reads};
use armsnap_arch::semantics::{Control, Location, Operand, Operation, Semantics};
use armsnap_history::timeline::Position;
use armsnap_snapshot::stop::Cancel;

/// The most instructions of one iteration.
const LONGEST: usize = 64;

/// What the instructions of an iteration do with registers.
#[derive(Default)]
struct Effects {
    instructions: usize,
    /// Read before they are written.
    read: Vec<Location>,
    written: Vec<Location>,
}

impl Effects {
    /// Notes an instruction. Returns whether it has no effect but on registers.
    fn pass(&mut self, semantics: &Semantics) -> bool {
        self.instructions += 1;
        for relation in &semantics.relations {
            if matches!(relation.operation, Operation::Store { .. }) {
                return false;
            }
            for operand in [relation.a, relation.b, relation.c] {
                if let Operand::Location(location) = operand
                    && location.is_kept()
                    && !self.written.contains(&location)
                {
                    self.read.push(location);
                }
            }
            self.written.push(relation.destination);
        }
        let is_plain = !matches!(
            semantics.control,
            Control::SystemCall | Control::ExceptionReturn
        );
        is_plain && !semantics.may_store_anywhere && semantics.clears_block.is_none()
    }

    /// Whether an iteration depends on the one before it.
    fn carries(&self) -> bool {
        let mut read = self.read.iter();
        read.any(|location| self.written.contains(location))
    }
}

/// Whether a straight line begins with an iteration of a loop that only waits, and that has no other
/// branch than the one back to its start.
pub(super) fn waits(core: &mut Core<'_>, piece: Piece) -> bool {
    let mut effects = Effects::default();
    for number in 0..piece.instructions.min(LONGEST as u32) {
        let at = piece.position.after(number.into());
        let Some(there) = reads::instruction(core, at) else {
            return false;
        };
        if !effects.pass(&there.semantics) {
            return false;
        }
        if let Control::Conditional { target, .. } = there.semantics.control {
            return target == piece.pc && !effects.carries();
        }
    }
    false
}

/// The rest of a course that goes around a loop after a branch, from where it leaves the loop by the
/// same branch; `None` unless the loop only waits: no iteration stores anything, calls the system, or
/// uses what an earlier one left in registers.
pub(super) fn left(
    core: &mut Core<'_>,
    course: &Course,
    branch: Position,
    cancel: &Cancel,
) -> Result<Option<Course>, AskError> {
    let mut ahead = course.clone();
    let Item::Run(first) = ahead.peek(core.history, cancel)? else {
        return Ok(None);
    };
    let Some(there) = reads::instruction(core, branch) else {
        return Ok(None);
    };
    let Control::Conditional { target, .. } = there.semantics.control else {
        return Ok(None);
    };
    let next = there.pc.wrapping_add(there.semantics.size.into());
    let out = if first.pc == target { next } else { target };
    let mut effects = Effects::default();
    loop {
        let piece = match ahead.peek(core.history, cancel)? {
            Item::Run(piece) => piece,
            Item::Exception(_, exception) if interrupts::is_interrupt(&exception) => {
                if !interrupts::pass(&mut ahead, core.history, cancel)? {
                    return Ok(None);
                }
                continue;
            }
            _ => return Ok(None),
        };
        if effects.instructions == 0 && piece.pc == out {
            return Ok(Some(ahead));
        }
        if effects.instructions == 0 && piece.pc != first.pc {
            return Ok(None);
        }
        let mut pc = piece.pc;
        for number in 0..piece.instructions {
            let at = piece.position.after(number.into());
            let instruction = reads::instruction(core, at);
            let is_passed = instruction.is_some_and(|instruction| {
                pc = instruction.pc;
                effects.pass(&instruction.semantics)
            });
            if !is_passed || effects.instructions > LONGEST {
                return Ok(None);
            }
        }
        ahead.pass(core.history, piece.instructions);
        if pc == there.pc {
            if effects.carries() {
                return Ok(None);
            }
            effects = Effects::default();
        }
    }
}
