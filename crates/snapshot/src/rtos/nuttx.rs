//! NuttX, from version 7 on.

use super::broken::{Broken, What};
use super::list::Limit;
use super::memory::Memory;
use super::{Kernel, Stack, Task, context};
use crate::program::elf::Elf;
use crate::program::variables::{Type, Variables, may_define};
use armsnap_arch::arch::Architecture;

/// The table of all tasks by the last bits of their PIDs, and its size if that is not constant.
const TABLE: &str = "g_pidhash";
const SIZE: &str = "g_npidhash";
/// The task whose registers each core has.
const RUNNING: &str = "g_running_tasks";
/// With several cores, the list of the tasks of each one, or its running task.
const ASSIGNED: &str = "g_assignedtasks";
/// With one core, the list of the tasks that are ready: the first runs.
const READY: &str = "g_readytorun";
/// The type of a state.
const STATE: &str = "tstate_t";

/// The maximum number of cores.
const CORES: u64 = 64;
/// `STACK_COLOR`.
const FILL: [u8; 4] = 0xdead_beef_u32.to_le_bytes();
/// How many bytes of the pattern are expected at the end of a stack.
const CHECKED: u64 = 4;
/// The states by the names of their constants, whose values depend on the configuration.
const STATES: [(&str, &str); 14] = [
    ("TSTATE_TASK_INVALID", "invalid"),
    ("TSTATE_TASK_PENDING", "pending"),
    ("TSTATE_TASK_READYTORUN", "ready"),
    ("TSTATE_TASK_ASSIGNED", "assigned"),
    ("TSTATE_TASK_RUNNING", "running"),
    ("TSTATE_TASK_INACTIVE", "inactive"),
    ("TSTATE_WAIT_SEM", "semaphore"),
    ("TSTATE_WAIT_SIG", "signal"),
    ("TSTATE_WAIT_EVENT", "event"),
    ("TSTATE_WAIT_MQNOTEMPTY", "queue empty"),
    ("TSTATE_WAIT_MQNOTFULL", "queue full"),
    ("TSTATE_WAIT_PAGEFILL", "page fill"),
    ("TSTATE_TASK_STOPPED", "stopped"),
    ("TSTATE_SLEEPING", "sleeping"),
];

/// Finds the kernel in a program.
pub(super) fn kernel(elf: &Elf, memory: &Memory<'_>) -> Option<Kernel> {
    if !may_define(elf, TABLE) {
        return None;
    }
    let names = [TABLE, SIZE, RUNNING, ASSIGNED, READY];
    let variables = Variables::find(elf, &names, &[STATE])?;
    let table = Table::of(&variables, memory)?;
    Some(table.kernel(memory))
}

/// The table of all tasks.
struct Table<'v> {
    variables: &'v Variables,
    /// Where it starts: not known if the variable that refers to it is not.
    first: Option<u64>,
    count: Option<u64>,
    /// The size of a slot, and where the task is in it.
    slot: u64,
    at: u64,
    /// The type of a task.
    block: Type<'v>,
}

impl<'v> Table<'v> {
    fn of(variables: &'v Variables, memory: &Memory<'_>) -> Option<Self> {
        let table = variables.of(TABLE)?;
        let address = variables.address(TABLE)?;
        let (first, count, slot) = match table.pointee() {
            Some(slot) => {
                let size = variables.of(SIZE).and_then(Type::size);
                let count = variables.address(SIZE).zip(size);
                let count = count.and_then(|(address, size)| memory.number(address, size));
                (memory.pointer(address), count, slot)
            }
            None => (Some(address), table.count(), table.element()?),
        };
        let (at, task) = slot.member("tcb").unwrap_or((0, slot));
        Some(Self {
            variables,
            first,
            count,
            slot: slot.size()?,
            at,
            block: task.pointee()?,
        })
    }

