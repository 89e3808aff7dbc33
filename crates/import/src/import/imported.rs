//! An imported input: the model of a snapshot, and its files.

use super::note::Note;
use super::packed;
use armsnap_snapshot::mapped::{self, Mapped};
use armsnap_snapshot::program::elf::Elf;
use armsnap_snapshot::snapshot::elf_files::is_plain_path;
use armsnap_snapshot::snapshot::files::{Files, InMemory};
use armsnap_snapshot::snapshot::model::{self, FileLine, OtherSection, Severity, Snapshot};
use armsnap_snapshot::snapshot::paths::{self, PathError};
use armsnap_snapshot::snapshot::write::{self, WriteError};
use armsnap_snapshot::snapshot::{Error, OpenOptions, OpenSnapshot};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The section of snapshot.ini of an imported snapshot.
pub const SECTION: &str = armsnap_snapshot::snapshot::imported::SECTION;

/// An input as a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// The kind of input (`perf.data of simpleperf`).
    pub kind: String,
    /// The model; its files are in `files`.
    pub snapshot: Snapshot,
    /// The files of dumps, buffers and programs, by their paths in the snapshot. Most are parts of
    /// mapped inputs.
    pub files: BTreeMap<String, Mapped>,
    /// The original paths of those that are whole files, by their paths in the snapshot.
    pub origins: BTreeMap<String, PathBuf>,
    /// Notes on what was assumed and left out.
    pub notes: Vec<Note>,
    /// The paths of added files, by their origins.
    pub(super) added: HashMap<OsString, String>,
    /// The last number used for a name that several files have.
    pub(super) numbers: HashMap<String, u64>,
}

impl Imported {
    /// Adds a file, unless one with the same origin exists. Returns its path in the snapshot, which
    /// ends with `name` if that is free.
    pub fn add(&mut self, folder: &str, name: &str, bytes: Mapped, origin: PathBuf) -> String {
        // Much faster than comparing paths by their components.
        if let Some(known) = self.added.get(origin.as_os_str()) {
            return known.clone();
        }
        let name = super::paths::plain(name);
        let mut path = format!("{folder}/{name}");
        // Many files may have the same name.
        if self.files.contains_key(&path) {
            let number = self.numbers.entry(path.clone()).or_insert(1);
            while self.files.contains_key(&path) {
                *number += 1;
                path = format!("{folder}/{number}-{name}");
            }
        }
        self.files.insert(path.clone(), bytes);
        self.added.insert(origin.clone().into(), path.clone());
        self.origins.insert(path.clone(), origin);
        path
    }

    /// Removes a file that was added, and that nothing names.
    pub(super) fn remove(&mut self, path: &str) {
        self.files.remove(path);
        self.origins.remove(path);
        self.added.retain(|_, added| added != path);
    }

    /// Adds a program, unless it exists. Returns its path in the snapshot.
    pub fn add_program(&mut self, elf: &Elf) -> String {
        let name = elf.path.file_name().unwrap_or_default().to_string_lossy();
        self.add("images", &name, elf.whole().clone(), elf.path.clone())
    }

    /// Adds the section that names the origin of the snapshot. Its cores do not share memory: each
    /// has the memory of its process.
    pub fn record_origin(&mut self) {
        let entry = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        self.snapshot.other_sections.push(OtherSection {
            name: SECTION.to_owned(),
            entries: vec![entry("from", &self.kind), entry("memory", "separate")],
            ..OtherSection::default()
        });
    }

    /// Whether the files include those of the model: they are a snapshot as it is.
    pub(super) fn is_whole(&self) -> bool {
        self.files.contains_key(super::archived::ENTRY)
    }

