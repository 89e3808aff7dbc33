//! A snapshot in a tar archive, plain or compressed: its files are used in place.

use super::archive::{Archive, normal};
use super::{ImportError, Imported, packed};
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_snapshot::snapshot::files::InMemory;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file in a snapshot's directory.
pub const ENTRY: &str = "snapshot.ini";

/// The maximum number of unpacked bytes in which the snapshot is searched to recognise it.
const SEARCHED: u64 = 256 << 20;

/// The files, with those to which links lead, may be this many times as large as the archive.
const MAX_COPIES: u64 = 2;

/// Whether a tar file has a snapshot.
pub fn has_snapshot(path: &Path) -> bool {
    let found = packed::read(path, |reader, is_packed| {
        let most = if is_packed { SEARCHED } else { u64::MAX };
        let mut archive = tar::Archive::new(reader.take(most));
        let Ok(mut entries) = archive.entries() else {
            return false;
        };
        entries.any(|entry| entry.is_ok_and(|entry| entry.path().is_ok_and(|path| is_entry(&path))))
    });
    found.unwrap_or(false)
}

fn is_entry(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == ENTRY) && normal(path).is_some()
}

/// Reads the snapshot in an archive.
///
/// # Errors
///
/// If the archive is damaged, or has several snapshots or none.
pub fn import(path: &Path) -> Result<Imported, ImportError> {
    let archive = Archive::open(path)?;
    let directory = directory(&archive).map_err(|text| ImportError::input(path, text))?;
    let files = archive.below(&directory);
    // Each link to a file becomes a copy of it.
    let bytes: u64 = files.values().map(|file| file.len() as u64).sum();
    if bytes > MAX_COPIES * archive.size {
        let text =
            format!("is an archive whose links lead to {bytes} bytes, which is out of proportion");
        return Err(ImportError::input(path, text));
    }
    // Debuggers read a program from the server if it has an absolute path.
    let above = dunce::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let above = above.join(&directory);
    let origins = files.keys().map(|name| (name.clone(), above.join(name)));
    let origins = origins.collect();
    let loaded = OpenSnapshot::from_files(Arc::new(InMemory(files.clone())), ENTRY)?;
    Ok(Imported {
        kind: "snapshot in an archive".to_owned(),
        snapshot: loaded.snapshot,
        files,
        origins,
        ..Imported::default()
    })
}

/// The snapshot's directory: a snapshot in a directory of another one belongs to that.
fn directory(archive: &Archive) -> Result<PathBuf, String> {
    let depth = |path: &Path| path.components().count();
    let mut entries: Vec<&Path> = archive.paths().filter(|path| is_entry(path)).collect();
    entries.sort_by_key(|path| (depth(path), *path));
    match entries[..] {
        [] => Err(format!("is an archive without {ENTRY}")),
        [first, second, ..] if depth(first) == depth(second) => Err(format!(
            "is an archive of several snapshots ({}, {}): unpack it, and name the directory of one",
            first.display(),
            second.display()
        )),
        [first, ..] => Ok(first.parent().unwrap_or(Path::new("")).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(paths: &[&str]) -> tempfile::NamedTempFile {
        let mut builder = tar::Builder::new(tempfile::NamedTempFile::new().unwrap());
        for path in paths {
            let mut header = tar::Header::new_ustar();
            header.set_size(11);
            // `set_path` refuses paths that leave the directory.
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_cksum();
            builder.append(&header, &b"[snapshot]\n"[..]).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn the_snapshot_is_the_one_nearest_to_the_top() {
        for (paths, wanted) in [
            (&["snapshot.ini"][..], Ok("")),
            (&["./snapshot.ini"], Ok("")),
            (&["a/b/snapshot.ini", "a/snapshot.ini"], Ok("a")),
            (
                &["a/snapshot.ini", "b/snapshot.ini"],
                Err("is an archive of several snapshots (a/snapshot.ini, b/"),
            ),
            (
                &["../snapshot.ini", "other"],
                Err("is an archive without snapshot.ini"),
            ),
        ] {
            let file = archive(paths);
            assert_eq!(has_snapshot(file.path()), paths[0] != "../snapshot.ini");
            let found = directory(&Archive::open(file.path()).unwrap());
            match (found, wanted) {
                (Ok(found), Ok(wanted)) => assert_eq!(found, Path::new(wanted)),
                (Err(found), Err(wanted)) => assert!(found.starts_with(wanted), "{found}"),
                (found, _) => panic!("{paths:?}: {found:?}"),
            }
        }
    }
}
