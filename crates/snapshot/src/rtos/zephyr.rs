//! Zephyr with `CONFIG_DEBUG_THREAD_INFO`.

mod offsets;

pub use offsets::{Field, Offsets};

use super::broken::{Broken, What};
use super::list::Limit;
use super::memory::Memory;
use super::{Context, Kernel, Stack, Task, context};
use crate::program::elf::Elf;
use crate::program::variables::{Variables, may_define};
use armsnap_arch::arch::Architecture;
use offsets::TABLE;

/// The state of the kernel.
const KERNEL: &str = "_kernel";
/// The type of a thread, for what the table does not have.
const THREAD: &str = "k_thread";

/// The maximum number of cores.
const CORES: u64 = 64;
/// The byte with which `CONFIG_INIT_STACKS` fills stacks.
const FILL: u8 = 0xaa;
/// How many bytes of the pattern are expected at the end of a stack.
const CHECKED: u64 = 4;
/// The bits of a state (`kernel_structs.h`), with the one that matters most first.
const STATES: [(u64, &str); 7] = [
    (1 << 3, "dead"),
    (1 << 5, "aborting"),
    (1 << 4, "suspended"),
    (1 << 1, "pending"),
    (1 << 2, "sleeping"),
    (1 << 0, "dummy"),
    (1 << 7, "queued"),
];

/// Finds the kernel in a program.
pub(super) fn kernel(elf: &Elf, memory: &Memory<'_>) -> Option<Kernel> {
    if !may_define(elf, TABLE) {
        return None;
    }
    let variables = Variables::find(elf, &[KERNEL], &[THREAD])?;
    let layout = Layout {
        offsets: Offsets::of(elf, memory.pointer_size() as usize)?,
        variables: &variables,
        kernel: variables.address(KERNEL)?,
    };
    Some(layout.kernel(memory))
}

struct Layout<'v> {
    offsets: Offsets,
    variables: &'v Variables,
    kernel: u64,
}

