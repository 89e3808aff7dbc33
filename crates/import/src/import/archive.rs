//! A tar archive, such as `perf archive` makes of its build-id cache. Its files are used in place.

use super::{ImportError, imported};
use armsnap_snapshot::mapped::Mapped;
use armsnap_snapshot::snapshot::paths;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// The maximum number of files and links, and the maximum length of a chain of links.
const MOST: usize = 1 << 20;
const LONGEST_CHAIN: usize = 40;
/// The maximum length of a path, as in Linux (`PATH_MAX`).
const LONGEST_PATH: usize = 4096;
/// The maximum number of bytes before the contents of a file: headers, name and attributes (PAX),
/// which are read into memory.
const LONGEST_TEXT: u64 = 1 << 20;

/// An entry of an archive.
#[derive(Clone, Debug)]
enum ArchiveMember {
    File(Mapped),
    Link(PathBuf),
}

/// The files of a tar archive.
#[derive(Clone, Debug, Default)]
pub struct Archive {
    /// By normalised relative path.
    entries: HashMap<PathBuf, ArchiveMember>,
    /// The lengths of the paths that are links; a path of another length is not a link.
    links: BTreeSet<usize>,
    /// The number of bytes, unpacked.
    pub size: u64,
}

/// Whether bytes are the start of an archive.
pub fn is_tar(bytes: &[u8]) -> bool {
    bytes.get(257..262) == Some(b"ustar")
}

/// The bytes of an archive, of which only what precedes the contents of files is read.
struct Headers<'b> {
    bytes: Cursor<&'b [u8]>,
    /// How many bytes may be read before the next file.
    left: &'b Cell<u64>,
}

impl Read for Headers<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = (&mut self.bytes).take(self.left.get()).read(out)?;
        if count == 0 && self.left.get() == 0 {
            return Err(io::Error::other(format!(
                "is an archive with a name or attributes of more than {LONGEST_TEXT} bytes"
            )));
        }
        self.left.set(self.left.get() - count as u64);
        Ok(count)
    }
}

impl Seek for Headers<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.bytes.seek(to)
    }
}

/// A path without `.` and `..`; `None` if it points outside the archive or is too long.
pub fn normal(path: &Path) -> Option<PathBuf> {
    if path.as_os_str().len() > LONGEST_PATH {
        return None;
    }
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => out.push(name),
            Component::ParentDir if !out.pop() => return None,
            _ => {}
        }
    }
    Some(out)
}

impl Archive {
    /// Reads the list of files of an archive, which may be compressed.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not an archive.
    pub fn open(path: &Path) -> Result<Self, ImportError> {
        let fault = |text: String| ImportError::input(path, text);
        let bytes = imported::map_unpacked(path)?;
        if !is_tar(&bytes) {
            return Err(fault(
                "is neither a directory nor a tar file (plain or compressed), such as perf archive writes"
                    .to_owned(),
            ));
        }
        let mut out = Self {
            size: bytes.len() as u64,
            ..Self::default()
        };
        let left = Cell::new(LONGEST_TEXT);
        let mut archive = tar::Archive::new(Headers {
            bytes: Cursor::new(&bytes),
            left: &left,
        });
        let entries = archive.entries_with_seek();
        for entry in entries
            .map_err(|error| fault(error.to_string()))?
            .take(MOST)
        {
            left.set(LONGEST_TEXT);
            let entry = entry.map_err(|error| fault(error.to_string()))?;
            let Some(name) = entry.path().ok().and_then(|name| normal(&name)) else {
                continue;
            };
            let kind = entry.header().entry_type();
            if kind.is_file() {
                let begin = usize::try_from(entry.raw_file_position()).unwrap_or(usize::MAX);
                let length = usize::try_from(entry.size()).unwrap_or(usize::MAX);
                let end = begin.saturating_add(length);
                if bytes.get(begin..end).is_some() {
                    out.entries
                        .insert(name, ArchiveMember::File(bytes.part(begin..end)));
                }
            } else if kind.is_symlink() || kind.is_hard_link() {
                let Some(to) = entry.link_name().ok().flatten() else {
                    continue;
                };
                let from = match kind.is_symlink() && !to.is_absolute() {
                    true => name.parent().unwrap_or(Path::new("")).join(&to),
                    false => to.into_owned(),
                };
                if let Some(to) = normal(&from) {
                    out.links.insert(name.as_os_str().len());
                    out.entries.insert(name, ArchiveMember::Link(to));
                }
            }
        }
        Ok(out)
    }

