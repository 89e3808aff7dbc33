//! Snapshot files stored after the trace frames of a trace file.
//!
//! GDB stops reading at tracepoint number 0, which ends the frames. The carrier follows it: a line
//! `\x7fARMSNAP0`, lines of text that list the files and locate their bytes, an empty line, and the
//! bytes. The field `x-armsnap` of the trace file's `status` holds the length of the carrier in
//! hex; GDB ignores this field.
//!
//! ```text
//! snapshot <path>            the top-level .ini file
//! file <path> <length>       a file; the lines up to the next `file` supply its bytes
//! memory <address> <length>  bytes of the memory blocks of trace frame 0
//! bytes <length>             bytes after the empty line, in order
//! ```
//!
//! Numbers and paths are in hex. Independent of cores and trace protocols.

use super::Progress;
use super::note::{FileFault, Note};
use crate::remote_protocol::hex;
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::snapshot::coverage::Coverage;
use armsnap_snapshot::snapshot::files::InMemory;
use armsnap_snapshot::snapshot::files::beside;
use armsnap_snapshot::snapshot::further_files::further_files;
use armsnap_snapshot::snapshot::model::Snapshot;
use armsnap_snapshot::snapshot::write::{self, WriteError};
use armsnap_snapshot::snapshot::{OpenSnapshot, paths};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

/// The first line of a carrier.
const MAGIC: &[u8] = b"\x7fARMSNAP0\n";

/// The shortest range of bytes worth a `memory` line.
const SHORTEST: usize = 32;

/// The field of `status` with the carrier's length.
pub const FIELD: &str = "x-armsnap";

/// A snapshot as a set of files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Carried {
    /// The top-level .ini file.
    pub entry: String,
    /// Contents by normalised path.
    pub files: BTreeMap<String, Bytes>,
}

/// Bytes of a file.
#[derive(Clone, Debug)]
pub struct Bytes(pub Mapped);

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

/// A range of a file that is also present in memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InMemoryAt {
    offset: u64,
    length: u64,
    address: u64,
}

/// A snapshot's files, and the memory addresses of their dumps.
#[derive(Clone, Debug, Default)]
pub struct CarriedFiles {
    carried: Carried,
    dumps: BTreeMap<String, Vec<InMemoryAt>>,
}

impl CarriedFiles {
    /// Collects the .ini files of a snapshot and the files that they name, unchanged. Files that
    /// are missing or lie outside the snapshot are reported in `notes`.
    pub fn whole(loaded: &OpenSnapshot, notes: &mut Vec<Note>) -> Self {
        let snapshot = &loaded.snapshot;
        let mut carried_files = Self::default();
        carried_files.carried.entry = paths::normal(&loaded.entry).unwrap_or_default();
        let top = Path::new("");
        carried_files.add(loaded, top, &loaded.entry, notes);
        for device in &snapshot.devices {
            // In the old format the top-level file describes the only device.
            if device.place.file != Path::new(&loaded.entry) {
                carried_files.add(loaded, top, &device.file, notes);
            }
        }
        carried_files.dumps(loaded, notes);
        if let Some(trace) = &snapshot.trace {
            carried_files.add(loaded, top, &trace.file, notes);
            for file in trace.buffers.iter().flat_map(|buffer| &buffer.files) {
                carried_files.add(loaded, &trace.place.file, file, notes);
            }
        }
        carried_files
    }

    /// Collects the files without the trace; the .ini files are regenerated.
    ///
    /// # Errors
    ///
    /// If the format cannot represent the snapshot.
    pub fn without_trace(loaded: &OpenSnapshot, notes: &mut Vec<Note>) -> Result<Self, WriteError> {
        let state = Snapshot {
            trace: None,
            ..loaded.snapshot.clone()
        };
        let mut carried_files = Self::default();
        carried_files.carried.entry = "snapshot.ini".to_owned();
        let texts = write::texts(&state)?;
        carried_files.carried.files = texts
            .into_iter()
            .map(|(path, b)| (path, Bytes(b)))
            .collect();
        carried_files.dumps(loaded, notes);
        Ok(carried_files)
    }

