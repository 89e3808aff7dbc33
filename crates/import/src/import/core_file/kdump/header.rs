//! The headers of a compressed core file: `struct disk_dump_header` and `struct kdump_sub_header`, whose
//! layouts are those of the machine that wrote them.

use crate::import::fields::Fields;
use std::ops::Range;

/// The offsets of `utsname` and of its field `machine`, and the length of a field.
const SYSTEM: usize = 12;
const MACHINE: usize = SYSTEM + 4 * NAME;
const NAME: usize = 65;
/// The largest page.
const LARGEST: u64 = 64 << 10;

/// The headers.
#[derive(Clone, Debug)]
pub struct Header {
    /// Whether the machine is big-endian.
    pub big: bool,
    /// Whether its words have 64 bits.
    pub is_64bit: bool,
    /// The machine by its name (`aarch64`); may be empty.
    pub machine: String,
    /// The version of the headers, and the names of the system (`utsname`).
    system: Vec<u8>,
    /// The size of a page.
    pub page: u64,
    /// The pages of this file, by their numbers: the physical address is the number times the size.
    pub pages: Range<u64>,
    /// The number of pages that the bitmaps have bits for.
    pub most: u64,
    /// Whether there are other files.
    pub is_split: bool,
    /// The kinds of pages that makedumpfile left out (its option `-d`).
    pub level: u32,
    /// The bitmap of all pages of memory; empty if the file does not have it.
    pub all: Range<u64>,
    /// The bitmap of the pages that were saved.
    pub saved: Range<u64>,
    /// The offset of the descriptors of saved pages.
    pub descriptors: u64,
    /// The notes.
    pub notes: Range<u64>,
    /// VMCOREINFO.
    pub vmcoreinfo: Range<u64>,
}

/// The layout of the headers.
#[derive(Clone, Copy)]
struct Layout {
    big: bool,
    is_64bit: bool,
    /// Whether 64-bit words are aligned, as on Arm; QEMU does not align them.
    aligned: bool,
}

impl Header {
    /// Reads the headers of a file. The layout is the one with which they are plausible.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let layouts = [false, true].into_iter().flat_map(|big| {
            [(true, true), (false, true), (false, false)].map(|(is_64bit, aligned)| Layout {
                big,
                is_64bit,
                aligned,
            })
        });
        let read = layouts.filter_map(|layout| Self::of(bytes, layout));
        let mut read: Vec<Self> = read.collect();
        let length = bytes.len() as u64;
        let plausible = read.iter().position(|header| {
            let within = |range: &Range<u64>| match range.is_empty() {
                true => range.start == 0,
                false => range.start >= header.page && range.end <= length,
            };
            within(&header.notes) && within(&header.vmcoreinfo)
        });
        // A file may be cut off in its notes.
        let best = plausible.unwrap_or(0);
        (best < read.len()).then(|| read.swap_remove(best))
    }

    fn of(bytes: &[u8], layout: Layout) -> Option<Self> {
        let Layout { big, is_64bit, .. } = layout;
        let from = |at: usize| Some(Fields::new(bytes.get(at..)?, big));
        let version = from(8)?.u32()?;
        // After the time.
        let mut main = from(if is_64bit { 424 } else { 412 })?;
        let _status = main.u32()?;
        let page = u64::from(main.u32()?);
        let (sub, bitmaps) = (u64::from(main.u32()?), u64::from(main.u32()?));
        let mut most = u64::from(main.u32()?);
        let is_size = page.is_power_of_two() && (4096..=LARGEST).contains(&page);
        if !is_size || sub == 0 || bitmaps == 0 {
            return None;
        }
        let mut fields = Sub {
            fields: from(page as usize)?,
            read: 0,
            layout,
        };
        fields.word()?;
        let (level, is_split) = (fields.u32()?, version >= 2 && fields.u32()? != 0);
        let mut pages = fields.word()?..fields.word()?;
        let mut range = || {
            let start = fields.u64()?;
            Some(start..start.saturating_add(fields.word()?))
        };
        let (vmcoreinfo, notes, _erased) = (range()?, range()?, range()?);
        if version >= 6 {
            pages = fields.u64()?..fields.u64()?;
            most = fields.u64()?;
        }
        let start = (1 + sub).checked_mul(page)?;
        let end = start.checked_add(bitmaps.checked_mul(page)?)?;
        // Without pages, makedumpfile does not fill the last block.
        if start >= bytes.len() as u64 || most > (end - start) * 8 {
            return None;
        }
        // Without filters there may be only one bitmap.
        let middle = start + (end - start) / 2;
        let (all, saved) = match most <= (middle - start) * 8 {
            true => (start..middle, middle..end),
            false => (start..start, start..end),
        };
        let machine = bytes.get(MACHINE..MACHINE + NAME)?;
        let none = |range, least| if version >= least { range } else { 0..0 };
        Some(Self {
            big,
            is_64bit,
            machine: Fields::new(machine, big).text(),
            system: bytes.get(8..SYSTEM + 6 * NAME)?.to_vec(),
            page,
            pages: match is_split {
                true => pages.start..pages.end.min(most),
                false => 0..most,
            },
            most,
            is_split,
            level,
            all,
            saved,
            descriptors: end,
            notes: none(notes, 4),
            vmcoreinfo: none(vmcoreinfo, 3),
        })
    }

    /// Whether another file may be of the same split core file: of the same system, with the same bitmaps.
    pub fn is_like(&self, other: &Self) -> bool {
        let all = |header: &Self| {
            let (all, saved) = (header.all.clone(), header.saved.clone());
            let layout = (header.big, header.is_64bit, header.page, header.is_split);
            (layout, header.most, header.level, all, saved)
        };
        all(self) == all(other) && self.system == other.system
    }
}

/// The fields of the sub-header.
struct Sub<'b> {
    fields: Fields<'b>,
    /// The number of bytes that were read.
    read: usize,
    layout: Layout,
}

impl Sub<'_> {
    fn u32(&mut self) -> Option<u32> {
        self.read += 4;
        self.fields.u32()
    }

    fn u64(&mut self) -> Option<u64> {
        if self.layout.aligned && !self.read.is_multiple_of(8) {
            self.u32()?;
        }
        self.read += 8;
        self.fields.u64()
    }

    /// An `unsigned long`.
    fn word(&mut self) -> Option<u64> {
        match self.layout.is_64bit {
            true => self.u64(),
            false => self.u32().map(u64::from),
        }
    }
}
