//! No files of a room import each other in a circle. A file and the module that it is part of are
//! the two halves of one thing and may.

use std::collections::{BTreeMap, BTreeSet};

use crate::{code, source_files};

/// Files that are the halves of one thing, with what makes them so.
const HALVES: &[(&str, &[&str])] = &[
    (
        "A block of code and what takes it",
        &["flow::blocks", "flow::sink", "flow::walk"],
    ),
    (
        "Following elements and writing what was followed",
        &["flow::follow", "flow::lines", "flow::output"],
    ),
    (
        "A snapshot and the memory of its cores",
        &[
            "snapshot::changed",
            "snapshot::elf_dump",
            "snapshot::memory",
            "snapshot::program",
            "snapshot::read",
            "snapshot::shared",
            "snapshot::topology",
        ],
    ),
    (
        "Architectures and the types of core that have them",
        &["arch::architecture", "arch::core_type"],
    ),
    (
        "A description and the registers of each architecture",
        &["arch::aarch32", "arch::aarch64", "arch::description"],
    ),
    (
        "A branch and its encodings",
        &["arch::a32", "arch::a64", "arch::branch", "arch::t32"],
    ),
    ("convert", &["convert::executed", "convert::kept"]),
    ("convert", &["convert::history", "convert::trace_run"]),
    (
        "timeline",
        &["timeline::part", "timeline::scan", "timeline::worker"],
    ),
    (
        "timeline",
        &["timeline::kept", "timeline::segments", "timeline::track"],
    ),
    ("timeline", &["timeline::entries", "timeline::history"]),
    (
        "record",
        &[
            "record::emulator",
            "record::snapshot_files",
            "record::system",
            "record::system::image",
            "record::system::memory",
            "record::system::run",
            "record::tracing",
        ],
    ),
    ("record", &["record::user::run", "record::user::traps"]),
    (
        "capture",
        &[
            "capture::architecture",
            "capture::protocol",
            "capture::registers",
        ],
    ),
];

/// The files by module path (`server::monitor::calls`), with what they name.
struct Files(BTreeMap<String, Named>);

/// What a file names.
#[derive(Default)]
struct Named {
    paths: Vec<String>,
    /// What others find here although it is elsewhere, by name.
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
    fn imports(&self) -> BTreeMap<&str, BTreeSet<String>> {
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

    /// Returns the imports that are part of a circle.
    fn circles(&self, halves: &[(&str, &[&str])]) -> Vec<String> {
        let mut imports = self.imports();
        for (file, to) in &mut imports {
            for (_, halves) in halves.iter().filter(|(_, halves)| halves.contains(file)) {
                to.retain(|to| !halves.contains(&to.as_str()));
            }
        }
        let reaches = |from: &str, wanted: &str| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
            while let Some(file) = open.pop() {
                if file == wanted {
                    return true;
                }
                if seen.insert(file) {
                    open.extend(imports[file].iter().map(String::as_str));
                }
            }
            false
        };
        let all = imports
            .iter()
            .flat_map(|(file, to)| to.iter().map(move |to| (*file, to)));
        let circles = all.filter(|(file, to)| reaches(to, file));
        circles
            .map(|(file, to)| format!("{file} -> {to}"))
            .collect()
    }
}

fn files_of(sources: &[(&str, &str)]) -> Files {
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
    let circles = files_of(&sources).circles(HALVES);
    assert!(
        circles.is_empty(),
        "imports in a circle:\n{}",
        circles.join("\n")
    );
}

#[test]
fn every_listed_pair_of_halves_exists() {
    let sources = source_files();
    let sources: Vec<(&str, &str)> = sources
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    let files = files_of(&sources);
    for (index, (what, halves)) in HALVES.iter().enumerate() {
        let mut others = HALVES.to_vec();
        others.remove(index);
        assert!(
            !files.circles(&others).is_empty(),
            "{what}: {halves:?} are no circle: strike it"
        );
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
    let wanted = ["room::a -> room::b", "room::b -> room::a"];
    assert_eq!(files.circles(&[]), wanted);
    assert!(
        files
            .circles(&[("one thing", &["room::a", "room::b"])])
            .is_empty()
    );
}
