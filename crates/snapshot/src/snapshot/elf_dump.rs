//! Dumps that name an ELF file and represent its segments instead of its bytes.
//!
//! Hand-written snapshots often name the program as a dump. The bytes of the file are not an image
//! of memory: its header would be where the code is. But memory may also contain an ELF header:
//! that of a loaded program, or of a file in RAM. The bytes are used unchanged unless the file
//! consists of exactly one ELF file whose headers place its segments elsewhere.

use object::{Object, ObjectKind, ObjectSection};
use std::collections::HashMap;

use super::files::{Files, beside};
use super::ini::quote;
use super::model::{Dump, FileLine, Note, Severity, Snapshot, TRACE_FRAME};
use super::paths;
use super::recorded::Recorded;
use crate::mapped::Mapped;
use crate::program::elf::{Elf, Machine, Segment};

/// The first bytes of every ELF file.
const MAGIC: &[u8] = b"\x7fELF";
/// The maximum number of bytes after the contents described by the ELF headers: padding, a
/// signature.
const SLACK: u64 = 4096;
/// A position-independent program is loaded at a multiple of this.
const PAGE: u64 = 4096;
/// The maximum number of file headers and dump segments that are read for all dumps together: many
/// dumps may name one large file.
const MAX_HEADERS: usize = 1 << 18;

/// The ELF segments that a dump represents.
#[derive(Clone, Debug)]
pub struct ElfDump {
    /// The file, with its segments at their addresses.
    pub elf: Elf,
    /// The note for the user.
    pub note: String,
}

impl ElfDump {
    /// Returns the segments and their bytes.
    pub fn segments(&self) -> impl Iterator<Item = (&Segment, Mapped)> {
        let segments = self.elf.segments.iter();
        segments.map(|segment| (segment, self.elf.mapped(segment)))
    }
}

/// Finds the dumps of a snapshot that represent segments, by position; each has a note.
pub(super) fn find(
    files: &dyn Files,
    snapshot: &Snapshot,
    notes: &mut Vec<Note>,
) -> HashMap<FileLine, ElfDump> {
    let mut found = HashMap::new();
    // A tool saved the memory of these snapshots: a page filled by the file of a small program
    // looks like this file.
    let mut sections = snapshot.other_sections.iter();
    let of_trace_frame = sections.any(|section| section.name == TRACE_FRAME);
    let imported = super::imported::is_imported(snapshot);
    if of_trace_frame || imported || Recorded::of(snapshot).is_some() {
        return found;
    }
    let mut room = Room {
        left: MAX_HEADERS,
        first_beyond: None,
    };
    // A file named by several dumps is examined once.
    let mut programs = HashMap::new();
    let dumps = snapshot.devices.iter().flat_map(|device| &device.dumps);
    let mut note = |dump: &Dump, text: String| {
        notes.push(Note {
            place: dump.place.clone(),
            severity: Severity::Warning,
            section: "3.2.3",
            text,
        });
    };
    for dump in dumps.filter(|dump| dump.offset.unwrap_or(0) == 0) {
        let file = paths::normal(&dump.file).unwrap_or_else(|| dump.file.clone());
        let program = programs
            .entry((&dump.place.file, file))
            .or_insert_with(|| Program::of(files, dump, &mut room));
        let program = program.as_ref();
        if let Some(elf) = program.and_then(|program| program.dumped(dump, &mut room)) {
            note(dump, elf.note.clone());
            found.insert(dump.place.clone(), elf);
        }
    }
    if let Some(dump) = room.first_beyond {
        let text = format!(
            "[{}] {}: the ELF files of dumps have more than {MAX_HEADERS} headers and segments: this \
             one and perhaps others are read as they are",
            dump.section,
            quote(&dump.file)
        );
        note(dump, text);
    }
    found
}

/// The number of headers and segments that may still be read.
struct Room<'a> {
    left: usize,
    /// The first dump that exceeded the limit.
    first_beyond: Option<&'a Dump>,
}

impl<'a> Room<'a> {
    fn take(&mut self, count: usize, dump: &'a Dump) -> Option<()> {
        match self.left.checked_sub(count) {
            Some(left) => self.left = left,
            None => {
                self.first_beyond.get_or_insert(dump);
                return None;
            }
        }
        Some(())
    }
}

/// A file that consists of one ELF file, with segments.
struct Program {
    elf: Elf,
    /// The address of the file's first byte.
    begin: Option<u64>,
    /// Whether it is position-independent.
    anywhere: bool,
}

