//! Why threads stand where they are before they move, and the signals that stopped them.

use gdbstub::common::Tid;

use super::reply::{NO_MEMORY, thread_id, transfer};
use super::target::SnapshotTarget;
use super::threads;
use crate::remote_protocol::hex;
use armsnap_snapshot::snapshot::signals;

/// `?`: why the client's thread stopped.
pub(super) fn standing(target: &mut SnapshotTarget, _: &[u8]) -> Option<Vec<u8>> {
    let thread = target.selection.read();
    let without_pc = !target.takes_unknown_for_value && !target.knows_pc(thread);
    Some(stands(target, thread, true, without_pc))
}

/// `qThreadStopInfo` (LLDB): why a thread stopped.
pub(super) fn of_thread(target: &mut SnapshotTarget, thread: &[u8]) -> Option<Vec<u8>> {
    let thread = thread_id(thread)?;
    target.core(thread)?;
    let current = thread == target.selection.read();
    Some(stands(target, thread, current, false))
}

/// Formats the stop reply of a thread at the state of the snapshot. The `current` thread stopped
/// because of a signal (GDB's number): that of its program, or SIGTRAP. LLDB requires the thread's
/// name, and a stop reason for the `current` thread only.
///
/// GDB disconnects from a server whose stopped thread has no known program counter, unless the stop
/// reason is that libraries were loaded (`without_pc`): then it does not ask for a program counter.
fn stands(target: &SnapshotTarget, thread: Tid, current: bool, without_pc: bool) -> Vec<u8> {
    let core = target.core(thread);
    let signal = core.and_then(|core| target.endpoint.signal(core));
    let received = signal.filter(|_| !without_pc);
    let received = received.map_or(5, |signal| signals::to_gdb(signal.number));
    let signal = if current { received } else { 0 };
    let (name, _) = threads::description(target, thread);
    let reason = if without_pc { "library:;" } else { "" };
    let name = hex::encode(name);
    format!("T{signal:02x}thread:{thread:x};hexname:{name};{reason}").into_bytes()
}

/// `qXfer:siginfo:read`: what the kernel reported about the signal that stopped the selected thread. At
/// past positions it is not known.
pub(super) fn signal_information(target: &mut SnapshotTarget, arguments: &[u8]) -> Option<Vec<u8>> {
    let thread = target.selection.read();
    let halted = target.positions.past(thread).is_none();
    let core = target.core(thread).filter(|_| halted);
    let signal = core.and_then(|core| target.endpoint.signal(core));
    let information = signal.map(|signal| signal.information);
    match information.filter(|information| !information.is_empty()) {
        Some(information) => transfer(&information, arguments),
        None => Some(NO_MEMORY.to_vec()),
    }
}
