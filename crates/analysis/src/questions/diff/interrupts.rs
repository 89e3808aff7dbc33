//! Interrupts, which come at different times in each run: side courses that are passed over.

use super::super::note::AskError;
use super::course::{Course, Item};
use armsnap_history::timeline::History;
use armsnap_snapshot::stop::Cancel;
use armsnap_trace::element::Exception;

/// Whether an exception does not come from the instruction before or after it.
pub(super) fn is_interrupt(exception: &Exception) -> bool {
    matches!(
        exception.name,
        "FIQ"
            | "NMI"
            | "PendSV"
            | "SysTick"
            | "system error"
            | "Asynchronous data abort"
            | "debug halt"
            | "Debug halt"
    ) || exception.name.starts_with("IRQ")
}

/// Passes the interrupt at the head of a course and its handler, up to the instruction that was
/// interrupted. Without a return address, only the interrupt.
pub(super) fn pass(
    course: &mut Course,
    history: &mut History,
    cancel: &Cancel,
) -> Result<(), AskError> {
    let mut open = Vec::new();
    loop {
        let item = course.peek(history, cancel)?;
        match item {
            Item::End(_) => return Ok(()),
            Item::Exception(_, exception) => open.extend(exception.return_address),
            Item::Run(piece) if open.last().is_some_and(|to| to.0 == piece.pc) => {
                open.pop();
                if open.is_empty() {
                    return Ok(());
                }
                continue;
            }
            Item::Run(_) | Item::Gap(_) => {}
        }
        course.pass(history, u32::MAX);
        if open.is_empty() {
            return Ok(());
        }
    }
}
