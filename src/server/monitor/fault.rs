//! `monitor fault`: why the selected core faulted.

use crate::server::target::SnapshotTarget;
use armsnap_snapshot::fault::Text;

/// Describes the fault of the halted state.
pub(super) fn run(target: &SnapshotTarget) -> String {
    let thread = target.selection.user();
    let Some(core) = target.core(thread) else {
        return super::NO_CORE.to_owned();
    };
    let before = match target.positions.past(thread) {
        Some(_) => "at the end of the history:\n",
        None => "",
    };
    match target.endpoint.fault(core, &target.symbols()) {
        Some(fault) => format!("{before}{}", Text(&fault)),
        None => format!(
            "{}: neither its registers nor its memory tell of a fault\n",
            core.name
        ),
    }
}
