//! Variables of C programs with static storage, and the layout of their types, from debug information.

use super::elf::Elf;
use super::symbols::{Slice, debug_information};
use gimli::{AttributeValue, DebuggingInformationEntry, Dwarf, Operation, Unit, UnitOffset};
use object::{Object, ObjectSymbol};
use std::collections::BTreeMap;

/// The maximum number of types that a type may refer to: each `typedef` and `const` is one.
const REFERENCES: usize = 64;
/// The maximum depth of unnamed structures and unions in each other.
const NESTED: usize = 8;
/// The maximum number of members among which one is looked for.
const MEMBERS: usize = 1 << 16;

type Entry = DebuggingInformationEntry<Slice>;

/// Some variables and types of a program.
pub struct Variables {
    dwarf: Dwarf<Slice>,
    units: Vec<Unit<Slice>>,
    /// The variables by name: their address and their type.
    variables: BTreeMap<String, (u64, Place)>,
    /// The structures and type definitions by name.
    types: BTreeMap<String, Place>,
    /// The addresses of symbols, for variables without debug information.
    symbols: BTreeMap<String, u64>,
}

/// The place of an entry: the index of its unit, and its offset in the unit.
type Place = (usize, UnitOffset);

/// A type in the debug information of a program.
#[derive(Clone, Copy)]
pub struct Type<'v> {
    all: &'v Variables,
    place: Place,
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
        let mut headers = dwarf.units();
        let mut units = Vec::new();
        while let Ok(Some(header)) = headers.next() {
            units.extend(dwarf.unit(header));
        }
        let mut found = Self {
            dwarf,
            units,
            variables: BTreeMap::new(),
            types: BTreeMap::new(),
            symbols,
        };
        for index in 0..found.units.len() {
            found.look(index, elf.offset, (variables, types));
        }
        Some(found)
    }

    /// Adds the wanted variables and types of a unit.
    fn look(&mut self, index: usize, offset: u64, (variables, types): (&[&str], &[&str])) {
        let (mut found, mut layouts) = (Vec::new(), Vec::new());
        let unit = &self.units[index];
        let mut entries = unit.entries();
        let is_inside =
            matches!(entries.next_dfs(), Ok(Some(_))) && entries.next_entry() == Ok(true);
        let mut next = entries.current().filter(|_| is_inside).cloned();
        while let Some(entry) = next {
            match entry.tag() {
                gimli::DW_TAG_variable => {
                    if let Some(address) = address(unit, &entry)
                        && let Some((name, of)) = self.declaration(index, &entry)
                        && variables.contains(&&*name)
                    {
                        found.push((name, (address.wrapping_add(offset), of)));
                    }
                }
                gimli::DW_TAG_structure_type | gimli::DW_TAG_typedef => {
                    if entry.attr(gimli::DW_AT_declaration).is_none()
                        && let Some(name) = self.name(unit, &entry)
                        && types.contains(&&*name)
                    {
                        layouts.push((name, (index, entry.offset())));
                    }
                }
                _ => {}
            }
            next = entries.next_sibling().ok().flatten().cloned();
        }
        for (name, variable) in found {
            self.variables.entry(name).or_insert(variable);
        }
        for (name, place) in layouts {
            self.types.entry(name).or_insert(place);
        }
    }

    /// Returns the name and the type of a variable; its declaration may be elsewhere.
    fn declaration(&self, index: usize, entry: &Entry) -> Option<(String, Place)> {
        let elsewhere = [gimli::DW_AT_specification, gimli::DW_AT_abstract_origin];
        let elsewhere = elsewhere
            .iter()
            .find_map(|name| self.reference(index, entry, *name));
        let own = self.reference(index, entry, gimli::DW_AT_type);
        let Some((other, offset)) = elsewhere else {
            return Some((self.name(&self.units[index], entry)?, own?));
        };
        let unit = &self.units[other];
        let declared = unit.entry(offset).ok()?;
        let of = own.or_else(|| self.reference(other, &declared, gimli::DW_AT_type))?;
        Some((self.name(unit, &declared)?, of))
    }

    /// Returns the entry to which an attribute refers.
    fn reference(&self, index: usize, entry: &Entry, name: gimli::DwAt) -> Option<Place> {
        match entry.attr_value(name)? {
            AttributeValue::UnitRef(offset) => Some((index, offset)),
            AttributeValue::DebugInfoRef(offset) => {
                let start = |unit: &Unit<Slice>| unit.header.debug_info_offset();
                let after = self
                    .units
                    .partition_point(|unit| start(unit) <= Some(offset));
                let index = after.checked_sub(1)?;
                let offset = offset.to_unit_offset(&self.units[index].header)?;
                Some((index, offset))
            }
            _ => None,
        }
    }

    /// Returns the name of an entry.
    fn name(&self, unit: &Unit<Slice>, entry: &Entry) -> Option<String> {
        let name = entry.attr_value(gimli::DW_AT_name)?;
        let name = self.dwarf.attr_string(unit, name).ok()?;
        Some(String::from_utf8_lossy(name.bytes()).into_owned())
    }

    /// Returns the address of a variable.
    pub fn address(&self, name: &str) -> Option<u64> {
        let described = self.variables.get(name).map(|(address, _)| *address);
        described.or_else(|| self.symbols.get(name).copied())
    }

    /// Returns the type of a variable.
    pub fn of(&self, name: &str) -> Option<Type<'_>> {
        let (_, place) = *self.variables.get(name)?;
        Some(Type { all: self, place }.plain())
    }

    /// Returns a structure, or the type that a `typedef` names.
    pub fn named(&self, name: &str) -> Option<Type<'_>> {
        let place = *self.types.get(name)?;
        Some(Type { all: self, place }.plain())
    }
}

