//! Finds the functions that indirect functions (IFUNCs) chose when a program started.
//!
//! The value of an IFUNC symbol (STT_GNU_IFUNC) is the address of a resolver, which runs once and
//! returns the function to use. The dynamic linker, or the program's startup code, stores the
//! address of this function where relocations refer to the resolver (IRELATIVE) or the symbol, so
//! memory contains it when the program halts (AAELF64, "Dynamic relocations"; AAELF32, "Dynamic
//! relocations").

use std::collections::{BTreeMap, BTreeSet, HashMap};

use object::elf;
use object::read::elf::{ElfFile, FileHeader, Rel, Rela, SectionHeader, Sym};
use object::{Object, ObjectSegment, SectionIndex, SymbolIndex};

use super::program::Seen;
use crate::program::elf::{Elf, Machine};
use armsnap_arch::quantity::Address;

/// A limit larger than the number of segments of any program; all segments are searched for each
/// function.
const MAX_SEGMENTS: usize = 64;
/// A limit larger than the number of resolvers with the same name or address.
const MAX_ALIKE: usize = 32;
/// A limit larger than the number of symbol tables of any file, which has at most one of each type
/// (System V ABI, "Sections"). For each, all sections are searched.
const MAX_TABLES: usize = 16;
/// The size in bytes of the smallest entry of a table of symbols or relocations.
const SMALLEST: usize = 8;

/// A resolver and the functions that it chose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Resolver {
    /// The address after its end.
    end: u64,
    functions: BTreeSet<u64>,
}

/// The chosen functions of a program and its libraries, by the address of the resolver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen(BTreeMap<u64, Resolver>);

impl Chosen {
    /// Finds the chosen functions of files loaded in `memory`. Unreadable files have none.
    pub fn of<'e>(files: impl Iterator<Item = &'e Elf>, memory: Seen) -> Self {
        let files: Vec<_> = files
            .filter_map(|elf| match object::File::parse(elf.bytes()).ok()? {
                object::File::Elf64(file) => LoadedFile::of(elf, &file, 8),
                object::File::Elf32(file) => LoadedFile::of(elf, &file, 4),
                _ => None,
            })
            .collect();
        // The indices of the files with a resolver of this name, or at this address.
        let (mut named, mut placed) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for file in &files {
            for resolver in &file.resolvers {
                for alike in [
                    named.entry(resolver.name).or_default(),
                    placed.entry(resolver.start).or_default(),
                ] {
                    if alike.len() < MAX_ALIKE {
                        alike.push((file, resolver));
                    }
                }
            }
        }
        let mut chosen = Self::default();
        for file in &files {
            for slot in &file.slots {
                let resolvers = match slot.means {
                    Means::Symbol(name) => named.get(name),
                    Means::Resolver(address) => placed.get(&address),
                };
                let Some(function) = resolvers.and_then(|_| file.stored(slot.address, memory))
                else {
                    continue;
                };
                for (of, resolver) in resolvers.into_iter().flatten() {
                    if function != resolver.start && of.has_code(function) {
                        let known = chosen.0.entry(resolver.start).or_default();
                        known.end = known.end.max(resolver.end);
                        known.functions.insert(function);
                    }
                }
            }
        }
        chosen
    }

    /// Returns the functions that a resolver chose, usually one. `None` if no resolver is at the
    /// address, or its choice is unknown.
    pub fn by(&self, resolver: u64) -> Option<&BTreeSet<u64>> {
        Some(&self.0.get(&resolver)?.functions)
    }

    /// Replaces the addresses of resolvers with those of the chosen functions.
    pub fn instead_of(&self, addresses: BTreeSet<u64>) -> BTreeSet<u64> {
        let mut all = BTreeSet::new();
        for address in addresses {
            match self.by(address) {
                Some(functions) => all.extend(functions),
                None => {
                    all.insert(address);
                }
            }
        }
        all
    }

    /// Returns whether an address is inside a resolver.
    pub fn is_within(&self, address: u64, resolver: u64) -> bool {
        let end = self.0.get(&resolver).map_or(resolver, |known| known.end);
        (resolver..end).contains(&address)
    }
}

/// A symbol of type STT_GNU_IFUNC.
struct Named<'e> {
    name: &'e [u8],
    start: u64,
    end: u64,
}

/// The value that a relocation stores in a word of memory.
enum Means<'e> {
    Symbol(&'e [u8]),
    Resolver(u64),
}

/// A word of memory to which a relocation applies.
struct Slot<'e> {
    address: u64,
    means: Means<'e>,
}

/// The resolvers and relocations of a file. All addresses are load addresses.
struct LoadedFile<'e> {
    elf: &'e Elf,
    /// The size of a word in bytes.
    size: usize,
    /// The executable segments: address, size.
    code: Vec<(u64, u64)>,
    resolvers: Vec<Named<'e>>,
    slots: Vec<Slot<'e>>,
}

