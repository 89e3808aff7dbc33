//! Interrupts, which come at different times in each run: side courses that are passed over.

use super::super::note::AskError;
use super::course::{Course, Item};
use armsnap_arch::quantity::Address;
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

/// The most return addresses that are held: further exceptions are left with those around them.
const DEEPEST: usize = 64;

/// Passes the interrupt at the head of a course and its handler, up to the instruction that was
/// interrupted. Without a return address, or if nothing of the handler was executed, only the
/// interrupt. Returns `false` if execution does not return before the end or a gap.
pub(super) fn pass(
    course: &mut Course,
    history: &mut History,
    cancel: &Cancel,
) -> Result<bool, AskError> {
    let mut open: Vec<Address> = Vec::new();
    let mut is_entered = false;
    loop {
        let item = course.peek(history, cancel)?;
        match item {
            Item::End(_) => {
                let is_back = open.first().copied() == history.halted();
                return Ok(is_back || !is_entered);
            }
            Item::Gap(_) => return Ok(!is_entered),
            Item::Exception(_, exception) if open.len() < DEEPEST => {
                open.extend(exception.return_address);
            }
            Item::Exception(..) => {}
            Item::Run(piece) => {
                is_entered = true;
                // A handler that is left for what an outer one interrupted does not return itself.
                if let Some(back) = open.iter().rposition(|to| to.0 == piece.pc) {
                    open.truncate(back);
                }
                if open.is_empty() {
                    return Ok(true);
                }
            }
        }
        course.pass(history, u32::MAX);
        if open.is_empty() {
            return Ok(true);
        }
    }
}
