//! The tasks of a kernel, and the call stacks of sleeping tasks.

use super::btf::Btf;
use super::{Memory, bytes, long, name, word};
use std::collections::HashSet;

/// The maximum number of tasks that are listed.
const MOST: usize = 1 << 16;
/// The maximum number of frames of a task.
const FRAMES: usize = 256;
/// The maximum size of a kernel stack: 16 KiB, or a page if that is larger (at most 64 KiB).
const STACK: u64 = 64 << 10;
/// The size of a name in bytes.
const NAME: usize = 16;

/// Offsets of the members of `struct task_struct` that are read.
#[derive(Clone, Debug)]
pub struct TaskLayout {
    tasks: u64,
    pid: u64,
    process: u64,
    name: u64,
    state: u64,
    state_size: usize,
    exit_state: Option<u64>,
    stack: u64,
    /// The saved x29, sp and pc.
    context: [u64; 3],
    /// The thread list of a process: the offset of the signals in a task, of the list's head in the
    /// signals, and of the list's links in a task.
    threads: Option<[u64; 3]>,
    on_cpu: Option<u64>,
}

/// Error for a member of `struct task_struct` that the types of a kernel do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kernel's types have no task_struct.{0}")]
pub struct NoMember(&'static str);

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The address of its `struct task_struct`.
    pub address: u64,
    /// Its thread ID.
    pub pid: u32,
    /// Its process ID.
    pub process: u32,
    /// Its name.
    pub name: String,
    /// Its state, as in `include/linux/sched.h`.
    pub state: u64,
    /// Whether it is running on a core.
    pub runs: Option<bool>,
    /// The lowest address of its kernel stack.
    pub stack: u64,
    /// The x29, sp and pc with which it will resume, unless it is running.
    pub context: Option<[u64; 3]>,
}

impl TaskLayout {
    /// Returns the layout in a kernel with these types.
    ///
    /// # Errors
    ///
    /// Returns the name of a missing member.
    pub fn of(types: &Btf<'_>) -> Result<Self, NoMember> {
        let optional = |path: &str| types.offset("task_struct", path);
        let member = |path: &'static str| {
            let found = optional(path);
            found.ok_or(NoMember(path))
        };
        // Linux 5.14 renamed and shortened this member.
        let (state, state_size) = match optional("__state") {
            Some(state) => (state, 4),
            None => (member("state")?, 8),
        };
        let threads = || {
            let head = types.offset("signal_struct", "thread_head")?;
            Some([optional("signal")?, head, optional("thread_node")?])
        };
        Ok(Self {
            tasks: member("tasks")?,
            pid: member("pid")?,
            process: member("tgid")?,
            name: member("comm")?,
            state,
            state_size,
            exit_state: optional("exit_state"),
            stack: member("stack")?,
            context: [
                member("thread.cpu_context.fp")?,
                member("thread.cpu_context.sp")?,
                member("thread.cpu_context.pc")?,
            ],
            threads: threads(),
            on_cpu: optional("on_cpu"),
        })
    }

    /// Returns the offset of the name in a task.
    pub fn name(&self) -> u64 {
        self.name
    }

    /// Reads a task.
    pub fn task(&self, memory: &dyn Memory, address: u64) -> Option<Task> {
        let at = |offset: u64| address.wrapping_add(offset);
        let state = match self.state_size {
            4 => u64::from(word(memory, at(self.state))?),
            _ => long(memory, at(self.state))?,
        };
        // Its bits differ from those of the state.
        let exit = self.exit_state.and_then(|offset| word(memory, at(offset)));
        let state = state | u64::from(exit.unwrap_or(0));
        let context = self.context.map(|offset| long(memory, at(offset)));
        let runs = self.on_cpu.and_then(|offset| word(memory, at(offset)));
        let runs = runs.map(|number| number != 0);
        let context = match context {
            [Some(frame), Some(stack), Some(pc)] if runs != Some(true) => Some([frame, stack, pc]),
            _ => None,
        };
        Some(Task {
            address,
            pid: word(memory, at(self.pid))?,
            process: word(memory, at(self.process))?,
            name: name(&bytes(memory, at(self.name), NAME)?),
            state,
            runs,
            stack: long(memory, at(self.stack))?,
            context,
        })
    }

    /// Returns whether the first task, the idle one, may be at an address: a task with ID 0 in the
    /// list of all tasks.
    pub fn is_first(&self, memory: &dyn Memory, address: u64) -> bool {
        let task = self.task(memory, address);
        let link = address.wrapping_add(self.tasks);
        let neighbours = [0, 8].map(|offset| long(memory, link.wrapping_add(offset)));
        let [Some(next), Some(before)] = neighbours else {
            return false;
        };
        let back = long(memory, next.wrapping_add(8)) == Some(link);
        let there = long(memory, before) == Some(link);
        task.is_some_and(|task| task.pid == 0 && task.process == 0) && back && there
    }

    /// Lists all tasks, starting with a given one: processes with their threads. If the list is
    /// incomplete, also returns the reason.
    pub fn all(&self, memory: &dyn Memory, first: u64) -> (Vec<Task>, Option<String>) {
        let mut out = Vec::new();
        let mut seen = HashSet::new();
        let processes = self.ring(
            memory,
            first.wrapping_add(self.tasks),
            self.tasks,
            &mut seen,
        );
        let (processes, mut broken) = processes;
        for process in processes {
            let Some(task) = self.task(memory, process) else {
                broken.get_or_insert(not_known(process));
                continue;
            };
            out.push(task);
            let Some([signals, head, node]) = self.threads else {
                continue;
            };
            let Some(signals) = long(memory, process.wrapping_add(signals)) else {
                continue;
            };
            let head = signals.wrapping_add(head);
            let (threads, why) = self.ring(memory, head, node, &mut seen);
            broken = broken.or(why);
            // The head of the list is not part of a task.
            for thread in threads.into_iter().skip(1) {
                match self.task(memory, thread) {
                    Some(task) if thread != process => out.push(task),
                    Some(_) => {}
                    None => broken = broken.or(Some(not_known(thread))),
                }
            }
            if out.len() >= MOST {
                return (out, Some(format!("only the first {MOST} tasks are listed")));
            }
        }
        (out, broken)
    }

    /// Returns the tasks in a ring of links, starting with the task that contains the link `first`.
    /// `place` is the offset of the link in a task.
    fn ring(
        &self,
        memory: &dyn Memory,
        first: u64,
        place: u64,
        seen: &mut HashSet<u64>,
    ) -> (Vec<u64>, Option<String>) {
        let mut out = vec![first.wrapping_sub(place)];
        let mut link = first;
        loop {
            let Some(next) = long(memory, link) else {
                return (out, Some(not_known(link)));
            };
            if next == first {
                return (out, None);
            }
            if !seen.insert(next) || out.len() >= MOST {
                let why = format!("the list of tasks is damaged: {next:#x} follows {link:#x}");
                return (out, Some(why));
            }
            out.push(next.wrapping_sub(place));
            link = next;
        }
    }
}

