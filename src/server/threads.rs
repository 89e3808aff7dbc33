//! The threads of a client: those that its packets are about, and their list.

use std::borrow::Cow;
use std::fmt::Write as _;

use gdbstub::common::Tid;

use super::reply::{thread_id, transfer};
use super::target::SnapshotTarget;
use super::tasks;
use armsnap_snapshot::text::markup;

/// `H`: selects a thread. gdbstub receives the thread that is read.
pub(super) fn select<'a>(target: &mut SnapshotTarget, packet: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let [_, operation, thread @ ..] = packet else {
        return None;
    };
    let chosen = match thread {
        b"-1" | b"0" => None,
        _ => {
            let tid = thread_id(thread)?;
            target.core(tid)?;
            Some(tid)
        }
    };
    match operation {
        b'g' => target
            .selection
            .reads(chosen.unwrap_or(target.selection.read())),
        b'c' => target.alone = chosen,
        _ => return None,
    }
    Some(Cow::Owned(
        format!("Hg{:x}", target.selection.read()).into_bytes(),
    ))
}

/// `qC`: the thread that is read.
pub(super) fn current(target: &mut SnapshotTarget, _: &[u8]) -> Option<Vec<u8>> {
    Some(format!("QC{:x}", target.selection.read()).into_bytes())
}

/// `qXfer:threads:read`.
pub(super) fn list(target: &mut SnapshotTarget, arguments: &[u8]) -> Option<Vec<u8>> {
    target.selection.lists();
    transfer(xml(target).as_bytes(), arguments)
}

/// Formats the thread list (GDB manual, G.8 "Thread List Format").
fn xml(target: &SnapshotTarget) -> String {
    let mut xml = String::from("<?xml version=\"1.0\"?>\n<threads>\n");
    let cores = target.endpoint.cores.len();
    for thread in target.endpoint.all_threads() {
        let (name, text) = description(target, thread);
        let _ = write!(xml, "<thread id=\"{thread:x}\"");
        if thread.get() <= cores {
            let _ = write!(xml, " core=\"{}\"", thread.get() - 1);
        }
        let _ = writeln!(
            xml,
            " name=\"{}\">{}</thread>",
            markup(&name),
            markup(&text)
        );
    }
    xml.push_str("</threads>\n");
    xml
}

/// Returns the name of a thread, and what clients show after it.
///
/// The thread of a core has the name of the task that it runs. At a past position this is not known:
/// the memory of the kernel is that of the halted state.
pub(super) fn description(target: &SnapshotTarget, thread: Tid) -> (String, String) {
    let Some(core) = target.core(thread) else {
        return (String::new(), String::new());
    };
    let tasks = target.endpoint.tasks();
    let index = thread.get() - 1;
    let Some(other) = index.checked_sub(target.endpoint.cores.len()) else {
        let is_halted = target.positions.past(thread).is_none();
        return match tasks.on_core(index).filter(|_| is_halted) {
            Some(task) => {
                let text = format!("{}: {}, {}", core.name, core.summary(), tasks.summary(task));
                (tasks::name(task), text)
            }
            None => (core.name.clone(), core.summary()),
        };
    };
    let mut text = tasks.of_thread(other).map(|task| tasks.summary(task));
    let mut cores = target.endpoint.threads();
    if cores.any(|core| target.positions.past(core).is_some()) {
        text = text.map(|text| text + ", at the end of the history");
    }
    (core.name.clone(), text.unwrap_or_default())
}
