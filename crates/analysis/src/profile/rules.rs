//! The rules that track open calls; docs/reports.md states them for users.
//!
//! [`armsnap_history::timeline::Transitions`] says how execution reached an instruction. This
//! module decides which open calls that ends; it changes nothing.

use super::functions::FunctionId;
use super::stack::{CallKind, Frame, Signal};
use armsnap_arch::quantity::Address;
use armsnap_history::timeline::{How, Taken};

/// The maximum number of open calls. When it is exceeded, all are forgotten.
pub(super) const MAX_OPEN: usize = 1 << 18;
/// The number of open calls searched for the one that an address belongs to.
pub(super) const SEARCHED: usize = 1024;

/// What is known about the point where execution continues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The instruction.
    pub to: Address,
    /// The function that contains it.
    pub function: Option<FunctionId>,
    /// If the function is unknown: the one that a call returned to at this address, or was to
    /// return to.
    pub caller: Option<FunctionId>,
    /// Whether it is the first instruction of a function.
    pub begins: bool,
    /// The current context ID.
    pub context_id: Option<u32>,
}

/// What a transition means for the open calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing.
    Stay,
    /// A function is called.
    Enter { returns_to: Address },
    /// An exception is taken.
    Take(Taken),
    /// A signal handler is called.
    Signal(Taken),
    /// The handler returned to the code that asks the kernel to resume what the signal interrupted.
    /// That code is counted as part of the handler.
    SignalOver,
    /// The calls from this depth on return.
    Return(usize),
    /// The calls within the one at this depth are over; that one continues.
    Unwind { keep: usize, unseen: bool },
    /// The innermost call is replaced by one of another function.
    Replace(CallKind),
    /// The outermost call, whose caller is unknown, returns to it.
    Discover,
    /// Another context continues: one left before, or a new one.
    Switch,
    /// The callers are no longer known.
    Forget,
}

/// Returns the depth of the innermost call that returns to an address.
pub(super) fn returning(open: &[Frame], place: &Place) -> Option<usize> {
    let first = open.len().saturating_sub(SEARCHED);
    let matches = |frame: &Frame| {
        let same = match (frame.context_id, place.context_id) {
            (Some(before), Some(now)) => before == now,
            _ => true,
        };
        frame.call.returns_to == Some(place.to) && same
    };
    let found = open[first..].iter().rposition(matches)?;
    Some(outermost(open, first + found))
}

/// Returns the depth of the outermost call that ends together with the one at a depth.
fn outermost(open: &[Frame], depth: usize) -> usize {
    let mut depth = depth;
    while depth > 0 && open[depth].joined {
        depth -= 1;
    }
    depth
}

/// Returns the depth of the innermost call of a function.
fn open_function(open: &[Frame], function: Option<FunctionId>) -> Option<usize> {
    let function = function?;
    let first = open.len().saturating_sub(SEARCHED);
    let found = open[first..]
        .iter()
        .rposition(|frame| frame.call.function == function);
    found.map(|found| first + found)
}

pub(super) fn decide(open: &[Frame], how: &How, place: &Place) -> Decision {
    if how.stays_at(place.to) && !open.is_empty() {
        return Decision::Stay;
    }
    match *how {
        // The usual way to read the pc of position-independent code.
        How::Called { returns_to } if returns_to == place.to => Decision::Stay,
        How::Called { returns_to } => Decision::Enter { returns_to },
        How::Took(taken) => Decision::Take(taken),
        How::Returned => returned(open, place),
        How::Jumped { indirect, .. } => jumped(open, indirect, place),
        How::Resumed { taken, .. } => resumed(open, taken, place),
    }
}

fn returned(open: &[Frame], place: &Place) -> Decision {
    if let Some(depth) = returning(open, place) {
        return Decision::Return(depth);
    }
    let Some(last) = open.last() else {
        return Decision::Forget;
    };
    // An exception whose return address is not traced.
    let unknown =
        |frame: &Frame| frame.call.kind == CallKind::Exception && frame.call.returns_to.is_none();
    if let Some(depth) = open.iter().rev().take(SEARCHED).position(unknown) {
        return Decision::Return(open.len() - 1 - depth);
    }
    if last.signal.is_some() {
        return Decision::SignalOver;
    }
    // `longjmp`: into a function that is open.
    if let Some(depth) = open_function(open, place.function.or(place.caller))
        && !place.begins
        && depth + 1 < open.len()
    {
        let mut inner = open[depth + 1..].iter();
        match inner.position(|frame| frame.call.kind == CallKind::Exception) {
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
        1 if last.call.returns_to.is_none() && last.call.kind != CallKind::Exception => {
            Decision::Discover
        }
        _ => Decision::Switch,
    }
}

/// Returns whether an exception returns to the context that it was taken in, but to another
/// address: judged by context ID, or because it skips an instruction or two.
fn is_moved(exception: &Frame, place: &Place) -> bool {
    match (exception.context_id, place.context_id) {
        (Some(before), Some(now)) => before == now,
        _ => exception.call.returns_to.is_some_and(|returns_to| {
            let skipped = place.to.0.wrapping_sub(returns_to.0);
            (1..=8).contains(&skipped)
        }),
    }
}

fn jumped(open: &[Frame], indirect: bool, place: &Place) -> Decision {
    if is_signal_over(open) {
        return Decision::Stay;
    }
    if indirect && let Some(depth) = returning(open, place) {
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
    if last.call.function == function {
        return Decision::Stay;
    }
    if place.begins {
        return Decision::Replace(CallKind::Jump);
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
        _ => Decision::Replace(CallKind::Middle),
    }
}

fn resumed(open: &[Frame], taken: Option<Taken>, place: &Place) -> Decision {
    if let Some(depth) = returning(open, place) {
        return Decision::Return(depth);
    }
    // The kernel resumes what the signal interrupted, maybe at another address.
    if taken.is_some() && is_signal_over(open) && !place.begins {
        let around = open.len() - 1;
        return match open_function(&open[..around], place.function) {
            Some(depth) if depth + 1 < around => Decision::Unwind {
                keep: depth + 1,
                unseen: false,
            },
            _ => Decision::Return(around),
        };
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
fn is_signal_over(open: &[Frame]) -> bool {
    open.last()
        .is_some_and(|last| last.signal == Some(Signal::Over))
}
