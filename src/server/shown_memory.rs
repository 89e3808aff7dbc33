//! Memory as a client sees it at the position of a core: what is constant, and what is recovered.

use std::sync::Arc;

use gdbstub::common::Tid;

use super::memory::MemoryView;
use super::past_values::PATIENCE;
use super::target::SnapshotTarget;
use crate::arch::pointer_auth;
use crate::stop::Cancel;

/// Returns the known bytes from an address on: up to the first unknown one, or `length`. `None` without a
/// core.
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
    let shown = if target.is_past_view_known(thread) {
        let (endpoint, positions) = (&target.endpoint, &mut target.positions);
        target
            .past_memory
            .shown(endpoint, positions, thread, address, length)
    } else {
        0
    };
    let moment = target.moment(thread);
    let core = target.core(thread)?;
    let mut bytes = vec![0; shown];
    let endpoint = &target.endpoint;
    let count = endpoint.read(core, &target.memory_view, moment, address, &mut bytes);
    bytes.truncate(count);
    if count == shown && shown < length && target.memory_view == MemoryView::Current {
        recovered(target, thread, address, (length, &mut bytes));
    }
    Some(bytes)
}

/// Appends known memory of a past position to `bytes`, which start at `address`, up to the first
/// unknown byte or `length` bytes.
fn recovered(
    target: &mut SnapshotTarget,
    thread: Tid,
    address: u64,
    (length, bytes): (usize, &mut Vec<u8>),
) {
    /// Small, because bytes recovered beyond the first unknown one are discarded.
    const PIECE: usize = 256;
    let cancel = Cancel::after(PATIENCE);
    let endpoint = Arc::clone(&target.endpoint);
    while bytes.len() < length
        && !cancel.is_requested()
        && let Some(next) = address.checked_add(bytes.len() as u64)
    {
        let mut known = vec![None; PIECE.min(length - bytes.len())];
        let positions = &mut target.positions;
        target
            .past_values
            .memory(&endpoint, positions, (thread, next), &mut known, &cancel);
        let values = known.iter().map_while(|byte| Some(byte.as_ref()?.value));
        bytes.extend(values);
        if known.iter().any(Option::is_none) {
            return;
        }
    }
}
