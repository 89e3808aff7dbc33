//! FreeRTOS, versions 9 to 11.
//!
//! The state of a task is the list that contains its `xStateListItem` (`eTaskGetState` in `tasks.c`).

use super::broken::{Broken, What};
use super::list::Limit;
use super::memory::Memory;
use super::{Kernel, Stack, Task};
use crate::program::elf::Elf;
use crate::program::variables::{Type, Variables, may_define};
use std::collections::BTreeMap;

/// `pxReadyTasksLists`: a list for each priority.
const READY: &str = "pxReadyTasksLists";
/// The other lists of tasks, with the state of the tasks in them.
const OTHERS: [(&str, &str); 4] = [
    ("xDelayedTaskList1", "blocked"),
    ("xDelayedTaskList2", "blocked"),
    ("xSuspendedTaskList", "suspended"),
    ("xTasksWaitingTermination", "deleted"),
];
/// Tasks in it are ready, whichever other list they are in.
const PENDING: &str = "xPendingReadyList";
/// The running task; with several cores, those of all cores.
const CURRENT: [&str; 2] = ["pxCurrentTCB", "pxCurrentTCBs"];
const RUNNING: &str = "xSchedulerRunning";
const COUNT: &str = "uxCurrentNumberOfTasks";

/// The maximum number of priorities, and of cores.
const PRIORITIES: u64 = 1024;
const CORES: u64 = 64;
/// `tskSTACK_FILL_BYTE`.
const FILL: u8 = 0xa5;
/// The bytes at the end of a stack that the kernel checks for an overflow.
const CHECKED: u64 = 16;
/// `taskWAITING_NOTIFICATION`.
const WAITS: u8 = 1;

/// Finds the kernel in a program.
pub(super) fn kernel(elf: &Elf, memory: &Memory<'_>) -> Option<Kernel> {
    if !may_define(elf, READY) {
        return None;
    }
    let mut names = vec![READY, PENDING, RUNNING, COUNT];
    names.extend(OTHERS.map(|(name, _)| name));
    names.extend(CURRENT);
    let variables = Variables::find(elf, &names, &[])?;
    let layout = Layout::of(&variables)?;
    Some(layout.kernel(memory))
}

/// The offsets of the members that are read.
struct Layout<'v> {
    variables: &'v Variables,
    block: Type<'v>,
    list: Type<'v>,
    count: u64,
    count_size: u64,
    end: u64,
    /// `pxNext`, `pvOwner`, `pxContainer` of an item.
    next: u64,
    owner: u64,
    container: Option<u64>,
    state_item: u64,
    event_item: Option<u64>,
}

impl<'v> Layout<'v> {
    fn of(variables: &'v Variables) -> Option<Self> {
        let list = variables.of(READY)?.element()?;
        let single = variables.of(CURRENT[0]);
        let current = single.or_else(|| variables.of(CURRENT[1])?.element())?;
        let block = current.pointee()?;
        let (state_item, item) = block.member("xStateListItem")?;
        let (count, number) = list.member("uxNumberOfItems")?;
        Some(Self {
            variables,
            block,
            list,
            count,
            count_size: number.size()?,
            end: list.offset("xListEnd")?,
            next: item.offset("pxNext")?,
            owner: item.offset("pvOwner")?,
            container: item
                .offset("pxContainer")
                .or_else(|| item.offset("pvContainer")),
            state_item,
            event_item: block.offset("xEventListItem"),
        })
    }

    /// Reads a number in a variable.
    fn variable(&self, memory: &Memory<'_>, name: &str) -> Option<u64> {
        let size = self.variables.of(name)?.size()?;
        memory.number(self.variables.address(name)?, size)
    }

