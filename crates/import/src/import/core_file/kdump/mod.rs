//! Core files of a system in makedumpfile's compressed form (kdump), which QEMU writes, too: bitmaps of the
//! pages, descriptors, and pages that are compressed one by one.
//!
//! The pages are decompressed into a temporary file, with program headers as an ELF file has them.

mod header;
mod lzo;
mod page;

use super::{EM_AARCH64, EM_ARM, Header as ProgramHeader, PT_LOAD, PT_NOTE, ProgramHeaders, part};
use crate::import::fields::Fields;
use crate::import::note::{CoreFileNote, Note};
use crate::import::packed::{self, Failed, Sparse};
use crate::import::{ImportError, imported};
use armsnap_snapshot::mapped::{self, Mapped};
use armsnap_snapshot::text;
use header::Header;
use page::Pages;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// The number of bytes of a descriptor of a page.
const DESCRIPTOR: u64 = 24;
/// The maximum number of parts of memory in a small file; each [`BYTES_EACH`] bytes allow one more.
const LEAST_PARTS: usize = 1 << 12;
const BYTES_EACH: usize = 64;
/// The maximum number of files in a directory among which those of a split core file are looked for.
const MOST_BESIDE: usize = 1 << 12;

/// Whether bytes are the start of a compressed core file.
pub fn is_kdump(bytes: &[u8]) -> bool {
    bytes.starts_with(b"KDUMP   ") || bytes.starts_with(b"DISKDUMP")
}

/// One file, and its headers.
struct File {
    bytes: Mapped,
    header: Header,
}

/// Decompresses a core file: the bytes of its notes and its memory, and where they are. Adds what was left out
/// to `notes`.
///
/// # Errors
///
/// If the headers are damaged, or it is of a system that is not Arm.
pub fn read(
    path: &Path,
    bytes: Mapped,
    notes: &mut Vec<Note>,
) -> Result<(Mapped, ProgramHeaders), ImportError> {
    let fault = |text: String| ImportError::input(path, text);
    let header = Header::read(&bytes);
    let header = header
        .ok_or_else(|| fault("compressed core file (kdump) with damaged headers".to_owned()))?;
    let machine = &*header.machine;
    let is_arm = machine.starts_with("aarch64") || machine.starts_with("arm");
    if !is_arm && !machine.is_empty() && machine != "Unknown" {
        return Err(fault(format!(
            "compressed core file (kdump) of a system on {}: expected aarch64 or arm",
            text::one_line(machine)
        )));
    }
    let layout = ProgramHeaders {
        big: header.big,
        is_64bit: header.is_64bit,
        machine: match header.is_64bit {
            true => EM_AARCH64,
            false => EM_ARM,
        },
        headers: Vec::new(),
    };
    let files = with_others(path, File { bytes, header }, notes);
    let length: usize = files.iter().map(|file| file.bytes.len()).sum();
    let mut memory = Memory {
        layout,
        most: LEAST_PARTS + length / BYTES_EACH,
        ..Memory::default()
    };
    let held = packed::temporary("kdump", length as u64, |out| memory.fill(&files, out));
    let held = held.map_err(fault)?;
    notes.extend(memory.notes(&files));
    Ok((held, memory.layout))
}

/// The file, and the others of a split core file that are in the same directory, in the order of their pages.
fn with_others(path: &Path, first: File, notes: &mut Vec<Note>) -> Vec<File> {
    if !first.header.is_split {
        return vec![first];
    }
    let mut files = vec![first];
    let beside = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let beside = fs::read_dir(beside.unwrap_or(Path::new(".")));
    for entry in beside.into_iter().flatten().flatten().take(MOST_BESIDE) {
        let other = entry.path();
        let is_one = other.is_file() && mapped::head(&other, 8).is_ok_and(|head| is_kdump(&head));
        let Some(bytes) = is_one.then(|| imported::map(&other).ok()).flatten() else {
            continue;
        };
        let Some(header) = Header::read(&bytes) else {
            continue;
        };
        let common = header.is_split && header.common == files[0].header.common;
        // The file itself is one of them.
        let known = |file: &File| file.header.pages == header.pages;
        if common && header.page == files[0].header.page && !files.iter().any(known) {
            files.push(File { bytes, header });
        }
    }
    files.sort_by_key(|file| file.header.pages.start);
    notes.push(CoreFileNote::SplitFiles { files: files.len() }.into());
    files
}

/// What was read of the pages.
#[derive(Default)]
struct Memory {
    layout: ProgramHeaders,
    /// The maximum number of parts.
    most: usize,
    /// Pages that are missing or damaged: their number, and the address of the first one.
    damaged: Missing,
    /// Pages in parts beyond the maximum.
    beyond: Missing,
    /// Pages that another file of a split core file has.
    elsewhere: Missing,
}

#[derive(Default)]
struct Missing {
    pages: u64,
    first: u64,
}

impl Missing {
    fn add(&mut self, pages: u64, address: u64) {
        if self.pages == 0 {
            self.first = address;
        }
        self.pages += pages;
    }
}

