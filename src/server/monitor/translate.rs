//! `monitor translate` and `monitor maps`: what the translation tables of a core map.

use std::fmt::Write as _;

use super::history::number;
use crate::server::cores::Core;
use crate::server::memory::MemoryView;
use crate::server::target::SnapshotTarget;
use armsnap_arch::arch::Space;
use armsnap_arch::quantity::Address;
use armsnap_arch::translation::{Mapping, Regime, World};
use armsnap_snapshot::snapshot::memory::translated::Translated;

/// Maximum number of ranges listed at once.
const LINES: usize = 100;
/// Maximum number of table walks for a list.
const WALKS: usize = 1 << 18;

/// Explains each step of the translation of an address.
pub(super) fn translate(target: &SnapshotTarget, address: &str) -> String {
    let Some(address) = number(address) else {
        return "expected an address: monitor translate 0xADDRESS\n".to_owned();
    };
    let (core, translated, regime) = match view(target) {
        Ok(found) => found,
        Err(reason) => return reason,
    };
    let mut text = format!(
        "{address:#x} in regime {} of {}\n",
        regime.name(),
        core.name
    );
    text.push_str(past_note(target));
    for note in regime.notes() {
        let _ = writeln!(text, "  {note}");
    }
    let found = translated.translate(regime, address, &mut |step| {
        let _ = writeln!(text, "  {step}");
    });
    match found {
        Err(fault) => {
            let _ = writeln!(text, "{fault}");
        }
        Ok(mapping) => {
            let _ = writeln!(text, "{}", describe(translated, &mapping));
        }
    }
    text
}

fn describe(translated: &Translated, mapping: &Mapping) -> String {
    let Mapping {
        physical,
        world,
        shift,
        attributes,
    } = mapping;
    let mut text = format!("physical address {physical:#x} ({world})");
    if let Some(attributes) = attributes {
        let size = armsnap_arch::translation::size(1 << shift);
        let _ = write!(text, ", {attributes}, in {size}");
    }
    if !is_known(translated, *physical, *world) {
        text.push_str("; this memory is not in the snapshot");
    }
    text
}

fn is_known(translated: &Translated, physical: u64, world: World) -> bool {
    let space = match world {
        World::Secure => Space::Sp,
        World::NonSecure => Space::Np,
    };
    let memory = translated.physical();
    !memory.slice(Address(physical), space).is_empty()
}

/// Lists the mapped ranges starting at an address.
pub(super) fn maps(target: &SnapshotTarget, from: &str) -> String {
    let from = match from {
        "" => Some(0),
        from => number(from),
    };
    let Some(from) = from else {
        return "expected an address: monitor maps [0xADDRESS]\n".to_owned();
    };
    let (core, translated, regime) = match view(target) {
        Ok(found) => found,
        Err(reason) => return reason,
    };
    let mut text = format!("regime {} of {}\n", regime.name(), core.name);
    text.push_str(past_note(target));
    if regime.is_identity() {
        text.push_str("every address is its own translation\n");
        return text;
    }
    let mut maps = translated.maps(regime, from, WALKS);
    for range in maps.by_ref().take(LINES) {
        let size = u128::from(range.last - range.first) + 1;
        let (size, block) = (
            armsnap_arch::translation::size(size),
            armsnap_arch::translation::size(1 << range.shift),
        );
        let _ = write!(
            text,
            "{:#018x}-{:#018x} -> {:#x}  {size}, in {block}",
            range.first, range.last, range.physical
        );
        if range.world == World::Secure {
            text.push_str(", secure");
        }
        if let Some(attributes) = range.attributes {
            let _ = write!(text, ", {attributes}");
        }
        if !is_known(translated, range.physical, range.world) {
            text.push_str(", not in the snapshot");
        }
        text.push('\n');
    }
    if let Some(at) = maps.reached() {
        let _ = writeln!(text, "there may be more: monitor maps {at:#x}");
    }
    text
}

/// Returns the note for a past position.
fn past_note(target: &SnapshotTarget) -> &'static str {
    match target.positions.past(target.selection.user()) {
        Some(_) => "  by the tables and registers of the halted state, not of this position\n",
        None => "",
    }
}

/// Returns the regime in which the selected core reads memory now.
fn view(target: &SnapshotTarget) -> Result<(&Core, &Translated, &Regime), String> {
    let core = target.core(target.selection.user());
    let core = core.ok_or("no core is selected\n")?;
    let translated = core.memory.translated().ok_or(
        "no translation: the snapshot has no physical memory, which is a dump of space P, NP or \
         SP, or a memory device\n",
    )?;
    let space = match &target.memory_view {
        MemoryView::Tables(tables) => return Ok((core, translated, &tables.regime)),
        MemoryView::Space(space) => *space,
        MemoryView::Current | MemoryView::Device(_) => core.space.space,
    };
    let regime = translated.regime(space);
    let regime = regime.map_err(|why| format!("no translation in {space}: {why}\n"))?;
    Ok((core, translated, regime))
}