    fn kernel(&self, memory: &Memory<'_>) -> Kernel {
        let mut out = Kernel {
            name: "FreeRTOS",
            ..Kernel::default()
        };
        let mut limit = Limit::new();
        // The state of each task that was found, by address.
        let mut states: BTreeMap<u64, &'static str> = BTreeMap::new();
        let mut order = Vec::new();
        let mut lists: Vec<(String, u64, &'static str)> = Vec::new();
        if let (Some(first), Some(size)) = (self.variables.address(READY), self.list.size()) {
            let count = self.variables.of(READY).and_then(Type::count).unwrap_or(0);
            for priority in (0..count.min(PRIORITIES)).rev() {
                let name = format!("{READY}[{priority}]");
                lists.push((
                    name,
                    first.wrapping_add(priority.wrapping_mul(size)),
                    "ready",
                ));
            }
        }
        for (name, state) in OTHERS {
            let address = self.variables.address(name);
            lists.extend(address.map(|address| (name.to_owned(), address, state)));
        }
        for (name, address, state) in lists {
            for task in self.tasks_of(memory, (&name, address), &mut limit, &mut out.broken) {
                if states.insert(task, state).is_none() {
                    order.push(task);
                }
            }
        }
        let current = self.current(memory);
        for task in current.iter().flatten() {
            if !states.contains_key(task) {
                states.insert(*task, "deleted");
                order.push(*task);
            }
        }
        let is_running = self
            .variable(memory, RUNNING)
            .is_none_or(|running| running != 0);
        for address in order {
            let core = current.iter().position(|task| *task == Some(address));
            let state = self.state(memory, address, states[&address]);
            let (task, broken) = self.task(memory, address, state, core.filter(|_| is_running));
            out.tasks.push(task);
            out.broken.extend(broken);
        }
        out.note_overflows(CHECKED);
        if let Some(counted) = self.variable(memory, COUNT)
            && counted > out.tasks.len() as u64
        {
            out.broken.push(Broken::of_list(
                COUNT,
                What::Count {
                    counted,
                    found: out.tasks.len(),
                },
            ));
        }
        out
    }

    /// Returns the task that each core runs.
    fn current(&self, memory: &Memory<'_>) -> Vec<Option<u64>> {
        let read = |address| memory.pointer(address).filter(|task| *task != 0);
        if self.variables.of(CURRENT[0]).is_some() {
            let address = self.variables.address(CURRENT[0]);
            return vec![address.and_then(read)];
        }
        let first = self.variables.address(CURRENT[1]).unwrap_or(0);
        let count = self.variables.of(CURRENT[1]).and_then(Type::count);
        let cores = 0..count.unwrap_or(0).min(CORES);
        cores
            .map(|core| read(first.wrapping_add(core * memory.pointer_size())))
            .collect()
    }

    /// Returns the tasks in a list.
    fn tasks_of(
        &self,
        memory: &Memory<'_>,
        (name, list): (&str, u64),
        limit: &mut Limit,
        broken: &mut Vec<Broken>,
    ) -> Vec<u64> {
        let mut note = |what| broken.push(Broken::of_list(name, what));
        let end = list.wrapping_add(self.end);
        let counted = memory.number(list.wrapping_add(self.count), self.count_size);
        let Some((counted, first)) = counted.zip(memory.pointer(end.wrapping_add(self.next)))
        else {
            note(What::Unknown(list));
            return Vec::new();
        };
        // A list that was never initialised.
        if counted == 0 && first == 0 {
            return Vec::new();
        }
        let next = |item: u64| {
            let at = item.wrapping_add(self.next);
            memory.pointer(at).ok_or(at)
        };
        let (items, why) = limit.follow(first, |item| item == end, next);
        if why.is_none() && items.len() as u64 != counted {
            note(What::Count {
                counted,
                found: items.len(),
            });
        }
        let mut tasks = Vec::new();
        for item in items {
            let container = self
                .container
                .map(|at| memory.pointer(item.wrapping_add(at)));
            if let Some(Some(container)) = container
                && container != list
            {
                note(What::OtherList {
                    entry: item,
                    list: container,
                });
                continue;
            }
            let task = item.wrapping_sub(self.state_item);
            match memory.pointer(item.wrapping_add(self.owner)) {
                Some(owner) if owner == task => tasks.push(task),
                Some(owner) => note(What::Owner { entry: item, owner }),
                None => note(What::Unknown(item.wrapping_add(self.owner))),
            }
        }
        if let Some(why) = why {
            note(why);
        }
        tasks
    }

    /// Returns the state of a task in a list of tasks with this state.
    fn state(&self, memory: &Memory<'_>, task: u64, state: &'static str) -> &'static str {
        let event = self.event_item.zip(self.container);
        let event = event.and_then(|(item, container)| {
            memory.pointer(task.wrapping_add(item).wrapping_add(container))
        });
        if event.is_some() && event == self.variables.address(PENDING) {
            return "ready";
        }
        if state != "suspended" {
            return state;
        }
        // A task that waits without a time limit is in the list of suspended ones, too.
        let waits = || {
            let (at, of) = self.block.member("ucNotifyState")?;
            let count = of.count().unwrap_or(1).min(16);
            let mut all =
                (0..count).map(|index| memory.byte(task.wrapping_add(at).wrapping_add(index)));
            Some(all.any(|state| state == Some(WAITS)))
        };
        match event.is_some_and(|list| list != 0) || waits() == Some(true) {
            true => "blocked",
            false => "suspended",
        }
    }

    fn task(
        &self,
        memory: &Memory<'_>,
        address: u64,
        state: &'static str,
        core: Option<usize>,
    ) -> (Task, Option<Broken>) {
        let pointer = |name: &str| {
            let offset = self.block.offset(name)?;
            memory.pointer(address.wrapping_add(offset))
        };
        let priority = self.block.member("uxPriority").and_then(|(at, of)| {
            i64::try_from(memory.number(address.wrapping_add(at), of.size()?)?).ok()
        });
        let name = self
            .block
            .member("pcTaskName")
            .map(|(at, of)| memory.name(address.wrapping_add(at), of.count().unwrap_or(1)));
        let name = name.unwrap_or_default();
        let stack = pointer("pxStack").map(|lowest| {
            let end = pointer("pxEndOfStack").filter(|end| *end > lowest);
            Stack::of(memory, lowest, end, [FILL; 4])
        });
        let mut task = Task {
            address,
            state: if core.is_some() { "running" } else { state },
            name,
            priority,
            stack,
            core,
            context: None,
        };
        if core.is_some() {
            return (task, None);
        }
        let Some(top) = pointer("pxTopOfStack") else {
            let what = What::Unknown(address);
            return (task.clone(), Some(Broken::of_task(&task, what)));
        };
        let broken = task.read_context(memory, top);
        (task, broken)
    }
}
