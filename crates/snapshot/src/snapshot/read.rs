//! Files → model (Debug and Trace Snapshot File Format 0.2, section 3).
//!
//! The reader is tolerant. Problems become notes with file and line; only an unusable snapshot is
//! an error. [`crate::check`] checks whether a snapshot is complete.

mod device;
mod trace;

use super::changed::Changed;
use super::core_files::{self, OpenError};
use super::dump_files::DumpFiles;
use super::elf_dump::ElfDump;
use super::elf_files;
use super::files::{Directory, Files, beside};
use super::ini::{self, Document, KeyValue, Section, quote};
use super::model::{Cluster, Device, Dump, FileLine, Note, OtherSection, Severity, Snapshot};
use super::paths::{self, PathError};
use super::replay::{self, Inputs};
use super::shared::Pools;
use crate::mapped::Mapped;
use crate::program::elf::Elf;
use armsnap_trace::data_addresses::{self, Addresses};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Options for opening a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether to follow paths that lead outside the snapshot's directory.
    pub allow_outside: bool,
    /// Whether to show and decode each core with its own memory only, without memory shared by
    /// other cores.
    pub no_shared_memory: bool,
}

/// Why a snapshot cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {text}")]
pub struct Error {
    /// The position in a file.
    pub place: FileLine,
    /// What was found, and what was expected.
    pub text: String,
}

/// A snapshot with access to its files.
#[derive(Clone, Debug)]
pub struct OpenSnapshot {
    /// The contents of the .ini files.
    pub snapshot: Snapshot,
    /// The snapshot's directory; empty if the files are in memory.
    pub root: PathBuf,
    /// Messages of the reader, in the order of reading.
    pub notes: Vec<Note>,
    /// The top-level file, usually `snapshot.ini`.
    pub entry: String,
    /// The code that changed while the trace was made.
    pub changed: Arc<Changed>,
    files: DumpFiles,
    pub(super) no_shared_memory: bool,
    pools: Arc<OnceLock<Pools>>,
    elf_files: Arc<OnceLock<Vec<Elf>>>,
}

/// The largest .ini file that is read, because a sparse file may have any length.
pub(super) const LARGEST_INI: u64 = 256 << 20;

impl Snapshot {
    /// Opens a snapshot: `path` is its directory, or its snapshot.ini.
    ///
    /// # Errors
    ///
    /// Returns an error if snapshot.ini cannot be read, or lists no devices.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<OpenSnapshot, Error> {
        let (root, entry) = if path.is_dir() {
            (path.to_owned(), "snapshot.ini".to_owned())
        } else {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
            let name = path.file_name().unwrap_or_default();
            (
                parent.unwrap_or(Path::new(".")).to_owned(),
                name.to_string_lossy().into_owned(),
            )
        };
        let files = Arc::new(Directory::new(root.clone(), options.allow_outside));
        let loaded = OpenSnapshot::from_files_with(files, &entry, options);
        let loaded = loaded.map_err(|mut error| {
            error.place.file = root.join(&error.place.file);
            error
        })?;
        Ok(OpenSnapshot { root, ..loaded })
    }
}

impl OpenSnapshot {
    /// Same as [`Self::from_files`], with options. `allow_outside` has no effect: `files` resolves
    /// the paths.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::from_files`].
    pub fn from_files_with(
        files: Arc<dyn Files>,
        entry: &str,
        options: &OpenOptions,
    ) -> Result<Self, Error> {
        let mut loaded = Self::from_files(files, entry)?;
        loaded.no_shared_memory |= options.no_shared_memory;
        Ok(loaded)
    }

    /// Reads a snapshot from `files`, starting with `entry` (`snapshot.ini`).
    ///
    /// # Errors
    ///
    /// Returns an error if `entry` cannot be read, or has neither a device list nor the sections of
    /// the old format.
    pub fn from_files(files: Arc<dyn Files>, entry: &str) -> Result<Self, Error> {
        let mut reader = Reader {
            files: &*files,
            notes: Vec::new(),
        };
        let snapshot = reader.snapshot(entry)?;
        let mut notes = reader.notes;
        let files = DumpFiles::of(files, &snapshot, &mut notes);
        notes.extend(super::topology::assumed(&snapshot));
        let no_shared_memory = super::imported::has_separate_memories(&snapshot);
        let mut loaded = Self {
            snapshot,
            root: PathBuf::new(),
            notes,
            entry: entry.to_owned(),
            changed: Arc::default(),
            files,
            no_shared_memory,
            pools: Arc::default(),
            elf_files: Arc::default(),
        };
        let get = |from: &Path, written: &str| loaded.files.file(from, written);
        let (changed, note) = Changed::of_snapshot(&loaded.snapshot, get);
        loaded.changed = Arc::new(changed);
        loaded.notes.extend(note);
        let faults = core_files::faults::<Addresses<Mapped>>(&loaded.snapshot, get);
        loaded.notes.extend(faults);
        let faults = core_files::faults::<Inputs>(&loaded.snapshot, get);
        loaded.notes.extend(faults);
        Ok(loaded)
    }