    /// Opens the snapshot in place; `path` is the input from which it was made, for messages. The
    /// notes of the import come before the reader's.
    ///
    /// # Errors
    ///
    /// If the model cannot be expressed as a snapshot.
    pub fn open(self, path: &Path, options: &OpenOptions) -> Result<OpenSnapshot, ImportError> {
        let mut files = InMemory(match self.is_whole() {
            true => BTreeMap::new(),
            false => write::texts_of(self.snapshot)?,
        });
        files.0.extend(self.files);
        let files = ImportedFiles {
            files,
            origins: self.origins,
        };
        let files = Arc::new(files);
        let mut loaded = OpenSnapshot::from_files_with(files, "snapshot.ini", options)?;
        let notes = self.notes.iter().map(|note| model::Note {
            place: FileLine {
                file: path.to_owned(),
                line: 0,
            },
            severity: Severity::Warning,
            section: "",
            text: note.to_string(),
        });
        loaded.notes.splice(..0, notes);
        Ok(loaded)
    }

    /// Writes the snapshot into the new directory `dir`, completely or not at all. `progress`
    /// receives the number of bytes written and the total.
    ///
    /// # Errors
    ///
    /// If `dir` exists without `force`, or cannot be written.
    pub fn write(
        &self,
        dir: &Path,
        force: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), ImportError> {
        let mut files = match self.is_whole() {
            true => BTreeMap::new(),
            false => write::texts(&self.snapshot)?,
        };
        files.extend(self.files.clone());
        Ok(write::write_files(&files, dir, force, progress)?)
    }
}

/// Why an input cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The input is faulty, or contains nothing that can be used.
    #[error("{}: {text}", .path.display())]
    Input {
        /// The input.
        path: PathBuf,
        /// What was found, and what was expected.
        text: String,
    },
    /// A program that the user named cannot be read.
    #[error(transparent)]
    Program(#[from] armsnap_snapshot::program::elf::ElfError),
    /// The options contradict each other, or name something that the input does not have.
    #[error("{0}")]
    Usage(String),
    /// The snapshot cannot be opened.
    #[error(transparent)]
    Open(#[from] Error),
    /// The snapshot cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl ImportError {
    /// A fault of the input `path`.
    pub fn input(path: &Path, text: impl ToString) -> Self {
        Self::Input {
            path: path.to_owned(),
            text: text.to_string(),
        }
    }
}

/// Maps an input. Pipes and devices are rejected without being opened.
pub(super) fn map(path: &Path) -> Result<Mapped, ImportError> {
    let fault = |error: std::io::Error| ImportError::input(path, PathError::from(error));
    match path.metadata().map_err(fault)?.is_file() {
        true => mapped::map_input(path).map_err(fault),
        false => Err(ImportError::input(path, PathError::NotAFile)),
    }
}

/// The same, decompressed if the input is compressed.
pub(super) fn map_unpacked(path: &Path) -> Result<Mapped, ImportError> {
    let fault = |error: std::io::Error| ImportError::input(path, PathError::from(error));
    match path.metadata().map_err(fault)?.is_file() {
        true => packed::map(path).map_err(|text| ImportError::input(path, text)),
        false => Err(ImportError::input(path, PathError::NotAFile)),
    }
}

/// The files of an imported snapshot that has not been written.
#[derive(Debug)]
struct ImportedFiles {
    files: InMemory,
    origins: BTreeMap<String, PathBuf>,
}

impl Files for ImportedFiles {
    fn bytes(&self, written: &str) -> Result<Mapped, PathError> {
        self.files.bytes(written)
    }

    fn length(&self, written: &str) -> Result<u64, PathError> {
        self.files.length(written)
    }

    fn libraries(&self) -> Vec<String> {
        self.files.libraries()
    }

    fn path(&self, written: &str) -> PathBuf {
        let origin = paths::normal(written).and_then(|path| self.origins.get(&path));
        // Names in the input are not trusted, and debuggers use paths in commands.
        let origin = origin.filter(|origin| is_plain_path(origin));
        origin.cloned().unwrap_or_else(|| written.into())
    }
}
