//! The threads of a client: those that its packets are about, and their list.

use std::borrow::Cow;

use super::reply::{thread_id, transfer};
use super::target::SnapshotTarget;

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
    transfer(target.endpoint.threads_xml.as_bytes(), arguments)
}
