//! An index of what is defined outside of functions: variables and types, by name.

use super::debug_info::{CHAIN, DebugInfo, Die, EntryId};
use gimli::{AttributeValue, EntriesCursor, UnitOffset};
use std::collections::HashMap;
use std::sync::Arc;

use super::Slice;

/// The most entries of a file that are read.
const MOST_ENTRIES: usize = 1 << 24;
/// The most classes whose base classes are read.
const MOST_BASES: usize = 64;

/// A variable outside of functions.
pub(in crate::program) struct Global {
    pub entry: EntryId,
    /// The namespaces and classes around it, joined with `::`.
    pub scope: Arc<str>,
}

/// What a file defines outside of functions.
#[derive(Default)]
pub(in crate::program) struct Globals {
    /// Variables, by the last part of their names.
    variables: HashMap<String, Vec<Global>>,
    /// Complete structures, classes and unions, by their whole names.
    types: HashMap<String, EntryId>,
}

impl Globals {
    /// Returns the complete structure, class or union with a whole name.
    fn class(&self, whole: &str) -> Option<EntryId> {
        self.types.get(whole).copied()
    }

    /// Returns the variables with a last part of their names.
    pub(super) fn variables(&self, last: &str) -> &[Global] {
        self.variables.get(last).map_or(&[], Vec::as_slice)
    }
}

impl Global {
    /// Returns its whole name, given the last part.
    pub(super) fn whole(&self, last: &str) -> String {
        joined(&self.scope, last)
    }
}

fn joined(scope: &str, last: &str) -> String {
    match (scope, last) {
        ("", last) => last.to_owned(),
        // As in C++, unnamed namespaces are not written.
        (scope, "") => scope.to_owned(),
        (scope, last) => format!("{scope}::{last}"),
    }
}

/// Moves on to the next entry, past the children of the current one if they are not wanted.
fn advance(cursor: &mut EntriesCursor<'_, Slice>, is_wanted: bool) -> bool {
    if !is_wanted && matches!(cursor.next_sibling(), Ok(Some(_))) {
        return true;
    }
    matches!(cursor.next_dfs(), Ok(Some(_)))
}

impl DebugInfo {
    /// Reads the entries outside of functions.
    pub(super) fn read_globals(&self) -> Globals {
        let mut found = Globals::default();
        let mut left = MOST_ENTRIES;
        for number in 0..self.units().len() {
            self.read_unit(number, &mut left, &mut found);
        }
        found
    }

    fn read_unit(&self, number: usize, left: &mut usize, found: &mut Globals) {
        let unit = &self.units()[number];
        let nowhere: Arc<str> = "".into();
        // The entries around the current one: their depths, and their whole names.
        let mut around: Vec<(isize, Arc<str>)> = Vec::new();
        // What is declared here, and may be defined outside of its scope.
        let mut declared: HashMap<UnitOffset, Arc<str>> = HashMap::new();
        // What is defined here: its name, scope, and the declaration that it completes.
        let mut defined = Vec::new();
        let mut cursor = unit.entries();
        let mut is_wanted = true;
        while advance(&mut cursor, is_wanted) {
            let Some(entry) = cursor.current().filter(|_| *left > 0) else {
                break;
            };
            *left -= 1;
            let (tag, depth) = (entry.tag(), entry.depth());
            around.truncate(around.partition_point(|(outer, _)| *outer < depth));
            let scope = around.last().map_or(&nowhere, |(_, scope)| scope);
            let die = || Die {
                number,
                unit,
                entry: entry.clone(),
            };
            is_wanted = matches!(
                tag,
                gimli::DW_TAG_compile_unit | gimli::DW_TAG_partial_unit | gimli::DW_TAG_type_unit
            );
            match tag {
                gimli::DW_TAG_namespace
                | gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type => {
                    is_wanted = true;
                    let die = die();
                    let name = self.name(&die).unwrap_or_default();
                    let whole: Arc<str> = joined(scope, &name).into();
                    if tag != gimli::DW_TAG_namespace
                        && !name.is_empty()
                        && !Self::is_declared(&die)
                        && !found.types.contains_key(&*whole)
                    {
                        found.types.insert(String::from(&*whole), die.id());
                    }
                    around.push((depth, whole));
                }
                gimli::DW_TAG_variable | gimli::DW_TAG_member => {
                    let is_placed = entry.has_attr(gimli::DW_AT_location)
                        || entry.has_attr(gimli::DW_AT_const_value);
                    if !is_placed {
                        if entry.has_attr(gimli::DW_AT_external) {
                            declared.insert(entry.offset(), Arc::clone(scope));
                        }
                        continue;
                    }
                    let completed = match entry.attr_value(gimli::DW_AT_specification) {
                        Some(AttributeValue::UnitRef(declaration)) => Some(declaration),
                        _ => None,
                    };
                    let die = die();
                    if let Some(name) = self.name(&die) {
                        defined.push((name, die.id(), Arc::clone(scope), completed));
                    }
                }
                _ => {}
            }
        }
        for (name, entry, scope, completed) in defined {
            let declaration = completed.and_then(|declaration| declared.get(&declaration));
            let scope = declaration.map_or(scope, Arc::clone);
            let all = found.variables.entry(name).or_default();
            all.push(Global { entry, scope });
        }
    }

