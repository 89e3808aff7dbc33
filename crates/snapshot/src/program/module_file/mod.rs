//! Files of kernel modules (`.ko`), linked as the kernel does when it loads them.
//!
//! A module is a relocatable file: its sections have no addresses. [`ModuleFile::link`] assigns
//! them the addresses at which they ran, and applies the relocations. What the kernel writes into
//! code when it loads a module, or may write later, is not known from the file (`patched`); nor are
//! instructions with relocations that cannot be resolved. Such an instruction is left out. It is
//! *straight* if it is certainly neither a branch nor a barrier, whatever it is, so that execution
//! continues after it.

mod a64;
mod arm;
mod code;
mod debug;
mod headers;
mod patched;
mod placement;

pub use placement::{Kallsyms, Placement};

use super::elf::is_elf;
use crate::budget::Budget;
use armsnap_arch::arch::branch::{self, Kind};
use armsnap_arch::quantity::{Address, Isa};
use code::{Code, Word};
use headers::Headers;
use object::elf::{SHF_ALLOC, SHF_EXECINSTR};
use object::{
    Architecture, Object, ObjectKind, ObjectSection, ObjectSymbol, Relocation, RelocationFlags,
    RelocationTarget, SectionFlags, SectionIndex, SymbolIndex,
};
use std::collections::BTreeMap;
use std::ops::Range;

/// The largest file that is linked.
const LARGEST: usize = 1 << 30;

/// Debug information may expand to this many times the size of the module, or to at least this many
/// bytes.
const MAX_RATIO: u64 = 16;
const LEAST_MEMORY: u64 = 64 << 20;
/// The number of steps that any module may take; a larger module may take one for each of its
/// bytes. A relocation is a step and takes at least 8 bytes in the file.
const LEAST_WORK: u64 = 1 << 16;
const BYTES_PER_STEP: usize = 16;
const SYMBOLS_PER_STEP: usize = 64;

/// A part of a module's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePart {
    /// The address of its first byte.
    pub address: u64,
    /// Its bytes in [`Linked::file`].
    pub file: Range<usize>,
}

/// A module linked as it was loaded.
#[derive(Clone, Debug)]
pub struct Linked {
    /// An ELF file whose sections, symbols and debug information have the addresses of the module.
    /// Sections whose addresses are not known are not loaded in it, and have no symbols.
    pub file: Vec<u8>,
    /// The known code, sorted by address.
    pub code: Vec<CodePart>,
    /// The address ranges of instructions that are not known but do not change the flow.
    pub straight: Vec<Range<u64>>,
    /// Whether some of them are calls of the function tracer (ftrace), which is assumed not to be
    /// in use.
    pub traced: bool,
}

/// A module's file.
#[derive(Debug)]
pub struct ModuleFile<'b> {
    bytes: &'b [u8],
    file: object::File<'b>,
}

impl<'b> ModuleFile<'b> {
    /// Reads a file; `None` if it is not a relocatable file for AArch64 or Arm (little-endian).
    pub fn read(bytes: &'b [u8]) -> Option<Self> {
        if !is_elf(bytes) || bytes.len() > LARGEST {
            return None;
        }
        let file = object::File::parse(bytes).ok()?;
        let is_arm = matches!(
            file.architecture(),
            Architecture::Aarch64 | Architecture::Arm
        );
        let fits = is_arm && file.kind() == ObjectKind::Relocatable && file.is_little_endian();
        fits.then_some(Self { bytes, file })
    }

    /// Returns the sections that are loaded, in file order: index, name, and whether they are
    /// executable.
    fn loaded(&self) -> impl Iterator<Item = (object::Section<'b, '_>, &str, bool)> {
        self.file.sections().filter_map(|section| {
            let flags = flags(&section);
            let name = section.name().ok()?;
            let loaded = flags & SHF_ALLOC.0 != 0;
            loaded.then_some((section, name, flags & SHF_EXECINSTR.0 != 0))
        })
    }

