//! Model → files (Debug and Trace Snapshot File Format 0.2, section 3).
//!
//! The order of devices, registers, dumps and repeated keys is kept. The text is read back before
//! anything is written: a model that the format cannot represent is rejected. The directory is
//! created completely or not at all.

mod replaced;

use super::files::{Files, InMemory, beside};
use super::further_files::further_files;
use super::ini::{self, Document, KeyValue, Section, quote};
use super::model::*;
use super::paths::{self, PathError};
use super::read::OpenSnapshot;
use crate::leftovers::{self, Leftover};
use crate::mapped::{self, Mapped};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a snapshot cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A name or a value contains characters that an .ini file cannot represent.
    #[error("{}: an .ini file cannot hold {}", .file, quote(.text))]
    Text {
        /// The file.
        file: String,
        /// The name or value.
        text: String,
    },
    /// A path is empty or leads outside the snapshot's directory.
    #[error("path {} is empty or leads outside the snapshot's directory", quote(.0))]
    Path(String),
    /// Two different files have the same name.
    #[error("two different files are named {}", quote(.0))]
    Collision(String),
    /// The files would not reproduce the model.
    #[error("the format cannot hold this snapshot: {0} would be read back as something else")]
    Changed(String),
    /// The directory exists.
    #[error("{}: exists; --force replaces a snapshot", .0.display())]
    Exists(PathBuf),
    /// The existing directory is not a snapshot, so even `force` does not replace it.
    #[error("{}: exists and is not a snapshot; name another directory", .0.display())]
    NotASnapshot(PathBuf),
    /// The existing directory contains a file that is not part of its snapshot, or is input.
    #[error(
        "{}: is input, or no part of the snapshot that is to be replaced: it would be lost; \
         name another directory",
        .0.display()
    )]
    InTheWay(PathBuf),
    /// An I/O error.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    move |error| WriteError::Io {
        path: path.to_owned(),
        error,
    }
}

/// Writes a snapshot into the new directory `dir`. `blobs` supplies the files of dumps and buffers;
/// a missing file is left out and noted. `force` replaces an existing snapshot.
///
/// # Errors
///
/// Returns an error if `dir` may not be replaced, the format cannot represent the snapshot, or
/// writing fails.
pub fn write(
    snapshot: &Snapshot,
    blobs: &dyn Files,
    dir: &Path,
    force: bool,
) -> Result<Vec<Note>, WriteError> {
    write_with_progress(snapshot, blobs, dir, force, &mut |_, _| {})
}

/// Same as [`write()`], with progress: `progress` receives the bytes written and the total.
///
/// # Errors
///
/// Returns the errors of [`write()`].
pub fn write_with_progress(
    snapshot: &Snapshot,
    blobs: &dyn Files,
    dir: &Path,
    force: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Note>, WriteError> {
    let mut files = texts(snapshot)?;
    let notes = add_blobs(snapshot, blobs, &mut files)?;
    write_files(&files, dir, force, progress)?;
    Ok(notes)
}

/// Writes files, named by normalised path, into the new directory `dir`. `force` replaces an
/// existing snapshot; `progress` receives the bytes written and the total.
///
/// # Errors
///
/// Returns an error if `dir` may not be replaced, or writing fails.
pub fn write_files(
    files: &BTreeMap<String, Mapped>,
    dir: &Path,
    force: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), WriteError> {
    let replaced = replaced(dir, force)?;
    let empty = is_empty(dir);
    let parent = parent(dir, empty);
    let mut temporary = sibling(dir, parent)?;
    let total = files.values().map(|bytes| bytes.len() as u64).sum();
    let mut written = 0;
    let mut add = |bytes: usize| {
        written += bytes as u64;
        progress(written, total);
    };
    for (name, bytes) in files {
        put(&temporary.path().join(name), bytes, &mut add)?;
    }
    mapped::whole().map_err(at(dir))?;
    if empty {
        return fill(temporary.path(), dir, files);
    }
    move_into_place(&mut temporary, dir, parent, replaced)
}

/// Checks early whether a snapshot may be written to `dir`.
///
/// # Errors
///
/// Returns an error if `dir` may not be replaced, or its parent directory is not writable.
pub fn may_write(dir: &Path, force: bool) -> Result<(), WriteError> {
    replaced(dir, force)?;
    sibling(dir, parent(dir, is_empty(dir))).map(|_| ())
}

/// Whether `dir` is an empty directory. It is filled rather than replaced, because the current
/// directory and mount points cannot be renamed.
fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut inside| inside.next().is_none())
}