    /// Adds the memory dumps, and the files that are neither .ini files nor trace.
    fn dumps(&mut self, loaded: &OpenSnapshot, notes: &mut Vec<Note>) {
        for (place, file) in further_files(&loaded.snapshot) {
            self.add(loaded, &place.file, &file, notes);
        }
        for library in loaded.files().libraries() {
            self.add(loaded, Path::new(""), &library, notes);
        }
        for dump in loaded.snapshot.devices.iter().flat_map(|d| &d.dumps) {
            if let Some((path, bytes)) = self.add(loaded, &dump.place.file, &dump.file, notes) {
                let offset = dump.offset.unwrap_or(0);
                let there = (bytes.len() as u64).saturating_sub(offset);
                let length = dump.length.unwrap_or(there).min(there);
                self.dumps.entry(path).or_default().push(InMemoryAt {
                    offset,
                    length,
                    address: dump.address,
                });
            }
        }
    }

    fn add(
        &mut self,
        loaded: &OpenSnapshot,
        from: &Path,
        written: &str,
        notes: &mut Vec<Note>,
    ) -> Option<(String, Mapped)> {
        let files = loaded.files();
        let found = beside(from, written, |path| {
            Ok((paths::normal(path), files.bytes(path)?))
        });
        let mut fault = |fault| {
            let file = written.to_owned();
            notes.push(Note::FileLeftOut { file, fault });
            None
        };
        match found {
            Ok((Some(path), bytes)) => {
                let there = self.carried.files.entry(path.clone());
                there.or_insert_with(|| Bytes(bytes.clone()));
                Some((path, bytes))
            }
            Ok((None, _)) => fault(FileFault::Outside),
            Err(problem) => fault(FileFault::Unreadable(problem.to_string())),
        }
    }

    /// Prepares the carrier's lines and bytes. `memory` is the memory in trace frame 0: address and
    /// bytes of non-overlapping pieces, sorted by address.
    pub fn load<'a>(&'a self, memory: &[(u64, &'a [u8])]) -> Loading<'a> {
        let mut loading = Loading {
            text: format!("snapshot {}\n", hex::encode(self.carried.entry.as_bytes())),
            bytes: Vec::new(),
            used: BTreeMap::new(),
        };
        for (path, Bytes(bytes)) in &self.carried.files {
            let path_text = hex::encode(path.as_bytes());
            let _ = writeln!(loading.text, "file {path_text} {:x}", bytes.len());
            let mut places = self.dumps.get(path).cloned().unwrap_or_default();
            places.sort();
            let mut done = 0;
            for place in places {
                done = loading.place(bytes, done, &place, memory);
            }
            loading.bytes(&bytes[done..]);
        }
        loading.text.push('\n');
        loading
    }
}

/// A carrier ready to be written.
#[derive(Debug)]
pub struct Loading<'a> {
    text: String,
    bytes: Vec<&'a [u8]>,
    /// First address and end of the memory already referred to. Each byte is referred to once, so
    /// that a carrier never expands to more bytes than its file contains.
    used: BTreeMap<u64, u64>,
}

impl<'a> Loading<'a> {
    fn bytes(&mut self, bytes: &'a [u8]) {
        if !bytes.is_empty() {
            let _ = writeln!(self.text, "bytes {:x}", bytes.len());
            self.bytes.push(bytes);
        }
    }

    /// Refers to memory for the bytes of the file described by `place`, starting at offset `done`.
    /// Returns the offset up to which the file is covered.
    fn place(
        &mut self,
        file: &'a [u8],
        mut done: usize,
        place: &InMemoryAt,
        memory: &[(u64, &[u8])],
    ) -> usize {
        let end = place.address.saturating_add(place.length);
        let first =
            memory.partition_point(|(at, bytes)| at + (bytes.len() as u64 - 1) < place.address);
        for &(at, bytes) in memory[first..].iter().take_while(|(at, _)| *at < end) {
            let from = at.max(place.address);
            let to = at.saturating_add(bytes.len() as u64).min(end);
            let skipped = (from - at) as usize;
            let length = to.saturating_sub(from) as usize;
            let begin = (place.offset + (from - place.address)) as usize;
            let before = self.used.range(..to).next_back();
            let used = before.is_some_and(|(_, &end)| end > from);
            if begin < done || length < SHORTEST || used {
                continue;
            }
            let (Some(wanted), Some(there)) = (
                file.get(begin..begin + length),
                bytes.get(skipped..skipped + length),
            ) else {
                continue;
            };
            // Usually both are the same bytes of a mapped file; this avoids reading gigabytes.
            if std::ptr::eq(wanted, there) || wanted == there {
                self.bytes(&file[done..begin]);
                let _ = writeln!(self.text, "memory {from:x} {length:x}");
                self.used.insert(from, to);
                done = begin + length;
            }
        }
        done
    }

    /// The carrier's length in bytes.
    pub fn length(&self) -> usize {
        let bytes: usize = self.bytes.iter().map(|bytes| bytes.len()).sum();
        MAGIC.len() + self.text.len() + bytes
    }

