//! Libraries of a Linux program whose files are in the snapshot, located through the dynamic
//! linker's list in memory.
//!
//! The list starts at DT_DEBUG in the program's dynamic section (System V gABI, "Dynamic Section";
//! `struct r_debug` and `struct link_map` of <link.h>). Debuggers use the same list.

use std::collections::BTreeSet;
use std::ops::Range;

use object::elf::{DT_DEBUG, DT_NULL, PT_DYNAMIC};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};

pub use super::files::LIBRARIES;
use super::program::{Program, Seen};
use super::{OpenSnapshot, paths};
use crate::program::elf::Elf;
use armsnap_arch::quantity::Address;

/// A limit larger than any dynamic section, in entries.
const MAX_ENTRIES: u64 = 1024;
/// A limit larger than the number of libraries of any program.
const MAX_LIBRARIES: usize = 1024;
/// The longest path that the system supports (PATH_MAX).
const MAX_PATH: usize = 4096;

/// Returns the libraries of a program in `memory`, each with the offset at which it was loaded. A
/// library that is not in the snapshot, or differs from the one in memory, is left out.
pub fn of_program(loaded: &OpenSnapshot, program: &Elf, memory: Seen) -> Vec<Elf> {
    let (mut found, mut names) = (Vec::new(), BTreeSet::new());
    for LinkMapEntry { name, offset, .. } in
        LinkMap::of(program, memory).unwrap_or_default().entries
    {
        let name = name.rsplit('/').next().unwrap_or_default();
        let file = format!("{LIBRARIES}/{name}");
        if name.is_empty() || !names.insert(file.clone()) {
            continue;
        }
        let Ok(path) = paths::resolve(&loaded.root, &file, false) else {
            continue;
        };
        let elf = Elf::open(&path).ok();
        let Some(elf) = elf.filter(|elf| elf.machine == program.machine) else {
            continue;
        };
        let library = Program::new(elf.moved(offset), &[memory], false);
        if library.comparison.matches() {
            found.push(library.elf);
        }
    }
    found
}

/// An object in the dynamic linker's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkMapEntry {
    /// The address of its `struct link_map`.
    pub address: u64,
    /// The offset of its load address from the addresses in its file.
    pub offset: u64,
    /// Its path; empty for the program.
    pub name: String,
    /// The address of its dynamic section.
    pub dynamic: u64,
}

/// The dynamic linker's list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkMap {
    /// The address range of the word in the program's dynamic section that holds `debug`.
    pub pointer: Range<u64>,
    /// The address of its `struct r_debug`.
    pub debug: u64,
    /// The program, and the libraries.
    pub entries: Vec<LinkMapEntry>,
}

impl LinkMap {
    /// Reads the list of a program in `memory`; `None` if it has no list.
    pub fn of(program: &Elf, memory: Seen) -> Option<Self> {
        Words::of(program, memory)?.link_map()
    }
}

/// Memory read in words of a program.
struct Words<'m> {
    memory: Seen<'m>,
    size: u64,
    little_endian: bool,
    /// The address of the dynamic section.
    dynamic: u64,
}

impl<'m> Words<'m> {
    /// Prepares reading the memory of a program; `None` if it is statically linked.
    fn of(program: &Elf, memory: Seen<'m>) -> Option<Self> {
        let (size, dynamic) = match object::File::parse(program.bytes()).ok()? {
            object::File::Elf64(file) => (8, dynamic(&file)?),
            object::File::Elf32(file) => (4, dynamic(&file)?),
            _ => return None,
        };
        Some(Self {
            memory,
            size,
            little_endian: program.little_endian,
            dynamic: dynamic.wrapping_add(program.offset),
        })
    }

    fn word(&self, base: u64, index: u64) -> Option<u64> {
        let address = base.wrapping_add(index * self.size);
        let mut bytes = [0; 8];
        let word = bytes.get_mut(..self.size as usize)?;
        let (memory, space) = self.memory;
        if memory.read(Address(address), space, word) < word.len() {
            return None;
        }
        if !self.little_endian {
            word.reverse();
        }
        Some(u64::from_le_bytes(bytes))
    }

    fn text(&self, address: u64) -> Option<String> {
        let (memory, space) = self.memory;
        let mut bytes = vec![0; MAX_PATH];
        let known = memory.read(Address(address), space, &mut bytes);
        let end = bytes[..known].iter().position(|&byte| byte == 0)?;
        bytes.truncate(end);
        String::from_utf8(bytes).ok()
    }

    fn link_map(&self) -> Option<LinkMap> {
        let pairs = (0..MAX_ENTRIES).map(|entry| {
            let tag = self.word(self.dynamic, 2 * entry)?;
            Some((tag, 2 * entry + 1))
        });
        let mut pairs =
            pairs.map_while(|pair| pair.filter(|(tag, _)| *tag != DT_NULL.0.cast_unsigned()));
        let (_, value) = pairs.find(|(tag, _)| *tag == DT_DEBUG.0.cast_unsigned())?;
        let debug = self.word(self.dynamic, value)?;
        let pointer = self.dynamic.wrapping_add(value * self.size);
        // r_version, r_map.
        let mut entry = self.word(debug, 1)?;
        let mut entries = Vec::new();
        for _ in 0..MAX_LIBRARIES {
            // l_addr, l_name, l_ld, l_next.
            let (Some(offset), Some(name), Some(dynamic), Some(next)) = (
                self.word(entry, 0),
                self.word(entry, 1),
                self.word(entry, 2),
                self.word(entry, 3),
            ) else {
                break;
            };
            entries.extend(self.text(name).map(|name| LinkMapEntry {
                address: entry,
                offset,
                name,
                dynamic,
            }));
            if next == 0 {
                break;
            }
            entry = next;
        }
        Some(LinkMap {
            pointer: pointer..pointer.wrapping_add(self.size),
            debug,
            entries,
        })
    }
}

