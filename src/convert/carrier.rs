//! The files of a snapshot behind the trace frames of a trace file.
//!
//! GDB reads no further than the tracepoint number 0 that ends the frames. Behind it come a
//! line `\x7fARMSNAP0`, lines of text that say which files there are and where their bytes
//! stand, an empty line, and bytes. The field `x-armsnap` of the trace file's `status`, which
//! GDB does not know and passes over, has the length of all that in hex.
//!
//! ```text
//! snapshot <path>            the .ini file at the head
//! file <path> <length>       a file; its bytes are those of the lines up to the next one
//! memory <address> <length>  bytes of the memory blocks of trace frame 0
//! bytes <length>             bytes behind the empty line, in order
//! ```
//!
//! Numbers and paths are in hex. Knows no cores and no trace protocols.

use super::Progress;
use crate::mapped::Mapped;
use crate::remote_protocol::hex;
use crate::snapshot::changed;
use crate::snapshot::coverage::Coverage;
use crate::snapshot::files::InMemory;
use crate::snapshot::model::Snapshot;
use crate::snapshot::read::beside;
use crate::snapshot::write::{self, WriteError};
use crate::snapshot::{Loaded, paths};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

/// The first line.
const MAGIC: &[u8] = b"\x7fARMSNAP0\n";

/// Shorter stretches are not worth a line of their own.
const SHORTEST: usize = 32;

/// The field of `status` that tells the carrier's length.
pub const FIELD: &str = "x-armsnap";

/// A snapshot as files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Carried {
    /// The .ini file at the head.
    pub entry: String,
    /// Normal path and bytes.
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

/// Where a part of a file is in memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InMemoryAt {
    offset: u64,
    length: u64,
    address: u64,
}

/// A snapshot's files, and where in memory parts of them are.
#[derive(Clone, Debug, Default)]
pub struct CarriedFiles {
    carried: Carried,
    dumps: BTreeMap<String, Vec<InMemoryAt>>,
}

impl CarriedFiles {
    /// The files of a snapshot that its .ini files name, those as they stand. What is missing,
    /// or lies outside of the snapshot, goes to `notes`.
    pub fn whole(loaded: &Loaded, notes: &mut Vec<String>) -> Self {
        let snapshot = &loaded.snapshot;
        let mut carried_files = Self::default();
        carried_files.carried.entry = paths::normal(&loaded.entry).unwrap_or_default();
        let top = Path::new("");
        carried_files.add(loaded, top, &loaded.entry, notes);
        for device in &snapshot.devices {
            // The old form has its one device in the file at the head.
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

    /// The same without the trace: its .ini files are written anew.
    pub fn without_trace(loaded: &Loaded, notes: &mut Vec<String>) -> Result<Self, WriteError> {
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

    /// The dumps, and the code that changed.
    fn dumps(&mut self, loaded: &Loaded, notes: &mut Vec<String>) {
        if let Some((place, file)) = changed::file(&loaded.snapshot) {
            self.add(loaded, &place.file, file, notes);
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
        loaded: &Loaded,
        from: &Path,
        written: &str,
        notes: &mut Vec<String>,
    ) -> Option<(String, Mapped)> {
        let files = loaded.files();
        let found = beside(from, written, |path| {
            Ok((paths::normal(path), files.bytes(path)?))
        });
        let mut fault = |reason: &str| {
            notes.push(format!(
                "{written}: {reason}: it does not travel with the snapshot"
            ));
            None
        };
        match found {
            Ok((Some(path), bytes)) => {
                let there = self.carried.files.entry(path.clone());
                there.or_insert_with(|| Bytes(bytes.clone()));
                Some((path, bytes))
            }
            Ok((None, _)) => fault("lies outside of the snapshot"),
            Err(problem) => fault(&problem.to_string()),
        }
    }

    /// The carrier's lines and the bytes behind them. `memory` is that of trace frame 0: address
    /// and bytes of pieces that do not overlap, by address.
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

/// A carrier about to be written.
#[derive(Debug)]
pub struct Loading<'a> {
    text: String,
    bytes: Vec<&'a [u8]>,
    /// First address and end of memory that is referred to: once, so that a carrier never gives
    /// more bytes than there are in its file.
    used: BTreeMap<u64, u64>,
}

impl<'a> Loading<'a> {
    fn bytes(&mut self, bytes: &'a [u8]) {
        if !bytes.is_empty() {
            let _ = writeln!(self.text, "bytes {:x}", bytes.len());
            self.bytes.push(bytes);
        }
    }

    /// Refers to memory for what `place` says of the file's bytes, from `done` on; gives how far
    /// the file is done then.
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
            // Mostly both are the same bytes of a mapped file: no need to read gigabytes.
            if std::ptr::eq(wanted, there) || wanted == there {
                self.bytes(&file[done..begin]);
                let _ = writeln!(self.text, "memory {from:x} {length:x}");
                self.used.insert(from, to);
                done = begin + length;
            }
        }
        done
    }

    /// All its bytes.
    pub fn length(&self) -> usize {
        let bytes: usize = self.bytes.iter().map(|bytes| bytes.len()).sum();
        MAGIC.len() + self.text.len() + bytes
    }

    /// Writes it.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(self.text.as_bytes())?;
        self.bytes.iter().try_for_each(|bytes| out.write_all(bytes))
    }
}

impl Carried {
    /// Reads a carrier. `memory` is that of trace frame 0. Fails with the reason.
    pub fn read(carrier: &[u8], memory: &Memory<'_>) -> Result<Self, String> {
        let mut rest = carrier
            .strip_prefix(MAGIC)
            .ok_or("its first line is another")?;
        let mut lines = Vec::new();
        loop {
            let end = memchr::memchr(b'\n', rest).ok_or("its lines have no end")?;
            let line = std::str::from_utf8(&rest[..end]).map_err(|_| "a line is no text")?;
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
                .ok_or_else(|| format!("cannot read {line:.60?}"))??;
        }
        read.end_file()?;
        if !read.rest.is_empty() {
            return Err(format!("{} bytes belong to no file", read.rest.len()));
        }
        if !read.carried.files.contains_key(&read.carried.entry) {
            return Err(format!("its file {:?} is missing", read.carried.entry));
        }
        Ok(read.carried)
    }

