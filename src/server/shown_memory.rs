//! Memory as a client sees it at the position of a core: what is constant, and what is recovered.

use std::sync::Arc;

use gdbstub::common::Tid;

use super::memory::MemoryView;
use super::past_values::PATIENCE;
use super::target::SnapshotTarget;
use armsnap_arch::arch::pointer_auth;
use armsnap_snapshot::stop::Cancel;

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
    let core = endpoint.cores.get(thread.get() - 1)?;
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
