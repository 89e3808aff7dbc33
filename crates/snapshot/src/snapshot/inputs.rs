//! The files that a snapshot was read from, which must not be overwritten.

use super::OpenSnapshot;
use super::files::LIBRARIES;
use super::model::FileLine;
use super::paths;
use crate::mapped::{self, Identity};
use std::path::{Path, PathBuf};

/// The maximum number of entries of a directory that are examined.
const MOST: usize = 100_000;

/// Returns whether a path is input. A file is input if it is being read or named by the snapshot, a
/// directory if it is that of the snapshot or holds an input file. The name used for it does not
/// matter.
pub fn is_input(path: &Path, loaded: &OpenSnapshot) -> bool {
    if !path.is_dir() {
        return mapped::is_open(path) || is_named(path, loaded);
    }
    let own = !loaded.root.as_os_str().is_empty() && is_same(&loaded.root, path);
    own || holds_input(path, loaded)
}

fn holds_input(directory: &Path, loaded: &OpenSnapshot) -> bool {
    let named: Vec<Identity> = named(loaded)
        .filter_map(|path| Identity::at(&path).ok())
        .collect();
    let mut directories = vec![directory.to_owned()];
    let mut left = MOST;
    while let Some(directory) = directories.pop() {
        for entry in directory.read_dir().into_iter().flatten().flatten() {
            let path = entry.path();
            left = left.saturating_sub(1);
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(path),
                Ok(kind) if kind.is_file() => {
                    let is_named = |own: Identity| named.iter().any(|one| one.is_file(&own));
                    if mapped::is_open(&path) || Identity::at(&path).is_ok_and(is_named) {
                        return true;
                    }
                }
                _ => {}
            }
            if left == 0 {
                // A directory this large is not replaced without examining all of it.
                return true;
            }
        }
    }
    false
}

/// Returns whether a snapshot names a file, even if it was not read yet.
pub fn is_named(path: &Path, loaded: &OpenSnapshot) -> bool {
    path.exists() && named(loaded).any(|file| is_same(&file, path))
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (Identity::at(one), Identity::at(other)) {
        (Ok(one), Ok(other)) => one.is_file(&other),
        _ => false,
    }
}

/// Returns the files that a snapshot names, even outside its directory, its .ini files, and its
/// libraries.
fn named(loaded: &OpenSnapshot) -> impl Iterator<Item = PathBuf> + '_ {
    let snapshot = &loaded.snapshot;
    let devices = snapshot.devices.iter();
    let dumps = devices.clone().flat_map(|device| &device.dumps);
    let dumps = dumps.flat_map(|dump| beside(&dump.place, &dump.file));
    let trace = snapshot.trace.iter();
    let buffers = trace.clone().flat_map(|trace| &trace.buffers);
    let buffers = buffers.flat_map(|buffer| {
        let files = buffer.files.iter();
        files.flat_map(|file| beside(&buffer.place, file))
    });
    // Programs and other files in armsnap's own sections.
    let others = snapshot.other_sections.iter();
    let others = others.flat_map(|section| &section.entries);
    let others = others.map(|(_, value)| value.clone());
    let texts = devices.map(|device| device.file.clone());
    let texts = texts.chain(trace.map(|trace| trace.file.clone()));
    let texts = texts.chain([loaded.entry.clone()]);
    let written = dumps.chain(buffers).chain(others).chain(texts);
    let libraries = match loaded.root.as_os_str().is_empty() {
        true => None,
        false => loaded.root.join(LIBRARIES).read_dir().ok(),
    };
    let libraries = libraries.into_iter().flatten().flatten();
    written
        .filter_map(|written| paths::resolve(&loaded.root, &written, true).ok())
        .chain(libraries.map(|entry| entry.path()))
}

/// Returns the possible paths of a file that an .ini file names.
fn beside(place: &FileLine, written: &str) -> [String; 2] {
    let beside = place.file.with_file_name(written);
    [written.to_owned(), beside.to_string_lossy().into_owned()]
}