/// Returns the directory for the temporary one.
fn parent(dir: &Path, empty: bool) -> &Path {
    if empty {
        return dir;
    }
    let parent = dir.parent().filter(|p| !p.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Moves complete files from a directory in `dir` to `dir`, snapshot.ini last: all of them or none.
fn fill(temporary: &Path, dir: &Path, files: &BTreeMap<String, Mapped>) -> Result<(), WriteError> {
    let others = fs::read_dir(dir).map_err(at(dir))?;
    let others = others.flatten().map(|entry| entry.path());
    if { others }.any(|path| path.file_name() != temporary.file_name()) {
        return Err(WriteError::Exists(dir.to_owned()));
    }
    let first = |path: &String| path.split('/').next().unwrap_or_default().to_owned();
    let mut names: Vec<String> = files.keys().map(first).collect();
    names.sort_by_key(|name| name == "snapshot.ini");
    names.dedup();
    for (done, name) in names.iter().enumerate() {
        if let Err(error) = fs::rename(temporary.join(name), dir.join(name)) {
            for name in &names[..done] {
                // Moved back to the temporary directory, which will be removed.
                let _ = fs::rename(dir.join(name), temporary.join(name));
            }
            return Err(at(dir)(error));
        }
    }
    Ok(())
}

/// Whether `dir` exists and may be replaced.
fn replaced(dir: &Path, force: bool) -> Result<bool, WriteError> {
    if dir.symlink_metadata().is_err() {
        return Ok(false);
    }
    let mut inside = match fs::read_dir(dir) {
        Ok(inside) => inside,
        Err(_) => return Err(WriteError::NotASnapshot(dir.to_owned())),
    };
    if inside.next().is_none() {
        return Ok(true);
    }
    match (force, dir.join("snapshot.ini").is_file()) {
        (true, true) => match replaced::in_the_way(dir).map_err(at(dir))? {
            Some(file) => Err(WriteError::InTheWay(file)),
            None => Ok(true),
        },
        (true, false) => Err(WriteError::NotASnapshot(dir.to_owned())),
        (false, _) => Err(WriteError::Exists(dir.to_owned())),
    }
}

/// Creates a directory next to `dir`, which will be renamed to `dir`.
fn sibling(dir: &Path, parent: &Path) -> Result<Leftover, WriteError> {
    const TRIES: u32 = 1000;
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    leftovers::sweep(dir);
    for number in 0..TRIES {
        let path = parent.join(format!(".{name}.{}.{number}", std::process::id()));
        match mapped::create_directory(&path) {
            Ok(()) => return Ok(Leftover::new(path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(at(dir)(error)),
        }
    }
    Err(at(dir)(io::ErrorKind::AlreadyExists.into()))
}

/// Renames `temporary` to `dir`, and only then removes the old contents.
fn move_into_place(
    temporary: &mut Leftover,
    dir: &Path,
    parent: &Path,
    replaced: bool,
) -> Result<(), WriteError> {
    if !replaced {
        return temporary.rename(dir).map_err(at(dir));
    }
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let mut old = tempfile::Builder::new();
    let old = old.prefix(&format!(".{name}.")).tempdir_in(parent);
    // The old directory is kept until the new one is in place.
    let old = old.map_err(at(parent))?.keep();
    let moved = old.join("old");
    fs::rename(dir, &moved).map_err(at(dir))?;
    if let Err(error) = temporary.rename(dir) {
        // Restore the old directory.
        let _ = fs::rename(&moved, dir);
        let _ = fs::remove_dir(&old);
        return Err(at(dir)(error));
    }
    fs::remove_dir_all(&old).map_err(at(&old))
}

/// Writes a file in pieces; `add` receives the size of each piece. Pieces of zeros become holes if
/// the file system supports them.
fn put(path: &Path, bytes: &Mapped, add: &mut dyn FnMut(usize)) -> Result<(), WriteError> {
    const PIECE: usize = 1 << 16;
    /// The number of bytes after which mapped memory is released.
    const RELEASED: usize = 1 << 22;
    let mut write = || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = mapped::create(path)?;
        let (mut done, mut released) = (0, 0);
        for piece in bytes.chunks(PIECE) {
            if mapped::is_zero(piece) {
                file.seek(SeekFrom::Current(piece.len() as i64))?;
            } else {
                file.write_all(piece)?;
            }
            add(piece.len());
            done += piece.len();
            if done - released >= RELEASED || done == bytes.len() {
                bytes.release(released..done);
                released = done;
            }
        }
        file.set_len(bytes.len() as u64)
    };
    write().map_err(at(path))
}

/// Returns the .ini files of a snapshot, by normalised path, after reading them back and comparing
/// them.
///
/// # Errors
///
/// Returns an error if the format cannot represent the snapshot.
pub fn texts(snapshot: &Snapshot) -> Result<BTreeMap<String, Mapped>, WriteError> {
    texts_of(snapshot.clone())
}

/// Same as [`texts`], for a snapshot that is no longer needed: if it has many buffers, a copy would
/// be large.
pub fn texts_of(mut snapshot: Snapshot) -> Result<BTreeMap<String, Mapped>, WriteError> {
    let files = unchecked_texts(&snapshot)?;
    make_canonical(&mut snapshot);
    let back = OpenSnapshot::from_files(Arc::new(Texts(InMemory(files.clone()))), "snapshot.ini");
    let mut back = back
        .map_err(|error| WriteError::Changed(error.to_string()))?
        .snapshot;
    make_canonical(&mut back);
    match difference(&snapshot, &back) {
        None => Ok(files),
        Some(what) => Err(WriteError::Changed(what)),
    }
}

/// Returns the .ini files, before they are read back.
fn unchecked_texts(snapshot: &Snapshot) -> Result<BTreeMap<String, Mapped>, WriteError> {
    let mut files = BTreeMap::new();
    add_text(&mut files, "snapshot.ini", &head(snapshot))?;
    for device in &snapshot.devices {
        add_text(&mut files, &device.file, &device_document(device))?;
    }
    if let Some(trace) = &snapshot.trace {
        add_text(&mut files, &trace.file, &trace_document(trace))?;
    }
    Ok(files)
}

/// The .ini files of a snapshot. Every other file is empty, so that reading them back does not
/// report each one as missing.
#[derive(Debug)]
struct Texts(InMemory);

impl Files for Texts {
    fn bytes(&self, written: &str) -> Result<Mapped, PathError> {
        Ok(self.0.bytes(written).unwrap_or_else(|_| Vec::new().into()))
    }

    fn length(&self, written: &str) -> Result<u64, PathError> {
        Ok(self.0.length(written).unwrap_or_default())
    }
}

fn add_text(
    files: &mut BTreeMap<String, Mapped>,
    written: &str,
    document: &Document,
) -> Result<(), WriteError> {
    let text = ini::write(document).map_err(|text| WriteError::Text {
        file: written.to_owned(),
        text,
    })?;
    add(files, written, text.into())
}

fn add(
    files: &mut BTreeMap<String, Mapped>,
    written: &str,
    bytes: Mapped,
) -> Result<(), WriteError> {
    let path = paths::normal(written).filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| WriteError::Path(written.to_owned()))?;
    match files.get(&path) {
        // Usually both are the same mapping, so no comparison is needed.
        Some(there) if std::ptr::eq(&**there, &*bytes) || **there == *bytes => Ok(()),
        Some(_) => Err(WriteError::Collision(path)),
        None => {
            files.insert(path, bytes);
            Ok(())
        }
    }
}

fn add_blobs(
    snapshot: &Snapshot,
    blobs: &dyn Files,
    files: &mut BTreeMap<String, Mapped>,
) -> Result<Vec<Note>, WriteError> {
    let dumps = snapshot.devices.iter().flat_map(|device| &device.dumps);
    let dumps = dumps.map(|dump| (&dump.file, &dump.place, &dump.place.file));
    let trace = snapshot.trace.iter();
    let buffers = trace.flat_map(|trace| {
        let from = &trace.place.file;
        let files = trace.buffers.iter();
        files.flat_map(move |b| b.files.iter().map(move |file| (file, &b.place, from)))
    });
    let further = further_files(snapshot);
    let further = further
        .iter()
        .map(|(place, file)| (file, *place, &place.file));
    let mut notes = Vec::new();
    for (written, place, from) in dumps.chain(buffers).chain(further) {
        match beside(from, written, |path| blobs.bytes(path)) {
            Ok(bytes) => add(files, written, bytes)?,
            Err(problem) => notes.push(Note {
                place: place.clone(),
                severity: Severity::Warning,
                section: "",
                text: format!("{}: {problem}: not copied", quote(written)),
            }),
        }
    }
    for library in blobs.libraries() {
        if let Ok(bytes) = blobs.bytes(&library) {
            add(files, &library, bytes)?;
        }
    }
    Ok(notes)
}

fn entry(key: impl Into<String>, value: impl Into<String>) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: value.into(),
        line: 0,
    }
}