    /// The file at a path, following links.
    pub fn find(&self, path: &Path) -> Option<&Mapped> {
        let mut path = normal(path)?;
        for _ in 0..LONGEST_CHAIN {
            if let Some(ArchiveMember::File(bytes)) = self.entries.get(&path) {
                return Some(bytes);
            }
            // A directory of the path may be a link.
            let (to, rest) = path.ancestors().find_map(|above| {
                // A lookup takes time proportional to the length of the path, and a path may have
                // 2000 parts.
                if !self.links.contains(&above.as_os_str().len()) {
                    return None;
                }
                let Some(ArchiveMember::Link(to)) = self.entries.get(above) else {
                    return None;
                };
                Some((to.clone(), path.strip_prefix(above).ok()?.to_owned()))
            })?;
            path = normal(&to.join(rest))?;
        }
        None
    }

    /// The paths of the files and links.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.entries.keys().map(PathBuf::as_path)
    }

    /// The files below a directory, and those that links there lead to, by their paths from that
    /// directory. Names that could mean a file elsewhere, on this system or another, are left out.
    pub fn below(&self, directory: &Path) -> BTreeMap<String, Mapped> {
        let files = self.paths().filter_map(|path| {
            let name = path.strip_prefix(directory).ok()?;
            let parts: Option<Vec<&str>> = name.iter().map(|part| part.to_str()).collect();
            // A name with a backslash or a drive letter may mean a place outside.
            let name =
                Some(parts?.join("/")).filter(|name| paths::normal(name).as_ref() == Some(name))?;
            Some((name, self.find(path)?.clone()))
        });
        files.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(links: &[(&str, String)]) -> Archive {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(3);
        builder
            .append_data(&mut header, "there", &b"ELF"[..])
            .unwrap();
        for (name, to) in links {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            builder.append_link(&mut header, name, to).unwrap();
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), builder.into_inner().unwrap()).unwrap();
        Archive::open(file.path()).unwrap()
    }

    #[test]
    fn files_are_below_the_directory_on_each_system() {
        let names = [
            "link",
            "a/link",
            "out\\..\\..\\link",
            "\\link",
            "c:link",
            "a/c:link",
        ];
        let found = archive(&names.map(|name| (name, "/there".to_owned())));
        let below = |directory: &str| {
            let below = found.below(Path::new(directory));
            below.into_keys().collect::<Vec<_>>()
        };
        // `a/c:link` is a file in `a`, and a drive below it.
        assert_eq!(below(""), ["a/c:link", "a/link", "link", "there"]);
        assert_eq!(below("a"), ["link"]);
    }

    #[test]
    fn long_names_are_refused() {
        for (size, is_read) in [(LONGEST_TEXT / 2, true), (LONGEST_TEXT, false)] {
            let mut bytes = Vec::new();
            for (kind, size) in [
                (tar::EntryType::GNULongName, size),
                (tar::EntryType::Regular, 0),
            ] {
                let mut header = tar::Header::new_gnu();
                header.set_entry_type(kind);
                header.set_size(size);
                header.set_cksum();
                bytes.extend(header.as_bytes());
                bytes.resize(bytes.len() + size as usize, b'a');
            }
            // Many names are together longer than one may be.
            let bytes = bytes.repeat(4);
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), bytes).unwrap();
            assert_eq!(Archive::open(file.path()).is_ok(), is_read);
        }
    }

    #[test]
    fn links_are_bounded() {
        let deep = "a/".repeat(1 << 17);
        let found = archive(&[
            ("d", ".".to_owned()),
            ("link", "d/there".to_owned()),
            ("loop", "loop/loop".to_owned()),
            ("out", "../there".to_owned()),
            ("deep", format!("{deep}there")),
        ]);
        let find = |name: &str| found.find(Path::new(name)).map(|bytes| &**bytes);
        assert_eq!(find("link"), Some(&b"ELF"[..]));
        for name in ["loop", "out", "deep", &format!("{deep}there")] {
            assert_eq!(find(name), None);
        }
        assert!(!found.entries.contains_key(Path::new("deep")));
    }
}
