//! One file of a compressed core file: its notes, bitmaps and descriptors.

use super::header::Header;
use crate::import::fields::Fields;
use armsnap_snapshot::mapped::Mapped;
use std::ops::Range;

/// The number of bytes of a descriptor of a page.
const DESCRIPTOR: u64 = 24;

/// A file, and its headers.
pub struct File {
    /// Its bytes.
    pub bytes: Mapped,
    /// Its headers.
    pub header: Header,
}

/// Where a page is in the file.
pub struct Descriptor<'b> {
    /// How it is compressed.
    pub flags: u32,
    /// Its bytes.
    pub bytes: &'b [u8],
}

impl File {
    /// The bytes of a range that are in the file.
    pub fn held(&self, range: &Range<u64>) -> &[u8] {
        let end = range.end.min(self.bytes.len() as u64);
        let range = range.start as usize..end as usize;
        self.bytes.get(range).unwrap_or(&[])
    }

    /// The notes.
    pub fn notes(&self) -> &[u8] {
        self.held(&self.header.notes)
    }

    /// VMCOREINFO.
    pub fn vmcoreinfo(&self) -> &[u8] {
        self.held(&self.header.vmcoreinfo)
    }

    /// The numbers of the saved pages in `range`, those of other files included.
    pub fn saved(&self, range: Range<u64>) -> impl Iterator<Item = u64> + use<'_> {
        let bitmap = self.held(&self.header.saved);
        let first = (range.start / 8).min(bitmap.len() as u64);
        let bytes = (first..).zip(&bitmap[first as usize..]);
        let numbers = bytes
            .filter(|(_, byte)| **byte != 0)
            .flat_map(|(at, byte)| {
                let bits = (0..8).filter(move |bit| byte >> bit & 1 != 0);
                bits.map(move |bit| at * 8 + bit)
            });
        let numbers = numbers.skip_while(move |number| *number < range.start);
        numbers.take_while(move |number| *number < range.end)
    }

    /// The descriptor of a saved page of this file by its index; `None` if it is missing or damaged.
    pub fn descriptor(&self, index: u64) -> Option<Descriptor<'_>> {
        let Header { descriptors, .. } = self.header;
        let start = descriptors.checked_add(index.checked_mul(DESCRIPTOR)?)?;
        let bytes = self.held(&(start..start.checked_add(DESCRIPTOR)?));
        let mut fields = Fields::new(bytes, self.header.big);
        let (offset, size, flags) = (fields.u64()?, u64::from(fields.u32()?), fields.u32()?);
        // The descriptors that an incomplete file does not have are 0. A page that does not become smaller is
        // saved as it is.
        if offset == 0 || size > self.header.page {
            return None;
        }
        let bytes = self.held(&(offset..offset.checked_add(size)?));
        (bytes.len() as u64 == size).then_some(Descriptor { flags, bytes })
    }
}