    /// Returns the whole name of the scope in which an entry is declared.
    pub(super) fn scope_of(&self, die: &Die<'_>) -> String {
        let declaration = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification]
            .into_iter()
            .filter_map(|attribute| self.referred(die.number, &die.entry.attr_value(attribute)?));
        if let Some(declaration) = declaration.last() {
            // The origin of a copy may itself complete a declaration.
            let again = declaration.entry.attr_value(gimli::DW_AT_specification);
            let again = again.and_then(|again| self.referred(declaration.number, &again));
            return self.place_of(&again.unwrap_or(declaration));
        }
        self.place_of(die)
    }

    /// Returns the whole name of the namespaces and classes around an entry.
    fn place_of(&self, die: &Die<'_>) -> String {
        let mut around: Vec<(isize, String)> = Vec::new();
        let mut entries = die.unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            let depth = entry.depth();
            around.truncate(around.partition_point(|(outer, _)| *outer < depth));
            if entry.offset() == die.entry.offset() {
                break;
            }
            if matches!(
                entry.tag(),
                gimli::DW_TAG_namespace
                    | gimli::DW_TAG_structure_type
                    | gimli::DW_TAG_class_type
                    | gimli::DW_TAG_union_type
            ) {
                let outer = Die {
                    entry: entry.clone(),
                    ..*die
                };
                around.push((depth, self.name(&outer).unwrap_or_default()));
            }
        }
        let around = around.iter();
        around.fold(String::new(), |scope, (_, name)| joined(&scope, name))
    }

    /// Returns the whole names of the base classes of a class, the nearest first.
    pub(super) fn bases(&self, class: &str) -> Vec<String> {
        let mut all = vec![class.to_owned()];
        let mut next = 0;
        while let Some(class) = all.get(next)
            && next < MOST_BASES
        {
            next += 1;
            let class = self
                .globals()
                .class(class)
                .and_then(|class| self.die(class));
            let Some(class) = class else { continue };
            for base in self.children(&class, gimli::DW_TAG_inheritance) {
                let whole = self.whole_name_of_type(&base);
                all.extend(whole.filter(|whole| !all.contains(whole)));
            }
        }
        all.remove(0);
        all
    }

    /// Returns the whole name of the type of an entry, without type definitions.
    fn whole_name_of_type(&self, die: &Die<'_>) -> Option<String> {
        let mut die = die.clone();
        for _ in 0..CHAIN {
            let (unit, value) = self.attribute(&die, gimli::DW_AT_type)?;
            let found = self.referred(unit, &value)?;
            if found.entry.tag() != gimli::DW_TAG_typedef {
                return Some(joined(&self.place_of(&found), &self.name(&found)?));
            }
            die = found;
        }
        None
    }

    /// Returns the definition of a type that an entry only declares.
    pub(super) fn defined(&self, die: &Die<'_>) -> Option<Die<'_>> {
        let whole = joined(&self.place_of(die), &self.name(die)?);
        self.die(self.globals().class(&whole)?)
    }
}
