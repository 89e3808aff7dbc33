//! The registers that a client reads: those of a trace frame, or of a core at its position.

use std::sync::Arc;

use gdbstub::common::Tid;

use super::history_registers::{self, HistoryRegister};
use super::past_values::PATIENCE;
use super::reply::{NO_MEMORY, known_or_not};
use super::target::SnapshotTarget;
use super::tracepoints::{self, FrameRegister};
use crate::remote_protocol::framing::write_runs;
use crate::remote_protocol::hex::parse_hex;
use armsnap_arch::arch::registers::Bytes;
use armsnap_snapshot::stop::Cancel;

/// GDB shows the text after `E.`.
const READ_ONLY: &[u8] = b"E.a snapshot is read-only: its registers cannot be changed";

/// Encodes the runs in a reply to `g`. LLDB receives an error if a byte is unknown, as with `p`.
pub(super) fn run_lengths(target: &SnapshotTarget, reply: Vec<u8>) -> Vec<u8> {
    if target.takes_unknown_for_value && reply.contains(&b'x') {
        return NO_MEMORY.to_vec();
    }
    let mut out = Vec::with_capacity(reply.len());
    write_runs(&reply, &mut out);
    out
}

/// Returns the general registers; `None` if there is no such core.
pub(super) fn general(target: &mut SnapshotTarget, thread: Tid) -> Option<Bytes> {
    if let Some(bytes) = tracepoints::frame_registers(target) {
        return Some(bytes);
    }
    let endpoint = Arc::clone(&target.endpoint);
    let cancel = Cancel::after(PATIENCE);
    let bytes: Option<Vec<Bytes>> = endpoint
        .block()
        .map(|register| Some(endpoint.in_order(target.register(thread, register, &cancel)?)))
        .collect();
    Some(bytes?.concat())
}

/// `p`: a register, with `xx` for each unknown byte, because an error breaks a backtrace of GDB. LLDB
/// receives the error: it would show bytes of 0xcc in place of `xx`. Its first request is an exception:
/// LLDB only wants to know whether `p` is supported, and drops the value.
pub(super) fn single(target: &mut SnapshotTarget, number: &[u8]) -> Option<Vec<u8>> {
    let number = u32::try_from(parse_hex(number)?).ok()?;
    match tracepoints::frame_register(target, number) {
        FrameRegister::NoFrame => {}
        FrameRegister::NoRegister => return None,
        FrameRegister::Value(reply) => return Some(reply),
    }
    let thread = target.selection.read();
    let history = target.endpoint.history_registers;
    if let Some(register) = history.and_then(|registers| registers.find(number)) {
        let is_big = target.endpoint.is_big_endian();
        return Some(match register {
            HistoryRegister::Position => {
                history_registers::position_value(target.shown_position(thread), is_big).into()
            }
            HistoryRegister::Isa => {
                history_registers::isa_value(target.positions.isa(thread), is_big).into()
            }
        });
    }
    let endpoint = Arc::clone(&target.endpoint);
    let register = endpoint.description.register(number)?;
    let cancel = Cancel::after(PATIENCE);
    let bytes = endpoint.in_order(target.register(thread, register, &cancel)?);
    let is_first = !std::mem::replace(&mut target.has_read_register, true);
    if target.takes_unknown_for_value && !is_first && bytes.contains(&None) {
        return Some(NO_MEMORY.to_vec());
    }
    Some(known_or_not(&bytes))
}

/// `P` and `G`.
pub(super) fn read_only(_: &mut SnapshotTarget, _: &[u8]) -> Option<Vec<u8>> {
    Some(READ_ONLY.to_vec())
}
