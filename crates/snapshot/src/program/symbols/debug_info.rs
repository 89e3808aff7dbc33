//! The entries of the debug information of a file, and what they refer to (DWARF 5, 2 and 7.5).

use super::globals::Globals;
use super::{Slice, shown};
use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, DwAt, DwTag, Dwarf, Reader,
    Section, Unit, UnitOffset,
};
use std::sync::{Arc, OnceLock};

/// The longest chain of entries that refer to each other, such as types of types.
pub(super) const CHAIN: usize = 32;
/// The most children of an entry that are read: fields, parameters, variables.
const MOST_CHILDREN: usize = 1 << 14;

pub(in crate::program) type Entry = DebuggingInformationEntry<Slice>;

/// The debug information of a file.
pub(in crate::program) struct DebugInfo {
    pub dwarf: Arc<Dwarf<Slice>>,
    /// Which of several files this is.
    pub file: usize,
    /// The offset from the addresses in the file.
    pub moved: u64,
    /// The symbols of data at address 0, which is also that of what the linker has removed.
    pub first: Vec<String>,
    /// Its units by offset, read on first use.
    units: OnceLock<Vec<Unit<Slice>>>,
    /// What it defines outside of functions, read on first use.
    globals: OnceLock<Globals>,
}

/// An entry with its unit.
#[derive(Clone)]
pub(in crate::program) struct Die<'i> {
    /// The index of the unit.
    pub number: usize,
    pub unit: &'i Unit<Slice>,
    pub entry: Entry,
}

/// Which entry of a file this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::program) struct EntryId {
    unit: usize,
    offset: UnitOffset,
}

impl Die<'_> {
    pub(crate) fn id(&self) -> EntryId {
        EntryId {
            unit: self.number,
            offset: self.entry.offset(),
        }
    }
}

impl DebugInfo {
    pub(crate) fn new(dwarf: Arc<Dwarf<Slice>>, file: usize, moved: u64) -> Self {
        Self {
            dwarf,
            file,
            moved,
            first: Vec::new(),
            units: OnceLock::new(),
            globals: OnceLock::new(),
        }
    }

    /// Returns what is defined outside of functions.
    pub(super) fn globals(&self) -> &Globals {
        self.globals.get_or_init(|| self.read_globals())
    }

    /// Returns the units; those that cannot be read are left out.
    pub(crate) fn units(&self) -> &[Unit<Slice>] {
        self.units.get_or_init(|| {
            let mut headers = self.dwarf.units();
            let headers = std::iter::from_fn(|| headers.next().ok().flatten());
            headers
                .filter_map(|header| self.dwarf.unit(header).ok())
                .collect()
        })
    }

    /// Returns an entry of the unit with an index.
    pub(crate) fn die(&self, EntryId { unit, offset }: EntryId) -> Option<Die<'_>> {
        let number = unit;
        let unit = self.units().get(number)?;
        let entry = unit.entry(offset).ok()?;
        Some(Die {
            number,
            unit,
            entry,
        })
    }

    /// Returns the entry at an offset in `.debug_info`.
    fn at(&self, offset: DebugInfoOffset) -> Option<Die<'_>> {
        let start = |unit: &Unit<Slice>| unit.header.debug_info_offset();
        let units = self.units();
        let after = units.partition_point(|unit| start(unit) <= Some(offset));
        let unit = after.checked_sub(1)?;
        let offset = offset.to_unit_offset(&units[unit].header)?;
        self.die(EntryId { unit, offset })
    }

    /// Returns the entry that an attribute of a unit refers to.
    pub(crate) fn referred(&self, unit: usize, value: &AttributeValue<Slice>) -> Option<Die<'_>> {
        match *value {
            AttributeValue::UnitRef(offset) => self.die(EntryId { unit, offset }),
            AttributeValue::DebugInfoRef(offset) => self.at(offset),
            _ => None,
        }
    }

    /// Returns an attribute of an entry, or of the entry that it completes, with the index of its
    /// unit.
    pub(crate) fn attribute(
        &self,
        die: &Die<'_>,
        name: DwAt,
    ) -> Option<(usize, AttributeValue<Slice>)> {
        if let Some(value) = die.entry.attr_value(name) {
            return Some((die.number, value));
        }
        let origin = |die: &Die<'_>| {
            let origin = die.entry.attr_value(gimli::DW_AT_abstract_origin);
            let origin = origin.or_else(|| die.entry.attr_value(gimli::DW_AT_specification))?;
            self.referred(die.number, &origin)
        };
        let mut die = origin(die)?;
        for _ in 1..CHAIN {
            if let Some(value) = die.entry.attr_value(name) {
                return Some((die.number, value));
            }
            die = origin(&die)?;
        }
        None
    }

    pub(crate) fn number(&self, die: &Die<'_>, name: DwAt) -> Option<u64> {
        self.attribute(die, name)?.1.udata_value()
    }

    pub(super) fn is_big_endian(&self) -> bool {
        self.dwarf.debug_info.reader().endian() == gimli::RunTimeEndian::Big
    }

    /// Returns the name in the source.
    pub(crate) fn name(&self, die: &Die<'_>) -> Option<String> {
        let (unit, value) = self.attribute(die, gimli::DW_AT_name)?;
        let name = self.dwarf.attr_string(&self.units()[unit], value).ok()?;
        Some(shown(&name.to_string_lossy().ok()?))
    }

    /// Returns the children of an entry with a tag.
    pub(crate) fn children<'i>(&'i self, die: &Die<'i>, tag: DwTag) -> Vec<Die<'i>> {
        let mut all = self.all_children(die);
        all.retain(|child| child.entry.tag() == tag);
        all
    }

    pub(crate) fn all_children<'i>(&'i self, die: &Die<'i>) -> Vec<Die<'i>> {
        let mut found = Vec::new();
        let Ok(mut tree) = die.unit.entries_tree(Some(die.entry.offset())) else {
            return found;
        };
        let Ok(root) = tree.root() else {
            return found;
        };
        let mut children = root.children();
        while found.len() < MOST_CHILDREN
            && let Ok(Some(child)) = children.next()
        {
            found.push(Die {
                entry: child.entry().clone(),
                ..*die
            });
        }
        found
    }
}
