//! Core files of a system in makedumpfile's compressed form (kdump), which QEMU writes, too: bitmaps of the
//! pages, descriptors, and pages that are compressed one by one.
//!
//! The pages are decompressed into a temporary file, with program headers as an ELF file has them.

mod file;
mod header;
mod lzo;
mod page;
mod split;

use super::{EM_AARCH64, EM_ARM, Header as ProgramHeader, PT_LOAD, PT_NOTE, ProgramHeaders};
use crate::import::ImportError;
use crate::import::note::{CoreFileNote, Note};
use crate::import::packed::{self, Failed, Sparse};
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::text;
use file::{Descriptor, File};
use header::Header;
use page::Pages;
use std::ops::Range;
use std::path::Path;

/// The maximum number of parts of memory in a small file; each [`BYTES_EACH`] bytes allow one more.
const LEAST_PARTS: usize = 1 << 12;
const BYTES_EACH: usize = 64;
/// The maximum number of bytes of notes, and of VMCOREINFO.
const MOST_NOTES: usize = 64 << 20;

/// Whether bytes are the start of a compressed core file.
pub fn is_kdump(bytes: &[u8]) -> bool {
    bytes.starts_with(b"KDUMP   ") || bytes.starts_with(b"DISKDUMP")
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
    let files = split::with_others(path, File { bytes, header }, notes);
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
    /// The number of bytes of notes that are left out.
    notes_left_out: usize,
}

#[derive(Default)]
struct Missing {
    pages: u64,
    first: u64,
}

impl Missing {
    fn add(&mut self, address: u64) {
        if self.pages == 0 {
            self.first = address;
        }
        self.pages += 1;
    }
}

impl Memory {
    /// Writes notes and pages.
    fn fill(&mut self, files: &[File], out: &mut Sparse<'_>) -> Result<(), Failed> {
        let page = files[0].header.page;
        let mut at = self.fill_notes(files, out)?;
        self.layout.headers.push(ProgramHeader {
            kind: PT_NOTE,
            in_file: at as u64,
            ..ProgramHeader::default()
        });
        at += pad(at, page as usize, out)?;
        let mut pages = Pages::new(page as usize);
        let mut next = 0;
        for file in files {
            let range = &file.header.pages;
            self.skip(file, next..range.start);
            for (index, number) in (0..).zip(file.saved(range.clone())) {
                let address = number.saturating_mul(page);
                let packed = file.descriptor(index);
                let bytes = packed.and_then(|Descriptor { flags, bytes }| pages.read(flags, bytes));
                let Some(bytes) = bytes else {
                    self.damaged.add(address);
                    continue;
                };
                if !self.extend(at as u64, address, page) {
                    self.beyond.add(address);
                    continue;
                }
                out.push(bytes)?;
                at += bytes.len();
            }
            next = next.max(range.end);
        }
        self.skip(&files[0], next..files[0].header.most);
        Ok(())
    }

    /// Counts the pages that other files have.
    fn skip(&mut self, file: &File, range: Range<u64>) {
        for number in file.saved(range) {
            self.elsewhere.add(number.saturating_mul(file.header.page));
        }
    }

    /// Writes the notes, and VMCOREINFO as one of them; their number of bytes.
    fn fill_notes(&mut self, files: &[File], out: &mut Sparse<'_>) -> Result<usize, Failed> {
        let with = files.iter().find(|file| !file.header.notes.is_empty());
        let file = with.unwrap_or(&files[0]);
        let mut first = |bytes: &'_ [u8]| {
            let used = bytes.len().min(MOST_NOTES);
            self.notes_left_out += bytes.len() - used;
            used
        };
        let notes = &file.notes()[..first(file.notes())];
        out.push(notes)?;
        let mut at = notes.len();
        let (range, info) = (&file.header.notes, &file.header.vmcoreinfo);
        let is_note = range.start <= info.start && info.end <= range.end;
        if !info.is_empty() && !is_note {
            const NAME: &[u8] = b"VMCOREINFO\0\0";
            let info = &file.vmcoreinfo()[..first(file.vmcoreinfo())];
            at += pad(at, 4, out)?;
            let words = [NAME.len() as u32 - 1, info.len() as u32, 0];
            let words = words.map(|word| match file.header.big {
                true => word.to_be_bytes(),
                false => word.to_le_bytes(),
            });
            for piece in [words.as_flattened(), NAME, info] {
                out.push(piece)?;
                at += piece.len();
            }
            at += pad(at, 4, out)?;
        }
        Ok(at)
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
            let bytes = files[0].held(range).iter();
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
        let cut = (self.notes_left_out > 0).then_some(CoreFileNote::LargeNotes {
            left_out: self.notes_left_out,
            used: MOST_NOTES,
        });
        let notes = [
            cut,
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

/// Writes zeros up to a multiple of `unit` bytes; their number.
fn pad(at: usize, unit: usize, out: &mut Sparse<'_>) -> Result<usize, Failed> {
    let count = at.next_multiple_of(unit) - at;
    out.push(&vec![0; count])?;
    Ok(count)
}
