//! Tells the end of a signal's handler from the start of another one.

use armsnap_arch::quantity::Address;
use std::collections::HashSet;

/// Distinguishes the end of a signal's handler from a new signal, where the kernel is not traced and the
/// program continues after a system call at an address that no open call returns to.
#[derive(Debug, Default)]
pub struct SignalReturns {
    /// The first instructions of handlers.
    handlers: HashSet<Address>,
    /// Where handlers returned to: code that asks the kernel to resume the program.
    restorers: HashSet<Address>,
}

/// How a program continues after the handler of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumption {
    /// In the interrupted call, an instruction or two further on: the handler skipped them.
    SameCall,
    /// In the handler of another signal, which was pending: the same code is still interrupted.
    NextHandler,
    /// Elsewhere, perhaps in another function.
    Elsewhere,
}

impl SignalReturns {
    /// Distance from the start of the code that asks the kernel to resume the program to the end of its system
    /// call, in bytes: two instructions.
    const REQUEST: std::ops::RangeInclusive<u64> = 4..=8;
    /// Distance that a handler skips in the interrupted call, in bytes. Further away may be another function.
    const SKIPPED: std::ops::RangeInclusive<u64> = 1..=8;

    /// Records that a handler starts at an address.
    pub fn entered(&mut self, handler: Address) {
        self.handlers.insert(handler);
    }

    /// Records that a handler returned to an address.
    pub fn returned(&mut self, restorer: Address) {
        self.restorers.insert(restorer);
    }

    /// Returns whether a system call with this return address asked the kernel to resume the program.
    pub fn asked(&self, returns_to: Option<Address>) -> bool {
        let Some(end) = returns_to else { return false };
        Self::REQUEST.step_by(2).any(|distance| {
            let start = end.0.checked_sub(distance).map(Address);
            start.is_some_and(|start| self.restorers.contains(&start))
        })
    }

    /// Returns how the program continues at `to` after a handler that interrupted it at `interrupted`.
    pub fn resumption(&self, interrupted: Option<Address>, to: Address) -> Resumption {
        let distance = interrupted.map(|interrupted| to.0.wrapping_sub(interrupted.0));
        if distance.is_some_and(|distance| Self::SKIPPED.contains(&distance)) {
            Resumption::SameCall
        } else if self.handlers.contains(&to) {
            Resumption::NextHandler
        } else {
            Resumption::Elsewhere
        }
    }
}