fn section(name: &str, entries: Vec<KeyValue>) -> Section {
    Section {
        name: name.to_owned(),
        line: 0,
        entries,
    }
}

fn pairs(pairs: &[(String, String)]) -> impl Iterator<Item = KeyValue> {
    pairs.iter().map(|(key, value)| entry(key, value))
}

fn others(sections: &[OtherSection]) -> impl Iterator<Item = Section> {
    sections
        .iter()
        .map(|other| section(&other.name, pairs(&other.entries).collect()))
}

fn head(snapshot: &Snapshot) -> Document {
    let mut entries = Vec::new();
    if !snapshot.version.is_empty() {
        entries.push(entry("version", &snapshot.version));
    }
    if let Some(description) = &snapshot.description {
        entries.push(entry("description", description));
    }
    entries.extend(pairs(&snapshot.other));
    let devices = snapshot.devices.iter();
    let devices = devices.map(|device| entry(&device.key, &device.file));
    let mut sections = vec![
        section("snapshot", entries),
        section("device_list", devices.collect()),
    ];
    if !snapshot.clusters.is_empty() {
        let clusters = snapshot.clusters.iter();
        let clusters = clusters.map(|c| entry(&c.name, c.devices.join(",")));
        sections.push(section("clusters", clusters.collect()));
    }
    if let Some(trace) = &snapshot.trace {
        sections.push(section("trace", vec![entry("metadata", &trace.file)]));
    }
    sections.extend(others(&snapshot.other_sections));
    Document { sections }
}