    /// Returns the snapshot's files.
    pub fn files(&self) -> Arc<dyn Files> {
        Arc::clone(self.files.all())
    }

    /// Returns the files that hold the memory of its dumps.
    pub(super) fn dump_files(&self) -> DumpFiles {
        self.files.clone()
    }

    /// Returns the ELF files in its directory, which is searched once.
    pub(super) fn elf_files(&self) -> &[Elf] {
        self.elf_files
            .get_or_init(|| elf_files::elf_files(&self.root))
    }

    /// Returns the memory of all cores, by architecture; `None` if cores do not share memory.
    pub(super) fn pools(&self) -> Option<&Pools> {
        let pools = || {
            self.pools
                .get_or_init(|| Pools::of(&self.snapshot, &self.files))
        };
        (!self.no_shared_memory).then(pools)
    }

    /// Returns whether cores may see memory of other cores.
    pub(super) fn shares_memory(&self) -> bool {
        !self.no_shared_memory
    }

    /// Returns the ELF segments represented by a dump, if any.
    pub fn elf_dump(&self, dump: &Dump) -> Option<&ElfDump> {
        self.files.elf_dump(dump)
    }

    /// Returns the bytes of a file named in the .ini file `from`. The path is relative to the
    /// snapshot's directory or, if there is no such file, to the directory of the .ini file.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is rejected, or the file cannot be read.
    pub fn file(&self, from: &Path, written: &str) -> Result<Mapped, PathError> {
        self.files.file(from, written)
    }

    /// Opens the data addresses of a core; `None` if the snapshot has none.
    ///
    /// # Errors
    ///
    /// Returns an error if their file cannot be read, or does not hold data addresses.
    pub fn data_addresses(
        &self,
        core: &str,
    ) -> Option<Result<Addresses<Mapped>, OpenError<data_addresses::Error>>> {
        let get = |from: &Path, written: &str| self.file(from, written);
        core_files::open(&self.snapshot, core, get)
    }

    /// Opens the recorded inputs of a core; `None` if the snapshot has none.
    ///
    /// # Errors
    ///
    /// Returns an error if their file cannot be read, or does not hold inputs.
    pub fn inputs(&self, core: &str) -> Option<Result<Inputs, OpenError<replay::Error>>> {
        let get = |from: &Path, written: &str| self.file(from, written);
        core_files::open(&self.snapshot, core, get)
    }

    /// Returns the files of the trace buffer `index`, in order. The buffer's data is their
    /// concatenation (3.3.2).
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such buffer, or one of its files cannot be read.
    pub fn buffer_parts(&self, index: usize) -> Result<Vec<Mapped>, Error> {
        self.buffer_files(index, |written| self.files.all().bytes(written))
    }

    /// Returns the paths of the files of the trace buffer `index`, in order, in a snapshot that was
    /// read from a directory.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such buffer, or one of its files does not exist.
    pub fn buffer_paths(&self, index: usize, allow_outside: bool) -> Result<Vec<PathBuf>, Error> {
        self.buffer_files(index, |written| {
            paths::resolve(&self.root, written, allow_outside)
        })
    }

    fn buffer_files<T>(
        &self,
        index: usize,
        get: impl Fn(&str) -> Result<T, PathError>,
    ) -> Result<Vec<T>, Error> {
        let trace = self.snapshot.trace.as_ref();
        let Some((trace, buffer)) = trace.and_then(|t| Some((t, t.buffers.get(index)?))) else {
            return Err(Error {
                place: FileLine {
                    file: self.entry.clone().into(),
                    line: 0,
                },
                text: format!("there is no trace buffer {index}"),
            });
        };
        let open = |file: &String| {
            beside(&trace.place.file, file, &get).map_err(|problem| Error {
                place: buffer.place.clone(),
                text: format!("[{}] file {}: {problem}", buffer.id, quote(file)),
            })
        };
        buffer.files.iter().map(open).collect()
    }

