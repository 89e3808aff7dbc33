//! The rules that track open calls; docs/reports.md states them for users.
//!
//! [`Transitions`](super::Transitions) says how execution reached an instruction. This module
//! decides which open calls that ends; it changes nothing.

use super::transitions::{How, Taken};
use armsnap_arch::quantity::Address;
use std::collections::HashSet;

/// The maximum number of open calls. When it is exceeded, all are forgotten.
pub const MAX_OPEN: usize = 1 << 18;
/// The number of open calls searched for the one that an address belongs to.
pub const SEARCHED: usize = 1024;

/// The progress of a signal handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It is running.
    Handled,
    /// It has returned to the code that asks the kernel to resume what the signal interrupted.
    Over,
}

/// Where signal handlers returned to: code that asks the kernel to resume the program.
#[derive(Clone, Debug, Default)]
pub struct Restorers(HashSet<Address>);

impl Restorers {
    /// Notes that a handler returned to an address.
    pub fn insert(&mut self, to: Address) {
        self.0.insert(to);
    }

    /// Returns whether execution continues after a system call in such code.
    pub fn asked(&self, how: &How) -> bool {
        let How::Resumed {
            taken: Some((_, Some(returns_to))),
            ..
        } = how
        else {
            return false;
        };
        // Two instructions, of 2 or 4 bytes.
        let starts = [4, 6, 8].map(|length| Address(returns_to.0.wrapping_sub(length)));
        starts.iter().any(|start| self.0.contains(start))
    }
}

/// What the rules ask of an open call.
pub trait Frame {
    /// What identifies a function.
    type Function: Copy + Eq;

    /// The function.
    fn function(&self) -> Self::Function;
    /// Where it returns to; unknown for functions entered unseen and for some exceptions.
    fn returns_to(&self) -> Option<Address>;
    /// Whether it is an exception that was taken, not a call.
    fn is_exception(&self) -> bool;
    /// Whether it ends together with the enclosing call: a handler with its exception.
    fn is_joined(&self) -> bool;
    /// For an exception: the context ID of the interrupted code.
    fn context_id(&self) -> Option<u32>;
    /// For a signal handler, or a function that replaced it: its progress.
    fn signal(&self) -> Option<Signal>;
}

/// What is known about the point where execution continues.
#[derive(Clone, Copy, Debug)]
pub struct Place<F> {
    /// The instruction.
    pub to: Address,
    /// The function that contains it.
    pub function: Option<F>,
    /// If the function is unknown: the one that a call returned to at this address, or was to
    /// return to.
    pub caller: Option<F>,
    /// Whether it is the first instruction of a function.
    pub begins: bool,
    /// The current context ID.
    pub context_id: Option<u32>,
    /// Whether the exception before was a request to resume what a signal interrupted.
    pub asked: bool,
}

/// What a transition means for the open calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Stay,
    /// A function is called.
    Enter {
        /// The instruction after the call.
        returns_to: Address,
    },
    /// An exception is taken.
    Take(Taken),
    /// A signal handler is called.
    Signal(Taken),
    /// The innermost call, a signal handler, ends, and the kernel calls another one: of a pending
    /// signal, or a function that the handler asked for. It returns to the same interrupted code.
    NextSignal(Taken),
    /// The handler returned to the code that asks the kernel to resume what the signal interrupted.
    /// That code is counted as part of the handler.
    SignalOver,
    /// The calls from this depth on return.
    Return(usize),
    /// The calls within the one at this depth are over; that one continues.
    Unwind {
        /// The number of calls that remain.
        keep: usize,
        /// Whether that happened in a gap.
        unseen: bool,
    },
    /// The innermost call is replaced by one of another function.
    Replace {
        /// Whether at its start (a tail call), not by a branch into its middle.
        begins: bool,
    },
    /// The outermost call, whose caller is unknown, returns to it.
    Discover,
    /// Another context continues: one left before, or a new one.
    Switch,
    /// The callers are no longer known.
    Forget,
}

/// Returns the depth of the innermost call that returns to an address.
pub fn returning<F: Frame>(open: &[F], place: &Place<F::Function>) -> Option<usize> {
    let first = open.len().saturating_sub(SEARCHED);
    let found = open[first..]
        .iter()
        .rposition(|frame| ends_at(frame, place))?;
    Some(outermost(open, first + found))
}

/// Returns whether a call returns to an address.
pub(super) fn ends_at<F: Frame>(frame: &F, place: &Place<F::Function>) -> bool {
    let same = match (frame.context_id(), place.context_id) {
        (Some(before), Some(now)) => before == now,
        _ => true,
    };
    frame.returns_to() == Some(place.to) && same
}

/// Returns the depth of the outermost call that ends together with the one at a depth.
fn outermost<F: Frame>(open: &[F], depth: usize) -> usize {
    let mut depth = depth;
    while depth > 0 && open[depth].is_joined() {
        depth -= 1;
    }
    depth
}

/// Returns the depth of the innermost call of a function.
fn open_function<F: Frame>(open: &[F], function: Option<F::Function>) -> Option<usize> {
    let function = function?;
    let first = open.len().saturating_sub(SEARCHED);
    let found = open[first..]
        .iter()
        .rposition(|frame| frame.function() == function);
    found.map(|found| first + found)
}

/// Decides what a transition means for the open calls, outermost first.
pub fn decide<F: Frame>(open: &[F], how: &How, place: &Place<F::Function>) -> Decision {
    decide_with(open, how, place, || returning(open, place))
}

