//! The tasks of a real-time operating system as threads: each that does not run is a thread after
//! those of the cores, with the registers that the kernel saved. A running task is the thread of its
//! core.

use std::sync::Arc;

use super::cores::Core;
use armsnap_arch::arch::{Architecture, RegisterFile};
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::rtos::{self, Kernel, Memory, Task};

/// The kernel that the cores run, and the threads of its tasks.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// The kernel, if one was found.
    pub kernel: Option<Kernel>,
    /// The tasks that do not run, as threads: the index of the task, and its registers and memory.
    pub threads: Vec<(usize, Core)>,
    /// Whether the tasks that do not run are cores of the snapshot.
    are_cores: bool,
}

impl Tasks {
    /// Finds the tasks of some cores, which run the same programs.
    pub fn of(cores: &[Core], programs: &[&Elf]) -> Self {
        let Some(first) = cores.first() else {
            return Self::default();
        };
        let kernel = rtos::kernel(&Memory {
            memory: &first.memory,
            space: first.space.space,
            architecture: first.detected.architecture,
            programs,
        });
        // An import may have made a core of each task.
        if kernel.iter().any(|kernel| are_cores(kernel, cores)) {
            let threads = Vec::new();
            return Self {
                kernel,
                threads,
                are_cores: true,
            };
        }
        let tasks = kernel.iter().flat_map(|kernel| &kernel.tasks);
        let waiting = tasks.enumerate().filter(|(_, task)| !runs(task, cores));
        let threads = waiting.map(|(index, task)| (index, thread(task, first)));
        let threads = threads.collect();
        Self {
            kernel,
            threads,
            are_cores: false,
        }
    }

    /// Returns the task that a core runs.
    pub fn on_core(&self, core: usize) -> Option<&Task> {
        let mut tasks = self.kernel.iter().flat_map(|kernel| &kernel.tasks);
        tasks.find(|task| task.core == Some(core) && !self.are_cores)
    }

    /// Returns the task of a thread, counted from the first thread after those of the cores.
    pub fn of_thread(&self, thread: usize) -> Option<&Task> {
        let (index, _) = self.threads.get(thread)?;
        self.kernel.as_ref()?.tasks.get(*index)
    }

    /// Describes a task in a few words.
    pub fn summary(&self, task: &Task) -> String {
        let kernel = self.kernel.as_ref().map_or("", |kernel| kernel.name);
        let mut text = format!("{kernel} task, {}", task.state);
        if let Some(priority) = task.priority {
            text.push_str(&format!(", priority {priority}"));
        }
        if let Some(unused) = task.stack.and_then(|stack| stack.unused) {
            text.push_str(&format!(", {unused} bytes of stack never used"));
        }
        text
    }
}

/// Returns whether some core has the registers of a task that does not run.
fn are_cores(kernel: &Kernel, cores: &[Core]) -> bool {
    let at = |core: &Core| core.registers.pc().zip(core.registers.value("sp"));
    let at: Vec<_> = cores.iter().filter_map(at).collect();
    let mut contexts = kernel.tasks.iter().filter_map(|task| task.context.as_ref());
    contexts.any(|context| {
        let saved = context.value("pc").zip(context.value("sp"));
        saved.is_some_and(|saved| at.contains(&saved))
    })
}

/// Returns whether the thread of a core is that of a task.
fn runs(task: &Task, cores: &[Core]) -> bool {
    task.core.is_some_and(|core| core < cores.len())
}

/// Returns the name of the thread of a task.
pub(super) fn name(task: &Task) -> String {
    match &*task.name {
        "" => format!("task {:#x}", task.address),
        name => name.to_owned(),
    }
}

/// Makes the thread of a task that does not run.
fn thread(task: &Task, core: &Core) -> Core {
    let architecture = core.detected.architecture;
    let mut context = task.context.clone().unwrap_or_default();
    // Tasks share the main stack, and GDB uses both stack pointers or none.
    if architecture == Architecture::MProfile
        && let Some(main) = core.registers.value("msp")
    {
        context.share("msp", main);
    }
    Core {
        name: name(task),
        kind: core.kind.clone(),
        cluster: None,
        detected: core.detected.clone(),
        registers: RegisterFile::read(&context, architecture),
        space: core.space.clone(),
        memory: Arc::clone(&core.memory),
        rests: false,
        device: core.device,
        dumps: Vec::new(),
        notes: Vec::new(),
    }
}
