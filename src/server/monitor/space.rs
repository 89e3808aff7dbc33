//! `monitor space`: the address space or memory device in which memory is read.

use std::fmt::Write as _;

use super::output::{Output, Stale};
use crate::server::cores::Core;
use crate::server::endpoint::Endpoint;
use crate::server::memory::MemoryView;
use crate::server::target::SnapshotTarget;

/// Runs the command; without a name it shows where memory is read, and the alternatives.
pub(super) fn run(target: &mut SnapshotTarget, name: &str) -> Output {
    let Some(core) = target.core(target.selection.user()) else {
        return Output::default();
    };
    if name.is_empty() {
        return spaces(&target.endpoint, core, &target.memory_view).into();
    }
    match target.endpoint.parse_view(core, name) {
        Ok(view) => {
            target.memory_view = view;
            let core = target.core(target.selection.user());
            let now = core.map(|core| target.endpoint.describe_view(core, &target.memory_view));
            let now = now.unwrap_or_default();
            let mut output = Output::from(format!("Memory is read {now}.\n"));
            let hint = "GDB may have kept code and stack: `maintenance flush dcache` forgets them.";
            output.stale(Stale::Memory, hint);
            output
        }
        Err(reason) => format!("{reason}\n").into(),
    }
}

fn spaces(endpoint: &Endpoint, core: &Core, view: &MemoryView) -> String {
    let mut text = format!("Memory is read {}.\n", endpoint.describe_view(core, view));
    let _ = writeln!(text, "The state of {}: {}.", core.name, core.space.reason);
    for (name, size) in core.space_sizes() {
        let _ = writeln!(text, "  {name:<8} {size} bytes in dumps of {}", core.name);
    }
    for device in endpoint.devices.iter() {
        let _ = writeln!(text, "  {:<8} memory device", device.name);
    }
    if let Some(translated) = core.memory.translated() {
        let _ = match translated.regime(core.space.space) {
            Ok(regime) => writeln!(
                text,
                "Physical memory is seen at virtual addresses: regime {}.",
                regime.name()
            ),
            Err(why) => writeln!(
                text,
                "Physical memory is not seen at virtual addresses: {why}."
            ),
        };
    }
    text
}