fn device_document(device: &Device) -> Document {
    let mut entries = Vec::new();
    if !device.name.is_empty() {
        entries.push(entry("name", &device.name));
    }
    match &device.class {
        DeviceClass::Core => entries.push(entry("class", "core")),
        DeviceClass::TraceSource => entries.push(entry("class", "trace_source")),
        DeviceClass::MemorySpace => entries.push(entry("class", "memory_space")),
        DeviceClass::Other(class) => entries.push(entry("class", class)),
        DeviceClass::Missing => {}
    }
    if !device.kind.is_empty() {
        entries.push(entry("type", &device.kind));
    }
    if let Some(location) = &device.location {
        entries.push(entry("location", location));
    }
    entries.extend(pairs(&device.other));
    let mut sections = vec![section("device", entries)];
    if !device.registers.is_empty() {
        let registers = device.registers.iter();
        let registers = registers.map(|r| entry(register_key(r), r.value.to_string()));
        sections.push(section("regs", registers.collect()));
    }
    for dump in &device.dumps {
        let mut entries = vec![entry("file", &dump.file)];
        entries.extend(dump.space.as_ref().map(|space| entry("space", space)));
        entries.push(entry("address", format!("{:#x}", dump.address)));
        let length = dump.length.map(|n| entry("length", format!("{n:#x}")));
        let offset = dump.offset.map(|n| entry("offset", format!("{n:#x}")));
        entries.extend(length.into_iter().chain(offset));
        entries.extend(pairs(&dump.other));
        sections.push(section(&dump.section, entries));
    }
    sections.extend(others(&device.other_sections));
    Document { sections }
}

fn register_key(register: &Register) -> String {
    let name = &register.name;
    match (register.id, register.size) {
        (None, None) => name.clone(),
        (Some(id), None) => format!("{name}(id:{id:#x})"),
        (None, Some(size)) => format!("{name}(size:{size})"),
        (Some(id), Some(size)) => format!("{name}(id:{id:#x},size:{size})"),
    }
}

