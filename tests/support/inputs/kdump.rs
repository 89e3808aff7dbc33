//! Compressed core files of a system (kdump), in the layouts of makedumpfile and QEMU.

use flate2::{Compression, write::ZlibEncoder};
use std::io::Write;
use std::ops::Range;

const PAGE: usize = 4096;

/// How pages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Plain,
    Zlib,
    Lzo,
    Snappy,
    Zstandard,
}

/// What a file is made of.
#[derive(Clone)]
pub struct Kdump<'m> {
    pub wide: bool,
    /// Whether 64-bit words are aligned.
    pub aligned: bool,
    pub form: Form,
    pub notes: Vec<u8>,
    /// The number of the first page, and memory from there on.
    pub first: usize,
    pub memory: &'m [u8],
    /// Whether a page is saved.
    pub saved: fn(usize) -> bool,
    /// The pages of one file of a split core file.
    pub split: Option<Range<usize>>,
}

struct Out {
    bytes: Vec<u8>,
    wide: bool,
    aligned: bool,
}

impl Out {
    fn word32(&mut self, value: u64) {
        self.bytes.extend((value as u32).to_le_bytes());
    }

    fn word64(&mut self, value: u64) {
        if self.aligned {
            self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        }
        self.bytes.extend(value.to_le_bytes());
    }

    /// An `unsigned long`.
    fn word(&mut self, value: u64) {
        match self.wide {
            true => self.word64(value),
            false => self.word32(value),
        }
    }

    fn pad(&mut self) {
        self.bytes
            .resize(self.bytes.len().next_multiple_of(PAGE), 0);
    }
}

impl Kdump<'_> {
    /// The file.
    pub fn file(&self) -> Vec<u8> {
        let pages = self.memory.len() / PAGE;
        let most = (self.first + pages) as u64;
        let bitmap = |has: &dyn Fn(usize) -> bool| {
            let mut bits = vec![0_u8; (most as usize).div_ceil(8).next_multiple_of(PAGE)];
            for page in (0..pages).filter(|page| has(*page)) {
                bits[(self.first + page) / 8] |= 1 << ((self.first + page) % 8);
            }
            bits
        };
        let (all, saved) = (bitmap(&|_| true), bitmap(&self.saved));
        let mut out = Out {
            bytes: b"KDUMP   ".to_vec(),
            wide: self.wide,
            aligned: self.aligned,
        };
        out.word32(6);
        let machine = if self.wide { "aarch64" } else { "armv7l" };
        for field in ["Linux", "board", "6.12.0", "#1", machine, "(none)"] {
            let end = out.bytes.len() + 65;
            out.bytes.extend(field.as_bytes());
            out.bytes.resize(end, 0);
        }
        out.bytes.resize(if self.wide { 424 } else { 412 }, 0);
        let blocks = (2 * all.len() / PAGE) as u64;
        let sub = 1 + self.notes.len().div_ceil(PAGE) as u64;
        for field in [0, PAGE as u64, sub, blocks, most, pages as u64, 0, 0, 0, 1] {
            out.word32(field);
        }
        out.pad();
        let split = self.split.clone();
        let split = split.map(|part| part.start as u64..part.end as u64);
        let range = split.clone().unwrap_or(0..0);
        // The physical base, the dump level, and whether there are other files.
        out.word(0);
        out.word32(31);
        out.word32(split.is_some().into());
        out.word(range.start);
        out.word(range.end);
        // VMCOREINFO, which is the last one of the notes, and the notes.
        let info = memchr::memmem::find(&self.notes, b"VMCOREINFO\0");
        let info = info.map_or(0..0, |at| at + 12..self.notes.len());
        for range in [info, 0..self.notes.len(), 0..0] {
            let at = if range.is_empty() { 0 } else { 2 * PAGE };
            out.word64((at + range.start) as u64);
            out.word(range.len() as u64);
        }
        for value in [range.start, range.end, most] {
            out.word64(value);
        }
        out.pad();
        out.bytes.extend(&self.notes);
        out.pad();
        out.bytes.extend([all, saved].concat());
        let here = |page: &usize| {
            let number = (self.first + page) as u64;
            (self.saved)(*page) && split.as_ref().is_none_or(|part| part.contains(&number))
        };
        let pages: Vec<_> = (0..pages)
            .filter(here)
            .map(|page| self.page(page))
            .collect();
        let mut at = (out.bytes.len() + 24 * pages.len()) as u64;
        for (flags, page) in &pages {
            out.bytes.extend(at.to_le_bytes());
            out.word32(page.len() as u64);
            out.word32(u64::from(*flags));
            out.bytes.extend([0; 8]);
            at += page.len() as u64;
        }
        for (_, page) in &pages {
            out.bytes.extend(page);
        }
        out.bytes
    }

    /// The number of bytes of a page in the file.
    pub fn packed(&self, page: usize) -> usize {
        self.page(page).1.len()
    }

    /// A page: its flags, and its bytes.
    fn page(&self, page: usize) -> (u32, Vec<u8>) {
        let bytes = &self.memory[page * PAGE..][..PAGE];
        let (flags, packed) = match self.form {
            Form::Plain => (0, bytes.to_vec()),
            Form::Zlib => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(bytes).unwrap();
                (1, encoder.finish().unwrap())
            }
            Form::Lzo => (2, lzo(bytes)),
            Form::Snappy => (4, snappy(bytes)),
            Form::Zstandard => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                (0x20, ruzstd::encoding::compress_to_vec(bytes, level))
            }
        };
        // Pages that do not become smaller are saved as they are.
        match packed.len() < PAGE {
            true => (flags, packed),
            false => (0, bytes.to_vec()),
        }
    }
}

/// Runs of one byte, as LZO1X: a literal, and a copy of it. Other bytes are literals.
fn lzo(bytes: &[u8]) -> Vec<u8> {
    let long = |out: &mut Vec<u8>, mut length: usize| {
        while length > 255 {
            out.push(0);
            length -= 255;
        }
        out.push(length as u8);
    };
    let same = bytes
        .iter()
        .rev()
        .take_while(|byte| **byte == bytes[bytes.len() - 1]);
    let same = same.count().min(bytes.len() - 4);
    let (literals, rest) = bytes.split_at(bytes.len() - same + 1);
    let mut out = Vec::new();
    match literals.len() {
        count @ ..=238 => out.push(17 + count as u8),
        count => {
            out.push(0);
            long(&mut out, count - 18);
        }
    }
    out.extend(literals);
    if rest.len() > 33 {
        out.push(32);
        long(&mut out, rest.len() - 33);
        out.extend([0, 0]);
    } else {
        return vec![0; PAGE];
    }
    out.extend([0x11, 0, 0]);
    out
}

/// Literals, and copies of the byte before, as Snappy.
fn snappy(bytes: &[u8]) -> Vec<u8> {
    let same = bytes
        .iter()
        .rev()
        .take_while(|byte| **byte == bytes[bytes.len() - 1]);
    let same = same.count().min(bytes.len() - 1) - 1;
    let (literals, rest) = bytes.split_at(bytes.len() - same);
    // The length in groups of 7 bits; the length of the literals in two bytes.
    let mut out = vec![
        bytes.len() as u8 & 0x7f | 0x80,
        (bytes.len() >> 7) as u8,
        61 << 2,
    ];
    out.extend((literals.len() as u16 - 1).to_le_bytes());
    out.extend(literals);
    for piece in rest.chunks(64) {
        out.extend([(piece.len() as u8 - 1) << 2 | 2, 1, 0]);
    }
    out
}
