//! RT-Thread, versions 3 to 5.

use super::broken::{Broken, What};
use super::list::Limit;
use super::memory::Memory;
use super::{Kernel, Stack, Task};
use crate::program::elf::Elf;
use crate::program::variables::{Type, Variables, may_define};

/// The lists of all objects by their class, and the list of the threads, which is the first.
const CONTAINERS: [&str; 2] = ["_object_container", "rt_object_container"];
const THREADS: &str = "the list of threads";
/// The running thread; from version 5 on, and with several cores, it is a member of `struct rt_cpu`.
const CURRENT: &str = "rt_current_thread";
const CORES: [&str; 3] = ["_cpus", "rt_cpus", "_cpu"];
/// Whether a pending exception will switch threads, and the place of the stack pointer in the thread that
/// runs until then: `rt_current_thread` is the other one already.
const SWITCHES: &str = "rt_thread_switch_interrupt_flag";
const FROM: &str = "rt_interrupt_from_thread";
/// A function of versions in which the states have other numbers.
const NEW_STATES: &str = "rt_thread_suspend_with_flag";
/// The type of a thread.
const THREAD: &str = "rt_thread";

/// The maximum number of cores.
const MOST_CORES: u64 = 64;
/// The byte with which the kernel fills stacks.
const FILL: u8 = b'#';
/// The bytes at the end of a stack that the kernel checks for an overflow.
const CHECKED: u64 = 1;
/// `RT_Object_Class_Static`, which is added to the class of an object.
const STATIC: u64 = 0x80;
/// `RT_THREAD_STAT_MASK`.
const STATE: u64 = 7;
const RUNNING: &str = "running";
/// The states by their numbers up to version 4.
const OLD: [&str; 5] = ["initial", "ready", "suspended", RUNNING, "closed"];
/// The states by their numbers from version 5 on, in which threads are suspended in four ways.
const NEW: [&str; 8] = [
    "initial",
    "closed",
    "ready",
    RUNNING,
    "suspended",
    "suspended",
    "suspended",
    "suspended",
];

/// Finds the kernel in a program.
pub(super) fn kernel(elf: &Elf, memory: &Memory<'_>) -> Option<Kernel> {
    // The name of the other one contains it.
    if !may_define(elf, "object_container") {
        return None;
    }
    let mut names = vec![CURRENT, NEW_STATES, SWITCHES, FROM];
    names.extend(CONTAINERS);
    names.extend(CORES);
    let variables = Variables::find(elf, &names, &[THREAD])?;
    let layout = Layout::of(&variables)?;
    Some(layout.kernel(memory))
}

/// The members that are read. Those of a thread have moved to other structures in it over time.
struct Layout<'v> {
    variables: &'v Variables,
    /// The list of the threads, and where the class of its objects is.
    list: u64,
    class: u64,
    /// `next` of an entry.
    next: u64,
    thread: Type<'v>,
    entry: u64,
    states: &'static [&'static str],
}

impl<'v> Layout<'v> {
    fn of(variables: &'v Variables) -> Option<Self> {
        let name = CONTAINERS
            .into_iter()
            .find(|name| variables.of(name).is_some())?;
        let container = variables.of(name)?.element()?;
        let first = variables.address(name)?;
        let (list, entry) = container.member("object_list")?;
        let thread = variables.named(THREAD)?;
        let is_new = variables.address(NEW_STATES).is_some()
            || thread.offset("sched_thread_ctx.stat").is_some();
        Some(Self {
            variables,
            list: first.wrapping_add(list),
            class: first.wrapping_add(container.offset("type")?),
            next: entry.offset("next")?,
            thread,
            entry: member(thread, &["list", "parent.list"])?.0,
            states: if is_new { &NEW } else { &OLD },
        })
    }

    fn kernel(&self, memory: &Memory<'_>) -> Kernel {
        let mut out = Kernel {
            name: "RT-Thread",
            ..Kernel::default()
        };
        let mut current = self.current(memory);
        let mut next = None;
        if let ([current], Some(from)) = (&mut current[..], self.switches_from(memory)) {
            next = std::mem::replace(current, from);
        }
        let is_known = next.is_some() || !current.contains(&None);
        let (entries, why) = self.entries(memory);
        let class = memory.byte(self.class).map(u64::from);
        for entry in entries {
            let address = entry.wrapping_sub(self.entry);
            let own = self.number(memory, address, &["type", "parent.type"]);
            if class.is_some() && own.map(|own| own & !STATIC) != class {
                let what = What::OtherClass(entry);
                out.broken.push(Broken::of_list(THREADS, what));
                continue;
            }
            let core = current.iter().position(|thread| *thread == Some(address));
            let (mut task, broken) = self.task(memory, address, core);
            if next == Some(address) {
                task.state = "ready";
            } else if core.is_none() && task.state == RUNNING && !is_known {
                // Its registers are those of a core.
                task.context = None;
            }
            out.tasks.push(task);
            out.broken.extend(broken);
        }
        let why = why.map(|what| Broken::of_list(THREADS, what));
        out.broken.extend(why);
        out.note_overflows(CHECKED);
        out
    }