    /// Returns the symbols that other modules may use, with their addresses.
    pub fn exported<'s>(
        &'s self,
        placement: &'s Placement,
    ) -> impl Iterator<Item = (&'s str, u64)> {
        self.file.symbols().filter_map(|symbol| {
            let base = placement.of(symbol.section_index()?)?;
            let usable = symbol.is_global() && symbol.is_definition();
            let name = symbol.name().ok().filter(|_| usable)?;
            Some((name, base.wrapping_add(symbol.address())))
        })
    }

    /// Links the module with its sections at these addresses. `symbol` returns the address of a
    /// symbol of the kernel or of another module.
    pub fn link(&self, placement: &Placement, symbol: &dyn Fn(&str) -> Option<u64>) -> Linked {
        let memory = Budget::of(self.bytes.len(), MAX_RATIO, LEAST_MEMORY);
        self.link_within(placement, symbol, &memory)
    }

    /// Same as [`link`](Self::link), with a budget for decompressing debug information, which stays
    /// compressed if the budget is not sufficient.
    pub fn link_within(
        &self,
        placement: &Placement,
        symbol: &dyn Fn(&str) -> Option<u64>,
        memory: &Budget,
    ) -> Linked {
        let mut out = self.bytes.to_vec();
        let headers = Headers::read(self.bytes, self.file.is_64());
        let symbols = self.file.symbols().count() / SYMBOLS_PER_STEP;
        let linker = Linker {
            module: self,
            placement,
            symbol,
            work: Budget::of(self.bytes.len(), 1, LEAST_WORK),
        };
        let (mut code, mut straight) = (Vec::new(), Vec::new());
        let patched = patched::Patched::of(&linker);
        for (section, name, executable) in self.loaded() {
            let (Some(base), Some(range)) = (placement.of(section.index()), range(&section, &out))
            else {
                continue;
            };
            linker.work.take((range.len() / BYTES_PER_STEP) as u64);
            if !executable {
                linker.data(&section, base, &mut out[range]);
                continue;
            }
            if placement::is_written_by_kernel(name) {
                continue;
            }
            if !linker.work.take(symbols as u64) {
                linker.work.take(linker.work.left());
                break;
            }
            let mut words = Code::new(self, &section, base, &self.bytes[range.clone()]);
            linker.code(&section, &mut words, &mut out[range.clone()]);
            patched.mark(section.index(), &mut words);
            words.parts(range.start, &mut code, &mut straight);
        }
        code.sort_by_key(|part: &CodePart| part.address);
        straight.sort_by_key(|range: &Range<u64>| range.start);
        debug::link(&linker, &headers, memory, &mut out);
        if linker.work.left() == 0 {
            // What has not been relocated is not known.
            return Linked {
                file: self.bytes.to_vec(),
                code: Vec::new(),
                straight: Vec::new(),
                traced: false,
            };
        }
        headers.place(self, placement, &mut out);
        Linked {
            file: out,
            code,
            straight,
            traced: patched.traced,
        }
    }
}

/// Returns the flags of a section.
fn flags(section: &object::Section<'_, '_>) -> u64 {
    match section.flags() {
        SectionFlags::Elf { sh_flags, .. } => sh_flags.0,
        _ => 0,
    }
}

/// Returns the range of a section in the file, if it has bytes there.
fn range(section: &object::Section<'_, '_>, file: &[u8]) -> Option<Range<usize>> {
    let (offset, size) = section.file_range()?;
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (end <= file.len()).then_some(start..end)
}

/// Resolves the relocations of a module.
struct Linker<'m, 'b> {
    module: &'m ModuleFile<'b>,
    placement: &'m Placement,
    symbol: &'m dyn Fn(&str) -> Option<u64>,
    /// A limit, because sections may share their relocations and their bytes.
    work: Budget,
}

impl Linker<'_, '_> {
    /// Returns the address of a symbol.
    fn address(&self, index: SymbolIndex) -> Option<u64> {
        let symbol = self.module.file.symbol_by_index(index).ok()?;
        if let Some(section) = symbol.section_index() {
            return Some(self.placement.of(section)?.wrapping_add(symbol.address()));
        }
        if symbol.is_undefined() {
            return (self.symbol)(symbol.name().ok()?);
        }
        let absolute = symbol.section() == object::SymbolSection::Absolute;
        absolute.then(|| symbol.address())
    }