fn trace_document(trace: &Trace) -> Document {
    let mut sections = Vec::new();
    if let Some(frequency) = trace.timestamp_frequency {
        let frequency = entry("frequency", frequency.to_string());
        sections.push(section("timestamp", vec![frequency]));
    }
    let ids: Vec<&str> = trace.buffers.iter().map(|b| b.id.as_str()).collect();
    sections.push(section(
        "trace_buffers",
        vec![entry("buffers", ids.join(","))],
    ));
    for buffer in &trace.buffers {
        let mut entries = Vec::new();
        if !buffer.name.is_empty() {
            entries.push(entry("name", &buffer.name));
        }
        entries.push(entry("file", buffer.files.join(",")));
        match &buffer.format {
            BufferFormat::Coresight => entries.push(entry("format", "coresight")),
            BufferFormat::SourceData => entries.push(entry("format", "source_data")),
            BufferFormat::DstreamCoresight => entries.push(entry("format", "dstream_coresight")),
            BufferFormat::Other(format) => entries.push(entry("format", format)),
            BufferFormat::Missing => {}
        }
        entries.extend(pairs(&buffer.other));
        sections.push(section(&buffer.id, entries));
    }
    let cores = trace.core_sources.iter();
    let cores = cores.map(|line| entry(&line.core, &line.source));
    sections.push(section("core_trace_sources", cores.collect()));
    if let Some(lines) = &trace.source_buffers {
        let lines = lines.iter().map(|line| {
            let key = match line.stream {
                Some(stream) => format!("{}(stream:{stream})", line.source),
                None => line.source.clone(),
            };
            entry(key, line.buffers.join(","))
        });
        sections.push(section("source_buffers", lines.collect()));
    }
    sections.extend(others(&trace.other_sections));
    Document { sections }
}

/// Returns the snapshot without positions and with register values of canonical width, so that
/// equivalent snapshots compare equal.
pub fn canonical(snapshot: &Snapshot) -> Snapshot {
    let mut out = snapshot.clone();
    make_canonical(&mut out);
    out
}

fn make_canonical(out: &mut Snapshot) {
    let forget = |place: &mut FileLine| *place = FileLine::default();
    let others = |sections: &mut Vec<OtherSection>| {
        sections.iter_mut().for_each(|s| forget(&mut s.place));
    };
    forget(&mut out.place);
    others(&mut out.other_sections);
    out.clusters.iter_mut().for_each(|c| forget(&mut c.place));
    for device in &mut out.devices {
        forget(&mut device.place);
        forget(&mut device.listed);
        others(&mut device.other_sections);
        device.dumps.iter_mut().for_each(|d| forget(&mut d.place));
        for register in &mut device.registers {
            forget(&mut register.place);
            register.value = register.value.canonical(register.size);
        }
    }
    if let Some(trace) = &mut out.trace {
        forget(&mut trace.place);
        others(&mut trace.other_sections);
        trace.buffers.iter_mut().for_each(|b| forget(&mut b.place));
        let cores = trace.core_sources.iter_mut();
        cores.for_each(|line| forget(&mut line.place));
        let lines = trace.source_buffers.iter_mut().flatten();
        lines.for_each(|line| forget(&mut line.place));
    }
}

/// Returns the first part in which two canonical snapshots differ.
fn difference(a: &Snapshot, b: &Snapshot) -> Option<String> {
    if a == b {
        return None;
    }
    let differing = a.devices.iter().zip(&b.devices).find(|(a, b)| a != b);
    Some(match differing {
        Some((device, _)) => {
            let other = |(a, b): &(&Register, &Register)| a != b;
            let back = b.devices.iter().find(|d| d.key == device.key);
            let registers = back.map_or(&[][..], |back| &back.registers);
            match device.registers.iter().zip(registers).find(other) {
                Some((register, _)) => format!("register {}", quote(&register.name)),
                None => format!("device {}", quote(&device.name)),
            }
        }
        None if a.devices.len() != b.devices.len() => "the list of devices".into(),
        None if a.trace != b.trace => "the trace metadata".into(),
        None => "snapshot.ini".into(),
    })
}
