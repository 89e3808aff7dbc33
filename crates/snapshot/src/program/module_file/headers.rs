//! The section headers and the symbols of the file being linked.

use super::{ModuleFile, Placement};
use object::elf::{ET_EXEC, SHF_ALLOC, SHF_COMPRESSED, SHT_NOBITS, SHT_SYMTAB};
use object::{Object, ObjectSection, SectionIndex};

/// The position of the headers and the size of their fields (ELF-64 Object File Format 1.5, 4;
/// System V ABI 4.1, chapter 4).
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    is_64bit: bool,
    table: u64,
    entry: u64,
}

/// A field: its offset in 64-bit and 32-bit files, and whether it has 4 bytes in both.
#[derive(Clone, Copy)]
struct Field(u64, u64, bool);

const TYPE: Field = Field(4, 4, true);
const FLAGS: Field = Field(8, 8, false);
const ADDRESS: Field = Field(16, 12, false);
const OFFSET: Field = Field(24, 16, false);
const SIZE: Field = Field(32, 20, false);

impl Headers {
    pub(super) fn read(bytes: &[u8], is_64bit: bool) -> Self {
        let number = |at: usize, size: usize| {
            let mut out = [0; 8];
            let field = bytes.get(at..at + size).unwrap_or(&[]);
            out[..field.len()].copy_from_slice(field);
            u64::from_le_bytes(out)
        };
        let (table, entry) = match is_64bit {
            true => (number(0x28, 8), number(0x3a, 2)),
            false => (number(0x20, 4), number(0x2e, 2)),
        };
        Self {
            is_64bit,
            table,
            entry,
        }
    }

    fn set(&self, out: &mut [u8], section: SectionIndex, field: Field, value: u64) {
        let index = section.0 as u64;
        let at = self.table.wrapping_add(index.wrapping_mul(self.entry));
        let at = at.wrapping_add(if self.is_64bit { field.0 } else { field.1 });
        let size = if self.is_64bit && !field.2 { 8 } else { 4 };
        let end = usize::try_from(at)
            .ok()
            .and_then(|at| Some((at, at.checked_add(size)?)));
        if let Some(field) = end.and_then(|(at, end)| out.get_mut(at..end)) {
            field.copy_from_slice(&value.to_le_bytes()[..size]);
        }
    }

    /// Moves a section to the end of the file and replaces its contents.
    pub(super) fn replace(
        &self,
        section: &object::Section<'_, '_>,
        contents: &[u8],
        out: &mut Vec<u8>,
    ) {
        let flags = super::flags(section) & !SHF_COMPRESSED.0;
        out.resize(out.len().next_multiple_of(8), 0);
        let index = section.index();
        self.set(out, index, FLAGS, flags);
        let end = out.len() as u64;
        self.set(out, index, OFFSET, end);
        self.set(out, index, SIZE, contents.len() as u64);
        out.extend(contents);
    }

    /// Makes the file executable: writes the addresses of sections and of the symbols in them.
    pub(super) fn place(&self, module: &ModuleFile<'_>, placement: &Placement, out: &mut [u8]) {
        out[16..18].copy_from_slice(&ET_EXEC.0.to_le_bytes());
        for (section, name, _) in module.loaded() {
            match placement.of(section.index()) {
                Some(address) => {
                    self.set(out, section.index(), ADDRESS, address);
                    // The kernel determines its contents.
                    if super::placement::is_written_by_kernel(name) {
                        self.set(out, section.index(), TYPE, SHT_NOBITS.0.into());
                    }
                }
                None => {
                    let flags = super::flags(&section) & !SHF_ALLOC.0;
                    self.set(out, section.index(), FLAGS, flags);
                }
            }
        }
        for section in module.file.sections() {
            let object::SectionFlags::Elf { sh_type, .. } = section.flags() else {
                continue;
            };
            let range = super::range(&section, out).filter(|_| sh_type == SHT_SYMTAB);
            if let Some(range) = range {
                self.symbols(module, placement, &mut out[range]);
            }
        }
    }

    /// Sets the addresses of symbols. Symbols of sections without an address become undefined.
    fn symbols(&self, module: &ModuleFile<'_>, placement: &Placement, table: &mut [u8]) {
        let (size, shndx, value, width) = match self.is_64bit {
            true => (24, 6, 8, 8),
            false => (16, 14, 4, 4),
        };
        for symbol in table.chunks_exact_mut(size) {
            let index = u16::from_le_bytes([symbol[shndx], symbol[shndx + 1]]);
            let is_section = (1..0xff00).contains(&index);
            let index = SectionIndex(index.into());
            if !is_section || module.file.section_by_index(index).is_err() {
                continue;
            }
            match placement.of(index) {
                Some(base) => {
                    let mut offset = [0; 8];
                    offset[..width].copy_from_slice(&symbol[value..value + width]);
                    let address = base.wrapping_add(u64::from_le_bytes(offset));
                    symbol[value..value + width].copy_from_slice(&address.to_le_bytes()[..width]);
                }
                None => symbol[shndx..shndx + 2].fill(0),
            }
        }
    }
}
