//! How handlers of signals return to Linux: by a system call, in code that the kernel or the C
//! library provides.

use armsnap_arch::quantity::{Address, Isa};
use std::collections::HashSet;

/// Whether code starts with the instruction that selects `rt_sigreturn` (for AArch32 also
/// `sigreturn`) and the system call.
pub(super) fn is_call(isa: Isa, code: &[u8]) -> bool {
    let starts_with = |selects: &[u8], calls: &[u8]| {
        code.strip_prefix(selects)
            .is_some_and(|rest| rest.starts_with(calls))
    };
    match isa {
        // mov x8, #139; svc #0
        Isa::A64 => starts_with(&[0x68, 0x11, 0x80, 0xd2], &[0x01, 0x00, 0x00, 0xd4]),
        // mov r7, #173 or #119; svc #0
        Isa::A32 => [0xad, 0x77]
            .iter()
            .any(|&call| starts_with(&[call, 0x70, 0xa0, 0xe3], &[0x00, 0x00, 0x00, 0xef])),
        // movs r7, #173 or #119; svc #0
        Isa::T32 => [0xad, 0x77]
            .iter()
            .any(|&call| starts_with(&[call, 0x27], &[0x00, 0xdf])),
        _ => false,
    }
}

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