fn not_known(address: u64) -> String {
    format!("the list of tasks is not whole: the memory at {address:#x} is not in the snapshot")
}

impl Task {
    /// Returns the letter that ps(1) shows for its state, and a description.
    pub fn doing(&self) -> (char, &'static str) {
        // Bits: include/linux/sched.h. Frozen and idle tasks do not count as load.
        const NO_LOAD: u64 = 0x400;
        match self.state {
            0 if self.runs == Some(true) => ('R', "running"),
            0 => ('R', "ready to run"),
            state if state & 0x402 == NO_LOAD | 2 => ('I', "idle"),
            state if state & 0x20 != 0 => ('Z', "ended"),
            state if state & 1 != 0 => ('S', "sleeping"),
            state if state & 2 != 0 => ('D', "waiting"),
            state if state & 4 != 0 => ('T', "stopped"),
            state if state & 8 != 0 => ('t', "traced"),
            state if state & 0x40 != 0 => ('P', "parked"),
            state if state & 0x90 != 0 => ('X', "ended"),
            // TASK_WAKING and TASK_NEW.
            state if state & 0xa00 != 0 => ('R', "ready to run"),
            _ => ('?', "state not known"),
        }
    }

    /// Returns the addresses where it will resume: its own pc, then the return addresses in the
    /// frame records on its kernel stack (AAPCS64 6.4.6).
    pub fn frames(&self, memory: &dyn Memory) -> Vec<u64> {
        let Some([mut frame, stack, pc]) = self.context else {
            return Vec::new();
        };
        let end = self.stack.saturating_add(STACK);
        if !(self.stack..end).contains(&stack) {
            return Vec::new();
        }
        let mut out = vec![strip(pc)];
        let mut lowest = stack;
        // Each record is above the previous one, on the same stack.
        while out.len() < FRAMES && (lowest..end).contains(&frame) && frame.is_multiple_of(8) {
            let record = [0, 8].map(|offset| long(memory, frame.wrapping_add(offset)));
            let [Some(next), Some(pc @ 1..)] = record else {
                break;
            };
            out.push(strip(pc));
            lowest = frame.saturating_add(16);
            frame = next;
        }
        out
    }
}

/// Removes the authentication code from a kernel address (Arm ARM DDI 0487, D8.10).
fn strip(address: u64) -> u64 {
    if address >> 55 & 1 == 1 {
        address | 0xffff << 48
    } else {
        address
    }
}