    /// Writes the carrier.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(self.text.as_bytes())?;
        self.bytes.iter().try_for_each(|bytes| out.write_all(bytes))
    }
}

/// Why a carrier cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CarrierError {
    /// The status line of the trace file gives a length that the file does not have.
    #[error("status: {FIELD}: {0:?} is more than the file's size")]
    Size(String),
    /// It does not start with the first line of a carrier.
    #[error("its first line is not that of a carrier")]
    Magic,
    /// The empty line after its last line is missing.
    #[error("its lines do not end")]
    NoEnd,
    /// A line is not UTF-8.
    #[error("a line is not UTF-8 text")]
    NotText,
    /// A line is not recognised; its first characters.
    #[error("cannot read {0:?}")]
    Line(String),
    /// A path leads outside the snapshot.
    #[error("{0:?} is not a path inside a snapshot")]
    Path(String),
    /// The carrier ends within the bytes of a file.
    #[error("its bytes are truncated")]
    Truncated,
    /// Lines refer to more memory than the trace frame contains.
    #[error("it refers to memory twice")]
    MemoryTwice,
    /// Trace frame 0 does not contain memory that a file refers to.
    #[error("{0}: trace frame 0 lacks memory of it")]
    MemoryMissing(String),
    /// The length of a file differs from that in its line.
    #[error("{path}: expected {expected} bytes, found {found}")]
    Length {
        /// The file.
        path: String,
        /// The length in its line.
        expected: usize,
        /// The number of bytes found.
        found: usize,
    },
    /// Two files have the same path.
    #[error("{0}: there are two files with this name")]
    FileTwice(String),
    /// There are bytes after those of the files.
    #[error("{0} bytes belong to no file")]
    Rest(usize),
    /// The `snapshot.ini` named in the carrier is missing.
    #[error("its file {0:?} is missing")]
    NoEntry(String),
}

impl Carried {
    /// Reads a carrier. `memory` is the memory of trace frame 0.
    ///
    /// # Errors
    ///
    /// Fails if the carrier is damaged, or if memory that it refers to is not in `memory`.
    pub fn read(carrier: &[u8], memory: &Memory<'_>) -> Result<Self, CarrierError> {
        let mut rest = carrier.strip_prefix(MAGIC).ok_or(CarrierError::Magic)?;
        let mut lines = Vec::new();
        loop {
            let end = memchr::memchr(b'\n', rest).ok_or(CarrierError::NoEnd)?;
            let line = std::str::from_utf8(&rest[..end]).map_err(|_| CarrierError::NotText)?;
            rest = &rest[end + 1..];
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        let mut read = Reading {
            carried: Self::default(),
            file: None,
            rest,
            memory,
            memory_left: memory.pieces().map(|(_, bytes)| bytes.len()).sum(),
        };
        for line in lines {
            read.line(line)
                .ok_or_else(|| CarrierError::Line(line.chars().take(60).collect()))??;
        }
        read.end_file()?;
        if !read.rest.is_empty() {
            return Err(CarrierError::Rest(read.rest.len()));
        }
        if !read.carried.files.contains_key(&read.carried.entry) {
            return Err(CarrierError::NoEntry(read.carried.entry));
        }
        Ok(read.carried)
    }

    /// Opens the files as a snapshot.
    ///
    /// # Errors
    ///
    /// If they do not form a snapshot.
    pub fn open(&self) -> Result<OpenSnapshot, armsnap_snapshot::snapshot::Error> {
        let files = self.files.iter();
        let files = files.map(|(path, bytes)| (path.clone(), bytes.0.clone()));
        OpenSnapshot::from_files(std::sync::Arc::new(InMemory(files.collect())), &self.entry)
    }

    /// Writes the files into the new directory `dir`; `force` replaces an existing snapshot.
    ///
    /// # Errors
    ///
    /// If `dir` may not be replaced, or writing fails.
    pub fn write(&self, dir: &Path, force: bool, progress: Progress<'_>) -> Result<(), WriteError> {
        let files = self.files.iter();
        let files = files.map(|(path, bytes)| (path.clone(), bytes.0.clone()));
        write::write_files(&files.collect(), dir, force, progress)
    }
}

/// A carrier while its lines are being read.
struct Reading<'a> {
    carried: Carried,
    /// Path, length and bytes so far.
    file: Option<(String, usize, Vec<u8>)>,
    rest: &'a [u8],
    memory: &'a Memory<'a>,
    /// Bytes of memory to which no line has referred so far.
    memory_left: usize,
}

