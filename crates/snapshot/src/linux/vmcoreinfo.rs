//! VMCOREINFO: addresses, offsets and sizes that a kernel provides to readers of its memory.
//!
//! It is a text with lines `KEY=VALUE` (Linux, Documentation/admin-guide/kdump/vmcoreinfo.rst), in
//! a note that the kernel keeps in memory.

use armsnap_arch::translation::{KernelForm, KernelTables};
use std::collections::BTreeMap;

/// The name of the note.
const NAME: &[u8] = b"VMCOREINFO\0";
/// The size of the note's header and padded name in bytes.
const HEADER: usize = 12 + 12;
/// The maximum size of the text: a page of at most 64 KiB.
const MAX_TEXT: usize = 1 << 16;

/// Error for a value that VMCOREINFO does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("VMCOREINFO has no {0}")]
pub struct NoValue(pub(super) String);

/// The values in VMCOREINFO, by key.
#[derive(Clone, Debug)]
pub struct Info {
    values: BTreeMap<String, String>,
    /// The tables of the kernel and the offset of its image, if they do not follow from the values
    /// alone.
    placed: Option<(KernelTables, u64)>,
}

impl Info {
    /// Reads the text.
    pub fn read(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let trimmed = |text: &str| text.trim_matches([' ', '\0']).to_owned();
        let values = lines.map(|(key, value)| (trimmed(key), trimmed(value)));
        Self {
            values: values.collect(),
            placed: None,
        }
    }

    /// Sets the tables of the kernel, and the difference between the virtual and the physical
    /// addresses of its image.
    pub fn place(&mut self, tables: KernelTables, image_offset: u64) {
        self.placed = Some((tables, image_offset));
    }

    /// Finds the note in memory. `big` tells whether numbers are big-endian.
    pub fn find(bytes: &[u8], big: bool) -> Option<Self> {
        let text = in_memory(bytes, big).or_else(|| text_in_memory(bytes));
        text.map(Self::read)
    }

    /// Returns a value as written.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// Returns a number, which is hexadecimal after `0x`.
    pub fn number(&self, key: &str) -> Option<u64> {
        let text = self.text(key)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// Returns the address of a symbol: hexadecimal, with or without `0x`.
    pub fn address(&self, key: &str) -> Option<u64> {
        let text = self.text(key)?;
        u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
    }

    /// Returns the difference between the virtual and the physical addresses of the kernel's image.
    pub fn image_offset(&self) -> Option<u64> {
        if let Some((_, offset)) = self.placed {
            return Some(offset);
        }
        self.address("NUMBER(kimage_voffset)")
    }

    /// Returns the tables of the kernel.
    ///
    /// # Errors
    ///
    /// Returns the name of a missing value.
    pub fn tables(&self) -> Result<KernelTables, NoValue> {
        if let Some((tables, _)) = self.placed {
            return Ok(tables);
        }
        let missing = |key: &str| NoValue(key.to_owned());
        let number = |key: &str| self.number(key).ok_or_else(|| missing(key));
        let table = "SYMBOL(swapper_pg_dir)";
        let table = self.address(table).ok_or_else(|| missing(table))?;
        let offset = self.image_offset();
        let offset = offset.ok_or_else(|| missing("NUMBER(kimage_voffset)"))?;
        let size = self
            .number("NUMBER(TCR_EL1_T1SZ)")
            .filter(|size| *size < 64);
        let bits = match size {
            Some(size) => 64 - size,
            None => number("NUMBER(VA_BITS)")?,
        };
        let granule = number("PAGESIZE")?;
        let mut high_table = table.wrapping_sub(offset);
        // The table of a kernel built for 52 bits has 1024 entries. A core without FEAT_LVA uses
        // only the last 64 (`offset_ttbr1` in arch/arm64/include/asm/assembler.h).
        if granule == 0x1_0000 && self.number("NUMBER(VA_BITS)") == Some(52) && bits == 48 {
            high_table = high_table.wrapping_add(8 * (1024 - 64));
        }
        Ok(KernelTables {
            form: KernelForm::AArch64,
            high_table,
            granule,
            high_bits: u32::try_from(bits).map_err(|_| missing("possible VA_BITS"))?,
        })
    }
}

/// Finds the text of the note that the kernel keeps in memory.
fn in_memory(bytes: &[u8], big: bool) -> Option<&[u8]> {
    memchr::memmem::find_iter(bytes, NAME).find_map(|at| {
        let header = at.checked_sub(12)?;
        let field = |index: usize| {
            let field = *bytes.get(header + 4 * index..)?.first_chunk()?;
            Some(match big {
                true => u32::from_be_bytes(field),
                false => u32::from_le_bytes(field),
            })
        };
        let (name, size) = (field(0)?, field(1)?);
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size <= MAX_TEXT)?;
        let text = bytes.get(header + HEADER..)?.get(..size)?;
        (name as usize == NAME.len() && text.starts_with(b"OSRELEASE=")).then_some(text)
    })
}

