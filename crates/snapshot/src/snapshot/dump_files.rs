//! The files that hold the memory of dumps.

use super::elf_dump::{self, ElfDump};
use super::files::{Files, beside};
use super::model::{Dump, FileLine, Note, Snapshot};
use super::paths::PathError;
use crate::mapped::Mapped;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// The files of a snapshot, and the dumps that represent segments of an ELF file.
#[derive(Clone, Debug)]
pub(super) struct DumpFiles {
    files: Arc<dyn Files>,
    elf_dumps: Arc<HashMap<FileLine, ElfDump>>,
}

impl DumpFiles {
    /// Finds the files of a snapshot; adds notes about unusual ones to `notes`.
    pub(super) fn of(files: Arc<dyn Files>, snapshot: &Snapshot, notes: &mut Vec<Note>) -> Self {
        let elf_dumps = Arc::new(elf_dump::find(&*files, snapshot, notes));
        Self { files, elf_dumps }
    }

    /// Returns all files of the snapshot.
    pub(super) fn all(&self) -> &Arc<dyn Files> {
        &self.files
    }

    /// Returns the ELF segments represented by a dump, if any.
    pub(super) fn elf_dump(&self, dump: &Dump) -> Option<&ElfDump> {
        self.elf_dumps.get(&dump.place)
    }

    /// Returns the bytes of a file named in the .ini file `from`; see [`beside`].
    pub(super) fn file(&self, from: &Path, written: &str) -> Result<Mapped, PathError> {
        beside(from, written, |path| self.files.bytes(path))
    }

    /// Returns the length of a file named in the .ini file `from` in bytes, without opening it.
    pub(super) fn length(&self, from: &Path, written: &str) -> Result<u64, PathError> {
        beside(from, written, |path| self.files.length(path))
    }
}
