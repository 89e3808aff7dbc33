//! ThreadX.

use super::broken::{Broken, What};
use super::list::Limit;
use super::memory::Memory;
use super::{Kernel, Stack, Task};
use crate::program::elf::Elf;
use crate::program::variables::{Type, Variables, may_define};

/// The list of all threads, and how many there are.
const CREATED: &str = "_tx_thread_created_ptr";
const COUNT: &str = "_tx_thread_created_count";
/// The running thread; with several cores, an array of them.
const CURRENT: &str = "_tx_thread_current_ptr";

/// The maximum number of cores.
const CORES: u64 = 64;
/// `TX_STACK_FILL`.
const FILL: u8 = 0xef;
/// The bytes at the end of a stack that the kernel checks for an overflow.
const CHECKED: u64 = 4;
/// `TX_READY` and so on, in the order of their numbers.
const STATES: [&str; 15] = [
    "ready",
    "completed",
    "terminated",
    "suspended",
    "sleep",
    "queue",
    "semaphore",
    "event flags",
    "block pool",
    "byte pool",
    "I/O driver",
    "file",
    "TCP/IP",
    "mutex",
    "priority",
];

/// Finds the kernel in a program.
pub(super) fn kernel(elf: &Elf, memory: &Memory<'_>) -> Option<Kernel> {
    if !may_define(elf, CREATED) {
        return None;
    }
    let variables = Variables::find(elf, &[CREATED, COUNT, CURRENT], &[])?;
    let block = variables.of(CREATED)?.pointee()?;
    let next = block.offset("tx_thread_created_next")?;
    let mut out = Kernel {
        name: "ThreadX",
        ..Kernel::default()
    };
    let mut note = |what| out.broken.push(Broken::of_list(CREATED, what));
    let start = variables.address(CREATED)?;
    let first = memory.pointer(start);
    if first.is_none() {
        note(What::Unknown(start));
    }
    // The last thread is followed by the first.
    let mut threads = Vec::new();
    if let Some(first) = first.filter(|first| *first != 0) {
        let mut is_first = true;
        let ends = |thread| thread == first && !std::mem::take(&mut is_first);
        let follow = |thread: u64| {
            let at = thread.wrapping_add(next);
            memory.pointer(at).ok_or(at)
        };
        let (found, why) = Limit::new().follow(first, ends, follow);
        threads = found;
        if let Some(why) = why {
            note(why);
        }
    }
    if let Some(counted) = variables.address(COUNT).and_then(|at| memory.pointer(at))
        && counted != threads.len() as u64
    {
        note(What::Count {
            counted,
            found: threads.len(),
        });
    }
    let current = current(&variables, memory);
    for address in threads {
        let core = current.iter().position(|thread| *thread == Some(address));
        let (task, broken) = task(block, memory, address, core);
        out.tasks.push(task);
        out.broken.extend(broken);
    }
    out.note_overflows(CHECKED);
    Some(out)
}

/// Returns the thread that each core runs.
fn current(variables: &Variables, memory: &Memory<'_>) -> Vec<Option<u64>> {
    let count = variables.of(CURRENT).and_then(Type::count).unwrap_or(1);
    let first = variables.address(CURRENT);
    let cores = 0..count.min(CORES);
    let read = |core| memory.pointer(first?.wrapping_add(core * memory.pointer_size()));
    cores
        .map(|core| read(core).filter(|thread| *thread != 0))
        .collect()
}

fn task(
    block: Type<'_>,
    memory: &Memory<'_>,
    address: u64,
    core: Option<usize>,
) -> (Task, Option<Broken>) {
    let field = |name: &str| {
        let (offset, of) = block.member(name)?;
        memory.number(address.wrapping_add(offset), of.size()?)
    };
    let name = field("tx_thread_name").filter(|name| *name != 0);
    let state = field("tx_thread_state").and_then(|state| STATES.get(usize::try_from(state).ok()?));
    let stack = field("tx_thread_stack_start").map(|lowest| {
        // The end is the last byte.
        let end = field("tx_thread_stack_end").map(|end| end.wrapping_add(1));
        let end = end.filter(|end| *end > lowest);
        Stack::of(memory, lowest, end, [FILL; 4])
    });
    let mut task = Task {
        address,
        name: name
            .map(|name| memory.name(name, u64::MAX))
            .unwrap_or_default(),
        state: match core {
            Some(_) => "running",
            None => state.copied().unwrap_or("unknown"),
        },
        priority: field("tx_thread_priority").and_then(|priority| i64::try_from(priority).ok()),
        stack,
        core,
        context: None,
    };
    let broken = match (core, field("tx_thread_stack_ptr")) {
        (Some(_), _) => None,
        (None, Some(top)) => task.read_context(memory, top),
        (None, None) => Some(Broken::of_task(&task, What::Unknown(address))),
    };
    (task, broken)
}