    /// The snapshot that the files are.
    pub fn open(&self) -> Result<Loaded, crate::snapshot::Error> {
        let files = self.files.iter();
        let files = files.map(|(path, bytes)| (path.clone(), bytes.0.clone()));
        Loaded::from_files(std::sync::Arc::new(InMemory(files.collect())), &self.entry)
    }

    /// Writes the files into the new directory `dir`; `force` replaces a snapshot that is there.
    pub fn write(&self, dir: &Path, force: bool, progress: Progress<'_>) -> Result<(), WriteError> {
        let files = self.files.iter();
        let files = files.map(|(path, bytes)| (path.clone(), bytes.0.clone()));
        write::write_files(&files.collect(), dir, force, progress)
    }
}

struct Reading<'a> {
    carried: Carried,
    /// Path, length and bytes so far.
    file: Option<(String, usize, Vec<u8>)>,
    rest: &'a [u8],
    memory: &'a Memory<'a>,
    /// Bytes of memory that no line has referred to.
    memory_left: usize,
}

impl Reading<'_> {
    /// `None` where the line is none of those that are known.
    fn line(&mut self, line: &str) -> Option<Result<(), String>> {
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
                    return Some(Err(format!("{path:?} is no path inside of a snapshot")));
                }
                if let Err(reason) = self.end_file() {
                    return Some(Err(reason));
                }
                self.file = Some((path, length, Vec::new()));
            }
            ("bytes", None) => {
                let Some((bytes, rest)) = self.rest.split_at_checked(number(first)?) else {
                    return Some(Err("its bytes are cut".to_owned()));
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
                    return Some(Err("it refers to memory twice".to_owned()));
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
    ) -> Option<Result<(), String>> {
        let (path, length, file) = self.file.as_mut()?;
        let added = add(file);
        Some(match added {
            None => Err(format!("{path}: trace frame 0 lacks memory of it")),
            Some(()) if file.len() > *length => Err(format!("{path}: more than {length} bytes")),
            Some(()) => Ok(()),
        })
    }

    fn end_file(&mut self) -> Result<(), String> {
        match self.file.take() {
            None => Ok(()),
            Some((path, length, bytes)) if bytes.len() != length => Err(format!(
                "{path}: expected {length} bytes, found {}",
                bytes.len()
            )),
            Some((path, _, bytes)) => {
                match self.carried.files.insert(path.clone(), Bytes(bytes.into())) {
                    None => Ok(()),
                    Some(_) => Err(format!("{path}: there are two files of this name")),
                }
            }
        }
    }
}

/// Memory blocks of a trace frame, by address; where two overlap, the first is read, as GDB does.
#[derive(Clone, Debug, Default)]
pub struct Memory<'a> {
    pieces: BTreeMap<u64, &'a [u8]>,
    covered: Coverage,
}

impl<'a> Memory<'a> {
    /// Adds a block; what is there already stays. Gives the pieces of it that were new.
    pub fn add(&mut self, address: u64, bytes: &'a [u8]) -> Vec<(u64, &'a [u8])> {
        // A block that would reach beyond the last address ends there.
        let room = usize::try_from(u64::MAX - address)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        let bytes = &bytes[..bytes.len().min(room)];
        let Some(last) = (bytes.len() as u64).checked_sub(1) else {
            return Vec::new();
        };
        // However many pieces it covers: those are one range.
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

    /// Appends the bytes from `address` on, if all are there.
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