impl Memory {
    /// Writes notes and pages.
    fn fill(&mut self, files: &[File], out: &mut Sparse<'_>) -> Result<(), Failed> {
        let notes = notes(files);
        self.layout.headers.push(ProgramHeader {
            kind: PT_NOTE,
            in_file: notes.len() as u64,
            ..ProgramHeader::default()
        });
        let page = files[0].header.page;
        let mut at = notes.len().next_multiple_of(page as usize);
        out.push(&[&*notes, &vec![0; at - notes.len()]].concat())?;
        let mut pages = Pages::new(page as usize);
        let mut next = 0;
        for file in files {
            let range = &file.header.pages;
            if file.header.is_split && range.start > next {
                let gap = range.start - next;
                self.elsewhere.add(gap, next.saturating_mul(page));
            }
            for (index, number) in saved(file, range.start.max(next)..range.end) {
                let address = number.saturating_mul(page);
                let Some(bytes) = self::page(file, index, &mut pages) else {
                    self.damaged.add(1, address);
                    continue;
                };
                if !self.extend(at as u64, address, page) {
                    self.beyond.add(1, address);
                    continue;
                }
                out.push(bytes)?;
                at += bytes.len();
            }
            next = next.max(range.end);
        }
        Ok(())
    }

    /// Extends the last part by a page, or begins another one; `false` if there are too many.
    fn extend(&mut self, offset: u64, address: u64, page: u64) -> bool {
        let headers = &mut self.layout.headers;
        let count = headers.len();
        if let Some(last) = headers.last_mut().filter(|last| last.kind == PT_LOAD)
            && last.physical + last.in_file == address
        {
            last.in_file += page;
            last.in_memory += page;
            return true;
        }
        if count > self.most {
            return false;
        }
        headers.push(ProgramHeader {
            kind: PT_LOAD,
            offset,
            physical: address,
            in_file: page,
            in_memory: page,
            ..ProgramHeader::default()
        });
        true
    }

    /// Notes on what is not known.
    fn notes(&self, files: &[File]) -> Vec<Note> {
        let bits = |range: &Range<u64>| -> u64 {
            let bytes = held(&files[0].bytes, range).iter();
            bytes.map(|byte| u64::from(byte.count_ones())).sum()
        };
        let header = &files[0].header;
        let filtered = bits(&header.all).saturating_sub(bits(&header.saved));
        let filtered = (filtered > 0).then_some(CoreFileNote::FilteredPages {
            pages: filtered,
            level: header.level,
        });
        let missing = |missing: &Missing, note: fn(u64, u64) -> CoreFileNote| {
            (missing.pages > 0).then(|| note(missing.pages, missing.first))
        };
        let notes = [
            filtered,
            missing(&self.elsewhere, |pages, first| {
                CoreFileNote::PagesElsewhere { pages, first }
            }),
            missing(&self.damaged, |pages, first| CoreFileNote::DamagedPages {
                pages,
                first,
            }),
            missing(&self.beyond, |pages, first| CoreFileNote::PagesBeyond {
                pages,
                first,
            }),
        ];
        notes.into_iter().flatten().map(Into::into).collect()
    }
}

/// The bytes of a range that are in the file.
fn held<'b>(bytes: &'b [u8], range: &Range<u64>) -> &'b [u8] {
    let end = range.end.min(bytes.len() as u64);
    part(bytes, range.start, end.saturating_sub(range.start)).unwrap_or(&[])
}

/// The notes, and VMCOREINFO as one of them.
fn notes(files: &[File]) -> Vec<u8> {
    let with = files.iter().find(|file| !file.header.notes.is_empty());
    let File { bytes, header } = with.unwrap_or(&files[0]);
    let mut out = held(bytes, &header.notes).to_vec();
    let (notes, info) = (&header.notes, &header.vmcoreinfo);
    let is_note = notes.start <= info.start && info.end <= notes.end;
    if !info.is_empty() && !is_note {
        const NAME: &[u8] = b"VMCOREINFO\0\0";
        out.resize(out.len().next_multiple_of(4), 0);
        let info = held(bytes, info);
        for word in [NAME.len() as u32 - 1, info.len() as u32, 0] {
            out.extend(match header.big {
                true => word.to_be_bytes(),
                false => word.to_le_bytes(),
            });
        }
        out.extend(NAME);
        out.extend(info);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out
}

/// The saved pages of a file from `range`: the number of the descriptor, and that of the page.
fn saved(file: &File, range: Range<u64>) -> impl Iterator<Item = (u64, u64)> + use<'_> {
    let File { bytes, header } = file;
    let bitmap = held(bytes, &header.saved);
    let from = header.pages.start;
    let first = usize::try_from(from / 8)
        .unwrap_or(usize::MAX)
        .min(bitmap.len());
    let bytes = bitmap[first..].iter().enumerate();
    let numbers = bytes
        .filter(|(_, byte)| **byte != 0)
        .flat_map(move |(at, byte)| {
            let bits = (0..8).filter(move |bit| byte >> bit & 1 != 0);
            bits.map(move |bit| (first + at) as u64 * 8 + bit)
        });
    let numbers = numbers.skip_while(move |number| *number < from);
    let numbers = (0..)
        .zip(numbers)
        .take_while(move |(_, number)| *number < range.end);
    numbers.skip_while(move |(_, number)| *number < range.start)
}

/// A page by the number of its descriptor; `None` if it is missing or damaged.
fn page<'p>(file: &File, index: u64, pages: &'p mut Pages) -> Option<&'p [u8]> {
    let File { bytes, header } = file;
    let at = header
        .descriptors
        .checked_add(index.checked_mul(DESCRIPTOR)?)?;
    let mut fields = Fields::new(part(bytes, at, DESCRIPTOR)?, header.big);
    let (offset, size, flags) = (fields.u64()?, fields.u32()?, fields.u32()?);
    // The descriptors that an incomplete file does not have are 0.
    let bytes = part(bytes, offset, size.into()).filter(|_| offset > 0)?;
    pages.read(flags, bytes)
}
