//! What the library offers to others: errors and notes have types.

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

/// Whether a name is that of notes.
fn names_notes(name: &str) -> bool {
    let mut words = name.trim().split('_');
    words.any(|word| {
        matches!(
            word,
            "note" | "notes" | "remark" | "remarks" | "fault" | "faults"
        )
    })
}

/// Whether a type holds several texts.
fn holds_texts(kind: &str) -> bool {
    kind.contains("Vec<String>") || kind.contains("[String]")
}

/// The public fields, and the public functions with a parameter or result, that hold notes as texts.
fn notes_as_texts(code: &str) -> Vec<&str> {
    let typed = |text: &str| {
        let named = text.split_once(':');
        named.is_some_and(|(name, kind)| names_notes(name) && holds_texts(kind))
    };
    let items = code.match_indices("pub ").map(|(at, _)| &code[at + 4..]);
    let items = items.filter_map(|item| match item.strip_prefix("fn ") {
        Some(function) => {
            let signature = &function[..function.find(['{', ';']).unwrap_or(function.len())];
            let (name, rest) = signature.split_once('(')?;
            let (parameters, result) = rest.rsplit_once("->").unwrap_or((rest, ""));
            let name = name.split('<').next().unwrap();
            let found = names_notes(name) && holds_texts(result);
            (found || parameters.split(',').any(typed)).then_some(signature)
        }
        None => {
            let field = item.split([',', '\n']).next().unwrap();
            typed(field).then_some(field)
        }
    });
    items.collect()
}

/// Files whose notes are texts.
const TEXTS: [&str; 3] = [
    // Results of the command line.
    "cli/",
    // Documents, whose notes are read by people and by programs in any language.
    "page/",
    "report/info/",
];

#[test]
fn notes_are_typed() {
    let sources = source_files();
    let library = sources
        .iter()
        .filter(|(file, _)| !TEXTS.iter().any(|texts| file.starts_with(texts)));
    let mut found = Vec::new();
    for (file, text) in library {
        let code = code(text);
        let texts = notes_as_texts(&code).into_iter();
        found.extend(texts.map(|item| format!("{file}: {item}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn notes_as_texts_are_seen() {
    let text = "pub struct A {\n    pub notes: Vec<String>,\n    notes: Vec<String>,\n    pub b: Vec<Note>,\n}\n\
                pub fn faults(&self) -> &[String] {}\npub fn c(\n    d: HashMap<u8, u8>,\n    \
                left_out_notes: &mut Vec<String>,\n) -> u8 {}\npub fn defaults() -> Vec<String> {}\n\
                pub fn notes(names: &[String]) -> Vec<Note> {}\npub(super) fn remarks() -> Vec<String> {}";
    assert_eq!(notes_as_texts(text).len(), 3);
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
        let declared = declared.entry(module(file).to_owned()).or_default();
        declared.extend(public);
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