impl Program {
    /// Opens the file of a dump, if it is a program.
    fn of<'a>(files: &dyn Files, dump: &'a Dump, room: &mut Room<'a>) -> Option<Self> {
        let (from, written) = (&dump.place.file, &dump.file);
        if !beside(from, written, |written| files.begins(written, MAGIC)).ok()? {
            return None;
        }
        let open = |written: &str| Ok((files.path(written), files.bytes(written)?));
        let (path, bytes) = beside(from, written, open).ok()?;
        let length = bytes.len() as u64;
        let headers = object::File::parse(&*bytes).ok()?;
        room.take(
            headers.segments().count() + headers.sections().count(),
            dump,
        )?;
        let elf = Elf::read(path, bytes.clone()).ok()?;
        let ends = described(&headers);
        let whole = ends <= length && length - ends <= SLACK;
        if !whole || elf.segments.is_empty() || elf.machine == Machine::Other {
            return None;
        }
        let mut segments = elf.segments.iter();
        let begin = segments.find(|segment| segment.file.start == 0);
        Some(Self {
            begin: begin.map(|first| first.address),
            anywhere: headers.kind() == ObjectKind::Dynamic,
            elf,
        })
    }

    /// Returns what a dump of the file represents, if the segments do not belong at the addresses
    /// of the dump.
    fn dumped<'a>(&self, dump: &'a Dump, room: &mut Room<'a>) -> Option<ElfDump> {
        room.take(self.elf.segments.len(), dump)?;
        let offset = self.begin.filter(|_| self.anywhere);
        let offset = offset.map(|begin| dump.address.wrapping_sub(begin));
        let offset = offset.filter(|offset| offset.is_multiple_of(PAGE));
        let elf = self.elf.clone().moved(offset.unwrap_or(0));
        let in_a_row = |segment: &Segment| {
            dump.address.wrapping_add(segment.file.start as u64) == segment.address
        };
        let length = elf.whole().len() as u64;
        let partly = dump.length.is_some_and(|length_of| length_of < length);
        // The program was loaded there, or both interpretations are the same.
        let in_place = self.begin.is_some() && elf.segments.first().is_some_and(in_a_row);
        if in_place && (partly || elf.segments.iter().all(in_a_row)) {
            return None;
        }
        let note = describe(&elf, dump);
        Some(ElfDump { elf, note })
    }
}

/// Returns the end, in the file, of the contents described by the ELF headers.
fn described(file: &object::File<'_>) -> u64 {
    use object::ObjectSegment;
    let end = |(offset, size): (u64, u64)| offset.saturating_add(size);
    let segments = file.segments().map(|segment| end(segment.file_range()));
    let sections = file.sections();
    let sections = sections.filter_map(|section| section.file_range().map(end));
    let tables = match file {
        object::File::Elf32(elf) => tables(elf),
        object::File::Elf64(elf) => tables(elf),
        _ => 0,
    };
    segments.chain(sections).max().unwrap_or(0).max(tables)
}

/// Returns the end of the tables of program and section headers.
fn tables<E: object::read::elf::FileHeader>(elf: &object::read::elf::ElfFile<'_, E>) -> u64 {
    let (header, endian) = (elf.elf_header(), elf.endian());
    let end = |offset: u64, size: u16, count: u64| {
        offset.saturating_add(u64::from(size).saturating_mul(count))
    };
    let programs = header.e_phoff(endian).into();
    let programs = end(
        programs,
        header.e_phentsize(endian),
        header.e_phnum(endian).into(),
    );
    let sections = match header.e_shoff(endian).into() {
        0 => 0,
        offset => end(
            offset,
            header.e_shentsize(endian),
            header.e_shnum(endian).into(),
        ),
    };
    programs.max(sections)
}

fn describe(elf: &Elf, dump: &Dump) -> String {
    const LISTED: usize = 4;
    let segments = elf.segments.iter().take(LISTED);
    let mut ranges: Vec<String> = segments
        .map(|segment| {
            format!(
                "{:#x}-{:#x}",
                segment.address,
                segment.end().wrapping_sub(1)
            )
        })
        .collect();
    match elf.segments.len().saturating_sub(LISTED) {
        0 => {}
        more => ranges.push(format!("{more} more")),
    }
    let written = match elf.segments.iter().any(|segment| segment.writable) {
        true => ", writable data as before the program ran",
        false => "",
    };
    format!(
        "[{}] {} is an ELF file, and its bytes do not belong at {:#x}: its segments are read as \
         memory ({}){written}; without this dump --elf {} does the same",
        dump.section,
        quote(&dump.file),
        dump.address,
        ranges.join(", "),
        word(&elf.path.to_string_lossy()),
    )
}

