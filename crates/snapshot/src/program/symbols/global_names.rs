//! Which variable outside of functions a name means, where several have it.

use super::Symbols;
use super::debug_info::{DebugInfo, Die, EntryId};
use super::locations::{Nothing, Placement, Scene};
use super::variables::Variable;
use crate::text::one_line;

/// The addresses in the file of what the linker has removed.
const REMOVED: [u64; 4] = [0, u64::MAX, u64::MAX - 1, u32::MAX as u64];
/// The most variables that an ambiguity lists.
const MOST_LISTED: usize = 10;

/// A name that several variables have: none of them is meant rather than the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("several variables are named {name:?}; name one of them: {}", .all.join(", "))]
pub struct Ambiguous {
    /// The name.
    pub name: String,
    /// What to write for each of them.
    pub all: Vec<String>,
}

/// A variable that a name may mean.
struct Candidate {
    variable: Variable,
    /// The file and the unit.
    unit: (usize, usize),
    /// Its whole name, and that of its source file.
    whole: String,
    source: String,
    is_external: bool,
    /// Where it is, or its value.
    place: Option<Placement>,
    /// Whether the linker has removed it.
    is_removed: bool,
}

/// Where a name is used.
#[derive(Default)]
struct Use {
    /// The file and the unit.
    unit: Option<(usize, usize)>,
    /// The namespaces and classes around it, the innermost first, with the base classes of each, all
    /// with their `::`.
    scopes: Vec<String>,
}

/// Divides `file.c:name` and `'file.c'::name`.
fn divided(name: &str) -> (Option<&str>, &str) {
    if let Some(quoted) = name.strip_prefix('\'')
        && let Some((file, name)) = quoted.split_once("'::")
    {
        return (Some(file), name);
    }
    let single = name.find(':').filter(|at| !name[at + 1..].starts_with(':'));
    match single {
        Some(at) => (Some(&name[..at]), &name[at + 1..]),
        None => (None, name),
    }
}

/// Whether a path ends with another one, which may have fewer directories.
fn ends_with(path: &str, end: &str) -> bool {
    let rest = path.strip_suffix(end);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/') || end.starts_with('/'))
}

impl Symbols {
    /// Returns the variable outside of functions, or the static one of a function, that a name means
    /// at an instruction. It may have namespaces, classes, or the function before it, all of them or
    /// the innermost ones: `first::inner::count`, or its source file: `file.c:count`.
    ///
    /// # Errors
    ///
    /// If it is the name of several variables, and none of them is nearer to the instruction.
    pub fn global(&self, name: &str, pc: Option<u64>) -> Result<Option<Variable>, Ambiguous> {
        let (source, path) = divided(name);
        let place = pc.map_or_else(Use::default, |pc| self.place_of_use(pc));
        let last = path.rsplit("::").next().unwrap_or(path);
        let mut all: Vec<Candidate> = Vec::new();
        for file in self.debug_files() {
            for global in file.globals().variables(last) {
                let whole = global.whole(last);
                let is_wanted = whole == path
                    || whole
                        .strip_suffix(path)
                        .is_some_and(|rest| rest.ends_with("::"));
                if is_wanted {
                    all.extend(file.candidate(global.entry, whole));
                }
            }
        }
        if all.is_empty() && path.contains("::") {
            self.statics(path, &mut all);
        }
        if let Some(source) = source {
            all.retain(|candidate| ends_with(&candidate.source, source));
        }
        // The variable in the innermost scope counts.
        let scopes = place.scopes.iter().map(String::as_str).chain([""]);
        for scope in scopes {
            let is_here = |candidate: &Candidate| {
                let rest = candidate.whole.strip_prefix(scope);
                rest == Some(path)
            };
            if all.iter().any(is_here) {
                all.retain(is_here);
                break;
            }
        }
        all.retain(|candidate| !candidate.is_removed);
        if all
            .iter()
            .any(|candidate| Some(candidate.unit) == place.unit)
        {
            all.retain(|candidate| Some(candidate.unit) == place.unit);
        } else if all.iter().any(|candidate| candidate.is_external) {
            all.retain(|candidate| candidate.is_external);
            // Of programs and libraries, the own one, otherwise the first one.
            let own = place.unit.map(|(file, _)| file);
            let is_own = |candidate: &&Candidate| Some(candidate.unit.0) == own;
            let chosen = all.iter().find(is_own).or(all.first());
            if let Some(file) = chosen.map(|chosen| chosen.unit.0) {
                all.retain(|candidate| candidate.unit.0 == file);
            }
        }
        let first = all.first().and_then(|first| first.place);
        let is_one = |candidate: &Candidate| first.is_some() && candidate.place == first;
        if all.len() < 2 || all.iter().all(is_one) {
            let found = all.into_iter().next();
            return Ok(found.map(|candidate| candidate.variable));
        }
        let mut listed: Vec<String> = all.iter().map(|one| one.written(&all)).collect();
        listed.dedup();
        if listed.len() > MOST_LISTED {
            listed.truncate(MOST_LISTED);
            listed.push("…".to_owned());
        }
        Err(Ambiguous {
            name: name.to_owned(),
            all: listed,
        })
    }

