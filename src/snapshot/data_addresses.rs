//! Which files of a snapshot hold the data addresses of its cores: the section `[data_addresses]`
//! of snapshot.ini, which armsnap writes and others ignore. Each entry names a core and its file.

use super::ini::quote;
use super::model::{FileLine, Note, OtherSection, Severity, Snapshot};
use super::paths::PathError;
use super::read::OpenSnapshot;
use crate::data_addresses::{self, Addresses};
use crate::mapped::Mapped;

/// The section's name.
pub const SECTION: &str = "data_addresses";

/// Why a file of data addresses cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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

/// The entries: the place of the section, the name of a core, and its file.
pub fn files(snapshot: &Snapshot) -> impl Iterator<Item = (&FileLine, &String, &String)> {
    let sections = snapshot.other_sections.iter();
    let named = sections.filter(|section| section.name == SECTION);
    named.flat_map(|section| {
        let entries = section.entries.iter();
        entries.map(|(core, file)| (&section.place, core, file))
    })
}

/// Opens the data addresses of a core; `None` if the snapshot has none.
///
/// # Errors
///
/// If their file cannot be read, or does not hold data addresses.
pub fn open(loaded: &OpenSnapshot, core: &str) -> Option<Result<Addresses<Mapped>, OpenError>> {
    let (place, _, file) = files(&loaded.snapshot).find(|(_, name, _)| *name == core)?;
    let bytes = loaded.file(&place.file, file);
    let bytes = bytes.map_err(|error| OpenError::File {
        file: file.clone(),
        error,
    });
    Some(bytes.and_then(|bytes| {
        Addresses::open(bytes).map_err(|error| OpenError::Format {
            file: file.clone(),
            error,
        })
    }))
}

/// What is wrong with the files of data addresses, as far as their indices show it.
pub(super) fn faults(loaded: &OpenSnapshot) -> impl Iterator<Item = Note> + '_ {
    files(&loaded.snapshot).filter_map(|(place, core, _)| {
        let error = open(loaded, core)?.err()?;
        Some(Note {
            place: place.clone(),
            severity: Severity::Error,
            section: "",
            text: format!(
                "{error}: the data addresses of {} are not used",
                quote(core)
            ),
        })
    })
}

/// The section for these entries; `None` without entries.
pub fn section(entries: Vec<(String, String)>) -> Option<OtherSection> {
    (!entries.is_empty()).then(|| OtherSection {
        name: SECTION.to_owned(),
        entries,
        ..OtherSection::default()
    })
}