/// Finds the text from which the kernel makes the note, in case the note itself is not in memory.
fn text_in_memory(bytes: &[u8]) -> Option<&[u8]> {
    let is_text = |byte: &u8| matches!(byte, b'\n' | 0x20..=0x7e);
    let mut from = 0;
    // No byte is examined twice.
    while let Some(at) = memchr::memmem::find(bytes.get(from..)?, b"OSRELEASE=") {
        let begin = from + at;
        let rest = &bytes[begin..bytes.len().min(begin + MAX_TEXT)];
        let length = rest.iter().take_while(|byte| is_text(byte)).count();
        let text = &rest[..length];
        let has = |key: &[u8]| memchr::memmem::find(text, key).is_some();
        if has(b"\nPAGESIZE=") && has(b"\nSYMBOL(swapper_pg_dir)=") {
            return Some(text);
        }
        from = begin + length;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "OSRELEASE=6.1.0\nPAGESIZE=4096\nSYMBOL(swapper_pg_dir)=ffff800009a2d000\n\
        NUMBER(VA_BITS)=48\nNUMBER(kimage_voffset)=0xffff7fffc8000000\nNUMBER(TCR_EL1_T1SZ)=0x10\n\
        KERNELOFFSET=1a00000\n";

    #[test]
    fn tables_of_the_kernel() {
        let info = Info::read(TEXT.as_bytes());
        let tables = KernelTables {
            high_table: 0x41a2_d000,
            granule: 4096,
            high_bits: 48,
            form: KernelForm::AArch64,
        };
        assert_eq!(info.tables(), Ok(tables));
        assert_eq!(info.address("KERNELOFFSET"), Some(0x1a0_0000));
        // A kernel for 52 bits with 64 KiB pages, on a core that has 48, and on a core that has 52.
        let large = TEXT.replace("PAGESIZE=4096", "PAGESIZE=65536");
        let large = large.replace("VA_BITS)=48", "VA_BITS)=52");
        let tables = Info::read(large.as_bytes()).tables().unwrap();
        assert_eq!((tables.high_table, tables.high_bits), (0x41a2_ee00, 48));
        let tables = Info::read(large.replace("0x10\n", "0xc\n").as_bytes()).tables();
        let tables = tables.unwrap();
        assert_eq!((tables.high_table, tables.high_bits), (0x41a2_d000, 52));
        let without = Info::read(b"PAGESIZE=4096\nSYMBOL(swapper_pg_dir)=0\n");
        let reason = without.tables().unwrap_err();
        assert_eq!(
            reason.to_string(),
            "VMCOREINFO has no NUMBER(kimage_voffset)"
        );
    }

    #[test]
    fn the_note_is_found_in_memory() {
        let note = |size: u32| {
            let mut note = [11_u32, size, 0].map(u32::to_le_bytes).concat();
            note.extend(b"VMCOREINFO\0\0");
            note.extend(TEXT.as_bytes());
            note
        };
        let whole = note(TEXT.len() as u32);
        // The name alone, followed by the note.
        let memory = [&b"VMCOREINFO\0....."[..], &whole, b"rest"].concat();
        assert_eq!(in_memory(&memory, false), Some(TEXT.as_bytes()));
        assert_eq!(in_memory(&note(u32::MAX), false), None);
        assert_eq!(in_memory(&whole[..30], false), None);
        assert_eq!(in_memory(b"VMCOREINFO\0", false), None);
    }

    #[test]
    fn the_text_without_its_note_is_found() {
        let memory = [
            &b"OSRELEASE=5\n\0OSRELEASE="[..],
            b"\0\x01",
            TEXT.as_bytes(),
            b"\0\0",
        ];
        let memory = memory.concat();
        let info = Info::find(&memory, false).unwrap();
        assert_eq!(info.text("OSRELEASE"), Some("6.1.0"));
        assert!(info.tables().is_ok());
        assert!(Info::find(&memory[..40], false).is_none());
    }
}