/// Does the same as [`decide`]; `returning` is asked for the call that ends, if any.
pub(super) fn decide_with<F: Frame>(
    open: &[F],
    how: &How,
    place: &Place<F::Function>,
    returning: impl FnOnce() -> Option<usize>,
) -> Decision {
    if how.stays_at(place.to) && !open.is_empty() {
        return Decision::Stay;
    }
    match *how {
        // The usual way to read the pc of position-independent code.
        How::Called { returns_to } if returns_to == place.to => Decision::Stay,
        How::Called { returns_to } => Decision::Enter { returns_to },
        How::Took(taken) => Decision::Take(taken),
        How::Returned => returned(open, place, returning()),
        How::Jumped { .. } if is_signal_over(open) => Decision::Stay,
        How::Jumped { indirect, .. } => {
            let returning = if indirect { returning() } else { None };
            jumped(open, indirect, place, returning)
        }
        How::Resumed { taken, .. } => resumed(open, taken, place, returning()),
    }
}

fn returned<F: Frame>(
    open: &[F],
    place: &Place<F::Function>,
    returning: Option<usize>,
) -> Decision {
    if let Some(depth) = returning {
        return Decision::Return(depth);
    }
    let Some(last) = open.last() else {
        return Decision::Forget;
    };
    // An exception whose return address is not traced.
    let unknown = |frame: &F| frame.is_exception() && frame.returns_to().is_none();
    if let Some(depth) = open.iter().rev().take(SEARCHED).position(unknown) {
        return Decision::Return(open.len() - 1 - depth);
    }
    if last.signal().is_some() {
        return Decision::SignalOver;
    }
    // `longjmp`: into a function that is open.
    if let Some(depth) = open_function(open, place.function.or(place.caller))
        && !place.begins
        && depth + 1 < open.len()
    {
        let mut inner = open[depth + 1..].iter();
        match inner.position(|frame| frame.is_exception()) {
            None => {
                let unseen = false;
                return Decision::Unwind {
                    keep: depth + 1,
                    unseen,
                };
            }
            // The handler changed the return address.
            Some(0) if is_moved(&open[depth + 1], place) => return Decision::Return(depth + 1),
            Some(_) => {}
        }
    }
    match open.len() {
        1 if last.returns_to().is_none() && !last.is_exception() => Decision::Discover,
        _ => Decision::Switch,
    }
}

/// Returns whether an exception returns to the context that it was taken in, but to another
/// address: judged by context ID, or because it skips an instruction or two.
fn is_moved<F: Frame>(exception: &F, place: &Place<F::Function>) -> bool {
    match (exception.context_id(), place.context_id) {
        (Some(before), Some(now)) => before == now,
        _ => skips(exception.returns_to(), place.to),
    }
}

/// Returns whether execution continues an instruction or two after the return address of a call. Farther
/// away may be another function.
pub(super) fn skips(returns_to: Option<Address>, to: Address) -> bool {
    returns_to.is_some_and(|returns_to| {
        let skipped = to.0.wrapping_sub(returns_to.0);
        (1..=8).contains(&skipped)
    })
}

fn jumped<F: Frame>(
    open: &[F],
    indirect: bool,
    place: &Place<F::Function>,
    returning: Option<usize>,
) -> Decision {
    if indirect && let Some(depth) = returning {
        return Decision::Return(depth);
    }
    // `longjmp` in a program without symbols.
    if indirect
        && let Some(depth) = open_function(open, place.caller)
        && depth + 1 < open.len()
    {
        let unseen = false;
        return Decision::Unwind {
            keep: depth + 1,
            unseen,
        };
    }
    let (Some(function), Some(last)) = (place.function, open.last()) else {
        return Decision::Stay;
    };
    if last.function() == function {
        return Decision::Stay;
    }
    if place.begins {
        return Decision::Replace { begins: true };
    }
    match open_function(open, Some(function)) {
        // The landing pad of a thrown exception.
        Some(depth) if indirect => {
            let unseen = false;
            Decision::Unwind {
                keep: depth + 1,
                unseen,
            }
        }
        _ => Decision::Replace { begins: false },
    }
}

fn resumed<F: Frame>(
    open: &[F],
    taken: Option<Taken>,
    place: &Place<F::Function>,
    returning: Option<usize>,
) -> Decision {
    if let Some(depth) = returning {
        return Decision::Return(depth);
    }
    // The kernel resumes what the signal interrupted, maybe at another address.
    if let Some(taken) = taken.filter(|_| is_signal_over(open)) {
        if place.begins {
            return Decision::NextSignal(taken);
        }
        let around = open.len() - 1;
        return match open_function(&open[..around], place.function) {
            Some(depth) if depth + 1 < around => Decision::Unwind {
                keep: depth + 1,
                unseen: false,
            },
            Some(_) => Decision::Return(around),
            None if skips(open[around].returns_to(), place.to) => Decision::Return(around),
            // Perhaps another handler, not seen before.
            None => Decision::Forget,
        };
    }
    // Of a handler that was not recognized as one.
    if place.asked {
        return Decision::Forget;
    }
    match (taken, open_function(open, place.function)) {
        // ETMv3 does not trace the return addresses of exceptions.
        (None | Some((_, None)), Some(depth)) if !place.begins => Decision::Unwind {
            keep: depth + 1,
            unseen: true,
        },
        (Some(taken), _) if !open.is_empty() => Decision::Signal(taken),
        _ => Decision::Forget,
    }
}

/// Returns whether execution is in the code that asks the kernel to resume what a signal
/// interrupted.
fn is_signal_over<F: Frame>(open: &[F]) -> bool {
    open.last()
        .is_some_and(|last| last.signal() == Some(Signal::Over))
}
