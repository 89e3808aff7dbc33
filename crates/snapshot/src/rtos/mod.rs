//! The tasks of a real-time operating system: its lists of them, and the registers that it saved for
//! each.
//!
//! A kernel is detected by the symbols of the program. Where its structures have their members is read
//! from the program's debug information. Each kernel is a file that follows its lists with `list` and
//! fills in [`Task`]s; the registers of a task that does not run are read by `context`.

mod broken;
mod context;
mod freertos;
mod list;
mod memory;
mod nuttx;
mod rtthread;
mod threadx;
pub mod zephyr;

use armsnap_arch::arch::{Architecture, SavedCore, SavedRegister};

pub use broken::{Broken, What};
pub use memory::Memory;

/// A kernel in a snapshot, and its tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Its name.
    pub name: &'static str,
    /// Its tasks, in the order of its lists.
    pub tasks: Vec<Task>,
    /// What is broken in its memory.
    pub broken: Vec<Broken>,
}

/// A task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// The address of its control block.
    pub address: u64,
    /// Its name, with escapes instead of control characters; empty if it has none.
    pub name: String,
    /// Its state, in the kernel's own words.
    pub state: &'static str,
    /// Its priority, as the kernel counts.
    pub priority: Option<i64>,
    /// Its stack.
    pub stack: Option<Stack>,
    /// The index of the core that runs it.
    pub core: Option<usize>,
    /// The registers that the kernel saved, unless it runs.
    pub context: Option<Context>,
}

/// The stack of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Its lowest address.
    pub lowest: u64,
    /// The address after it, if the kernel keeps it.
    pub end: Option<u64>,
    /// The number of bytes from the lowest address on that were never used, if the kernel fills
    /// stacks with a pattern.
    pub unused: Option<u64>,
}

impl Stack {
    /// A stack that the kernel fills with a word before it is used.
    fn of(memory: &Memory<'_>, lowest: u64, end: Option<u64>, fill: [u8; 4]) -> Self {
        let unused = memory.filled(lowest, end, fill);
        Self {
            lowest,
            end,
            unused: (unused > 0).then_some(unused),
        }
    }
}

impl Kernel {
    /// Notes the stacks without the pattern in their last `checked` bytes, if the kernel fills any.
    fn note_overflows(&mut self, checked: u64) {
        let unused = |task: &Task| task.stack.and_then(|stack| stack.unused);
        if !self.tasks.iter().any(|task| unused(task) >= Some(checked)) {
            return;
        }
        for task in &mut self.tasks {
            let Some(stack) = &mut task.stack else {
                continue;
            };
            stack.unused = stack.unused.or(Some(0));
            if stack.unused < Some(checked) {
                let what = What::NoPattern(stack.lowest);
                self.broken.push(Broken::of_task(task, what));
            }
        }
    }
}

impl Task {
    /// Adds the registers that the kernel saved at the top of the stack of a task on a Cortex-M.
    /// Returns what is wrong with them.
    fn read_context(&mut self, memory: &Memory<'_>, top: u64) -> Option<Broken> {
        if memory.architecture == Architecture::MProfile {
            self.context = context::saved(memory, top);
        }
        self.broken_context(top)
    }

    /// Returns what is wrong with the saved registers of a task with this stack pointer.
    fn broken_context(&self, top: u64) -> Option<Broken> {
        let what = match self.stack {
            Some(stack) if top < stack.lowest => What::BelowStack {
                pointer: top,
                lowest: stack.lowest,
            },
            _ if self.context.is_none() => What::Context(top),
            _ => return None,
        };
        Some(Broken::of_task(self, what))
    }
}

/// The registers of a task that does not run, by name. Others are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    registers: Vec<(String, [u8; 8], usize)>,
}

impl Context {
    /// Adds a register of 32 bits.
    fn add(&mut self, name: impl Into<String>, value: u32) {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&value.to_le_bytes());
        self.registers.push((name.into(), bytes, 4));
    }

    /// Adds a register of 64 bits.
    fn add_long(&mut self, name: impl Into<String>, value: u64) {
        self.registers.push((name.into(), value.to_le_bytes(), 8));
    }

    /// Returns the value of a register.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<u64> {
        let mut registers = self.registers.iter();
        let (_, bytes, _) = registers.find(|(own, ..)| own == name)?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// Adds a register that the kernel does not save, such as one that all tasks share.
    pub fn share(&mut self, name: &str, value: u64) {
        self.add(name, value as u32);
    }
}

impl SavedCore for Context {
    fn core_type(&self) -> &'static str {
        ""
    }

    fn saved_registers(&self) -> impl Iterator<Item = SavedRegister<'_>> {
        let registers = self.registers.iter();
        registers.map(|(name, bytes, size)| SavedRegister {
            name,
            size: Some(8 * *size as u32),
            value: &bytes[..*size],
        })
    }
}

/// Finds the kernel of a core's programs, and its tasks. Returns `None` if no program has the symbols
/// of a kernel with known structures.
#[must_use]
pub fn kernel(memory: &Memory<'_>) -> Option<Kernel> {
    let kernels = [
        freertos::kernel,
        threadx::kernel,
        zephyr::kernel,
        rtthread::kernel,
        nuttx::kernel,
    ];
    let mut programs = memory.programs.iter();
    let mut found =
        programs.find_map(|elf| kernels.iter().find_map(|kernel| kernel(elf, memory)))?;
    broken::shorten(&mut found.broken);
    Some(found)
}