    /// Returns the length of a file in bytes, without opening it; for the path, see
    /// [`file`](Self::file).
    ///
    /// # Errors
    ///
    /// Returns an error if the path is rejected, or the file does not exist.
    pub fn length(&self, from: &Path, written: &str) -> Result<u64, PathError> {
        self.files.length(from, written)
    }
}

struct Reader<'a> {
    files: &'a dyn Files,
    notes: Vec<Note>,
}

/// Why an .ini file cannot be read.
#[derive(Debug, thiserror::Error)]
enum IniError {
    /// Its path is rejected, or it cannot be read.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It is larger than [`LARGEST_INI`].
    #[error("{0} bytes: too large for an .ini file")]
    TooLarge(u64),
}

/// A parsed file and its path, used for positions.
struct Ini {
    file: PathBuf,
    document: Document,
}

impl Ini {
    fn at(&self, line: u32) -> FileLine {
        FileLine {
            file: self.file.clone(),
            line: line.max(1),
        }
    }

    /// Returns the line of the first section with this name, or 1.
    fn line_of(&self, name: &str) -> u32 {
        let mut sections = self.document.sections.iter();
        let section = sections.find(|s| s.name.eq_ignore_ascii_case(name));
        section.map_or(1, |section| section.line)
    }
}

impl Reader<'_> {
    fn note(&mut self, place: FileLine, severity: Severity, section: &'static str, text: String) {
        self.notes.push(Note {
            place,
            severity,
            section,
            text,
        });
    }

    fn error(&mut self, place: FileLine, section: &'static str, text: String) {
        self.note(place, Severity::Error, section, text);
    }

    fn odd(&mut self, place: FileLine, section: &'static str, text: String) {
        self.note(place, Severity::Warning, section, text);
    }

    fn ini(&mut self, written: &str) -> Result<Ini, IniError> {
        let length = self.files.length(written)?;
        if length > LARGEST_INI {
            return Err(IniError::TooLarge(length));
        }
        let bytes = self.files.bytes(written)?;
        let (document, odd) = ini::parse(&bytes);
        let file = PathBuf::from(paths::normal(written).unwrap_or_else(|| written.to_owned()));
        let ini = Ini { file, document };
        for odd in odd {
            self.odd(ini.at(odd.line), "3", odd.text);
        }
        Ok(ini)
    }

    /// Takes the entries of all sections named `name`; a repeated key is noted and ignored unless
    /// `many` is set.
    fn section<'i>(&mut self, ini: &'i Ini, name: &str, many: bool) -> Option<Vec<&'i KeyValue>> {
        let sections = ini.document.sections.iter();
        let mut found = sections.filter(|s| s.name.eq_ignore_ascii_case(name));
        let first = found.next()?;
        let mut entries: Vec<&KeyValue> = first.entries.iter().collect();
        for again in found {
            let text = format!("[{name}] again, first in line {}", first.line);
            self.odd(ini.at(again.line), "3", text);
            entries.extend(&again.entries);
        }
        if !many {
            self.drop_repeated(ini, &mut entries);
        }
        Some(entries)
    }

    fn drop_repeated(&mut self, ini: &Ini, entries: &mut Vec<&KeyValue>) {
        let mut seen = HashMap::new();
        entries.retain(|entry| {
            let first = *seen
                .entry(entry.key.to_ascii_lowercase())
                .or_insert(entry.line);
            if first != entry.line {
                let text = format!("{} again, first in line {first}: ignored", entry.key);
                self.odd(ini.at(entry.line), "3", text);
            }
            first == entry.line
        });
    }

    fn snapshot(&mut self, entry: &str) -> Result<Snapshot, Error> {
        let ini = self.ini(entry).map_err(|error| Error {
            place: FileLine {
                file: entry.into(),
                line: 0,
            },
            text: error.to_string(),
        })?;
        let mut out = Snapshot {
            other_sections: other_sections(&ini, |name| {
                ["snapshot", "device_list", "clusters", "trace"]
                    .iter()
                    .any(|known| name.eq_ignore_ascii_case(known))
            }),
            place: ini.at(ini.line_of("snapshot")),
            ..Snapshot::default()
        };
        for entry in self.section(&ini, "snapshot", false).unwrap_or_default() {
            match entry.key.to_ascii_lowercase().as_str() {
                "version" => {
                    out.version = entry.value.clone();
                    out.place = ini.at(entry.line);
                }
                "description" => out.description = Some(entry.value.clone()),
                _ => out.other.push((entry.key.clone(), entry.value.clone())),
            }
        }
        if !matches!(out.version.as_str(), "1.0" | "1" | "") {
            let found = quote(&out.version);
            let text = format!("version: expected 1.0, found {found}: read as 1.0");
            self.error(out.place.clone(), "3.1.1", text);
        }
        match self.section(&ini, "device_list", true) {
            Some(list) => {
                let mut files = HashMap::new();
                for entry in list {
                    // Files outside the snapshot have no normalised path, so they are compared as
                    // written.
                    let file = paths::normal(&entry.value).unwrap_or(entry.value.clone());
                    let first = *files.entry(file).or_insert(entry.line);
                    if first != entry.line {
                        let text = format!("{} again, first in line {first}", entry.value);
                        self.error(ini.at(entry.line), "3.1.2", text);
                    } else if let Some(device) = self.listed_device(&ini, entry) {
                        out.devices.push(device);
                    }
                }
            }
            None => match self.single_file(&ini) {
                Some(device) => {
                    out.devices.push(device);
                    out.other_sections.clear();
                }
                None => {
                    return Err(Error {
                        place: ini.at(1),
                        text: "expected a section [device_list], found none [section 3.1.2]: it is no \
                               snapshot.ini, nor an input that armsnap knows by its contents"
                            .into(),
                    });
                }
            },
        }
        for entry in self.section(&ini, "clusters", true).unwrap_or_default() {
            out.clusters.push(Cluster {
                name: entry.key.clone(),
                devices: list(&entry.value),
                place: ini.at(entry.line),
            });
        }
        if let Some(entries) = self.section(&ini, "trace", false) {
            let mut metadata = false;
            for entry in entries {
                if entry.key.eq_ignore_ascii_case("metadata") {
                    metadata = true;
                    out.trace = self.trace(&ini, entry);
                } else {
                    let text = format!("unknown key {}: ignored", entry.key);
                    self.odd(ini.at(entry.line), "3.1.4", text);
                }
            }
            if !metadata {
                let text = "[trace] has no metadata: no trace is read".into();
                self.error(ini.at(ini.line_of("trace")), "3.1.4", text);
            }
        }
        Ok(out)
    }

    /// Reads the format before `[device_list]`: one core, with all its sections in one file.
    fn single_file(&mut self, ini: &Ini) -> Option<Device> {
        let known = |s: &Section| {
            let name = s.name.to_ascii_lowercase();
            matches!(name.as_str(), "device" | "global" | "regs" | "extendregs")
                || name.starts_with("dump")
        };
        let first = ini.document.sections.iter().find(|s| known(s))?;
        let text = "no [device_list]: read as the old format, one device in one file".into();
        self.odd(ini.at(first.line), "3.1.2", text);
        let mut device = self.device(ini);
        device.key = "device0".into();
        device.file = "device0.ini".into();
        device.listed = ini.at(1);
        device
            .other_sections
            .retain(|s| !s.name.eq_ignore_ascii_case("snapshot"));
        if device.name.is_empty() {
            device.name = "device0".into();
        }
        Some(device)
    }

    fn listed_device(&mut self, ini: &Ini, entry: &KeyValue) -> Option<Device> {
        match self.ini(&entry.value) {
            Ok(file) => {
                let mut device = self.device(&file);
                device.key = entry.key.clone();
                device.file = entry.value.clone();
                device.listed = ini.at(entry.line);
                Some(device)
            }
            Err(problem) => {
                let text = format!("{}: {}: {problem}", entry.key, quote(&entry.value));
                self.error(ini.at(entry.line), "3.1.2", text);
                None
            }
        }
    }
}

/// Returns the items of a comma-separated list, except empty ones (`buffer1,`).
fn list(text: &str) -> Vec<String> {
    let parts = text.split(',').map(|part| part.trim_matches([' ', '\t']));
    parts.filter(|p| !p.is_empty()).map(str::to_owned).collect()
}

fn other_sections(ini: &Ini, known: impl Fn(&str) -> bool) -> Vec<OtherSection> {
    let sections = ini.document.sections.iter();
    sections
        .filter(|s| !known(&s.name))
        .map(|s| OtherSection {
            name: s.name.clone(),
            entries: s
                .entries
                .iter()
                .map(|e| (e.key.clone(), e.value.clone()))
                .collect(),
            place: ini.at(s.line),
        })
        .collect()
}
