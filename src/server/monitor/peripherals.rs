//! `monitor svd`: registers of peripherals by name.

use crate::server::target::SnapshotTarget;
use armsnap_snapshot::svd::Text;

const NO_SVD: &str = "no peripherals are described: start armsnap with --svd FILE\n";

/// Lists the peripherals, or the registers that a name selects, in the memory of the halted state.
pub(super) fn run(target: &SnapshotTarget, name: &str) -> String {
    let thread = target.selection.user();
    let Some(core) = target.core(thread) else {
        return String::new();
    };
    let before = match target.positions.past(thread) {
        Some(_) => "(from the memory at the end of the recording)\n",
        None => "",
    };
    match target.endpoint.peripherals(core, name) {
        None => NO_SVD.to_owned(),
        Some(found) if found.is_empty() => {
            format!("no peripheral or register matches {name:?}\n")
        }
        Some(found) => format!("{before}{}", Text(&found)),
    }
}
