//! The modules of a kernel and the names of their functions, found by the list of modules in
//! memory.
//!
//! A module keeps the symbol table of its file (`struct mod_kallsyms`) with the addresses of its
//! functions. Offsets come from the kernel's types. Memory is never trusted.

use super::btf::{self, Btf};
use super::physical::PhysicalKernel;
use super::{Memory, bytes, long, name, word};
use crate::program::instruction_sets::Contents;
use crate::program::symbol_file::Function;
use std::collections::HashSet;
use std::ops::Range;

/// Maximum number of modules that are listed.
const MOST: usize = 4096;
/// Maximum number of modules that are being loaded at once.
const LOADING: usize = 64;
/// Maximum number of symbols of all modules.
const MAX_SYMBOLS: usize = 1 << 20;
/// Maximum size of the names of all functions in bytes: in damaged memory, symbols may share names.
const MAX_NAMES: usize = 64 << 20;
/// Maximum size of the code of all modules in bytes.
const MAX_CODE: u64 = 256 << 20;
/// The length of a module's name: `MODULE_NAME_LEN`, on 64-bit systems.
const NAME: usize = 56;
/// Maximum length of a function name.
const LONGEST: usize = 512;
/// The size of `Elf64_Sym`.
const SYMBOL: usize = 24;
/// The symbol of the list's head. Kernels without `KALLSYMS_ALL` have no data symbols.
const HEAD: &str = "modules";
/// Functions of the kernel that refer to the head (Linux, kernel/module/).
const REFERRING: [&str; 4] = [
    "find_module_all",
    "print_modules",
    "m_start",
    "modules_open",
];
/// The names of symbols by which the list is found.
pub const NAMES: [&str; 5] = [HEAD, REFERRING[0], REFERRING[1], REFERRING[2], REFERRING[3]];
/// The number of bytes of such a function that are examined.
const EXAMINED: u64 = 4096;
/// Maximum number of locations that are tried to find the kernel's types, and their total size.
/// Each module has types of its own.
const TRIED: usize = 4096;
const TRIED_TYPES: usize = 256 << 20;

/// Offsets of the members that are read.
#[derive(Clone, Debug)]
pub struct ModuleLayout {
    list: u64,
    name: u64,
    /// A pointer to the module itself.
    own: u64,
    kallsyms: u64,
    symbols: u64,
    count: u64,
    strings: u64,
    kinds: Option<u64>,
    /// The offsets of the base and of the size of each range of code.
    code: Vec<(u64, u64)>,
}

/// A module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// The address ranges of its code: the permanent code, then the initialisation code until it
    /// has ended.
    pub code: Vec<Range<u64>>,
    /// Its functions, by address. A size may be 0.
    pub functions: Vec<Function>,
}

/// The reason why the modules of a kernel are not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoModules {
    /// The types of the kernel lack a member.
    #[error("the kernel's types have no {structure}.{path}")]
    Member {
        /// The structure.
        structure: &'static str,
        /// The path of the member.
        path: &'static str,
    },
    /// The types of the kernel lack the members for code ranges.
    #[error("the kernel's types have no module.mem or module.core_layout")]
    Code,
    /// The types of the kernel are not known.
    #[error("the kernel's types (BTF) are not in its memory")]
    Types,
    /// The list is not found.
    #[error("the head of the list of modules is not found")]
    Head,
}

impl ModuleLayout {
    /// Returns the layout in a kernel with these types.
    ///
    /// # Errors
    ///
    /// Returns the reason if a member is missing.
    pub fn of(types: &Btf<'_>) -> Result<Self, NoModules> {
        let member = |structure: &'static str, path: &'static str| {
            let found = types.offset(structure, path);
            found.ok_or(NoModules::Member { structure, path })
        };
        Ok(Self {
            list: member("module", "list")?,
            name: member("module", "name")?,
            own: member("module", "mkobj.mod")?,
            kallsyms: member("module", "kallsyms")?,
            symbols: member("mod_kallsyms", "symtab")?,
            count: member("mod_kallsyms", "num_symtab")?,
            strings: member("mod_kallsyms", "strtab")?,
            kinds: types.offset("mod_kallsyms", "typetab"),
            code: code(types).ok_or(NoModules::Code)?,
        })
    }

    /// Returns the first link of the list if its head may be at an address: the link of a module,
    /// or the head itself. It may belong to a module that is being loaded.
    pub(super) fn first(&self, memory: &dyn Memory, head: u64) -> Option<u64> {
        let mut link = head;
        for _ in 0..LOADING {
            let next = long(memory, link)?;
            if long(memory, next.wrapping_add(8))? != link {
                return None;
            }
            let is_module = self.name(memory, next).is_some();
            if is_module || (next == head && link == head) {
                return long(memory, head);
            }
            if next == head {
                return None;
            }
            link = next;
        }
        None
    }