    fn kernel(&self, memory: &Memory<'_>) -> Kernel {
        let mut out = Kernel {
            name: "NuttX",
            ..Kernel::default()
        };
        let mut note = |what| out.broken.push(Broken::of_list(TABLE, what));
        let mut tasks: Vec<u64> = Vec::new();
        match (self.first, self.count) {
            (Some(first), Some(count)) => {
                // Each slot is followed by the next one.
                let end = first.wrapping_add(count.wrapping_mul(self.slot));
                let task = |slot: u64| {
                    let at = slot.wrapping_add(self.at);
                    memory.pointer(at).ok_or(at)
                };
                let next = |slot: u64| task(slot).map(|_| slot.wrapping_add(self.slot));
                let (slots, why) = Limit::new().follow(first, |slot| slot == end, next);
                for (index, slot) in (0..).zip(slots) {
                    let Ok(address) = task(slot) else { continue };
                    if address == 0 {
                        continue;
                    }
                    match self.number(memory, address, "pid") {
                        None => note(What::Unknown(address)),
                        Some(pid) if pid % count != index => note(What::OtherSlot { slot, pid }),
                        Some(_) => tasks.push(address),
                    }
                }
                why.into_iter().for_each(note);
            }
            _ => note(What::Unknown(self.variables.address(TABLE).unwrap_or(0))),
        }
        let current = self.current(memory);
        for address in tasks {
            let core = current.iter().position(|task| *task == Some(address));
            let (mut task, broken) = self.task(memory, address, core);
            if core.is_none() && task.state == "running" && current.contains(&None) {
                // Its registers may be those of a core.
                task.context = None;
            }
            out.tasks.push(task);
            out.broken.extend(broken);
        }
        out.note_overflows(CHECKED);
        out
    }

    /// Returns the task that each core runs.
    fn current(&self, memory: &Memory<'_>) -> Vec<Option<u64>> {
        let read = |address: u64| memory.pointer(address).filter(|task| *task != 0);
        let each_core = |name: &str| {
            let all = self.variables.of(name)?;
            let (first, size) = (self.variables.address(name)?, all.element()?.size()?);
            // A list starts with its first task.
            let cores = 0..all.count()?.min(CORES);
            let tasks = cores.map(|core| read(first.wrapping_add(core.wrapping_mul(size))));
            Some(tasks.collect())
        };
        each_core(RUNNING)
            .or_else(|| each_core(ASSIGNED))
            .unwrap_or_else(|| vec![self.variables.address(READY).and_then(read)])
    }

    /// Reads a number in a task.
    fn number(&self, memory: &Memory<'_>, task: u64, path: &str) -> Option<u64> {
        let (offset, of) = self.block.member(path)?;
        memory.number(task.wrapping_add(offset), of.size()?)
    }

    fn task(
        &self,
        memory: &Memory<'_>,
        address: u64,
        core: Option<usize>,
    ) -> (Task, Option<Broken>) {
        let number = |path: &str| self.number(memory, address, path);
        let name = self.block.member("name");
        let priority = number("sched_priority");
        // Above what the kernel keeps at the end of the stack.
        let lowest = number("stack_base_ptr").or_else(|| number("stack_alloc_ptr"));
        let lowest = lowest.filter(|lowest| *lowest != 0);
        let stack = lowest.map(|lowest| {
            let end = number("adj_stack_size").and_then(|size| lowest.checked_add(size));
            Stack::of(memory, lowest, end, FILL)
        });
        let mut task = Task {
            address,
            name: name
                .map(|(at, of)| memory.name(address.wrapping_add(at), of.count().unwrap_or(1)))
                .unwrap_or_default(),
            state: match core {
                Some(_) => "running",
                None => self.state(memory, address).unwrap_or("unknown"),
            },
            priority: priority.and_then(|priority| i64::try_from(priority).ok()),
            stack,
            core,
            context: None,
        };
        if core.is_some() {
            return (task, None);
        }
        let Some(registers) = self.registers(memory, address) else {
            let broken = Broken::of_task(&task, What::Unknown(address));
            return (task, Some(broken));
        };
        if memory.architecture == Architecture::MProfile {
            task.context = context::saved_by_nuttx(memory, registers);
        }
        let broken = match task.context {
            Some(_) => None,
            None => Some(Broken::of_task(&task, What::Context(registers))),
        };
        (task, broken)
    }

    fn state(&self, memory: &Memory<'_>, task: u64) -> Option<&'static str> {
        let (offset, of) = self.block.member("task_state")?;
        let state = memory.number(task.wrapping_add(offset), of.size()?)?;
        let named = || self.variables.named(STATE)?.constant(state);
        let constant = of.constant(state).or_else(named)?;
        let mut states = STATES.iter();
        let (_, state) = states.find(|(name, _)| *name == constant)?;
        Some(state)
    }

    /// Returns where the registers of a task are: in it, or on its stack.
    fn registers(&self, memory: &Memory<'_>, task: u64) -> Option<u64> {
        let (offset, of) = self.block.member("xcp.regs")?;
        let at = task.wrapping_add(offset);
        match of.count() {
            Some(_) => Some(at),
            None => memory.pointer(at),
        }
    }
}
