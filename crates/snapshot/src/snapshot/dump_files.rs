//! The files that hold the memory of dumps.

use super::elf_dump::{self, ElfDump};
use super::files::{Files, beside};
use super::model::{Dump, FileLine, Note, Snapshot};
use super::paths::PathError;
use crate::mapped::Mapped;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// The files of a snapshot, and which dumps stand for the segments of an ELF file.
#[derive(Clone, Debug)]
pub(super) struct DumpFiles {
    files: Arc<dyn Files>,
    elf_dumps: Arc<HashMap<FileLine, ElfDump>>,
}

impl DumpFiles {
    /// Those of a snapshot; what is unusual about them is added to `notes`.
    pub(super) fn of(files: Arc<dyn Files>, snapshot: &Snapshot, notes: &mut Vec<Note>) -> Self {
        let elf_dumps = Arc::new(elf_dump::find(&*files, snapshot, notes));
        Self { files, elf_dumps }
    }

    /// All files of the snapshot.
    pub(super) fn all(&self) -> &Arc<dyn Files> {
        &self.files
    }

    /// The ELF segments represented by a dump, if any.
    pub(super) fn elf_dump(&self, dump: &Dump) -> Option<&ElfDump> {
        self.elf_dumps.get(&dump.place)
    }

    /// The bytes of a file named in the .ini file `from`, see [`beside`].
    pub(super) fn file(&self, from: &Path, written: &str) -> Result<Mapped, PathError> {
        beside(from, written, |path| self.files.bytes(path))
    }

    /// The length of such a file in bytes, without opening it.
    pub(super) fn length(&self, from: &Path, written: &str) -> Result<u64, PathError> {
        beside(from, written, |path| self.files.length(path))
    }
}