impl<'e> LoadedFile<'e> {
    fn of<E: FileHeader>(elf: &'e Elf, file: &ElfFile<'e, E>, size: usize) -> Option<Self> {
        let executed = |flags| match flags {
            object::SegmentFlags::Elf { p_flags, .. } => p_flags.0 & elf::PF_X.0 != 0,
            _ => false,
        };
        let segments = file.segments();
        if elf.segments.len() > MAX_SEGMENTS || file.segments().count() > MAX_SEGMENTS {
            return None;
        }
        let code = segments.filter(|segment| executed(segment.flags()));
        let moved = |address: u64| address.wrapping_add(elf.offset);
        let mut loaded = Self {
            elf,
            size,
            code: code
                .map(|segment| (moved(segment.address()), segment.size()))
                .collect(),
            resolvers: Vec::new(),
            slots: Vec::new(),
        };
        loaded.read(file);
        Some(loaded)
    }

    fn read<E: FileHeader>(&mut self, file: &ElfFile<'e, E>) {
        let (endian, data) = (file.endian(), self.elf.bytes());
        let moved = |address: u64| address.wrapping_add(self.elf.offset);
        let sections = file.elf_section_table();
        let arm = self.elf.machine == Machine::Arm;
        // Sections may overlap: the number of entries is limited by the size of the file.
        let mut room = data.len() / SMALLEST;
        let mut take = |entries: usize| {
            let taken = room.checked_sub(entries);
            room = taken.unwrap_or(room);
            taken.is_some()
        };
        let is_table = |section: &E::SectionHeader| {
            matches!(section.sh_type(endian), elf::SHT_SYMTAB | elf::SHT_DYNSYM)
        };
        let tables = sections
            .enumerate()
            .filter(|(_, section)| is_table(section));
        let tables = tables.take(MAX_TABLES).filter_map(|(index, section)| {
            let table = section.symbols(endian, data, sections, index).ok()??;
            Some((index, table))
        });
        let tables: HashMap<SectionIndex, _> = tables.collect();
        for (index, section) in sections.enumerate() {
            if let Some(table) = tables.get(&index)
                && take(table.len())
            {
                for symbol in table.iter() {
                    if symbol.st_type() != elf::STT_GNU_IFUNC || symbol.is_undefined(endian) {
                        continue;
                    }
                    let start = symbol.st_value(endian).into();
                    let start = self.in_code(moved(start));
                    self.resolvers.push(Named {
                        name: symbol.name(endian, table.strings()).unwrap_or_default(),
                        start,
                        end: start.saturating_add(symbol.st_size(endian).into()),
                    });
                }
            }
            if section.sh_flags(endian).0 & elf::SHF_ALLOC.0 == 0 {
                continue;
            }
            let symbols = tables.get(&section.link(endian));
            let name = |index: Option<SymbolIndex>| {
                let symbol = symbols?.symbol(index?).ok()?;
                symbol.name(endian, symbols?.strings()).ok()
            };
            if let Ok(Some((entries, _))) = section.rela(endian, data)
                && take(entries.len())
            {
                for entry in entries {
                    let kind = entry.r_type(endian, false);
                    let means = if is_relative(arm, kind) {
                        let addend: i64 = entry.r_addend(endian).into();
                        Some(Means::Resolver(self.in_code(moved(addend.cast_unsigned()))))
                    } else if is_symbol(arm, kind) {
                        name(entry.symbol(endian, false)).map(Means::Symbol)
                    } else {
                        None
                    };
                    let address = moved(entry.r_offset(endian).into());
                    self.slots
                        .extend(means.map(|means| Slot { address, means }));
                }
            }
            if let Ok(Some((entries, _))) = section.rel(endian, data)
                && take(entries.len())
            {
                for entry in entries {
                    let address = moved(entry.r_offset(endian).into());
                    let kind = entry.r_type(endian);
                    let means = if is_relative(arm, kind) {
                        let addend = self.in_file(address);
                        addend.map(|addend| Means::Resolver(self.in_code(moved(addend))))
                    } else if is_symbol(arm, kind) {
                        name(entry.symbol(endian)).map(Means::Symbol)
                    } else {
                        None
                    };
                    self.slots
                        .extend(means.map(|means| Slot { address, means }));
                }
            }
        }
    }

    /// The low bit of the address of an Arm function selects Thumb (AAELF32, "Symbol Values").
    fn in_code(&self, address: u64) -> u64 {
        address & !u64::from(self.elf.machine == Machine::Arm)
    }

    fn has_code(&self, address: u64) -> bool {
        let inside = |(start, size): &(u64, u64)| address.wrapping_sub(*start) < *size;
        self.code.iter().any(inside)
    }

