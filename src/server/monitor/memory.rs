//! `monitor memory`: how memory is read at past positions.

use crate::server::past_memory::Mode;
use crate::server::target::SnapshotTarget;

/// Runs the command; without an argument it shows how memory is read.
pub(super) fn run(target: &mut SnapshotTarget, wanted: &str) -> String {
    match wanted {
        "" => {}
        "final" => target.past_memory.mode = Mode::Final,
        "unavailable" => target.past_memory.mode = Mode::Unavailable,
        _ => return format!("expected final or unavailable, found {wanted:?}\n"),
    }
    let mut text = format!("In the past {}.\n", target.past_memory.describe());
    if !wanted.is_empty() {
        text += "GDB may have kept memory: `maintenance flush dcache` forgets it.\n";
    }
    text
}