    /// Returns the section that a relocation refers to and the offset in it.
    fn target(&self, relocation: &Relocation, implicit: i64) -> Option<(SectionIndex, u64)> {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            return None;
        };
        let symbol = self.module.file.symbol_by_index(index).ok()?;
        let offset = symbol.address().wrapping_add_signed(implicit);
        Some((symbol.section_index()?, offset))
    }

    /// Applies a relocation to `bytes` at the address `place`; `None` if that is not possible.
    fn apply(&self, relocation: &Relocation, place: u64, bytes: &mut [u8]) -> Option<()> {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            return None;
        };
        self.write(relocation, self.address(index)?, place, bytes)
    }

    /// Applies a relocation with the address of its symbol.
    fn write(
        &self,
        relocation: &Relocation,
        symbol: u64,
        place: u64,
        bytes: &mut [u8],
    ) -> Option<()> {
        let RelocationFlags::Elf { r_type } = relocation.flags() else {
            return None;
        };
        if self.module.file.is_64() {
            let value = symbol.wrapping_add_signed(relocation.addend());
            return a64::apply(r_type, value, place, bytes);
        }
        let explicit = !relocation.has_implicit_addend();
        let addend = explicit.then(|| relocation.addend() as i32);
        arm::apply(r_type, symbol as u32, addend, place as u32, bytes)
    }

    /// Applies the relocations of data; fields that cannot be resolved become zero.
    fn data(&self, section: &object::Section<'_, '_>, base: u64, bytes: &mut [u8]) {
        for (offset, relocation) in section.relocations() {
            if !self.work.take(1) {
                break;
            }
            let place = base.wrapping_add(offset);
            let field = usize::try_from(offset)
                .ok()
                .and_then(|at| bytes.get_mut(at..));
            if let Some(field) = field
                && self.apply(&relocation, place, field).is_none()
            {
                let size = usize::from(relocation.size() / 8).min(field.len());
                field[..size].fill(0);
            }
        }
    }

    /// Applies the relocations of code.
    fn code(&self, section: &object::Section<'_, '_>, code: &mut Code<'_>, bytes: &mut [u8]) {
        for (offset, relocation) in section.relocations() {
            if !self.work.take(1) {
                break;
            }
            let Some(field) = usize::try_from(offset)
                .ok()
                .and_then(|at| bytes.get_mut(at..))
            else {
                continue;
            };
            let place = code.base.wrapping_add(offset);
            if self.apply(&relocation, place, field).is_none() {
                let kept = code.is_straight(offset) && !a64::may_be_replaced(place, &relocation);
                let size = u64::from(relocation.size() / 8).max(4);
                code.mark(
                    offset,
                    size,
                    if kept { Word::Straight } else { Word::Unknown },
                );
            }
        }
    }

    /// Returns what the relocations of a section refer to, by their offsets.
    fn references(&self, name: &str) -> BTreeMap<u64, (SectionIndex, u64)> {
        let Some(section) = self.module.file.section_by_name(name) else {
            return BTreeMap::new();
        };
        let data = section.data().unwrap_or(&[]);
        let relocations = section.relocations().take_while(|_| self.work.take(1));
        let found = relocations.filter_map(|(offset, relocation)| {
            let addend = match relocation.has_implicit_addend() {
                true => {
                    let at = usize::try_from(offset).ok()?;
                    i64::from(i32::from_le_bytes(*data.get(at..)?.first_chunk()?))
                }
                false => relocation.addend(),
            };
            Some((offset, self.target(&relocation, addend)?))
        });
        found.collect()
    }
}

/// Whether the instruction `word` is neither a branch nor a barrier, so that execution continues
/// after it.
fn is_straight(isa: Isa, word: u32) -> bool {
    let decoded = branch::decode(isa, Address(0), word);
    isa != Isa::T32 && decoded.is_some_and(|instruction| instruction.kind == Kind::Other)
}
