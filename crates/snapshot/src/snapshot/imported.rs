//! The section of snapshot.ini for a snapshot that was imported from another format.

use super::model::Snapshot;

/// The name of the section. The entry `from` is the format. With `memory=separate`, each core has
/// the memory of its own process, and no core uses the memory of another; with `memory=shared`, others
/// than the cores write it, such as devices.
pub const SECTION: &str = "imported";

/// Whether a snapshot was imported, so that its dumps are actual memory contents.
pub(super) fn is_imported(snapshot: &Snapshot) -> bool {
    let mut sections = snapshot.other_sections.iter();
    sections.any(|section| section.name == SECTION)
}

/// Whether the cores of a snapshot have separate memories.
pub(super) fn has_separate_memories(snapshot: &Snapshot) -> bool {
    has(snapshot, "separate")
}

/// Whether others than the cores of a snapshot write their memory.
pub fn has_other_writers(snapshot: &Snapshot) -> bool {
    has(snapshot, "shared")
}

fn has(snapshot: &Snapshot, memory: &str) -> bool {
    let sections = &snapshot.other_sections;
    let mut sections = sections.iter().filter(|section| section.name == SECTION);
    let separate = |(key, value): &(String, String)| key == "memory" && value == memory;
    sections.any(|section| section.entries.iter().any(separate))
}