impl Layout<'_> {
    /// Returns the address of a field of a thread.
    fn field(&self, thread: u64, field: Field) -> Option<u64> {
        Some(thread.wrapping_add(self.offsets.get(field)?))
    }

    fn kernel(&self, memory: &Memory<'_>) -> Kernel {
        let mut out = Kernel {
            name: "Zephyr",
            ..Kernel::default()
        };
        let mut note = |what| {
            out.broken
                .push(Broken::of_list(format!("{KERNEL}.threads"), what))
        };
        let (Some(start), Some(next)) = (
            self.field(self.kernel, Field::Threads),
            self.offsets.get(Field::Next),
        ) else {
            return out;
        };
        let mut threads = Vec::new();
        match memory.pointer(start) {
            None => note(What::Unknown(start)),
            Some(first) => {
                let follow = |thread: u64| {
                    let at = thread.wrapping_add(next);
                    memory.pointer(at).ok_or(at)
                };
                let (found, why) = Limit::new().follow(first, |thread| thread == 0, follow);
                threads = found;
                if let Some(why) = why {
                    note(why);
                }
            }
        }
        let current = self.current(memory);
        for address in threads {
            let core = current.iter().position(|thread| *thread == Some(address));
            let (task, broken) = self.task(memory, address, core);
            out.tasks.push(task);
            out.broken.extend(broken);
        }
        out.note_overflows(CHECKED);
        out
    }

    /// Returns the thread that each core runs. The table has only that of the first core.
    fn current(&self, memory: &Memory<'_>) -> Vec<Option<u64>> {
        let cores = || {
            let (_, cores) = self.variables.of(KERNEL)?.member("cpus")?;
            Some((cores.count()?, cores.element()?.size()?))
        };
        let (count, size) = cores().unwrap_or((1, 0));
        let first = self.field(self.kernel, Field::Current);
        let read = |core: u64| memory.pointer(first?.wrapping_add(core.wrapping_mul(size)));
        let cores = 0..count.clamp(1, CORES);
        cores
            .map(|core| read(core).filter(|thread| *thread != 0))
            .collect()
    }

    fn task(
        &self,
        memory: &Memory<'_>,
        address: u64,
        core: Option<usize>,
    ) -> (Task, Option<Broken>) {
        let field = |index| self.field(address, index);
        let bits = field(Field::State)
            .and_then(|at| memory.byte(at))
            .map(u64::from);
        let state = bits.map(|bits| {
            let mut states = STATES.iter().filter(|(bit, _)| bits & bit != 0);
            states.next().map_or("ready", |(_, name)| *name)
        });
        let priority = field(Field::Priority).and_then(|at| memory.byte(at));
        let mut task = Task {
            address,
            name: field(Field::Name)
                .map(|at| memory.name(at, u64::MAX))
                .unwrap_or_default(),
            state: match core {
                Some(_) => "running",
                None => state.unwrap_or("unknown"),
            },
            priority: priority.map(|priority| i64::from(priority.cast_signed())),
            stack: self.stack(memory, address),
            core,
            context: None,
        };
        // The thread of the boot, and those of other cores before they start.
        if core.is_some() || state == Some("dummy") {
            return (task, None);
        }
        let stack = field(Field::Stack).and_then(|at| memory.pointer(at));
        let Some(top) = stack else {
            let broken = Broken::of_task(&task, What::Unknown(address));
            return (task, Some(broken));
        };
        task.context = match memory.architecture {
            Architecture::MProfile => self.m_profile(memory, address, top),
            Architecture::AArch64 => self.aarch64(memory, address),
            Architecture::AArch32 => None,
        };
        // A dead thread may have a stack pointer of any value.
        let broken = task.broken_context(top).filter(|_| state != Some("dead"));
        (task, broken)
    }

    /// Returns the stack of a thread, which only debug information describes.
    fn stack(&self, memory: &Memory<'_>, thread: u64) -> Option<Stack> {
        let field = |path: &str| {
            let (offset, of) = self.variables.named(THREAD)?.member(path)?;
            memory.number(thread.wrapping_add(offset), of.size()?)
        };
        let lowest = field("stack_info.start").filter(|lowest| *lowest != 0)?;
        let end = field("stack_info.size").and_then(|size| lowest.checked_add(size));
        Some(Stack::of(memory, lowest, end, [FILL; 4]))
    }

    /// Reads the frame of the exception in which the kernel switched threads, and R4 to R11 in the
    /// thread, before its stack pointer.
    fn m_profile(&self, memory: &Memory<'_>, thread: u64, top: u64) -> Option<Context> {
        let mut context = Context::default();
        let saved = self.field(thread, Field::Stack)?.wrapping_sub(32);
        for number in 4..12_u64 {
            let value = memory.word(saved.wrapping_add(4 * (number - 4)))?;
            context.add(format!("r{number}"), value);
        }
        // The table counts from the part of the architecture.
        let of_arch = |index| self.field(self.field(thread, Field::Arch)?, index);
        let exc_return = of_arch(Field::ExcReturn).and_then(|at| memory.byte(at));
        let has_float = exc_return.is_some_and(|byte| byte & 1 << 4 == 0);
        if has_float && let Some(saved) = of_arch(Field::Float) {
            for number in 16..32_u64 {
                let value = memory.word(saved.wrapping_add(4 * (number - 16)))?;
                context.add(format!("s{number}"), value);
            }
        }
        let stack = context::Stack::Process;
        context::frame(memory, top, has_float, stack, &mut context).then_some(context)
    }

    /// Reads `struct _callee_saved`: X19 to X29, SP_EL0, SP, X30, at which the thread continues.
    fn aarch64(&self, memory: &Memory<'_>, thread: u64) -> Option<Context> {
        let mut context = Context::default();
        let saved = self.field(thread, Field::Stack)?.wrapping_sub(96);
        let word = |index: u64| memory.pointer(saved.wrapping_add(8 * index));
        for number in 19..30 {
            context.add_long(format!("x{number}"), word(number - 19)?);
        }
        let pc = word(13).filter(|pc| memory.has_code(*pc))?;
        context.add_long("sp_el0", word(11)?);
        context.add_long("sp", word(12)?);
        context.add_long("x30", pc);
        context.add_long("pc", pc);
        Some(context)
    }
}
