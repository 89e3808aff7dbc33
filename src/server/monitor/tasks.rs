//! `monitor tasks` for a real-time operating system: its tasks, and what is broken in its lists.

use std::fmt::Write as _;

use crate::server::endpoint::Endpoint;
use crate::server::target::SnapshotTarget;
use crate::server::tasks::name;
use armsnap_snapshot::rtos::{Kernel, Task};

/// Lists the tasks; `None` if no such kernel is in the snapshot.
pub(super) fn run(target: &SnapshotTarget) -> Option<String> {
    let kernel = target.endpoint.tasks().kernel.as_ref()?;
    let mut text = match target.positions.past(target.selection.user()) {
        Some(_) => "(from the memory at the end of the recording)\n".to_owned(),
        None => String::new(),
    };
    text.push_str(&list(&target.endpoint, kernel));
    Some(text)
}

/// Formats the tasks of a kernel with their threads.
fn list(endpoint: &Endpoint, kernel: &Kernel) -> String {
    let mut text = format!("{}, {} tasks\n", kernel.name, kernel.tasks.len());
    text.push_str("THREAD  STATE        PRIORITY  STACK       NEVER USED  NAME\n");
    for (index, task) in kernel.tasks.iter().enumerate() {
        let number = |number: Option<u64>| number.map_or("?".to_owned(), |n| n.to_string());
        let stack = task.stack.map(|stack| format!("{:#010x}", stack.lowest));
        let thread = thread(endpoint, index, task);
        let _ = writeln!(
            text,
            "{:>6}  {:<11}  {:>8}  {:<10}  {:>10}  {}",
            number(thread.map(|thread| thread as u64)),
            task.state,
            task.priority
                .map_or("?".to_owned(), |priority| priority.to_string()),
            stack.unwrap_or_else(|| "?".to_owned()),
            number(task.stack.and_then(|stack| stack.unused)),
            name(task)
        );
    }
    for broken in &kernel.broken {
        let _ = writeln!(text, "broken: {broken}");
    }
    text
}

/// Returns the number of the thread of a task.
fn thread(endpoint: &Endpoint, index: usize, task: &Task) -> Option<usize> {
    let threads = &endpoint.tasks().threads;
    let waiting = threads.iter().position(|(of, _)| *of == index);
    let waiting = waiting.map(|position| endpoint.cores.len() + position + 1);
    waiting.or_else(|| task.core.map(|core| core + 1))
}
