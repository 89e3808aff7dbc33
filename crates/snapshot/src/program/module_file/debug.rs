//! The debug information of a module.

use super::headers::Headers;
use super::{Linker, flags, range};
use crate::budget::Budget;
use object::elf::SHF_ALLOC;
use object::{Object, ObjectSection};

/// Decompresses debug information and applies its relocations.
pub(super) fn link(linker: &Linker<'_, '_>, headers: &Headers, memory: &Budget, out: &mut Vec<u8>) {
    for section in linker.module.file.sections() {
        let name = section.name().unwrap_or_default();
        let is_loaded = flags(&section) & SHF_ALLOC.0 != 0;
        if is_loaded || !name.starts_with(".debug_") || section.relocations().next().is_none() {
            continue;
        }
        let Ok(compressed) = section.compressed_data() else {
            continue;
        };
        if compressed.format == object::CompressionFormat::None {
            if let Some(range) = range(&section, out) {
                relocate(linker, &section, name, &mut out[range]);
            }
            continue;
        }
        if !memory.take(compressed.uncompressed_size) {
            continue;
        }
        if let Ok(contents) = compressed.decompress() {
            let mut contents = contents.into_owned();
            relocate(linker, &section, name, &mut contents);
            headers.replace(&section, &contents, out);
        }
    }
}

/// Applies the relocations of a section. An unknown address becomes 0, which readers interpret as
/// code that was left out; in lists of ranges, which two zeros terminate, it becomes 1.
fn relocate(
    linker: &Linker<'_, '_>,
    section: &object::Section<'_, '_>,
    name: &str,
    bytes: &mut [u8],
) {
    let none = u8::from(matches!(name, ".debug_ranges" | ".debug_loc"));
    for (offset, relocation) in section.relocations() {
        if !linker.work.take(1) {
            break;
        }
        let Some(field) = usize::try_from(offset)
            .ok()
            .and_then(|at| bytes.get_mut(at..))
        else {
            continue;
        };
        // Debug information also refers to other debug sections, which begin at 0.
        if linker.apply_debug(&relocation, field).is_none() {
            let size = usize::from(relocation.size() / 8).min(field.len());
            field[..size].fill(0);
            if let Some(first) = field.first_mut().filter(|_| size > 0) {
                *first = none;
            }
        }
    }
}

impl Linker<'_, '_> {
    /// Same as `apply`, but the symbol may belong to a section that is not loaded.
    fn apply_debug(&self, relocation: &object::Relocation, bytes: &mut [u8]) -> Option<()> {
        use object::{ObjectSymbol, RelocationTarget};
        let target = match relocation.target() {
            RelocationTarget::Symbol(index) => self.module.file.symbol_by_index(index).ok(),
            _ => None,
        };
        let section = target.as_ref().and_then(|symbol| symbol.section_index());
        let section = section.and_then(|index| self.module.file.section_by_index(index).ok());
        let is_loaded = |section: &object::Section<'_, '_>| flags(section) & SHF_ALLOC.0 != 0;
        match (target, section.filter(|section| !is_loaded(section))) {
            (Some(symbol), Some(_)) => self.write(relocation, symbol.address(), 0, bytes),
            _ => self.apply(relocation, 0, bytes),
        }
    }
}
