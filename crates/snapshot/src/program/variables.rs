//! Variables of C programs with static storage, and the layout of their types, from debug information.

use super::elf::Elf;
use super::symbols::debug_info::{DebugInfo, Die};
use super::symbols::debug_information;
use super::symbols::locations::{Nothing, Placement, Scene};
use super::symbols::types::{Layout, TypeId};
use object::{Object, ObjectSymbol};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum depth of unnamed structures and unions in each other.
const NESTED: usize = 8;
/// The maximum number of members among which one is looked for.
const MEMBERS: usize = 1 << 16;

/// Some variables and types of a program.
pub struct Variables {
    info: DebugInfo,
    /// The variables by name: their address and their type.
    variables: BTreeMap<String, (u64, TypeId)>,
    /// The structures and type definitions by name.
    types: BTreeMap<String, TypeId>,
    /// The addresses of symbols, for variables without debug information.
    symbols: BTreeMap<String, u64>,
}

/// A type in the debug information of a program.
#[derive(Clone, Copy)]
pub struct Type<'v> {
    all: &'v Variables,
    id: TypeId,
}

/// Returns whether a program may have a symbol: its table of names contains this one.
pub fn may_define(elf: &Elf, name: &str) -> bool {
    let names = || {
        let file = object::File::parse(elf.bytes()).ok()?;
        let section = file.section_by_name_bytes(b".strtab")?;
        object::ObjectSection::data(&section).ok()
    };
    names().is_some_and(|names| memchr::memmem::find(names, name.as_bytes()).is_some())
}

impl Variables {
    /// Finds variables and types of a program by name. Those that it does not have are left out.
    /// Returns `None` if the program has none of the variables, or is damaged.
    pub fn find(elf: &Elf, variables: &[&str], types: &[&str]) -> Option<Self> {
        let file = object::File::parse(elf.bytes()).ok()?;
        let symbols = file.symbols().filter_map(|symbol| {
            let name = symbol.name().ok()?;
            let is_wanted = variables.contains(&name) && !symbol.is_undefined();
            is_wanted.then(|| (name.to_owned(), symbol.address().wrapping_add(elf.offset)))
        });
        let symbols: BTreeMap<String, u64> = symbols.collect();
        if symbols.is_empty() {
            return None;
        }
        let dwarf = debug_information(&file, elf.bytes().len()).ok()?;
        let mut found = Self {
            info: DebugInfo::new(Arc::new(dwarf), 0, elf.offset),
            variables: BTreeMap::new(),
            types: BTreeMap::new(),
            symbols,
        };
        found.look(variables, types);
        Some(found)
    }

    /// Adds the wanted variables and types at the top level of all units.
    fn look(&mut self, variables: &[&str], types: &[&str]) {
        let info = &self.info;
        for (number, unit) in info.units().iter().enumerate() {
            let mut entries = unit.entries();
            let is_inside =
                matches!(entries.next_dfs(), Ok(Some(_))) && entries.next_entry() == Ok(true);
            let mut next = entries.current().filter(|_| is_inside).cloned();
            while let Some(entry) = next {
                let die = Die {
                    number,
                    unit,
                    entry,
                };
                match die.entry.tag() {
                    gimli::DW_TAG_variable => {
                        if die.entry.has_attr(gimli::DW_AT_location)
                            && let Some(name) = info.name(&die)
                            && variables.contains(&&*name)
                            && let Some(kind) = info.type_of(&die)
                            && let Some(Placement::Memory(address)) =
                                info.place(&die, Scene::NONE, &mut Nothing)
                        {
                            self.variables.entry(name).or_insert((address, kind));
                        }
                    }
                    gimli::DW_TAG_structure_type | gimli::DW_TAG_typedef => {
                        if !die.entry.has_attr(gimli::DW_AT_declaration)
                            && let Some(name) = info.name(&die)
                            && types.contains(&&*name)
                        {
                            let kind = info.type_at(die.id());
                            self.types.entry(name).or_insert(kind);
                        }
                    }
                    _ => {}
                }
                next = entries.next_sibling().ok().flatten().cloned();
            }
        }
    }

    /// Returns the address of a variable.
    pub fn address(&self, name: &str) -> Option<u64> {
        let described = self.variables.get(name).map(|(address, _)| *address);
        described.or_else(|| self.symbols.get(name).copied())
    }

    /// Returns the type of a variable.
    pub fn of(&self, name: &str) -> Option<Type<'_>> {
        let (_, id) = *self.variables.get(name)?;
        Some(Type { all: self, id })
    }

    /// Returns a structure, or the type that a `typedef` names.
    pub fn named(&self, name: &str) -> Option<Type<'_>> {
        let id = *self.types.get(name)?;
        Some(Type { all: self, id })
    }
}

impl<'v> Type<'v> {
    fn layout(self) -> Option<Layout> {
        self.all.info.layout(self.id)
    }

    fn with(self, id: TypeId) -> Self {
        Self { id, ..self }
    }

    /// Returns the type to which a pointer of this type refers.
    pub fn pointee(self) -> Option<Self> {
        match self.layout()? {
            Layout::Pointer { to, .. } => Some(self.with(to?)),
            _ => None,
        }
    }

    /// Returns the type of the elements of an array.
    pub fn element(self) -> Option<Self> {
        match self.layout()? {
            Layout::Array { element, .. } => Some(self.with(element)),
            _ => None,
        }
    }

    /// Returns the number of elements of an array.
    pub fn count(self) -> Option<u64> {
        match self.layout()? {
            Layout::Array { count, .. } => count,
            _ => None,
        }
    }

    /// Returns the size in bytes.
    pub fn size(self) -> Option<u64> {
        self.all.info.size(self.id)
    }

    /// Returns the name of the constant of an enumeration with a value.
    pub fn constant(self, value: u64) -> Option<String> {
        self.all.info.constant(self.id, value)
    }

    /// Returns a member of a structure or union by its path (`pool.first`): its offset in bytes and
    /// its type. Members of unnamed structures and unions belong to the one around them.
    pub fn member(self, path: &str) -> Option<(u64, Type<'v>)> {
        let (mut offset, mut at) = (0_u64, self);
        let mut left = MEMBERS;
        for name in path.split('.') {
            let (more, of) = at.own_member(name, 0, &mut left)?;
            offset = offset.checked_add(more)?;
            at = of;
        }
        Some((offset, at))
    }

    /// Returns the offset in bytes of a member by its path.
    pub fn offset(self, path: &str) -> Option<u64> {
        self.member(path).map(|(offset, _)| offset)
    }

    fn own_member(self, wanted: &str, depth: usize, left: &mut usize) -> Option<(u64, Type<'v>)> {
        let Layout::Record { fields, .. } = self.layout()? else {
            return None;
        };
        for field in fields {
            // Damaged structures may contain each other.
            *left = left.checked_sub(1)?;
            let of = self.with(field.kind);
            match field.name {
                Some(name) if name == wanted => return Some((field.offset, of)),
                Some(_) => {}
                None if depth < NESTED => {
                    if let Some((more, of)) = of.own_member(wanted, depth + 1, left) {
                        return Some((field.offset.checked_add(more)?, of));
                    }
                }
                None => {}
            }
        }
        None
    }
}
