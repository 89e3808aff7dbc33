//! The imports between the parts of a large room point one way, too.

use crate::circles::files_of;
use crate::source_files;
use std::collections::BTreeSet;

/// Each part of `recover` may import from the parts above it in this list that it names. A part is
/// a folder or a file.
const RECOVER: &[(&str, &[&str])] = &[
    ("bits", &[]),
    ("status", &[]),
    ("facts", &["status"]),
    ("kernel", &["bits", "facts"]),
    ("execution", &["bits", "facts", "kernel"]),
    ("graph", &["bits", "execution"]),
    ("memory", &["bits", "execution", "facts", "graph"]),
    (
        "solver",
        &[
            "bits",
            "execution",
            "facts",
            "graph",
            "kernel",
            "memory",
            "status",
        ],
    ),
    (
        "queries",
        &[
            "bits",
            "execution",
            "facts",
            "graph",
            "memory",
            "solver",
            "status",
        ],
    ),
    ("phase", &["memory", "queries", "solver"]),
    (
        "window",
        &[
            "execution",
            "facts",
            "graph",
            "memory",
            "phase",
            "queries",
            "solver",
        ],
    ),
    ("apart", &["execution", "facts", "window"]),
    (
        "replay",
        &["bits", "execution", "facts", "kernel", "queries", "status"],
    ),
    (
        "replayed",
        &["facts", "queries", "replay", "status", "window"],
    ),
    (
        "recovery",
        &[
            "apart", "facts", "queries", "replay", "replayed", "status", "window",
        ],
    ),
    (
        "code",
        &["bits", "memory", "queries", "recovery", "status", "window"],
    ),
];

/// Returns the part of a room that a file belongs to; `None` for the file that declares the parts.
fn part<'f>(room: &str, file: &'f str) -> Option<&'f str> {
    let inside = file.strip_prefix(room)?.strip_prefix("::")?;
    inside.split("::").next()
}

#[test]
fn imports_within_recover_point_one_way() {
    let sources = source_files();
    let sources: Vec<(&str, &str)> = sources
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    let files = files_of(&sources);
    let mut used = BTreeSet::new();
    for (file, imports) in files.imports() {
        let to = imports.iter().filter_map(|to| part("recover", to));
        for to in to {
            if let Some(from) = part("recover", file).filter(|from| *from != to) {
                used.insert((from.to_owned(), to.to_owned()));
            }
        }
    }
    let allowed = |(number, (from, all)): (usize, &(&str, &'static [&str]))| {
        for to in *all {
            let above = RECOVER[..number].iter().any(|(before, _)| before == to);
            assert!(above, "{from} comes before {to}");
        }
        let pair = |to: &&str| ((*from).to_owned(), (*to).to_owned());
        all.iter().map(pair).collect::<Vec<_>>()
    };
    let allowed: BTreeSet<_> = RECOVER.iter().enumerate().flat_map(allowed).collect();
    let wrong: Vec<_> = used.difference(&allowed).collect();
    assert!(wrong.is_empty(), "against the direction: {wrong:?}");
    let unused: Vec<_> = allowed.difference(&used).collect();
    assert!(unused.is_empty(), "not needed: strike {unused:?}");
}
