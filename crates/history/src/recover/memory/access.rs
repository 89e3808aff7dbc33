//! Loads, stores, and whatever else may write memory.

use crate::recover::execution::template::{CLEARS_BLOCK, Op, SYSTEM_CALL};
use crate::recover::graph::nodes::{DATA, PREDICATE, RESULT};

/// What is known of where an access went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) enum Place {
    /// Nothing yet.
    Open,
    /// This many events, from the first on.
    Cells(u32, u8),
    /// Memory that the final state does not have.
    Elsewhere,
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recover) enum AccessKind {
    Load,
    Store,
    /// Clears a block of memory around an address.
    ClearBlock,
    SystemCall,
    /// What the kernel writes for a signal beyond what is modelled.
    Signal,
    /// An instruction without a model.
    Unmodelled,
    /// What was before is unrelated to what is after.
    Lost,
}

impl AccessKind {
    /// The kind of an operation, if it is an access.
    pub fn of(number: u32, op: &Op) -> Option<Self> {
        match number {
            SYSTEM_CALL => Some(Self::SystemCall),
            CLEARS_BLOCK => Some(Self::ClearBlock),
            _ if op.is_store() => Some(Self::Store),
            _ => op.access().map(|_| Self::Load),
        }
    }
}

/// A load, a store, or something else that may write memory; numbered backward in time.
#[derive(Clone, Copy, Debug)]
pub(in crate::recover) struct Access {
    pub relation: u32,
    pub step: u32,
    pub kind: AccessKind,
    pub place: Place,
}

/// The index of an unused node of an access, where the number of the access is kept.
pub(in crate::recover) const fn free_place(kind: AccessKind) -> usize {
    match kind {
        AccessKind::Load | AccessKind::Signal => DATA,
        AccessKind::SystemCall => PREDICATE,
        _ => RESULT,
    }
}
