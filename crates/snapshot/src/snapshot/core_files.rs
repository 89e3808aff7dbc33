//! Files that snapshot.ini names for cores, each kind in a section that armsnap writes and other
//! readers ignore. An entry of the section names a core and its file; only the first entry of a core
//! counts.

use super::ini::quote;
use super::model::{FileLine, Note, OtherSection, Severity, Snapshot};
use super::paths::PathError;
use crate::mapped::Mapped;
use armsnap_trace::data_addresses::{self, Addresses};
use std::collections::HashSet;
use std::fmt::Display;
use std::path::Path;

/// The contents of such a file.
pub trait CoreFile: Sized {
    /// The section's name.
    const SECTION: &'static str;
    /// Why bytes do not have its format.
    type Error: Display;

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes do not have its format.
    fn open(bytes: Mapped) -> Result<Self, Self::Error>;

    /// Returns a note on an error: the file of this core is not used.
    fn unused(core: &str, error: &OpenError<Self::Error>) -> String;
}

/// The addresses of the loads and stores of a core.
impl CoreFile for Addresses<Mapped> {
    const SECTION: &'static str = "data_addresses";
    type Error = data_addresses::Error;

    fn open(bytes: Mapped) -> Result<Self, Self::Error> {
        Self::open(bytes)
    }

    fn unused(core: &str, error: &OpenError<Self::Error>) -> String {
        format!("{error}: the data addresses of {core} are not used")
    }
}

/// Why a core's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError<E: Display> {
    /// It cannot be read.
    #[error("{}: {error}", quote(file))]
    File {
        /// Its name in the snapshot.
        file: String,
        /// The reason.
        error: PathError,
    },
    /// It does not have the format.
    #[error("{}: {error}", quote(file))]
    Format {
        /// Its name in the snapshot.
        file: String,
        /// The reason.
        error: E,
    },
}

/// Returns the entries: the position of the section, the name of a core, and its file.
pub fn files<F: CoreFile>(
    snapshot: &Snapshot,
) -> impl Iterator<Item = (&FileLine, &String, &String)> {
    let sections = snapshot.other_sections.iter();
    let named = sections.filter(|section| section.name == F::SECTION);
    named.flat_map(|section| {
        let entries = section.entries.iter();
        entries.map(|(core, file)| (&section.place, core, file))
    })
}

/// Returns the cores that have the same file as a core, this one included, in the order of their entries.
pub fn cores_like<'s, F: CoreFile>(snapshot: &'s Snapshot, core: &str) -> Vec<&'s String> {
    let mut seen = HashSet::new();
    let first = files::<F>(snapshot).filter(|(_, name, _)| seen.insert(*name));
    let first: Vec<_> = first.collect();
    let own = first.iter().find(|(_, name, _)| *name == core);
    let own = own.map(|(_, _, file)| *file);
    let same = first.iter().filter(|(_, _, file)| Some(*file) == own);
    same.map(|(_, name, _)| *name).collect()
}

/// Opens the file of a core; `None` if the snapshot has none. `get` returns a file, given the .ini
/// file that names it and its name there.
pub(super) fn open<F: CoreFile>(
    snapshot: &Snapshot,
    core: &str,
    get: impl Fn(&Path, &str) -> Result<Mapped, PathError>,
) -> Option<Result<F, OpenError<F::Error>>> {
    let (place, _, file) = files::<F>(snapshot).find(|(_, name, _)| *name == core)?;
    Some(read(place, file, get))
}

fn read<F: CoreFile>(
    place: &FileLine,
    file: &str,
    get: impl Fn(&Path, &str) -> Result<Mapped, PathError>,
) -> Result<F, OpenError<F::Error>> {
    let bytes = get(&place.file, file).map_err(|error| OpenError::File {
        file: file.to_owned(),
        error,
    })?;
    F::open(bytes).map_err(|error| OpenError::Format {
        file: file.to_owned(),
        error,
    })
}

/// Returns what is wrong with the files of all cores, as far as opening them reveals it.
pub(super) fn faults<F: CoreFile>(
    snapshot: &Snapshot,
    get: impl Fn(&Path, &str) -> Result<Mapped, PathError>,
) -> Vec<Note> {
    let mut seen = HashSet::new();
    let first = files::<F>(snapshot).filter(|(_, core, _)| seen.insert(*core));
    let faults = first.filter_map(|(place, core, file)| {
        let error = read::<F>(place, file, &get).err()?;
        Some(Note {
            place: place.clone(),
            severity: Severity::Error,
            section: "",
            text: F::unused(&quote(core), &error),
        })
    });
    faults.collect()
}

/// Returns the section for these entries; `None` if there are none.
#[must_use]
pub fn section<F: CoreFile>(entries: Vec<(String, String)>) -> Option<OtherSection> {
    (!entries.is_empty()).then(|| OtherSection {
        name: F::SECTION.to_owned(),
        entries,
        ..OtherSection::default()
    })
}
