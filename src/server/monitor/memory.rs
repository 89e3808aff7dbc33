//! `monitor memory`: how memory is read at past positions.

use super::output::{Output, Stale};
use crate::server::past_memory::Mode;
use crate::server::target::SnapshotTarget;

/// Runs the command; without an argument it shows how memory is read.
pub(super) fn run(target: &mut SnapshotTarget, wanted: &str) -> Output {
    match wanted {
        "" => {}
        "final" => target.past_memory.mode = Mode::Final,
        "unavailable" => target.past_memory.mode = Mode::Unavailable,
        _ => return format!("expected final or unavailable, found {wanted:?}\n").into(),
    }
    let described = target.past_memory.describe();
    let mut output = Output::from(format!("In the past {described}.\n"));
    if !wanted.is_empty() {
        let hint = "GDB may have kept memory: `maintenance flush dcache` forgets it.";
        output.stale(Stale::Memory, hint);
    }
    output
}
