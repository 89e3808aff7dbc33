//! The addresses of a module's sections.

use super::ModuleFile;
use crate::program::instruction_sets::Contents;
use object::{Object, ObjectSection, ObjectSymbol, SectionIndex};
use std::collections::{BTreeMap, HashMap};

/// Whether the kernel fills a section with code of its own (Linux, arch/arm64/kernel/module-plts.c
/// and arch/arm/kernel/module-plts.c).
pub(super) fn is_written_by_kernel(name: &str) -> bool {
    matches!(
        name,
        ".plt" | ".init.plt" | ".core.plt" | ".text.ftrace_trampoline"
    )
}

/// The addresses of sections, by their index in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement(BTreeMap<usize, u64>);

impl Placement {
    /// Returns the address of a section.
    pub fn of(&self, section: SectionIndex) -> Option<u64> {
        self.0.get(&section.0).copied()
    }

    /// Returns whether no section has an address.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Places the code of a module whose first address is known (Linux, kernel/module/main.c,
    /// `__layout_sections`): the executable sections in file order, without those of the
    /// initialisation. Since Linux 6.4 they have memory of their own; before, they were the first
    /// part of the module's memory. The sizes of sections that the kernel fills are not in the
    /// file, so the addresses of the sections after them are not known.
    pub fn of_code(module: &ModuleFile<'_>, first: u64) -> Self {
        let mut out = BTreeMap::new();
        let mut next = first;
        for (section, name, executable) in module.loaded() {
            if !executable || name.starts_with(".init") {
                continue;
            }
            let align = section.align().max(1);
            let Some(address) = next.checked_next_multiple_of(align) else {
                break;
            };
            if is_written_by_kernel(name) {
                break;
            }
            let Some(end) = address.checked_add(section.size()) else {
                break;
            };
            next = end;
            out.insert(section.index().0, address);
        }
        Self(out)
    }

    /// Places sections by their names, as the kernel lists them (`/sys/module/NAME/sections`).
    pub fn of_names(module: &ModuleFile<'_>, sections: &[(String, u64)]) -> Self {
        let listed: HashMap<&str, u64> = sections
            .iter()
            .map(|(name, address)| (&**name, *address))
            .collect();
        let placed = module
            .loaded()
            .filter_map(|(section, name, _)| Some((section.index().0, *listed.get(name)?)));
        Self(placed.collect())
    }

    /// Adds the sections whose symbols the kernel lists. Where this list differs from known
    /// addresses, the list is right. A section whose symbols contradict each other has no address.
    pub fn correct(&mut self, module: &ModuleFile<'_>, listed: &HashMap<String, Option<u64>>) {
        let mut own: HashMap<&str, Option<(usize, u64)>> = HashMap::new();
        for symbol in module.file.symbols() {
            if let (Some(section), Ok(name)) = (symbol.section_index(), symbol.name())
                && !name.is_empty()
                && !Contents::is_mark(name.as_bytes())
            {
                // Names of local symbols may occur several times.
                let place = Some((section.0, symbol.address()));
                own.entry(name)
                    .and_modify(|known| *known = None)
                    .or_insert(place);
            }
        }
        let mut found: BTreeMap<usize, Option<u64>> = BTreeMap::new();
        for (name, address) in listed {
            if let (Some(Some((section, offset))), Some(address)) = (own.get(&**name), address) {
                let base = Some(address.wrapping_sub(*offset));
                let entry = found.entry(*section).or_insert(base);
                if *entry != base {
                    *entry = None;
                }
            }
        }
        for (section, base) in found {
            match base {
                Some(base) => self.0.insert(section, base),
                None => self.0.remove(&section),
            };
        }
    }
}

/// The symbols that a kernel lists in `/proc/kallsyms`.
#[derive(Clone, Debug, Default)]
pub struct Kallsyms {
    /// The symbols of the kernel itself. A name that occurs several times has no address.
    pub kernel: HashMap<String, Option<u64>>,
    /// The symbols of each module.
    pub modules: HashMap<String, HashMap<String, Option<u64>>>,
}

impl Kallsyms {
    /// Reads a copy of the file. A copy made without permission contains no addresses.
    pub fn read(text: &[u8]) -> Self {
        let mut out = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            let Ok(line) = std::str::from_utf8(line) else {
                continue;
            };
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Ok(address @ 1..) = u64::from_str_radix(address, 16) else {
                continue;
            };
            let module = words
                .next()
                .and_then(|word| word.strip_prefix('[')?.strip_suffix(']'));
            let names = match module {
                Some(module) => out.modules.entry(module.to_owned()).or_default(),
                None => &mut out.kernel,
            };
            let known = names.entry(name.to_owned());
            known
                .and_modify(|known| *known = None)
                .or_insert(Some(address));
        }
        out
    }
}