impl Reading<'_> {
    /// `None` if the line is not recognised.
    fn line(&mut self, line: &str) -> Option<Result<(), CarrierError>> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let text = |word: &str| String::from_utf8(hex::decode(word)?).ok();
        let number = |word: &str| usize::try_from(hex::number(word)?).ok();
        let first = words.next()?;
        let second = words.next();
        if words.next().is_some() {
            return None;
        }
        match (kind, second) {
            ("snapshot", None) => self.carried.entry = text(first)?,
            ("file", Some(length)) => {
                let (path, length) = (text(first)?, number(length)?);
                if paths::normal(&path).as_ref() != Some(&path) || path.is_empty() {
                    return Some(Err(CarrierError::Path(path)));
                }
                if let Err(reason) = self.end_file() {
                    return Some(Err(reason));
                }
                self.file = Some((path, length, Vec::new()));
            }
            ("bytes", None) => {
                let Some((bytes, rest)) = self.rest.split_at_checked(number(first)?) else {
                    return Some(Err(CarrierError::Truncated));
                };
                self.rest = rest;
                return self.append(|file| {
                    file.extend_from_slice(bytes);
                    Some(())
                });
            }
            ("memory", Some(length)) => {
                let (address, length) = (hex::number(first)?, number(length)?);
                let memory = self.memory;
                let Some(left) = self.memory_left.checked_sub(length) else {
                    return Some(Err(CarrierError::MemoryTwice));
                };
                self.memory_left = left;
                return self.append(|file| memory.append(address, length, file));
            }
            _ => return None,
        }
        Some(Ok(()))
    }

    fn append(
        &mut self,
        add: impl FnOnce(&mut Vec<u8>) -> Option<()>,
    ) -> Option<Result<(), CarrierError>> {
        let (path, length, file) = self.file.as_mut()?;
        let added = add(file);
        Some(match added {
            None => Err(CarrierError::MemoryMissing(path.clone())),
            Some(()) if file.len() > *length => Err(CarrierError::Length {
                path: path.clone(),
                expected: *length,
                found: file.len(),
            }),
            Some(()) => Ok(()),
        })
    }

    fn end_file(&mut self) -> Result<(), CarrierError> {
        match self.file.take() {
            None => Ok(()),
            Some((path, expected, bytes)) if bytes.len() != expected => Err(CarrierError::Length {
                path,
                expected,
                found: bytes.len(),
            }),
            Some((path, _, bytes)) => {
                match self.carried.files.insert(path.clone(), Bytes(bytes.into())) {
                    None => Ok(()),
                    Some(_) => Err(CarrierError::FileTwice(path)),
                }
            }
        }
    }
}

/// Memory blocks of a trace frame, by address; if two overlap, the first is read, as in GDB.
#[derive(Clone, Debug, Default)]
pub struct Memory<'a> {
    pieces: BTreeMap<u64, &'a [u8]>,
    covered: Coverage,
}

impl<'a> Memory<'a> {
    /// Adds a block without replacing existing bytes. Returns the added pieces.
    pub fn add(&mut self, address: u64, bytes: &'a [u8]) -> Vec<(u64, &'a [u8])> {
        // A block that would reach beyond the last address ends there.
        let room = usize::try_from(u64::MAX - address)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        let bytes = &bytes[..bytes.len().min(room)];
        let Some(last) = (bytes.len() as u64).checked_sub(1) else {
            return Vec::new();
        };
        // The pieces that the block covers form one range.
        let free = self.covered.add(address, address + last);
        let new = free.into_iter().map(|(first, last)| {
            let part = (first - address) as usize..=(last - address) as usize;
            (first, &bytes[part])
        });
        let new: Vec<(u64, &'a [u8])> = new.collect();
        self.pieces.extend(new.iter().copied());
        new
    }

    /// The pieces by address.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &'a [u8])> {
        self.pieces.iter().map(|(&at, &bytes)| (at, bytes))
    }

    /// Appends `length` bytes from `address`, if all are present.
    fn append(&self, address: u64, length: usize, out: &mut Vec<u8>) -> Option<()> {
        let mut done = 0;
        while done < length {
            let at = address.checked_add(done as u64)?;
            let (&first, piece) = self.pieces.range(..=at).next_back()?;
            let bytes = piece.get(usize::try_from(at - first).ok()?..)?;
            let part = &bytes[..bytes.len().min(length - done)];
            if part.is_empty() {
                return None;
            }
            out.extend_from_slice(part);
            done += part.len();
        }
        Some(())
    }
}