    /// Returns the name of the module with a link of the list.
    fn name(&self, memory: &dyn Memory, link: u64) -> Option<String> {
        let base = link.wrapping_sub(self.list);
        if long(memory, base.wrapping_add(self.own))? != base {
            return None;
        }
        let name = name(&bytes(memory, base.wrapping_add(self.name), NAME)?);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        (!name.is_empty() && name.bytes().all(plain)).then_some(name)
    }

    /// Lists the modules. If the list is incomplete, also returns the reason.
    pub fn all(&self, memory: &dyn Memory, head: u64) -> (Vec<Module>, Option<String>) {
        let mut out = Vec::new();
        let mut seen = HashSet::new();
        let mut left = Left {
            symbols: MAX_SYMBOLS,
            names: MAX_NAMES,
            code: MAX_CODE,
        };
        let mut link = head;
        let mut why_not = None;
        let unknown = |address: u64| {
            format!("the list of modules is not whole: the memory at {address:#x} is not known")
        };
        loop {
            let Some(next) = long(memory, link) else {
                return (out, Some(unknown(link)));
            };
            let Some(back) = long(memory, next.wrapping_add(8)) else {
                return (out, Some(unknown(next)));
            };
            if back != link || !seen.insert(next) {
                let why = format!("the list of modules is damaged: {next:#x} follows {link:#x}");
                return (out, Some(why));
            }
            if next == head {
                return (out, why_not);
            }
            if seen.len() > MOST {
                return (
                    out,
                    Some(format!("only the first {MOST} modules are listed")),
                );
            }
            // A module that is being loaded has neither symbols nor a pointer to itself.
            match self.name(memory, next) {
                Some(name) => {
                    let base = next.wrapping_sub(self.list);
                    out.push(self.module(memory, base, name, &mut left));
                }
                None => {
                    why_not.get_or_insert_with(|| {
                        format!(
                            "no module at {next:#x} in the list of modules: it was being loaded, \
                             or is damaged"
                        )
                    });
                }
            }
            link = next;
        }
    }

    /// Reads a module, within the limits in `left`.
    fn module(&self, memory: &dyn Memory, base: u64, name: String, left: &mut Left) -> Module {
        let at = |offset: u64| base.wrapping_add(offset);
        let mut code = Vec::new();
        for (start, size) in &self.code {
            let (start, size) = (long(memory, at(*start)), word(memory, at(*size)));
            let Some((start, size)) = start.zip(size.map(u64::from)) else {
                continue;
            };
            let Some(end) = start.checked_add(size).filter(|_| start != 0 && size != 0) else {
                continue;
            };
            if let Some(rest) = left.code.checked_sub(size) {
                left.code = rest;
                code.push(start..end);
            }
        }
        let functions = self.functions(memory, at(self.kallsyms), &code, left);
        Module {
            name,
            functions: functions.unwrap_or_default(),
            code,
        }
    }

    /// Reads the functions in the symbol table that the pointer at `place` refers to.
    fn functions(
        &self,
        memory: &dyn Memory,
        place: u64,
        code: &[Range<u64>],
        left: &mut Left,
    ) -> Option<Vec<Function>> {
        let table = long(memory, place)?;
        let at = |offset: u64| table.wrapping_add(offset);
        let (symbols, strings) = (
            long(memory, at(self.symbols))?,
            long(memory, at(self.strings))?,
        );
        let count = word(memory, at(self.count))? as usize;
        let count = count.min(left.symbols);
        left.symbols -= count;
        let kinds = self.kinds.map(|kinds| long(memory, at(kinds)));
        let mut out = Vec::new();
        for index in 0..count as u64 {
            let entry = symbols.wrapping_add(index * SYMBOL as u64);
            let Some(entry) = bytes(memory, entry, SYMBOL) else {
                break;
            };
            let field =
                |at: usize| u64::from_le_bytes(*entry[at..].first_chunk().unwrap_or(&[0; 8]));
            let (value, size) = (field(8), field(16));
            if !code.iter().any(|range| range.contains(&value)) {
                continue;
            }
            // Linux 5.2 moved the type letters of nm(1) out of `st_info`.
            let kind = match kinds {
                Some(kinds) => bytes(memory, kinds?.wrapping_add(index), 1)?[0],
                None => entry[4],
            };
            if !matches!(kind, b'T' | b't' | b'W' | b'w') {
                continue;
            }
            let text = strings.wrapping_add(field(0) & 0xffff_ffff);
            let name = string(memory, text);
            if let Some(name) = name.filter(|name| !Contents::is_mark(name.as_bytes())) {
                let Some(rest) = left.names.checked_sub(name.len()) else {
                    break;
                };
                left.names = rest;
                out.push(Function {
                    name,
                    address: value,
                    size,
                });
            }
        }
        out.sort_by_key(|function: &Function| function.address);
        Some(out)
    }
}

/// The amounts that may still be listed.
struct Left {
    symbols: usize,
    /// Bytes of function names.
    names: usize,
    /// Bytes of code.
    code: u64,
}

