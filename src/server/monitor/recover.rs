//! `monitor recover`: which values are shown at past positions.

use std::sync::Arc;

use gdbstub::common::Tid;

use super::output::{Output, Stale};
use crate::server::target::SnapshotTarget;
use armsnap_history::recover::Level;
use armsnap_snapshot::stop::Cancel;

/// Runs the command; without an argument it shows which values are shown, and what limits them.
pub(super) fn run(target: &mut SnapshotTarget, wanted: &str) -> Output {
    let level = match wanted {
        "" => None,
        "proved" => Some(Level::Proved),
        "inferred" => Some(Level::Inferred),
        "off" => Some(Level::Off),
        _ => return format!("expected proved, inferred or off, found {wanted:?}\n").into(),
    };
    if let Some(level) = level {
        target.past_values.set_level(level);
        target.callers.registers.clear();
    }
    let mut output = Output::from(format!("{}\n", describe(target.past_values.level())));
    if level.is_some() {
        let hint = "GDB may have kept values: `maintenance flush register-cache` and `maintenance flush \
                    dcache` forget them.";
        output.stale(Stale::Values, hint);
    }
    for limit in limits(target) {
        output.text(&format!("note: {limit}"));
    }
    output
}

/// Describes a level.
pub(super) fn describe(level: Level) -> &'static str {
    match level {
        Level::Off => "values of the past are not recovered",
        Level::Proved => "values of the past are shown where they are proved",
        Level::Inferred => {
            "values of the past are shown where they are proved or inferred: `monitor recover proved` \
             hides inferred ones"
        }
    }
}

/// Describes which values are shown at the position of a core; mentions inferred ones only if there
/// are some.
pub(super) fn here(target: &mut SnapshotTarget, thread: Tid, cancel: &Cancel) -> &'static str {
    let (endpoint, positions) = (Arc::clone(&target.endpoint), &mut target.positions);
    let values = &mut target.past_values;
    let level = values.level();
    let Some(found) = values.statuses(&endpoint, positions, thread, cancel) else {
        // Cancelled: nothing is known about this position.
        return describe(level);
    };
    match (found.proved, found.inferred) {
        (false, false) => "no value but the pc is known here",
        (true, false) if level == Level::Inferred => {
            "values of the past are shown where they are proved or inferred: here all known registers are \
             proved"
        }
        _ => describe(level),
    }
}

/// Returns what limits the proved values of the selected core.
pub(super) fn limits(target: &mut SnapshotTarget) -> Vec<String> {
    let thread = target.selection.user();
    let (endpoint, positions) = (Arc::clone(&target.endpoint), &mut target.positions);
    let limits = target.past_values.limits(&endpoint, positions, thread);
    limits.iter().map(ToString::to_string).collect()
}
