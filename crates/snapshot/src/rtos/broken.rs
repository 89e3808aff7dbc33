//! What is broken in the memory of a kernel.

use super::Task;
use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};

/// How many of a kind are kept.
const MOST_OF_A_KIND: usize = 16;

/// A structure of a kernel that is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}{}", others(*.more))]
pub struct Broken {
    /// The list, or the task.
    pub place: String,
    /// What is wrong with it.
    pub what: What,
    /// The number of others of this kind that are left out.
    pub more: usize,
}

fn others(more: usize) -> String {
    match more {
        0 => String::new(),
        _ => format!(" (and {more} more like this)"),
    }
}

/// Leaves the first few of each kind, and counts the others: a damaged list may have thousands.
pub(super) fn shorten(all: &mut Vec<Broken>) {
    let mut kinds: HashMap<Discriminant<What>, usize> = HashMap::new();
    for broken in &*all {
        *kinds.entry(discriminant(&broken.what)).or_default() += 1;
    }
    let mut kept: HashMap<Discriminant<What>, usize> = HashMap::new();
    all.retain_mut(|broken| {
        let kind = discriminant(&broken.what);
        let kept = kept.entry(kind).or_default();
        *kept += 1;
        if *kept == MOST_OF_A_KIND {
            broken.more = kinds[&kind] - MOST_OF_A_KIND;
        }
        *kept <= MOST_OF_A_KIND
    });
}

impl Broken {
    /// Says what is wrong with a list.
    pub(super) fn of_list(place: impl Into<String>, what: What) -> Self {
        let place = place.into();
        Self {
            place,
            what,
            more: 0,
        }
    }

    /// Says what is wrong with a task.
    pub(super) fn of_task(task: &Task, what: What) -> Self {
        Self::of_list(
            format!("task \"{}\" at {:#x}", task.name, task.address),
            what,
        )
    }
}

/// What is wrong with a structure of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum What {
    /// Memory that is needed is not in the snapshot.
    #[error("{0:#x} is not in the snapshot's memory")]
    Unknown(u64),
    /// A list reaches an entry again, other than its head.
    #[error("the list reaches the entry {0:#x} again")]
    Loop(u64),
    /// A list is longer than any that is followed.
    #[error("the list has more than {0} entries: the rest is not followed")]
    TooLong(usize),
    /// A list has another length than the kernel counted.
    #[error("the kernel counts {counted} entries, the list has {found}")]
    Count {
        /// What the kernel counts.
        counted: u64,
        /// The number of entries that were found.
        found: usize,
    },
    /// An entry belongs to another list.
    #[error("the entry {entry:#x} says that it is in the list {list:#x}")]
    OtherList {
        /// The entry.
        entry: u64,
        /// The list that it names.
        list: u64,
    },
    /// An entry that is not part of the task that it names.
    #[error("the entry {entry:#x} says that it is part of the task at {owner:#x}, where it is not")]
    Owner {
        /// The entry.
        entry: u64,
        /// The task that it names.
        owner: u64,
    },
    /// An entry of a list of threads that is an object of another class.
    #[error("the entry {0:#x} is not part of a thread: its object has another type")]
    OtherClass(u64),
    /// A task in a slot of a table to which its PID does not belong.
    #[error("the task in the slot {slot:#x} has the PID {pid}, which belongs in another slot")]
    OtherSlot {
        /// The slot.
        slot: u64,
        /// The PID.
        pid: u64,
    },
    /// A task without saved registers that can be those of a task.
    #[error("no registers of a task are saved at {0:#x}")]
    Context(u64),
    /// The kernel fills stacks, and the pattern at the end of this one is gone.
    #[error("its stack has overflowed, or was used up to its end: the pattern at {0:#x} is gone")]
    NoPattern(u64),
    /// A saved stack pointer is below its stack.
    #[error("its stack pointer {pointer:#x} is below its stack, which starts at {lowest:#x}")]
    BelowStack {
        /// The stack pointer.
        pointer: u64,
        /// The lowest address of the stack.
        lowest: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_of_a_kind_are_counted() {
        let entry = |entry| Broken::of_list("list", What::OtherList { entry, list: 1 });
        let mut all: Vec<Broken> = (0..4096).map(entry).collect();
        all.insert(2000, Broken::of_list("list", What::Loop(5)));
        shorten(&mut all);
        assert_eq!(all.len(), MOST_OF_A_KIND + 1);
        assert_eq!(
            all[15].to_string(),
            "list: the entry 0xf says that it is in the list 0x1 (and 4080 more like this)"
        );
        assert_eq!(all[16].what, What::Loop(5));
        let mut few: Vec<Broken> = (0..16).map(entry).collect();
        let before = few.clone();
        shorten(&mut few);
        assert_eq!(few, before);
    }
}
