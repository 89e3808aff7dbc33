//! Memory as a client sees it: that of a trace frame, or what is constant or recovered at the position
//! of a core.

use std::sync::Arc;

use gdbstub::common::Tid;

use super::memory::MemoryView;
use super::past_values::PATIENCE;
use super::reply::{NO_MEMORY, pair};
use super::target::SnapshotTarget;
use super::tracepoints;
use crate::remote_protocol::framing::{MAX_PACKET, write_hex_runs};
use crate::remote_protocol::hex::parse_hex;
use armsnap_arch::arch::pointer_auth;
use armsnap_snapshot::stop::Cancel;

/// GDB shows the text after `E.`.
const READ_ONLY: &[u8] = b"E.a snapshot is read-only: its memory cannot be changed";

/// `m`: the known bytes from the address; an error if there are none.
pub(super) fn answer(target: &mut SnapshotTarget, arguments: &[u8]) -> Option<Vec<u8>> {
    let (address, length) = pair(arguments, b',')?;
    let length = usize::try_from(length).ok()?.min(MAX_PACKET / 2 - 8);
    let bytes = of_client(target, target.selection.read(), address, length)?;
    if bytes.is_empty() {
        return Some(NO_MEMORY.to_vec());
    }
    let mut reply = Vec::with_capacity(2 * bytes.len());
    write_hex_runs(&bytes, &mut reply);
    Some(reply)
}

/// `M` and `X`.
pub(super) fn read_only(_: &mut SnapshotTarget, _: &[u8]) -> Option<Vec<u8>> {
    Some(READ_ONLY.to_vec())
}

/// `qMemoryRegionInfo` (LLDB): the known region around an address, or the gap.
pub(super) fn region(target: &mut SnapshotTarget, address: &[u8]) -> Option<Vec<u8>> {
    let core = target.core(target.selection.read())?;
    let address = pointer_auth::without_tag(&core.registers, parse_hex(address)?);
    let region = target.endpoint.range_at(core, &target.memory_view, address);
    let mut reply = format!("start:{:x};size:{:x};", region.start, region.size);
    if region.known {
        reply.push_str("permissions:rwx;");
    }
    Some(reply.into_bytes())
}

/// Returns the known bytes that a client reads from an address. `None` without a core.
pub(super) fn of_client(
    target: &mut SnapshotTarget,
    thread: Tid,
    address: u64,
    length: usize,
) -> Option<Vec<u8>> {
    if let Some(bytes) = tracepoints::frame_memory(target, address, length) {
        return Some(bytes);
    }
    target.selection.reads_memory();
    read(target, thread, address, length)
}

/// Returns the known bytes from an address up to the first unknown one, or `length` bytes. `None` without
/// a core.
pub(super) fn read(
    target: &mut SnapshotTarget,
    thread: Tid,
    address: u64,
    length: usize,
) -> Option<Vec<u8>> {
    let address = match target.core(thread) {
        Some(core) if target.memory_view == MemoryView::Current => {
            pointer_auth::without_tag(&core.registers, address)
        }
        _ => address,
    };
    let is_known = target.is_past_view_known(thread);
    let moment = target.moment(thread);
    let endpoint = Arc::clone(&target.endpoint);
    let core = endpoint.thread(thread)?;
    let cancel = Cancel::after(PATIENCE);
    let mut bytes = Vec::new();
    while is_known && bytes.len() < length {
        let before = bytes.len();
        let next = address.wrapping_add(before as u64);
        let (all, positions) = (&mut target.past_memory, &target.positions);
        let shown = all.shown(&endpoint, positions, thread, next, length - before);
        bytes.resize(before + shown, 0);
        let view = &target.memory_view;
        let count = endpoint.read(core, view, moment, next, &mut bytes[before..]);
        bytes.truncate(before + count);
        if count < shown {
            break;
        }
        if target.memory_view == MemoryView::Current && !cancel.is_requested() {
            recovered(target, thread, address, (length, &mut bytes), &cancel);
        }
        if bytes.len() == before {
            break;
        }
    }
    Some(bytes)
}

/// Appends known memory of a past position to `bytes`, which start at `address`, up to the first
/// unknown byte or a small limit per call.
fn recovered(
    target: &mut SnapshotTarget,
    thread: Tid,
    address: u64,
    (length, bytes): (usize, &mut Vec<u8>),
    cancel: &Cancel,
) {
    /// Small, because bytes recovered beyond the first unknown one are discarded.
    const PIECE: usize = 256;
    let Some(next) = address.checked_add(bytes.len() as u64) else {
        return;
    };
    let mut known = vec![None; PIECE.min(length - bytes.len())];
    let (endpoint, positions) = (Arc::clone(&target.endpoint), &mut target.positions);
    target
        .past_values
        .memory(&endpoint, positions, (thread, next), &mut known, cancel);
    let values = known.iter().map_while(|byte| Some(byte.as_ref()?.value));
    bytes.extend(values);
}
