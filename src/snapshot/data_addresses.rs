//! Which files of a snapshot hold the data addresses of its cores: the section `[data_addresses]`
//! of snapshot.ini, which armsnap writes and others ignore. Each entry names a core and its file.

use super::ini::quote;
use super::model::{FileLine, OtherSection, Snapshot};
use super::read::OpenSnapshot;
use crate::data_addresses::Addresses;
use crate::mapped::Mapped;

/// The section's name.
pub const SECTION: &str = "data_addresses";

/// The entries: the place of the section, the name of a core, and its file.
pub fn files(snapshot: &Snapshot) -> impl Iterator<Item = (&FileLine, &String, &String)> {
    let sections = snapshot.other_sections.iter();
    let named = sections.filter(|section| section.name == SECTION);
    named.flat_map(|section| {
        let entries = section.entries.iter();
        entries.map(|(core, file)| (&section.place, core, file))
    })
}

/// Opens the data addresses of a core; `None` if the snapshot has none. The error says which file
/// cannot be used, and why.
pub fn open(loaded: &OpenSnapshot, core: &str) -> Option<Result<Addresses<Mapped>, String>> {
    let (place, _, file) = files(&loaded.snapshot).find(|(_, name, _)| *name == core)?;
    let quoted = quote(file);
    let bytes = loaded.file(&place.file, file);
    let bytes = bytes.map_err(|error| format!("{quoted}: {error}"));
    Some(
        bytes
            .and_then(|bytes| Addresses::open(bytes).map_err(|error| format!("{quoted}: {error}"))),
    )
}

/// The section for these entries; `None` if there are none.
pub fn section(entries: Vec<(String, String)>) -> Option<OtherSection> {
    (!entries.is_empty()).then(|| OtherSection {
        name: SECTION.to_owned(),
        entries,
        ..OtherSection::default()
    })
}
