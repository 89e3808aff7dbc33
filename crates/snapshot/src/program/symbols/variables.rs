//! Variables and parameters in the debug information (DWARF 5, 3.3 and 4.1).

use super::Symbols;
use super::debug_info::{DebugInfo, Die, EntryId};
pub use super::locations::{Machine, Placement};
pub use super::types::{Encoding, Field, Layout, TypeId};
use gimli::AttributeValue;
use std::collections::HashSet;

/// The deepest nesting of blocks and namespaces in which variables are searched for.
const DEEPEST: usize = 64;
/// The most entries that a search for a variable reads.
const MOST_ENTRIES: usize = 1 << 24;

/// A variable or a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name in the source.
    pub name: String,
    /// Its type, if it is known.
    pub kind: Option<TypeId>,
    file: usize,
    /// Its entry, and that of the function that contains it.
    entry: EntryId,
    function: Option<EntryId>,
}

impl Variable {
    /// Whether it is not a variable or a parameter of a function.
    #[must_use]
    pub fn is_global(&self) -> bool {
        self.function.is_none()
    }
}

/// The parameters of a function, and the type that it returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Its parameters, in the order of the source.
    pub parameters: Vec<Variable>,
    /// The type of what it returns; `None` for `void`.
    pub returns: Option<TypeId>,
}

impl Symbols {
    fn debug_files(&self) -> impl Iterator<Item = &DebugInfo> {
        self.lines.iter().map(|lines| &lines.info)
    }

    fn debug_file(&self, number: usize) -> Option<&DebugInfo> {
        Some(&self.lines.get(number)?.info)
    }

    /// Returns the parameters and the result of the function that contains an address; `None`
    /// without debug information for it.
    #[must_use]
    pub fn signature(&self, address: u64) -> Option<Signature> {
        self.debug_files().find_map(|file| {
            let function = file.function(address)?;
            let parameters = file.children(&function, gimli::DW_TAG_formal_parameter);
            let at = function.id();
            let parameters = parameters.iter();
            Some(Signature {
                parameters: parameters
                    .filter_map(|die| file.variable(die, Some(at)))
                    .collect(),
                returns: file.type_of(&function),
            })
        })
    }

    /// Returns the variable that a name means at an instruction: the innermost local variable or
    /// parameter with this name there, otherwise a global variable.
    #[must_use]
    pub fn variable(&self, name: &str, pc: Option<u64>) -> Option<Variable> {
        let local = pc.and_then(|pc| {
            self.debug_files().find_map(|file| {
                let function = file.function(pc)?;
                let found = file.local(&function, name, pc.wrapping_sub(file.moved), DEEPEST)?;
                file.variable(&found, Some(function.id()))
            })
        });
        local.or_else(|| {
            let mut files = self.debug_files();
            files.find_map(|file| file.variable(&file.global(name)?, None))
        })
    }

    /// Returns the layout of a type; `None` if it has no size or is of a kind that is not read.
    #[must_use]
    pub fn layout(&self, kind: TypeId) -> Option<Layout> {
        self.debug_file(kind.file)?.layout(kind)
    }

    /// Returns the size of a type in bytes.
    #[must_use]
    pub fn size(&self, kind: TypeId) -> Option<u64> {
        self.debug_file(kind.file)?.size(kind)
    }

    /// Returns where a variable is at an instruction; `None` if it is nowhere there, in several
    /// pieces, or depends on what `machine` does not know.
    pub fn place(
        &self,
        variable: &Variable,
        pc: u64,
        machine: &mut dyn Machine,
    ) -> Option<Placement> {
        let file = self.debug_file(variable.file)?;
        let die = file.die(variable.entry)?;
        let function = variable.function.and_then(|function| file.die(function));
        let pc = pc.wrapping_sub(file.moved);
        file.place(&die, (function.as_ref(), pc), machine)
    }
}

impl DebugInfo {
    fn variable(&self, die: &Die<'_>, function: Option<EntryId>) -> Option<Variable> {
        Some(Variable {
            name: self.name(die)?,
            kind: self.type_of(die),
            file: self.file,
            entry: die.id(),
            function,
        })
    }