/// Returns the address of the dynamic section according to the file.
fn dynamic<E: FileHeader>(file: &ElfFile<'_, E>) -> Option<u64> {
    let endian = file.endian();
    let mut headers = file.elf_program_headers().iter();
    let header = headers.find(|header| header.p_type(endian) == PT_DYNAMIC)?;
    Some(header.p_vaddr(endian).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::OpenOptions;
    use crate::snapshot::memory::CoreMemory;
    use crate::snapshot::model::Snapshot;
    use armsnap_arch::arch::Space;

    /// Returns an ELF file for AArch64 with a program header for each of these (type, address), and
    /// one for the whole file, loaded at 0.
    fn elf(headers: &[(u32, u64)]) -> Vec<u8> {
        let mut out = b"\x7fELF\x02\x01\x01".to_vec();
        out.resize(16, 0);
        for half in [3_u16, 183] {
            out.extend(half.to_le_bytes());
        }
        out.extend(1_u32.to_le_bytes());
        for word in [0_u64, 64, 0] {
            out.extend(word.to_le_bytes());
        }
        out.extend(0_u32.to_le_bytes());
        for half in [64, 56, headers.len() as u16 + 1, 64, 0, 0] {
            out.extend(half.to_le_bytes());
        }
        let end = 64 + 56 * (headers.len() as u64 + 1);
        for (kind, address) in [(1, 0)].iter().chain(headers) {
            out.extend(kind.to_le_bytes());
            out.extend(5_u32.to_le_bytes());
            for word in [*address, *address, *address, end, end, 8] {
                out.extend(word.to_le_bytes());
            }
        }
        out
    }

    /// Returns the libraries of a program at 0x10000 whose dynamic section at 0x20000 consists of
    /// `words`; `text` is at 0x21000.
    fn found(words: &[u64], text: &[u8]) -> Vec<(String, u64)> {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(directory.path().join(name), bytes).unwrap();
        };
        let library = elf(&[]);
        let mut memory: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        memory.resize(0x1000, 0);
        memory.extend(text);
        write("memory.bin", &memory);
        std::fs::create_dir(directory.path().join(LIBRARIES)).unwrap();
        for name in ["libraries/liba.so", "libraries/libb.so", "outside.so"] {
            write(name, &library);
        }
        let program = elf(&[(2, 0x10000)]);
        write("p", &program);
        write(
            "snapshot.ini",
            b"[snapshot]\nversion=1.0\n[device_list]\nd=cpu.ini\n",
        );
        let cpu = "[device]\nname=cpu\nclass=core\ntype=ARMv8-A\n\
                   [dump1]\nfile=memory.bin\naddress=0x20000\n\
                   [dump2]\nfile=outside.so\naddress=0x70000\n";
        write("cpu.ini", cpu.as_bytes());
        let loaded = Snapshot::open(directory.path(), &OpenOptions::default()).unwrap();
        let memory = CoreMemory::new(&loaded, &loaded.snapshot.devices[0]);
        let program = Elf::open(&directory.path().join("p"))
            .unwrap()
            .moved(0x10000);
        let libraries = of_program(&loaded, &program, (&memory, Space::Any));
        let name = |elf: &Elf| elf.path.file_name().unwrap().to_string_lossy().into_owned();
        libraries
            .iter()
            .map(|elf| (name(elf), elf.offset))
            .collect()
    }

    #[test]
    fn the_dynamic_linkers_list_is_followed() {
        let debug = [21, 0x20020, 0, 0, 1, 0x20030];
        // l_addr, l_name, l_ld, l_next; the first entry belongs to the program.
        let program = [0x10000, 0x21000, 0, 0x20050];
        let list = |name: u64, next: u64| -> Vec<u64> {
            let library = [0x70000, name, 0, next];
            [&debug[..], &program, &library].concat()
        };
        let text = b"\0/lib/liba.so\0../outside.so\0/x/libc.so\0unended";
        let a = vec![("liba.so".to_owned(), 0x70000)];
        assert_eq!(found(&list(0x21001, 0), text), a);
        // The list is circular or continues in unmapped memory.
        assert_eq!(found(&list(0x21001, 0x20050), text), a);
        assert_eq!(found(&list(0x21001, 0x9999), text), a);
        // These paths do not name libraries in the snapshot.
        for name in [0x2100e, 0x2101d, 0x21027, 0x30000] {
            assert_eq!(found(&list(name, 0), text), [], "{name:#x}");
        }
        // Another library is loaded there.
        let mut elsewhere = list(0x21001, 0);
        elsewhere[10] = 0x20000;
        assert_eq!(found(&elsewhere, text), []);
        // No list: not linked yet, no DT_DEBUG, no memory.
        assert_eq!(found(&[21, 0, 0, 0], text), []);
        assert_eq!(found(&[1, 0x20030, 0, 0], text), []);
        assert_eq!(found(&[21, 0xffff_ffff_ffff_fff8, 0, 0], text), []);
    }
}
