//! Sources of a snapshot's files: a directory, or bytes in memory.
//!
//! Independent of file formats.

use super::paths::{self, PathError};
use crate::mapped::{self, Mapped};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The name of the directory of libraries in a snapshot; GDB searches it too.
pub const LIBRARIES: &str = "libraries";

/// The maximum number of libraries that are copied with a snapshot.
const MAX_LIBRARIES: usize = 1024;
/// The first bytes of an ELF file.
const ELF: &[u8] = b"\x7fELF";

/// The files of a snapshot, by the paths written in the .ini files.
pub trait Files: fmt::Debug + Send + Sync {
    /// Returns the bytes of a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is rejected, or the file cannot be read.
    fn bytes(&self, written: &str) -> Result<Mapped, PathError>;

    /// Returns the length of a file in bytes, without opening it.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is rejected, or the file does not exist.
    fn length(&self, written: &str) -> Result<u64, PathError>;

    /// Returns whether a file starts with the bytes `with`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::bytes`].
    fn begins(&self, written: &str, with: &[u8]) -> Result<bool, PathError> {
        Ok(self.bytes(written)?.starts_with(with))
    }

    /// Returns the paths of the ELF files in [`LIBRARIES`], which no .ini file names.
    fn libraries(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the path of a file for messages.
    fn path(&self, written: &str) -> PathBuf {
        written.into()
    }
}

/// Calls `get` with the path of a file named in the .ini file `from`. The path is relative to the
/// snapshot's directory or, if that fails, to the directory of the .ini file.
pub fn beside<T>(
    from: &Path,
    written: &str,
    get: impl Fn(&str) -> Result<T, PathError>,
) -> Result<T, PathError> {
    let first = get(written);
    let directory = from.parent().and_then(Path::to_str).unwrap_or("");
    if first.is_ok() || directory.is_empty() || paths::normal(written).is_none() {
        return first;
    }
    get(&format!("{directory}/{written}")).or(first)
}

/// A directory. Each file is mapped once.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    allow_outside: bool,
    opened: Mutex<HashMap<PathBuf, Mapped>>,
}

impl Directory {
    /// Provides the files below `root`, and those outside if `allow_outside` is set.
    pub fn new(root: PathBuf, allow_outside: bool) -> Self {
        Self {
            root,
            allow_outside,
            opened: Mutex::default(),
        }
    }
}

impl Files for Directory {
    fn bytes(&self, written: &str) -> Result<Mapped, PathError> {
        let path = paths::resolve(&self.root, written, self.allow_outside)?;
        let mut opened = match self.opened.lock() {
            Ok(opened) => opened,
            // The map of files is never left half-modified.
            Err(poisoned) => poisoned.into_inner(),
        };
        if let Some(bytes) = opened.get(&path) {
            return Ok(bytes.clone());
        }
        let bytes = mapped::map_input(&path)?;
        opened.insert(path, bytes.clone());
        Ok(bytes)
    }

    fn length(&self, written: &str) -> Result<u64, PathError> {
        let path = paths::resolve(&self.root, written, self.allow_outside)?;
        Ok(path.metadata()?.len())
    }

    fn begins(&self, written: &str, with: &[u8]) -> Result<bool, PathError> {
        let path = paths::resolve(&self.root, written, self.allow_outside)?;
        Ok(mapped::head(&path, with.len() as u64)? == with)
    }

    fn libraries(&self) -> Vec<String> {
        let Ok(entries) = self.root.join(LIBRARIES).read_dir() else {
            return Vec::new();
        };
        let names = entries.flatten().filter_map(|entry| {
            let path = format!("{LIBRARIES}/{}", entry.file_name().to_str()?);
            self.begins(&path, ELF).ok()?.then_some(path)
        });
        let mut names: Vec<String> = names.take(MAX_LIBRARIES).collect();
        names.sort();
        names
    }

    fn path(&self, written: &str) -> PathBuf {
        self.root.join(written.replace('\\', "/"))
    }
}

/// Files in memory, by normalised path (`sub/x.bin`).
#[derive(Clone, Debug, Default)]
pub struct InMemory(pub BTreeMap<String, Mapped>);

impl InMemory {
    fn find(&self, written: &str) -> Result<&Mapped, PathError> {
        if written.trim().is_empty() {
            return Err(PathError::Empty);
        }
        let path = paths::normal(written).ok_or(PathError::Outside)?;
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        Ok(self.0.get(&path).ok_or_else(missing)?)
    }
}

impl Files for InMemory {
    fn bytes(&self, written: &str) -> Result<Mapped, PathError> {
        self.find(written).cloned()
    }

    fn length(&self, written: &str) -> Result<u64, PathError> {
        Ok(self.find(written)?.len() as u64)
    }

    fn libraries(&self) -> Vec<String> {
        let below = |path: &&String| {
            let directory = path.rsplit_once('/').map(|(directory, _)| directory);
            directory == Some(LIBRARIES)
        };
        let elf = self.0.iter().filter(|(_, bytes)| bytes.starts_with(ELF));
        elf.map(|(path, _)| path).filter(below).cloned().collect()
    }
}