    fn contains(&self, die: &Die<'_>, pc: u64) -> bool {
        let Ok(mut ranges) = self.dwarf.die_ranges(die.unit, &die.entry) else {
            return false;
        };
        while let Ok(Some(range)) = ranges.next() {
            if (range.begin..range.end).contains(&pc) {
                return true;
            }
        }
        false
    }

    /// Returns the function that contains an address in memory.
    fn function(&self, address: u64) -> Option<Die<'_>> {
        let pc = address.wrapping_sub(self.moved);
        let mut units = self.units().iter().enumerate().filter(|(_, unit)| {
            let Ok(mut ranges) = self.dwarf.unit_ranges(unit) else {
                return false;
            };
            std::iter::from_fn(|| ranges.next().ok().flatten())
                .any(|range| (range.begin..range.end).contains(&pc))
        });
        let (number, unit) = units.next()?;
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.tag() != gimli::DW_TAG_subprogram {
                continue;
            }
            let die = Die {
                number,
                unit,
                entry: entry.clone(),
            };
            if self.contains(&die, pc) {
                return Some(die);
            }
        }
        None
    }

    /// Returns the innermost variable with a name in the blocks that contain an instruction.
    fn local<'i>(&'i self, block: &Die<'i>, name: &str, pc: u64, depth: usize) -> Option<Die<'i>> {
        let children = self.all_children(block);
        let within = children.iter().filter(|child| {
            child.entry.tag() == gimli::DW_TAG_lexical_block && self.contains(child, pc)
        });
        let mut within = within.take_while(|_| depth > 0);
        within
            .find_map(|block| self.local(block, name, pc, depth - 1))
            .or_else(|| {
                let is_wanted = |die: &&Die<'_>| {
                    let is_variable = matches!(
                        die.entry.tag(),
                        gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter
                    );
                    is_variable && self.name(die).as_deref() == Some(name)
                };
                children.iter().find(is_wanted).cloned()
            })
    }

    /// Returns the global variable with a name, which may begin with namespaces: all of them, or the
    /// innermost ones.
    fn global(&self, name: &str) -> Option<Die<'_>> {
        let mut path: Vec<&str> = name.split("::").collect();
        let last = path.pop()?;
        let mut left = MOST_ENTRIES;
        for (number, unit) in self.units().iter().enumerate() {
            let mut entries = unit.entries();
            // The entries around the current one: their depths, and their names if they are not
            // functions.
            let mut around: Vec<(isize, Option<String>)> = Vec::new();
            // What is declared in the wanted namespaces, and may be defined outside.
            let mut declared = HashSet::new();
            while let Ok(Some(entry)) = entries.next_dfs() {
                left = left.checked_sub(1)?;
                let depth = entry.depth();
                around.truncate(around.partition_point(|(outer, _)| *outer < depth));
                let die = Die {
                    number,
                    unit,
                    entry: entry.clone(),
                };
                match entry.tag() {
                    gimli::DW_TAG_subprogram => around.push((depth, None)),
                    gimli::DW_TAG_namespace
                    | gimli::DW_TAG_structure_type
                    | gimli::DW_TAG_class_type
                    | gimli::DW_TAG_union_type => {
                        around.push((depth, Some(self.name(&die).unwrap_or_default())));
                    }
                    gimli::DW_TAG_variable | gimli::DW_TAG_member
                        if around.iter().all(|(_, name)| name.is_some())
                            && self.name(&die).as_deref() == Some(last) =>
                    {
                        let outer = around.iter().filter_map(|(_, name)| name.as_deref());
                        // As in C++, unnamed namespaces are not written.
                        let outer: Vec<&str> = outer.filter(|name| !name.is_empty()).collect();
                        let completes = entry.attr_value(gimli::DW_AT_specification);
                        let is_wanted = outer.ends_with(&path)
                            || matches!(completes, Some(AttributeValue::UnitRef(declaration))
                                if declared.contains(&declaration));
                        if is_wanted && entry.has_attr(gimli::DW_AT_location) {
                            return Some(die);
                        }
                        if is_wanted {
                            declared.insert(entry.offset());
                        }
                    }
                    _ => {}
                }
            }
        }
        None
    }
}
