//! What the library offers to others: errors have types.

use super::{code, source_files};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a file or folder is a public module of the library, by the declarations of its parents.
fn is_public(module: &str, declared: &BTreeMap<String, BTreeSet<String>>) -> bool {
    match module.rsplit_once('/') {
        None => declared[""].contains(module),
        Some((parent, name)) => declared[parent].contains(name) && is_public(parent, declared),
    }
}

/// `a/b` of `a/b.rs` and `a/b/mod.rs`; the root's is empty.
fn module(file: &str) -> &str {
    let path = file.strip_suffix(".rs").unwrap();
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" { "" } else { path }
}

/// The public functions of code that return a text as their error.
fn untyped(code: &str) -> Vec<&str> {
    let functions = code.match_indices("pub fn ").map(|(at, _)| &code[at..]);
    let signatures = functions.map(|text| &text[..text.find(['{', ';']).unwrap_or(text.len())]);
    let returns_text = |text: &&str| {
        let result = text.rsplit("->").next().unwrap();
        result.contains("Result<") && result.contains(", String>")
    };
    signatures.filter(returns_text).collect()
}

#[test]
fn public_functions_return_typed_errors() {
    let sources = source_files();
    let library = sources
        .iter()
        .filter(|(file, _)| !file.starts_with("cli/") && file != "main.rs");
    let mut declared: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in library.clone() {
        let public = text.lines().filter_map(|line| {
            let name = line.strip_prefix("pub mod ")?;
            Some(name.trim_end_matches([';', ' ', '{']).to_owned())
        });
        declared.insert(module(file).to_owned(), public.collect());
    }
    let mut found = Vec::new();
    let mut public = 0;
    for (file, text) in library {
        if !module(file).is_empty() && is_public(module(file), &declared) {
            public += 1;
            let code = code(text);
            found.extend(untyped(&code).into_iter().map(|at| format!("{file}: {at}")));
        }
    }
    assert!(public > 100, "{public} public modules");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn texts_as_errors_are_seen() {
    let text = "pub fn a() -> Result<u8, String> {}\npub fn b() -> u8 { c::<Result<u8, String>>() }\n\
                pub(super) fn d() -> Result<u8, String> {}\npub fn e(\n    f: u8,\n) -> Option<Result<u8, String>> {}";
    assert_eq!(untyped(text).len(), 2);
}