    fn word(&self, bytes: &[u8]) -> Option<u64> {
        let mut word = [0; 8];
        let bytes = bytes.get(..self.size)?;
        word[..self.size].copy_from_slice(bytes);
        if !self.elf.little_endian {
            word[..self.size].reverse();
        }
        Some(u64::from_le_bytes(word))
    }

    /// Returns the word at an address in the file.
    fn in_file(&self, address: u64) -> Option<u64> {
        self.word(self.elf.slice(address)?)
    }

    /// Returns the function whose address is in a word of memory, unless the word is the same as in
    /// the file.
    fn stored(&self, address: u64, (memory, space): Seen) -> Option<u64> {
        let mut bytes = [0; 8];
        let bytes = bytes.get_mut(..self.size)?;
        let known = memory.read(Address(address), space, bytes);
        let word = self.word(bytes.get(..known)?)?;
        let before = self.in_file(address).unwrap_or(0);
        let unchanged = word == before || word == before.wrapping_add(self.elf.offset);
        (!unchanged).then(|| self.in_code(word))
    }
}

fn is_relative(arm: bool, kind: elf::RelocationType) -> bool {
    match arm {
        true => kind == elf::R_ARM_IRELATIVE,
        false => kind == elf::R_AARCH64_IRELATIVE,
    }
}

/// Returns whether a relocation stores the address of a symbol.
fn is_symbol(arm: bool, kind: elf::RelocationType) -> bool {
    match arm {
        true => [elf::R_ARM_JUMP_SLOT, elf::R_ARM_GLOB_DAT, elf::R_ARM_ABS32].contains(&kind),
        false => [
            elf::R_AARCH64_JUMP_SLOT,
            elf::R_AARCH64_GLOB_DAT,
            elf::R_AARCH64_ABS64,
        ]
        .contains(&kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::OpenSnapshot;
    use crate::snapshot::files::InMemory;
    use crate::snapshot::memory::CoreMemory;
    use armsnap_arch::arch::Space;
    use std::sync::Arc;

    /// Returns a program with a resolver at 0x1000 and `relocations` sections with the same
    /// relocation of the word at 0x3000, constructed by hand (System V ABI, "Object Files").
    fn program(relocations: u64) -> Elf {
        let words = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        let (segment, symbols, names, code) = (64, 0x80, 0xb0, 0xc0);
        let (relocation, sections) = (0xe0, 0x100);
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        file.extend([2, 0, 183, 0, 1, 0, 0, 0]);
        file.extend(words(&[0x1000, segment, sections]));
        file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 2, 0]);
        // PT_LOAD, readable and executable.
        file.extend(words(&[5 << 32 | 1, code, 0x1000, 0x1000, 0x20, 0x20, 1]));
        file.resize(symbols as usize, 0);
        // The null symbol, and a global STT_GNU_IFUNC of section 1.
        file.extend(words(&[0, 0, 0, 1 << 48 | 0x1a << 32 | 1, 0x1000, 4]));
        file.resize(names as usize, 0);
        file.extend(b"\0f\0");
        file.resize(relocation as usize, 0);
        // R_AARCH64_JUMP_SLOT of symbol 1.
        file.extend(words(&[0x3000, 1 << 32 | 1026, 0]));
        file.resize(sections as usize, 0);
        // The type and flags of each section, its offset, size, link and entry size.
        let mut section = |kind: u64, allocated: u64, offset, size, link: u64, entry| {
            file.extend(words(&[kind << 32, allocated << 1, 0, offset, size]));
            file.extend(words(&[link, 1, entry]));
        };
        // The first section contains their number.
        section(0, 0, 0, 3 + relocations, 0, 0);
        section(11, 1, symbols, 48, 2, 24);
        section(3, 1, names, 3, 0, 0);
        for _ in 0..relocations {
            section(4, 1, relocation, 24, 1, 24);
        }
        Elf::read("p.elf".into(), file.into()).unwrap()
    }

    #[test]
    fn many_sections_take_time_in_proportion() {
        let mut files = InMemory::default();
        let core = "[device]\nname=a\nclass=core\n[dump]\nfile=x\naddress=0x3000\n";
        for (name, bytes) in [
            ("snapshot.ini", b"[device_list]\na=a.ini\n".to_vec()),
            ("a.ini", core.into()),
            ("x", 0x1010_u64.to_le_bytes().to_vec()),
        ] {
            files.0.insert(name.into(), bytes.into());
        }
        let loaded = OpenSnapshot::from_files(Arc::new(files), "snapshot.ini").unwrap();
        let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
        // Quadratic work would take minutes with the second number.
        for relocations in [1, 100_000] {
            let elf = program(relocations);
            let chosen = Chosen::of(std::iter::once(&elf), (&memory, Space::El1N));
            assert_eq!(chosen.by(0x1000), Some(&BTreeSet::from([0x1010])));
            assert!(chosen.is_within(0x1003, 0x1000) && !chosen.is_within(0x1004, 0x1000));
        }
    }
}