impl<'v> Type<'v> {
    fn unit(self) -> &'v Unit<Slice> {
        &self.all.units[self.place.0]
    }

    fn entry(self) -> Option<Entry> {
        self.unit().entry(self.place.1).ok()
    }

    /// Returns the type that this one refers to.
    fn referred(self, entry: &Entry) -> Option<Self> {
        let place = self.all.reference(self.place.0, entry, gimli::DW_AT_type)?;
        Some(Self { place, ..self })
    }

    /// Returns the type without `typedef`, `const` and `volatile`.
    fn plain(mut self) -> Self {
        for _ in 0..REFERENCES {
            let Some(entry) = self.entry() else { break };
            let is_name = matches!(
                entry.tag(),
                gimli::DW_TAG_typedef
                    | gimli::DW_TAG_const_type
                    | gimli::DW_TAG_volatile_type
                    | gimli::DW_TAG_atomic_type
            );
            match self.referred(&entry).filter(|_| is_name) {
                Some(referred) => self = referred,
                None => break,
            }
        }
        self
    }

    /// Returns the type to which a pointer of this type refers.
    pub fn pointee(self) -> Option<Self> {
        let entry = self.entry()?;
        let is_pointer = entry.tag() == gimli::DW_TAG_pointer_type;
        let referred = self.referred(&entry).filter(|_| is_pointer)?;
        Some(referred.plain())
    }

    /// Returns the type of the elements of an array.
    pub fn element(self) -> Option<Self> {
        let entry = self.entry()?;
        let is_array = entry.tag() == gimli::DW_TAG_array_type;
        let referred = self.referred(&entry).filter(|_| is_array)?;
        Some(referred.plain())
    }

    /// Returns the number of elements of an array.
    pub fn count(self) -> Option<u64> {
        let unit = self.unit();
        let mut tree = unit.entries_tree(Some(self.place.1)).ok()?;
        let root = tree.root().ok()?;
        if root.entry().tag() != gimli::DW_TAG_array_type {
            return None;
        }
        let mut children = root.children();
        let range = children.next().ok()??;
        let entry = range.entry();
        let number = |name| entry.attr_value(name)?.udata_value();
        number(gimli::DW_AT_count)
            .or_else(|| number(gimli::DW_AT_upper_bound).and_then(|last: u64| last.checked_add(1)))
    }

    /// Returns the size in bytes.
    pub fn size(self) -> Option<u64> {
        let entry = self.entry()?;
        if let Some(size) = entry.attr_value(gimli::DW_AT_byte_size) {
            return size.udata_value();
        }
        match entry.tag() {
            gimli::DW_TAG_pointer_type => Some(u64::from(self.unit().encoding().address_size)),
            gimli::DW_TAG_array_type => {
                let element = self.element()?;
                // Arrays in each other are not followed.
                let size = element
                    .entry()?
                    .attr_value(gimli::DW_AT_byte_size)?
                    .udata_value();
                size?.checked_mul(self.count()?)
            }
            _ => None,
        }
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
        let unit = self.unit();
        let mut tree = unit.entries_tree(Some(self.place.1)).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            // Damaged structures may contain each other.
            *left = left.checked_sub(1)?;
            if entry.tag() != gimli::DW_TAG_member {
                continue;
            }
            let Some(of) = self.referred(entry) else {
                continue;
            };
            let offset = match entry.attr_value(gimli::DW_AT_data_member_location) {
                // Members of a union have none.
                None => 0,
                Some(value) => match value.udata_value() {
                    Some(offset) => offset,
                    None => continue,
                },
            };
            match self.all.name(unit, entry) {
                Some(name) if name == wanted => return Some((offset, of.plain())),
                Some(_) => {}
                None if depth < NESTED => {
                    if let Some((more, of)) = of.plain().own_member(wanted, depth + 1, left) {
                        return Some((offset.checked_add(more)?, of));
                    }
                }
                None => {}
            }
        }
        None
    }
}

/// Returns the address of a variable with static storage.
fn address(unit: &Unit<Slice>, entry: &Entry) -> Option<u64> {
    let AttributeValue::Exprloc(expression) = entry.attr_value(gimli::DW_AT_location)? else {
        return None;
    };
    let mut operations = expression.operations(unit.encoding());
    match operations.next().ok()?? {
        Operation::Address { address } => Some(address),
        _ => None,
    }
}