    fn place_of_use(&self, pc: u64) -> Use {
        let found = self.debug_files().find_map(|file| {
            let (number, _) = file.units_at(pc.wrapping_sub(file.moved)).next()?;
            let unit = (file.file, number);
            let blocks = file.blocks(pc);
            Some((
                unit,
                blocks.map(|blocks| {
                    (
                        blocks.function.number,
                        file.scope_of(blocks.innermost_function()),
                    )
                }),
            ))
        });
        let Some((unit, function)) = found else {
            return Use::default();
        };
        let (number, scope) = function.unwrap_or((unit.1, String::new()));
        let bases = |class: &str| {
            let file = self.debug_file(unit.0);
            let bases = file.map(|file| file.bases(class)).unwrap_or_default();
            bases.into_iter().map(|base| format!("{base}::"))
        };
        let mut scopes = Vec::new();
        let mut rest = &*scope;
        while !rest.is_empty() {
            scopes.push(format!("{rest}::"));
            scopes.extend(bases(rest));
            rest = rest.rsplit_once("::").map_or("", |(outer, _)| outer);
        }
        Use {
            unit: Some((unit.0, number)),
            scopes,
        }
    }

    /// Adds the static variables of a function: `function::name`.
    fn statics(&self, path: &str, all: &mut Vec<Candidate>) {
        let Some((function, name)) = path.rsplit_once("::") else {
            return;
        };
        for start in self.addresses(function) {
            for file in self.debug_files() {
                let Some(blocks) = file.blocks(start) else {
                    continue;
                };
                let found = file.within(&blocks, name).into_iter();
                for local in found.filter(|local| file.is_static(&local.die)) {
                    all.extend(file.candidate(local.die.id(), path.to_owned()));
                }
            }
        }
    }
}

impl Candidate {
    /// A spelling that means no other variable.
    fn written(&self, all: &[Self]) -> String {
        let others = all.iter().filter(|other| other.place != self.place);
        let is_alone = others.clone().all(|other| other.whole != self.whole);
        let text = match is_alone {
            true => self.whole.clone(),
            false => {
                let base = self.source.rsplit('/').next().unwrap_or(&self.source);
                let is_alone = others.clone().all(|other| !ends_with(&other.source, base));
                let source = if is_alone { base } else { &self.source };
                format!("{source}:{}", self.whole)
            }
        };
        one_line(&text).into_owned()
    }
}

impl DebugInfo {
    fn candidate(&self, entry: EntryId, whole: String) -> Option<Candidate> {
        let die = self.die(entry)?;
        let place = self.place(&die, Scene::NONE, &mut Nothing);
        let variable = self.variable(&die, None)?;
        let is_removed = match place {
            Some(Placement::Memory(address)) => {
                let address = address.wrapping_sub(self.moved);
                let name = &variable.name;
                let is_first = address == 0 && self.first.iter().any(|first| first.contains(name));
                REMOVED.contains(&address) && !is_first
            }
            _ => false,
        };
        let is_external = self
            .attribute(&die, gimli::DW_AT_external)
            .is_some_and(|(_, value)| value == gimli::AttributeValue::Flag(true));
        Some(Candidate {
            variable,
            unit: (self.file, die.number),
            whole,
            source: self.source(&die),
            is_external,
            place,
            is_removed,
        })
    }

    /// Returns the name of the source file of a unit.
    fn source(&self, die: &Die<'_>) -> String {
        let name = die.unit.name.as_ref();
        let name = name.and_then(|name| {
            let name = gimli::Reader::to_string_lossy(name).ok()?;
            Some(name.into_owned())
        });
        name.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_divided_from_files() {
        for (text, wanted) in [
            ("count", (None, "count")),
            ("first::count", (None, "first::count")),
            ("file.c:count", (Some("file.c"), "count")),
            ("a/b.cpp:first::count", (Some("a/b.cpp"), "first::count")),
            ("'b.c'::count", (Some("b.c"), "count")),
        ] {
            assert_eq!(divided(text), wanted, "{text}");
        }
        assert!(ends_with("lib/a.c", "a.c"));
        assert!(ends_with("lib/a.c", "lib/a.c"));
        assert!(!ends_with("lib/aa.c", "a.c"));
    }
}
