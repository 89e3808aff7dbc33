//! The files of a snapshot that hold the data addresses of its cores: the section
//! `[data_addresses]` of snapshot.ini, which armsnap writes and other readers ignore. Each entry
//! names a core and its file.

use super::ini::quote;
use super::model::{FileLine, Note, OtherSection, Severity, Snapshot};
use super::paths::PathError;
use crate::mapped::Mapped;
use armsnap_trace::data_addresses::{self, Addresses};
use std::collections::HashSet;
use std::path::Path;

/// The section's name.
pub const SECTION: &str = "data_addresses";

/// Why a file of data addresses cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be read.
    #[error("{}: {error}", quote(file))]
    File {
        /// Its name in the snapshot.
        file: String,
        /// The reason.
        error: PathError,
    },
    /// It does not hold data addresses.
    #[error("{}: {error}", quote(file))]
    Format {
        /// Its name in the snapshot.
        file: String,
        /// The reason.
        error: data_addresses::Error,
    },
}

/// Returns the entries: the position of the section, the name of a core, and its file.
pub fn files(snapshot: &Snapshot) -> impl Iterator<Item = (&FileLine, &String, &String)> {
    let sections = snapshot.other_sections.iter();
    let named = sections.filter(|section| section.name == SECTION);
    named.flat_map(|section| {
        let entries = section.entries.iter();
        entries.map(|(core, file)| (&section.place, core, file))
    })
}

/// Opens the data addresses of a core; `None` if the snapshot has none. `get` returns a file, given
/// the .ini file that names it and its name there.
///
/// # Errors
///
/// Returns an error if their file cannot be read, or does not hold data addresses.
pub(super) fn open(
    snapshot: &Snapshot,
    core: &str,
    get: impl Fn(&Path, &str) -> Result<Mapped, PathError>,
) -> Option<Result<Addresses<Mapped>, OpenError>> {
    let (place, _, file) = files(snapshot).find(|(_, name, _)| *name == core)?;
    Some(read(place, file, get))
}

fn read(
    place: &FileLine,
    file: &str,
    get: impl Fn(&Path, &str) -> Result<Mapped, PathError>,
) -> Result<Addresses<Mapped>, OpenError> {
    let bytes = get(&place.file, file).map_err(|error| OpenError::File {
        file: file.to_owned(),
        error,
    })?;
    Addresses::open(bytes).map_err(|error| OpenError::Format {
        file: file.to_owned(),
        error,
    })
}

/// Returns what is wrong with the files of data addresses, as far as their indices reveal it. Only
/// the first entry of each core counts.
pub(super) fn faults(
    snapshot: &Snapshot,
    get: impl Fn(&Path, &str) -> Result<Mapped, PathError>,
) -> Vec<Note> {
    let mut seen = HashSet::new();
    let faults = files(snapshot).filter(|(_, core, _)| seen.insert(*core));
    let faults = faults.filter_map(|(place, core, file)| {
        let error = read(place, file, &get).err()?;
        Some(Note {
            place: place.clone(),
            severity: Severity::Error,
            section: "",
            text: format!(
                "{error}: the data addresses of {} are not used",
                quote(core)
            ),
        })
    });
    faults.collect()
}

/// Returns the section for these entries; `None` if there are none.
pub fn section(entries: Vec<(String, String)>) -> Option<OtherSection> {
    (!entries.is_empty()).then(|| OtherSection {
        name: SECTION.to_owned(),
        entries,
        ..OtherSection::default()
    })
}
