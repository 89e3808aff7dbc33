//! The imports between the rooms of a crate point one way, and so do those between the files of a
//! room: docs/architecture.md draws them. Those between crates are in their manifests.

mod circles;
mod inside;
mod surface;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Each room may import from the rooms of its crate above it in this list that it names.
const ALLOWED: &[(&str, &[&str])] = &[
    ("quantity", &[]),
    ("hash", &[]),
    ("text", &[]),
    ("xml", &[]),
    ("stop", &[]),
    ("leftovers", &[]),
    ("cache", &[]),
    ("budget", &[]),
    ("remote_protocol", &[]),
    ("mapped", &[]),
    ("element", &[]),
    ("protocol", &["element"]),
    ("data_addresses", &["protocol"]),
    ("formatter", &["protocol"]),
    ("encoding", &[]),
    ("arch", &["encoding", "quantity", "xml"]),
    ("semantics", &["encoding"]),
    ("translation", &["arch"]),
    ("program", &["budget", "mapped", "text"]),
    ("linux", &["program"]),
    ("flow", &["element"]),
    ("encode", &["element", "flow"]),
    ("etm", &["element", "encode", "protocol"]),
    ("etmv3", &["element", "encode", "etm", "protocol"]),
    ("ptm", &["element", "encode", "etm", "flow", "protocol"]),
    ("etmv4", &["element", "encode", "flow", "protocol"]),
    ("itm", &["element", "protocol"]),
    ("stm", &["element", "protocol"]),
    ("snapshot", &["leftovers", "mapped", "program", "text"]),
    ("capture", &["mapped", "snapshot"]),
    ("rtos", &["program", "snapshot", "text"]),
    ("check", &["capture", "program", "rtos", "snapshot"]),
    ("svd", &["mapped", "snapshot", "text"]),
    ("fault", &["program", "snapshot", "svd"]),
    ("decode", &[]),
    ("timeline", &["decode"]),
    ("calls", &["timeline"]),
    ("recover", &["timeline"]),
    ("profile", &[]),
    ("export", &["profile"]),
    ("report", &[]),
    ("page", &["profile", "report"]),
    ("questions", &[]),
    ("import", &[]),
    ("tfile", &["remote_protocol"]),
    ("convert", &["remote_protocol", "tfile"]),
    ("server", &["convert", "remote_protocol", "tfile"]),
    ("mcp", &["server"]),
    ("record", &["remote_protocol"]),
];

/// The room of a file: its folder in the `src/` of its crate, or its own name there.
fn room(file: &Path) -> String {
    let first = file.components().next().unwrap().as_os_str();
    let first = first.to_str().unwrap();
    first.strip_suffix(".rs").unwrap_or(first).to_owned()
}

fn files(directory: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if name != "tests" {
                files(&path, out);
            }
        } else if name.ends_with(".rs") && !name.contains("tests") {
            out.push(path);
        }
    }
}

/// The directories `src` of all crates.
fn roots() -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = std::fs::read_dir(top.join("crates")).unwrap();
    let crates = crates.map(|entry| entry.unwrap().path());
    crates
        .chain([top.to_owned()])
        .map(|path| path.join("src"))
        .collect()
}

/// Returns the files of all crates by path in their `src/`, with their text.
fn source_files() -> Vec<(String, String)> {
    let of = |root: PathBuf| {
        let mut paths = Vec::new();
        files(&root, &mut paths);
        let read = move |path: PathBuf| {
            let file = path.strip_prefix(&root).unwrap().to_str().unwrap();
            (file.to_owned(), std::fs::read_to_string(&path).unwrap())
        };
        paths.into_iter().map(read)
    };
    roots().into_iter().flat_map(of).collect()
}

/// Returns a file's code without comments and tests, which may name anything.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = code.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<&str>>().join("\n")
}

/// The rooms that a file's code names after `crate::`.
fn imports(text: &str) -> BTreeSet<String> {
    let code = code(text);
    let name = |text: &str| -> String {
        let word = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_';
        text.trim_start().chars().take_while(word).collect()
    };
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let Some(group) = rest.strip_prefix('{') else {
            found.insert(name(rest));
            continue;
        };
        let (mut depth, mut item) = (0, String::new());
        for c in group.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    found.insert(name(&item));
                    item.clear();
                    continue;
                }
                _ => {}
            }
            item.push(c);
        }
        found.insert(name(&item));
    }
    found
}

#[test]
fn imports_point_one_way() {
    let sources = source_files();
    let rooms = sources.iter().map(|(file, _)| room(Path::new(file)));
    let rooms: BTreeSet<String> = rooms.collect();
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for (file, text) in &sources {
        let from = room(Path::new(file));
        if ["cli", "lib", "main"].contains(&from.as_str()) {
            continue;
        }
        let allowed = ALLOWED.iter().find(|(room, _)| *room == from);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("{from} is not in the list"));
        for to in imports(text) {
            if to == from || !rooms.contains(&to) {
                continue;
            }
            if !allowed.contains(&to.as_str()) {
                wrong.push(format!("{file} imports from {to}"));
            }
            used.insert((from.clone(), to));
        }
    }
    assert!(
        wrong.is_empty(),
        "against the direction:\n{}",
        wrong.join("\n")
    );
    for (from, allowed) in ALLOWED {
        for to in *allowed {
            let edge = ((*from).to_owned(), (*to).to_owned());
            assert!(
                used.contains(&edge),
                "nothing in {from} imports from {to}: strike it"
            );
        }
    }
}

/// Input is opened in one place, which refuses what is no regular file. Exceptions: that place, files of
/// armsnap's own, and those of the system.
#[test]
fn input_is_opened_by_mapped() {
    const EXCEPT: &[&str] = &[
        "mapped/",
        "leftovers.rs",
        "cache.rs",
        "record/process.rs",
        "cli/signals.rs",
        "cli/decode/writers.rs",
    ];
    let mut wrong = Vec::new();
    for (file, text) in source_files() {
        let code = code(&text);
        let of_system = code.contains("fs::File")
            || code.contains("fs::{self, File")
            || code.contains("fs::{File");
        let reads = ["fs::read(", "fs::read_to_string(", "fs::File::open("];
        let opens = of_system && code.contains(" File::open(")
            || reads.iter().any(|read| code.contains(read));
        if opens && !EXCEPT.iter().any(|except| file.starts_with(except)) {
            wrong.push(file);
        }
    }
    assert!(
        wrong.is_empty(),
        "use mapped::open, head, read or map: {wrong:?}"
    );
}

#[test]
fn the_list_has_an_order() {
    for (index, (room, allowed)) in ALLOWED.iter().enumerate() {
        for to in *allowed {
            let above = ALLOWED[..index].iter().any(|(before, _)| before == to);
            assert!(above, "{room} comes before {to}");
        }
    }
}

#[test]
fn imports_of_every_form_are_seen() {
    let text = "use crate::{a, b::c, d::{e, f}};\nuse crate::g::h;\nfn x() { crate::i::j() } // crate::k\n";
    let found: Vec<String> = imports(text).into_iter().collect();
    assert_eq!(found, ["a", "b", "d", "g", "i"]);
}
