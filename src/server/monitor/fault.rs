//! `monitor fault`: why the selected core faulted.

use crate::server::target::SnapshotTarget;
use armsnap_snapshot::fault::Text;

const NO_FAULT: &str = "this task does not run: monitor fault describes the fault of a core\n";

/// Describes the fault of the halted state.
pub(super) fn run(target: &SnapshotTarget) -> String {
    let thread = target.selection.user();
    // Tasks that do not run have no fault of their own.
    let Some(core) = target.endpoint.cores.get(thread.get() - 1) else {
        return NO_FAULT.to_owned();
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
