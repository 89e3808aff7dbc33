//! What a recorded program started with, and what entered it from outside: the section `[replay]`
//! of snapshot.ini and the files that it names. armsnap writes both; other readers ignore them.
//!
//! Each entry names a core and its file. From these files, the program that the trace shows can be
//! executed again, from its first instruction on. `file` documents the format.

mod file;
mod writer;

pub use file::{Call, Contents, Cursor, Error, Inputs, Piece, Start, checksum};
pub use writer::{Saved, Writer};

use super::ini::quote;
use super::model::{FileLine, Note, OtherSection, Severity, Snapshot};
use super::paths::PathError;
use crate::mapped::Mapped;
use std::path::Path;

/// The section's name.
pub const SECTION: &str = "replay";

/// Why a file of inputs cannot be used.
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
    /// It does not hold inputs.
    #[error("{}: {error}", quote(file))]
    Format {
        /// Its name in the snapshot.
        file: String,
        /// The reason.
        error: Error,
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

/// Opens the inputs of a core; `None` if the snapshot has none. `get` returns a file, given the .ini
/// file that names it and its name there.
///
/// # Errors
///
/// Returns an error if their file cannot be read, or does not hold inputs.
pub(super) fn open(
    snapshot: &Snapshot,
    core: &str,
    get: impl Fn(&Path, &str) -> Result<Mapped, PathError>,
) -> Option<Result<Inputs, OpenError>> {
    let (place, _, file) = files(snapshot).find(|(_, name, _)| *name == core)?;
    Some(read(place, file, get))
}

fn read(
    place: &FileLine,
    file: &str,
    get: impl Fn(&Path, &str) -> Result<Mapped, PathError>,
) -> Result<Inputs, OpenError> {
    let bytes = get(&place.file, file).map_err(|error| OpenError::File {
        file: file.to_owned(),
        error,
    })?;
    Inputs::open(bytes).map_err(|error| OpenError::Format {
        file: file.to_owned(),
        error,
    })
}

/// Returns what is wrong with the files of inputs, as far as their first records reveal it.
pub(super) fn faults(
    snapshot: &Snapshot,
    get: impl Fn(&Path, &str) -> Result<Mapped, PathError>,
) -> Vec<Note> {
    let faults = files(snapshot).filter_map(|(place, core, file)| {
        let error = read(place, file, &get).err()?;
        Some(Note {
            place: place.clone(),
            severity: Severity::Error,
            section: "",
            text: format!(
                "{error}: the recorded inputs of {} are not used",
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
