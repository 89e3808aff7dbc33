//! What is broken in the memory of a kernel.

use super::Task;

/// A structure of a kernel that is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Broken {
    /// The list, or the task.
    pub place: String,
    /// What is wrong with it.
    pub what: What,
}

impl Broken {
    /// Says what is wrong with a task.
    pub(super) fn of_task(task: &Task, what: What) -> Self {
        let place = format!("task \"{}\" at {:#x}", task.name, task.address);
        Self { place, what }
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
