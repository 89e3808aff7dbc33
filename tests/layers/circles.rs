//! Files of a room do not import each other in circles, except a file and its parent module, and a
//! few files that are parts of one thing.

use std::collections::{BTreeMap, BTreeSet};

use crate::{code, source_files};

/// The maximum number of files that may import each other as parts of one thing, except in rooms in
/// [`NONE`].
const PARTS: usize = 5;

/// Rooms without any circle.
const NONE: &[&str] = &["recover", "server", "snapshot"];

/// The files by module path (`server::monitor::calls`), with what they name.
pub struct Files(BTreeMap<String, Named>);

/// What a file names.
#[derive(Default)]
struct Named {
    paths: Vec<String>,
    /// What other files find here although it is defined elsewhere, by name.
    reexports: BTreeMap<String, String>,
}

/// Returns the paths of a `use` with groups, one by one and without `as`.
fn expand(tree: &str) -> Vec<String> {
    let (mut out, mut prefixes, mut item) = (Vec::new(), Vec::new(), String::new());
    let mut take = |item: &mut String, prefixes: &[String]| {
        let name = item.split(" as ").next().unwrap().trim();
        if !name.is_empty() {
            out.push(format!("{}{name}", prefixes.concat()));
        }
        item.clear();
    };
    for c in tree.chars() {
        match c {
            '{' => prefixes.push(std::mem::take(&mut item).trim().to_owned()),
            ',' => take(&mut item, &prefixes),
            '}' => {
                take(&mut item, &prefixes);
                prefixes.pop();
            }
            '\n' => item.push(' '),
            c => item.push(c),
        }
    }
    take(&mut item, &prefixes);
    out
}

impl Named {
    fn of(text: &str) -> Self {
        let mut named = Self::default();
        let mut rest = String::new();
        for statement in text.split_inclusive(';') {
            let Some(at) = statement.rfind("use ").filter(|at| {
                let before = statement[..*at].chars().next_back();
                statement.ends_with(';') && before.is_none_or(char::is_whitespace)
            }) else {
                rest += statement;
                continue;
            };
            let visible = statement[..at].trim_end().ends_with(['b', ')']);
            rest += &statement[..at];
            for path in expand(statement[at + 4..].trim_end_matches(';')) {
                if let Some((_, name)) = path.rsplit_once("::").filter(|_| visible) {
                    named.reexports.insert(name.to_owned(), path.clone());
                }
                named.paths.push(path);
            }
        }
        let in_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let words = rest
            .split(|c| !in_path(c))
            .filter(|word| word.contains("::"));
        named.paths.extend(words.map(str::to_owned));
        named
    }
}

impl Files {
    /// Returns the file that a path written in `file` leads to.
    fn resolve(&self, file: &str, path: &str) -> Option<String> {
        let mut at: Vec<&str> = file.split("::").collect();
        let mut parts = path.split("::").peekable();
        match *parts.peek()? {
            "crate" => at.clear(),
            "self" | "super" => {}
            child => {
                let child = format!("{file}::{child}");
                self.0.get(&child)?;
            }
        }
        loop {
            match parts.peek().copied() {
                Some("crate" | "self") => {}
                Some("super") => drop(at.pop()),
                Some(part) if self.0.contains_key(&[&at[..], &[part]].concat().join("::")) => {
                    at.push(part);
                }
                _ => break,
            }
            parts.next();
        }
        let module = at.join("::");
        let elsewhere = parts
            .next()
            .and_then(|name| self.0.get(&module)?.reexports.get(name));
        match elsewhere.and_then(|path| self.resolve(&module, path)) {
            Some(found) => Some(found),
            None => self.0.contains_key(&module).then_some(module),
        }
    }

    /// Returns the imports between files of a room, without those from the module that a file is
    /// part of.
    pub fn imports(&self) -> BTreeMap<&str, BTreeSet<String>> {
        let room = |file: &str| file.split("::").next().unwrap().to_owned();
        let of = |(file, named): (&'_ String, &Named)| -> BTreeSet<String> {
            let found = named
                .paths
                .iter()
                .filter_map(|path| self.resolve(file, path));
            let is_whole = |to: &str| {
                file.strip_prefix(to)
                    .is_some_and(|rest| rest.starts_with("::"))
            };
            let found = found.filter(|to| to != file && room(to) == room(file) && !is_whole(to));
            found.collect()
        };
        self.0
            .iter()
            .map(|each| (each.0.as_str(), of(each)))
            .collect()
    }

    /// Returns the groups of files that import each other in circles.
    fn circles(&self) -> BTreeSet<Vec<String>> {
        let imports = self.imports();
        let reached = |from: &str| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
            while let Some(file) = open.pop() {
                let new = imports[file].iter().filter(|to| seen.insert((*to).clone()));
                open.extend(new.map(String::as_str).collect::<Vec<_>>());
            }
            seen
        };
        let reached: BTreeMap<&str, BTreeSet<String>> =
            imports.keys().map(|file| (*file, reached(file))).collect();
        let circle = |file: &&str| {
            let back = |to: &&String| reached[to.as_str()].contains(*file);
            reached[*file].iter().filter(back).cloned().collect()
        };
        let circles: BTreeSet<Vec<String>> = reached.keys().map(circle).collect();
        circles
            .into_iter()
            .filter(|circle| circle.len() > 1)
            .collect()
    }
}

/// Returns whether a circle may be there.
fn is_allowed(circle: &[String]) -> bool {
    let room = circle[0].split("::").next().unwrap();
    !NONE.contains(&room) && circle.len() <= PARTS
}

/// Returns the files with these paths and texts.
pub fn files_of(sources: &[(&str, &str)]) -> Files {
    let named = |(path, text): &(&str, &str)| {
        let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
        (path.replace('/', "::"), Named::of(&code(text)))
    };
    Files(sources.iter().map(named).collect())
}

#[test]
fn files_of_a_room_import_one_way() {
    let sources = source_files();
    let sources: Vec<(&str, &str)> = sources
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    let files = files_of(&sources);
    let circles = files.circles();
    if let Some(circle) = circles.iter().find(|circle| !is_allowed(circle)) {
        let imports = files.imports();
        let inside = |file: &String| {
            let to = imports[file.as_str()]
                .iter()
                .filter(|to| circle.contains(to));
            format!(
                "{file} imports {}",
                to.cloned().collect::<Vec<_>>().join(", ")
            )
        };
        let lines: Vec<String> = circle.iter().map(inside).collect();
        panic!("imports in a circle:\n{}", lines.join("\n"));
    }
}

#[test]
fn circles_are_found_through_groups_children_and_reexports() {
    let files = files_of(&[
        (
            "room/mod.rs",
            "mod a;\nmod b;\npub use b::Thing;\nmod c;\nmod d;",
        ),
        // Through a re-export of the room.
        (
            "room/a.rs",
            "use super::{Thing as Other,\n    c::{self, d}};",
        ),
        ("room/b.rs", "fn x() -> crate::room::a::Y {}"),
        // A file and the module that it is part of.
        ("room/c.rs", "mod half;\nuse half::X;"),
        ("room/c/half.rs", "use super::Y; // crate::room::b::X"),
        ("room/d.rs", "use super::a::X;\nuse other::a;"),
    ]);
    let found: Vec<Vec<String>> = files.circles().into_iter().collect();
    assert_eq!(found, [["room::a", "room::b"]]);
    let more: Vec<String> = (0..=PARTS).map(|part| format!("room::{part}")).collect();
    assert!(is_allowed(&more[1..]) && !is_allowed(&more));
    assert!(!is_allowed(&["server::a", "server::b"].map(str::to_owned)));
}