/// Quotes a word for the shell.
fn word(path: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    match path.chars().all(plain) {
        true => path.to_owned(),
        false => format!(
            "'{}'",
            path.escape_debug().to_string().replace('\'', "'\\''")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::elf::small_elf::small_elf;
    use crate::snapshot::OpenSnapshot;
    use crate::snapshot::files::InMemory;
    use crate::snapshot::memory::CoreMemory;
    use armsnap_arch::arch::Space;
    use armsnap_arch::quantity::Address;
    use std::sync::Arc;

    /// Returns a snapshot with one dump.
    fn loaded(file: Vec<u8>, keys: &str) -> OpenSnapshot {
        let mut files = InMemory::default();
        let device = format!("[device]\nname=a\nclass=core\n[dump]\nfile=p.out\n{keys}\n");
        for (name, bytes) in [
            ("snapshot.ini", b"[device_list]\na=a.ini\n".to_vec()),
            ("a.ini", device.into_bytes()),
            ("p.out", file),
        ] {
            files.0.insert(name.into(), bytes.into());
        }
        OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap()
    }

    fn read(loaded: &OpenSnapshot, address: u64, length: usize) -> Vec<u8> {
        let memory = CoreMemory::new(loaded, &loaded.snapshot.devices[0]);
        let mut bytes = vec![0; length];
        let known = memory.read(Address(address), Space::El1N, &mut bytes);
        bytes.truncate(known);
        bytes
    }

    fn notes(loaded: &OpenSnapshot) -> Vec<String> {
        let notes = loaded.notes.iter().map(ToString::to_string);
        notes.filter(|note| note.contains("ELF file")).collect()
    }

    #[test]
    fn segments_replace_the_bytes_of_a_program_dump() {
        for keys in ["address=0", "address=0x40\nlength=0x40", "address=0x1000"] {
            let loaded = loaded(small_elf(b"code", b"data"), keys);
            assert_eq!(read(&loaded, 0x1000, 4), b"code", "{keys}");
            assert_eq!(read(&loaded, 0x2000, 9), b"data", "{keys}");
            assert_eq!(read(&loaded, 0x1004, 4), b"", "{keys}");
            let notes = notes(&loaded);
            assert_eq!(notes.len(), 1, "{keys}: {notes:?}");
            assert!(
                notes[0].contains("without this dump --elf p.out"),
                "{notes:?}"
            );
            assert!(
                notes[0].contains("0x1000-0x1003, 0x2000-0x2003"),
                "{notes:?}"
            );
        }
    }

    /// Returns [`small_elf`] with a first segment that starts with the header, at 0x1000.
    fn with_header() -> Vec<u8> {
        let mut elf = small_elf(b"code", b"data");
        let code = 64 + 2 * 56 + 4_u64;
        elf[64 + 8..64 + 16].copy_from_slice(&0_u64.to_le_bytes());
        elf[64 + 32..64 + 40].copy_from_slice(&code.to_le_bytes());
        elf
    }

    #[test]
    fn memory_that_contains_an_elf_file_stays_memory() {
        let small = || small_elf(b"code", b"data");
        let followed = [small(), vec![7; 1 << 16]].concat();
        let mut cut = small();
        cut.truncate(64 + 2 * 56 + 6);
        for (file, keys) in [
            // A file in RAM, followed by other contents.
            (followed, "address=0"),
            // The first page of a program.
            (cut, "address=0"),
            // A deliberately chosen part of the file.
            (small(), "address=0x9000\noffset=4"),
            // A program where it was loaded, cut short.
            (with_header(), "address=0x1000\nlength=0x80"),
            (b"\x7fELF, not".to_vec(), "address=0"),
        ] {
            let loaded = loaded(file, keys);
            assert_eq!(notes(&loaded), Vec::<String>::new(), "{keys}");
            let at = loaded.snapshot.devices[0].dumps[0].address;
            assert!(!read(&loaded, at, 4).is_empty(), "{keys}");
        }
        // Loaded there, except for its data, which belongs elsewhere.
        let whole = loaded(with_header(), "address=0x1000");
        assert_eq!(notes(&whole).len(), 1);
        assert_eq!(read(&whole, 0x1000, 4), MAGIC);
        assert_eq!(read(&whole, 0x2000, 4), b"data");
    }

    #[test]
    fn a_position_independent_program_starts_at_its_first_byte() {
        let mut elf = with_header();
        elf[16] = 3; // ET_DYN
        let loaded = loaded(elf, "address=0x7f0000001000");
        assert_eq!(read(&loaded, 0x7f00_0000_1000, 4), MAGIC);
        assert_eq!(read(&loaded, 0x7f00_0000_2000, 4), b"data");
    }

    #[test]
    fn damaged_files_are_harmless() {
        let good = small_elf(b"code", b"data");
        for at in 0..64 + 2 * 56 {
            for value in [0, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let loaded = loaded(bad, "address=0xfffffffffffffff0");
                for address in [0, 0x1000, u64::MAX] {
                    read(&loaded, address, 64);
                }
            }
        }
    }
}
