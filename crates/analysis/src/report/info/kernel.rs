//! The real-time operating system of a snapshot, and its tasks.

use super::Hex;
use armsnap_snapshot::rtos::{Kernel, Task};
use serde::Serialize;

/// A real-time operating system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelInfo {
    /// Its name.
    pub name: &'static str,
    /// Its tasks.
    pub tasks: Vec<TaskInfo>,
    /// What is broken in its memory.
    pub broken: Vec<String>,
}

/// A task of a real-time operating system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskInfo {
    /// The address of its control block.
    pub address: Hex,
    /// Its name; empty if it has none.
    pub name: String,
    /// Its state, in the kernel's own words.
    pub state: &'static str,
    /// Its priority, as the kernel counts.
    pub priority: Option<i64>,
    /// The index of the core that runs it.
    pub core: Option<usize>,
    /// The lowest address of its stack.
    pub stack: Option<Hex>,
    /// The number of bytes of its stack that were never used, if the kernel fills stacks.
    pub stack_never_used: Option<u64>,
    /// Where it continues, unless it runs.
    pub pc: Option<Hex>,
    /// Its stack pointer there.
    pub sp: Option<Hex>,
}

impl KernelInfo {
    /// Describes a kernel whose pointers have this number of bits.
    pub(super) fn new(kernel: &Kernel, bits: u32) -> Self {
        Self {
            name: kernel.name,
            tasks: kernel
                .tasks
                .iter()
                .map(|task| TaskInfo::new(task, bits))
                .collect(),
            broken: kernel.broken.iter().map(ToString::to_string).collect(),
        }
    }
}

impl TaskInfo {
    fn new(task: &Task, bits: u32) -> Self {
        let hex = |value| Hex::register(value, bits);
        let saved = |name| Some(hex(task.context.as_ref()?.value(name)?));
        Self {
            address: hex(task.address),
            name: task.name.clone(),
            state: task.state,
            priority: task.priority,
            core: task.core,
            stack: task.stack.map(|stack| hex(stack.lowest)),
            stack_never_used: task.stack.and_then(|stack| stack.unused),
            pc: saved("pc"),
            sp: saved("sp"),
        }
    }
}