/// Lists the modules of a kernel. `symbols` returns the addresses and sizes of the kernel's symbols
/// with a name. If the list is incomplete, also returns the reason.
///
/// # Errors
///
/// Returns the reason if the list is not found.
pub fn of_kernel(
    kernel: &PhysicalKernel<'_>,
    symbols: &dyn Fn(&str) -> Vec<(u64, u64)>,
) -> Result<(Vec<Module>, Option<String>), NoModules> {
    let layout = layout(kernel)?;
    let named = symbols(HEAD).into_iter().map(|(head, _)| head);
    let functions = REFERRING.iter().flat_map(|name| symbols(name));
    let referred = functions.flat_map(|(start, size)| {
        let mut code = vec![0; size.min(EXAMINED) as usize];
        let known = kernel.read(start, &mut code);
        references(&code[..known], start)
    });
    let mut empty = false;
    let heads = named.chain(referred);
    let mut heads = heads.filter(|head| match layout.first(kernel, *head) {
        Some(first) if first != *head => true,
        first => {
            empty |= first.is_some();
            false
        }
    });
    match heads.next() {
        Some(head) => Ok(layout.all(kernel, head)),
        None if empty => Ok((Vec::new(), None)),
        None => Err(NoModules::Head),
    }
}

/// Returns the layout of modules according to the types in the kernel's memory.
fn layout(kernel: &PhysicalKernel<'_>) -> Result<ModuleLayout, NoModules> {
    let mut left = TRIED_TYPES;
    let places = kernel.places(btf::START).take(TRIED);
    let found = places.filter_map(|place| {
        let length = btf::length(&bytes(kernel, place, btf::HEADER)?)?;
        left = left.checked_sub(length)?;
        let types = bytes(kernel, place, length)?;
        Some(ModuleLayout::of(&Btf::read(&types)?))
    });
    // Modules have types of their own; only the types of the kernel include `struct module`.
    let mut reason = None;
    for layout in found {
        match layout {
            Ok(layout) => return Ok(layout),
            Err(why) => reason = reason.or(Some(why)),
        }
    }
    Err(reason.unwrap_or(NoModules::Types))
}

/// Returns the offsets of the base and size of the ranges of code in `struct module`.
fn code(types: &Btf<'_>) -> Option<Vec<(u64, u64)>> {
    // Since Linux 6.4: MOD_TEXT and MOD_INIT_TEXT of `enum mod_mem_type` (include/linux/module.h).
    if let Some((start, count)) = types.array("module", "mem") {
        let size = types.size("module_memory")?;
        let base = types.offset("module_memory", "base")?;
        let length = types.offset("module_memory", "size")?;
        let kinds = [0, 4].into_iter().filter(|kind| *kind < u64::from(count));
        let place = |kind: u64| start + kind * size;
        return Some(
            kinds
                .map(|kind| (place(kind) + base, place(kind) + length))
                .collect(),
        );
    }
    let layout = |name: &str| {
        let base = types.offset("module", &format!("{name}.base"))?;
        Some((base, types.offset("module", &format!("{name}.text_size"))?))
    };
    Some(vec![layout("core_layout")?, layout("init_layout")?])
}

/// Reads a printable string; `None` if it is longer than any name.
fn string(memory: &dyn Memory, address: u64) -> Option<String> {
    let mut out = vec![0; LONGEST];
    let mut known = 0;
    // Most names are short.
    for part in [64, LONGEST] {
        known += memory.read(address.wrapping_add(known as u64), &mut out[known..part]);
        if let Some(end) = out[..known].iter().position(|byte| *byte == 0) {
            let name = &out[..end];
            let printable = name.iter().all(u8::is_ascii_graphic) && !name.is_empty();
            return printable.then(|| String::from_utf8_lossy(name).into_owned());
        }
        if known < part {
            break;
        }
    }
    None
}

/// Returns the addresses that code refers to by a page and an offset: ADRP, then ADD or LDR with an
/// immediate offset (Arm ARM DDI 0487, C6.2). `start` is the address of the code.
pub fn references(code: &[u8], start: u64) -> Vec<u64> {
    let mut out = Vec::new();
    let mut pages: [Option<u64>; 32] = [None; 32];
    for (word, at) in code.as_chunks::<4>().0.iter().zip((start..).step_by(4)) {
        let word = u32::from_le_bytes(*word);
        let (target, base) = ((word & 31) as usize, (word >> 5 & 31) as usize);
        let immediate = u64::from(word >> 10 & 0xfff);
        if word & 0x9f00_0000 == 0x9000_0000 {
            let offset = word >> 5 & 0x7ffff;
            let offset = u64::from(offset << 2 | word >> 29 & 3);
            // 21 bits, signed, in pages.
            let offset = (offset << 43).cast_signed() >> 43 << 12;
            pages[target] = Some((at & !0xfff).wrapping_add_signed(offset));
        } else if word & 0xffc0_0000 == 0x9100_0000 {
            out.extend(pages[base].map(|page| page.wrapping_add(immediate)));
        } else if word & 0xffc0_0000 == 0xf940_0000 {
            out.extend(pages[base].map(|page| page.wrapping_add(8 * immediate)));
        }
    }
    out.sort_unstable();
    out.dedup();
    out
}
