//! Checks a directory that a snapshot is to replace: only files of the old snapshot may be removed,
//! and only if they are not being read.

use crate::mapped;
use crate::snapshot::libraries::LIBRARIES;
use crate::snapshot::read::LARGEST_INI;
use crate::snapshot::{ini, paths};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the first file in a snapshot's directory that the snapshot does not name, or that is
/// being read.
pub(super) fn in_the_way(dir: &Path) -> io::Result<Option<PathBuf>> {
    let named = named(dir);
    let mut directories = vec![dir.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let path = entry.path();
            let within = path.strip_prefix(dir).unwrap_or(&path);
            if entry.file_type()?.is_dir() {
                directories.push(path);
                continue;
            }
            let own = named.contains(within) || is_library(within, &path)?;
            if !own || mapped::is_open(&path) {
                return Ok(Some(path));
            }
        }
    }
    Ok(None)
}

/// Returns whether a file is a library of the snapshot: an ELF file in `libraries`, which no .ini
/// file names.
fn is_library(within: &Path, path: &Path) -> io::Result<bool> {
    if within.parent() != Some(Path::new(LIBRARIES)) || !path.is_file() {
        return Ok(false);
    }
    Ok(mapped::head(path, 4)? == b"\x7fELF")
}

/// Returns the files named in the .ini files of a snapshot, starting with snapshot.ini: every value
/// of any key that is the path of a file.
fn named(dir: &Path) -> BTreeSet<PathBuf> {
    let mut named = BTreeSet::from([PathBuf::from("snapshot.ini")]);
    let mut unread: Vec<PathBuf> = named.iter().cloned().collect();
    while let Some(file) = unread.pop() {
        // The reader rejects larger files.
        let Ok(bytes) = mapped::head(&dir.join(&file), LARGEST_INI) else {
            continue;
        };
        let beside = file.parent().and_then(Path::to_str).unwrap_or("");
        let (document, _) = ini::parse(&bytes);
        let entries = document
            .sections
            .iter()
            .flat_map(|section| &section.entries);
        let values = entries.flat_map(|entry| {
            let parts = entry.value.split(',').map(str::trim);
            parts.chain([entry.value.as_str()])
        });
        for value in values.filter(|value| !value.is_empty()) {
            let below = (!beside.is_empty()).then(|| format!("{beside}/{value}"));
            for written in below.into_iter().chain([value.to_owned()]) {
                let Some(path) = paths::normal(&written).map(PathBuf::from) else {
                    continue;
                };
                if dir.join(&path).is_file() && named.insert(path.clone()) {
                    let ini = path.extension();
                    let is_ini = ini.is_some_and(|ini| ini.eq_ignore_ascii_case("ini"));
                    unread.extend(is_ini.then_some(path));
                }
            }
        }
    }
    named
}