    /// Returns the entries of the list of threads, and why there may be more.
    fn entries(&self, memory: &Memory<'_>) -> (Vec<u64>, Option<What>) {
        let next = |entry: u64| {
            let at = entry.wrapping_add(self.next);
            memory.pointer(at).ok_or(at)
        };
        match next(self.list) {
            Ok(first) => Limit::new().follow(first, |entry| entry == self.list, next),
            Err(address) => (Vec::new(), Some(What::Unknown(address))),
        }
    }

    /// Returns the thread that each core runs.
    fn current(&self, memory: &Memory<'_>) -> Vec<Option<u64>> {
        let read = |address: u64| memory.pointer(address).filter(|thread| *thread != 0);
        if let Some(address) = self.variables.address(CURRENT) {
            return vec![read(address)];
        }
        let cores = || {
            let mut names = CORES.iter();
            let name = names.find(|name| self.variables.of(name).is_some())?;
            let all = self.variables.of(name)?;
            let core = all.element().unwrap_or(all);
            let first = self.variables.address(name)?;
            let first = first.wrapping_add(core.offset("current_thread")?);
            Some((first, all.count().unwrap_or(1), core.size()?))
        };
        let (first, count, size) = cores().unwrap_or((0, 0, 0));
        let cores = 0..count.min(MOST_CORES);
        cores
            .map(|core| read(first.wrapping_add(core.wrapping_mul(size))))
            .collect()
    }

    /// Returns the thread that runs until a pending exception switches to another one; `None` if none is
    /// pending, `Some(None)` if no thread has run yet.
    fn switches_from(&self, memory: &Memory<'_>) -> Option<Option<u64>> {
        let read = |name| memory.pointer(self.variables.address(name)?);
        let from = (read(SWITCHES)? == 1).then_some(read(FROM)?)?;
        let stack_pointer = self.thread.offset("sp")?;
        Some((from != 0).then(|| from.wrapping_sub(stack_pointer)))
    }

    /// Reads a number in a thread.
    fn number(&self, memory: &Memory<'_>, thread: u64, paths: &[&str]) -> Option<u64> {
        let (offset, of) = member(self.thread, paths)?;
        memory.number(thread.wrapping_add(offset), of.size()?)
    }

    fn task(
        &self,
        memory: &Memory<'_>,
        address: u64,
        core: Option<usize>,
    ) -> (Task, Option<Broken>) {
        let number = |paths: &[&str]| self.number(memory, address, paths);
        let state = number(&["stat", "sched_thread_ctx.stat"])
            .and_then(|state| self.states.get(usize::try_from(state & STATE).ok()?));
        let priority = number(&[
            "current_priority",
            "sched_thread_ctx.sched_thread_priv.current_priority",
        ]);
        let stack = number(&["stack_addr"]).map(|lowest| {
            let end = number(&["stack_size"]).and_then(|size| lowest.checked_add(size));
            Stack::of(memory, lowest, end, [FILL; 4])
        });
        let mut task = Task {
            address,
            name: self.name(memory, address).unwrap_or_default(),
            state: match core {
                Some(_) => RUNNING,
                None => state.copied().unwrap_or("unknown"),
            },
            priority: priority.and_then(|priority| i64::try_from(priority).ok()),
            stack,
            core,
            context: None,
        };
        let broken = match (core, number(&["sp"])) {
            (Some(_), _) => None,
            (None, Some(top)) => task.read_context(memory, top),
            (None, None) => Some(Broken::of_task(&task, What::Unknown(address))),
        };
        (task, broken)
    }

    /// Returns the name of a thread, which it contains or refers to.
    fn name(&self, memory: &Memory<'_>, thread: u64) -> Option<String> {
        let (offset, of) = member(self.thread, &["name", "parent.name"])?;
        let at = thread.wrapping_add(offset);
        if let Some(most) = of.count() {
            return Some(memory.name(at, most));
        }
        let name = memory.pointer(at).filter(|name| *name != 0)?;
        Some(memory.name(name, u64::MAX))
    }
}

/// Returns the first of several members that a structure has.
fn member<'v>(of: Type<'v>, paths: &[&str]) -> Option<(u64, Type<'v>)> {
    paths.iter().find_map(|path| of.member(path))
}
