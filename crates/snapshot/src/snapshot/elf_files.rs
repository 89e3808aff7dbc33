//! The ELF files in a snapshot's directory.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use crate::mapped;
use crate::program::elf::{Elf, is_elf};
use crate::text;

/// The maximum number of files in a snapshot's directory that are examined.
const MAX_FILES: usize = 4096;
/// The maximum depth to which directories are searched.
const MAX_DEPTH: usize = 3;

/// Returns the ELF files below a directory.
pub(super) fn elf_files(directory: &Path) -> Vec<Elf> {
    let found = candidates(directory).into_iter();
    found.filter_map(|path| Elf::open(&path).ok()).collect()
}

/// Returns the paths of ELF files below a directory, sorted.
fn candidates(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut looked_at = 0;
    let mut directories = vec![(directory.to_owned(), 0)];
    while let Some((directory, depth)) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            looked_at += 1;
            if looked_at > MAX_FILES {
                found.sort();
                return found;
            }
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let path = entry.path();
            if kind.is_dir() && depth < MAX_DEPTH && is_plain_name(&entry.file_name()) {
                directories.push((path, depth + 1));
            } else if kind.is_file() && is_plain_name(&entry.file_name()) && begins_as_elf(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Whether a name from a snapshot is safe for debuggers, which print it and use it in commands.
pub fn is_plain_name(name: &OsStr) -> bool {
    let plain = |c| text::is_plain(c) && !matches!(c, '"' | '\'' | '\\' | '`' | '$' | ';' | '|');
    name.to_str().is_some_and(|name| name.chars().all(plain))
}

/// Whether all names in a path are safe for debuggers.
pub fn is_plain_path(path: &Path) -> bool {
    path.components().all(|part| match part {
        Component::Normal(name) => is_plain_name(name),
        _ => true,
    })
}

fn begins_as_elf(path: &Path) -> bool {
    mapped::head(path, 4).is_ok_and(|magic| is_elf(&magic))
}
