//! Fields of structures by name.

use armsnap_snapshot::program::symbols::Symbols;
use armsnap_snapshot::program::symbols::variables::{Field, Layout, TypeId};

/// The deepest nesting of unnamed structures and base classes.
const DEEPEST: usize = 16;
/// The most structures in which a field is searched for.
const MOST_RECORDS: usize = 1 << 10;

/// Finds the fields with a name: in the structure itself, otherwise in its unnamed structures and
/// base classes. Each has the fields on the way to it, the outermost first.
pub(super) fn paths(symbols: &Symbols, kind: TypeId, name: &str) -> Vec<Vec<Field>> {
    let mut left = MOST_RECORDS;
    within(symbols, kind, name, (DEEPEST, &mut left))
}

/// Whether the fields of a structure, and those of its unnamed structures and base classes, are all known.
pub(super) fn are_known(symbols: &Symbols, kind: TypeId) -> bool {
    let mut open = vec![kind];
    let mut left = MOST_RECORDS;
    while let Some(kind) = open.pop() {
        match symbols.layout(kind) {
            Some(Layout::Record { fields, .. }) if left > 0 => {
                left -= 1;
                let unnamed = fields.iter().filter(|field| field.name.is_none());
                open.extend(unnamed.map(|field| field.kind));
            }
            Some(_) => {}
            None => return false,
        }
    }
    true
}

fn within(
    symbols: &Symbols,
    kind: TypeId,
    name: &str,
    (depth, left): (usize, &mut usize),
) -> Vec<Vec<Field>> {
    if *left == 0 {
        return Vec::new();
    }
    *left -= 1;
    let Some(Layout::Record { fields, .. }) = symbols.layout(kind) else {
        return Vec::new();
    };
    let named = |field: &&Field| field.name.as_deref() == Some(name);
    if let Some(field) = fields.iter().find(named) {
        return vec![vec![field.clone()]];
    }
    let Some(depth) = depth.checked_sub(1) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for outer in fields.iter().filter(|field| field.name.is_none()) {
        for mut path in within(symbols, outer.kind, name, (depth, &mut *left)) {
            path.insert(0, outer.clone());
            found.push(path);
        }
    }
    found
}
