//! Finds the files that were mapped, by their build-ids and paths.
//!
//! A path in an input is not trusted: a file found there is used only if it is an Arm program, and,
//! if a build-id was recorded, only if it has that build-id.

use super::ImportError;
use super::archive::Archive;
use super::build_id::BuildId;
use super::note::{ImageNote, Note};
use super::options::{NamedProgram, Options};
use super::programs;
use super::unpacked;
use super::wanted::Wanted;
use armsnap_snapshot::budget::Budget;
use armsnap_snapshot::mapped::{self, Identity, Mapped};
use armsnap_snapshot::program::elf::{Elf, Machine, is_elf};
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The maximum number of missing files that are listed.
const MAX_MISSING: usize = 40;

/// Finds each file once.
#[derive(Debug)]
pub struct Images<'o> {
    options: &'o Options,
    named: Vec<(&'o NamedProgram, Elf, Option<BuildId>)>,
    /// By index in `named`: whether the program was used, or a note says why not.
    explained: Vec<bool>,
    /// The entries of [`Options::symfs`] that are archives, with their paths.
    archives: Vec<(&'o Path, Archive)>,
    found: HashMap<Wanted, Option<Elf>>,
    /// [`Options::vmlinux`], once opened; `None` if it cannot be read.
    vmlinux: OnceCell<Option<(Elf, Option<BuildId>)>>,
    /// The memory budget for decompressed files and for modules that are linked.
    memory: Budget,
    /// The files that have added to the budget; each adds once, regardless of how often and by
    /// which names it is found.
    granted: HashSet<(u64, u64)>,
    /// Notes on files that were found but do not match.
    notes: Vec<ImageNote>,
    /// Files whose contents are needed, but which were not found.
    pub missing: BTreeSet<Wanted>,
}

impl<'o> Images<'o> {
    /// Opens the programs that the user named.
    ///
    /// # Errors
    ///
    /// If one of them, or a directory or archive to search, cannot be read.
    pub fn new(options: &'o Options) -> Result<Self, ImportError> {
        let memory = Budget::new(unpacked::LEAST);
        let named = options.elf.iter().map(|named| {
            let elf = unpacked::open(&named.path, &memory)?;
            let id = BuildId::of_elf(elf.bytes());
            Ok((named, elf, id))
        });
        for path in &options.symfs {
            super::readable(path).map_err(|error| ImportError::input(path, error))?;
        }
        let archives = options.symfs.iter().filter(|path| path.is_file());
        let archives = archives.map(|path| Ok((&**path, Archive::open(path)?)));
        let named = named.collect::<Result<_, ImportError>>()?;
        Ok(Self {
            options,
            named,
            memory,
            granted: HashSet::new(),
            explained: vec![false; options.elf.len()],
            archives: archives.collect::<Result<_, ImportError>>()?,
            found: HashMap::new(),
            vmlinux: OnceCell::new(),
            notes: Vec::new(),
            missing: BTreeSet::new(),
        })
    }

    /// Marks all programs that the user named as used by their addresses, because the input does
    /// not list files.
    pub fn use_all(&mut self) {
        self.explained.fill(true);
    }

    /// Reports files that do not match or are missing, and files of the user that no mapping names.
    pub fn report(&mut self, notes: &mut Vec<Note>) {
        let mut own = std::mem::take(&mut self.notes);
        for ((named, ..), explained) in self.named.iter().zip(&mut self.explained) {
            if !std::mem::replace(explained, true) {
                let path = named.path.clone();
                own.push(ImageNote::Unused { path });
            }
        }
        let missing = std::mem::take(&mut self.missing);
        let count = missing.len();
        let named = missing.into_iter().take(MAX_MISSING);
        own.extend(named.map(ImageNote::Missing));
        if count > MAX_MISSING {
            let count = count - MAX_MISSING;
            own.push(ImageNote::MoreMissing { count });
        }
        if count > 0 {
            own.push(ImageNote::Consequence);
        }
        notes.extend(own.into_iter().map(Note::Image));
    }

    /// The kernel that the user named.
    pub fn named_kernel(&self) -> Option<&'o Path> {
        self.options.vmlinux.as_deref()
    }

    /// The kernel: the one that the user named, or else the one that is found.
    pub fn kernel(&mut self, wanted: &Wanted) -> Option<Elf> {
        let Some(path) = &self.options.vmlinux else {
            return self.find(wanted);
        };
        let notes = &mut self.notes;
        let opened = self.vmlinux.get_or_init(|| match Elf::open(path) {
            Ok(elf) => {
                let id = BuildId::of_elf(elf.bytes());
                Some((elf, id))
            }
            Err(error) => {
                let reason = error.to_string();
                notes.push(ImageNote::UnreadableKernel { reason });
                None
            }
        });
        let (elf, own) = opened.as_ref()?;
        if let (Some(id), Some(own)) = (&wanted.build_id, own)
            && !own.is_same(id)
        {
            self.notes.push(ImageNote::OtherKernel {
                path: path.clone(),
                wanted: wanted.clone(),
            });
            return None;
        }
        Some(elf.clone())
    }

    /// Finds the file that was mapped.
    pub fn find(&mut self, wanted: &Wanted) -> Option<Elf> {
        if let Some(known) = self.found.get(wanted) {
            return known.clone();
        }
        let found = self.search(wanted);
        self.found.insert(wanted.clone(), found.clone());
        found
    }

    /// A program that the user named and that has another name, if it has fixed addresses and is
    /// mapped at them: `place` is the range of the file, its address, and whether it is mapped
    /// executable. A program with another build-id is not used.
    pub fn at_its_addresses(
        &mut self,
        wanted: &Wanted,
        (range, address, code): (Range<u64>, u64, bool),
    ) -> Option<Elf> {
        let found = self.named.iter().position(|(named, elf, id)| {
            let is_other = match (&wanted.build_id, id) {
                (Some(wanted), Some(id)) => !wanted.is_same(id),
                (wanted, _) => wanted.is_some(),
            };
            let placed = || programs::bias(elf, range.clone(), address, code) == Some(0);
            !is_other && named.address.is_none() && !programs::is_dynamic(elf) && placed()
        });
        let (named, elf, _) = &self.named[found?];
        let note = ImageNote::OtherName {
            path: named.path.clone(),
            wanted: wanted.clone(),
        };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
        self.explained[found?] = true;
        Some(elf.clone())
    }

    fn search(&mut self, wanted: &Wanted) -> Option<Elf> {
        let name = wanted.path.rsplit('/').next().unwrap_or_default();
        let mut unlike = None;
        for (index, (named, elf, id)) in self.named.iter().enumerate() {
            let is_named = named.path.file_name().is_some_and(|own| {
                let module = || kernel_module(&own.to_string_lossy());
                own == name || module().is_some_and(|own| kernel_module(name) == Some(own))
            });
            let is_it = match (&wanted.build_id, id) {
                (Some(wanted), Some(id)) => wanted.is_same(id),
                _ => is_named,
            };
            self.explained[index] |= is_it || is_named;
            if is_it {
                return Some(elf.clone());
            }
            if is_named {
                unlike = unlike.or_else(|| Some(named.path.clone()));
            }
        }
        for path in self.candidates(wanted) {
            let Some(elf) = self.open(&path) else {
                continue;
            };
            if let Some(id) = &wanted.build_id
                && !BuildId::of_elf(elf.bytes()).is_some_and(|own| own.is_same(id))
            {
                unlike = unlike.or(Some(path));
                continue;
            }
            return Some(elf);
        }
        if let Some(path) = unlike {
            let wanted = wanted.clone();
            self.notes.push(ImageNote::OtherFile { path, wanted });
        }
        None
    }

    /// A file that is not a program, by its path.
    pub fn plain(&self, wanted: &Wanted) -> Option<(PathBuf, Mapped)> {
        self.candidates(wanted).into_iter().find_map(|path| {
            let bytes = self.bytes(&path)?;
            Some((path, bytes))
        })
    }

    /// The bytes of a file on disk or in an archive. Pipes and devices are not opened.
    fn bytes(&self, path: &Path) -> Option<Mapped> {
        let mut archives = self.archives.iter();
        let inside = archives.find_map(|(archive, files)| {
            let inside = path.strip_prefix(archive).ok()?;
            Some(files.find(inside).cloned())
        });
        match inside {
            Some(found) => found,
            None => {
                let is_file = path.metadata().ok()?.is_file();
                is_file.then(|| mapped::map(path).ok()).flatten()
            }
        }
    }

    /// The kernel's list of symbols, from perf's cache.
    pub fn kallsyms(&self, wanted: &Wanted) -> Option<Mapped> {
        let mut out = Vec::new();
        for directory in &self.options.symfs {
            by_id(wanted, directory, &["kallsyms"], &mut out);
            by_id(wanted, &directory.join(".debug"), &["kallsyms"], &mut out);
        }
        if let Some(cache) = &self.options.build_id_cache {
            by_id(wanted, cache, &["kallsyms"], &mut out);
        }
        out.iter().find_map(|path| self.bytes(path))
    }

    /// Opens an Arm program; `None` for everything else.
    fn open(&mut self, path: &Path) -> Option<Elf> {
        let bytes = self.bytes(path)?;
        self.grant(path, &bytes);
        let bytes = match is_elf(&bytes) {
            true => bytes,
            false => match unpacked::unpacked(&bytes, &self.memory)? {
                Ok(bytes) => bytes,
                Err(error) => {
                    let (path, reason) = (path.to_owned(), error.to_string());
                    self.notes.push(ImageNote::Packed { path, reason });
                    return None;
                }
            },
        };
        // A file in an archive has no path of its own.
        let path = dunce::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let elf = Elf::read(path, bytes).ok()?;
        (elf.machine != Machine::Other).then_some(elf)
    }

    /// The memory budget for modules: each module takes its size and that of its debug information.
    pub const fn memory(&self) -> &Budget {
        &self.memory
    }

    /// Adds to the budget in proportion to a file, once per file.
    fn grant(&mut self, path: &Path, bytes: &Mapped) {
        let own = Identity::at(path).map(|own| own.key());
        // A file in an archive is identified by the location of its bytes.
        let own = own.unwrap_or((u64::MAX, bytes.as_ptr() as u64));
        if self.granted.insert(own) {
            let size = bytes.len() as u64;
            self.memory.grant(unpacked::MAX_RATIO.saturating_mul(size));
        }
    }

    /// The possible paths of a file, the likeliest first.
    fn candidates(&self, wanted: &Wanted) -> Vec<PathBuf> {
        let mut out = Vec::new();
        let names = ["elf", "vdso", "vmlinux", "", ".debug"];
        // Joining an absolute path would replace the directory.
        let mut relative: Vec<PathBuf> = super::paths::inside(&wanted.path).into_iter().collect();
        if let Some(module) = kernel_module(&wanted.path) {
            relative = module_paths(&relative, &module);
        }
        for directory in &self.options.symfs {
            for relative in &relative {
                out.push(directory.join(relative));
                out.extend(relative.file_name().map(|name| directory.join(name)));
            }
            by_id(wanted, directory, &names, &mut out);
            by_id(wanted, &directory.join(".debug"), &names, &mut out);
        }
        if let Some(cache) = &self.options.build_id_cache {
            by_id(wanted, cache, &names, &mut out);
        }
        // On Windows this would not be the recorded file, but could name a file on another
        // computer.
        if cfg!(unix) && wanted.path.starts_with('/') {
            out.push(wanted.path.clone().into());
        }
        out
    }
}

/// Adds the files with these names at the entry of a file in a build-id directory. In perf's cache
/// the entry is a link to a directory, or in older versions to the file (an empty name); in a tree
/// of debug files it is the file with an extension.
fn by_id(wanted: &Wanted, directory: &Path, names: &[&str], out: &mut Vec<PathBuf>) {
    let Some(id) = &wanted.build_id else {
        return;
    };
    let id = id.to_string();
    if let Some((first, rest)) = id.split_at_checked(2) {
        let entry = directory.join(".build-id").join(first).join(rest);
        out.extend(names.iter().map(|name| match name.strip_prefix('.') {
            Some(ending) => entry.with_extension(ending),
            None if name.is_empty() => entry.clone(),
            None => entry.join(name),
        }));
    }
}

/// The name of a kernel module, from the path of its file or the name that perf gives it
/// (`[name]`); `None` for other files. The kernel replaces `-` by `_`.
pub fn kernel_module(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    let name = match file.strip_prefix('[') {
        Some(rest) => {
            let name = rest.strip_suffix(']')?;
            let kernel = [
                "kernel.",
                "guest.kernel",
                "vdso",
                "vsyscall",
                "heap",
                "stack",
            ];
            (!kernel.iter().any(|kernel| name.starts_with(kernel))).then_some(name)?
        }
        None => {
            let (name, ending) = file.rsplit_once(".ko")?;
            ["", ".gz", ".xz", ".zst", ".debug"]
                .contains(&ending)
                .then_some(name)?
        }
    };
    (!name.is_empty()).then(|| name.replace('-', "_"))
}

/// The paths of a module's file, compressed or not; its directory is not always known.
fn module_paths(recorded: &[PathBuf], module: &str) -> Vec<PathBuf> {
    let mut stems: Vec<String> = Vec::new();
    for path in recorded {
        let path = path.to_string_lossy();
        if let Some((stem, _)) = path.rsplit_once(".ko") {
            // `/lib` is a link to `/usr/lib`, which a copy of the system may not have.
            stems.extend([stem.to_owned(), format!("usr/{stem}")]);
        }
    }
    stems.extend([module.to_owned(), module.replace('_', "-")]);
    let endings = [".ko", ".ko.xz", ".ko.zst", ".ko.gz", ".ko.debug"];
    let paths = stems
        .iter()
        .flat_map(|stem| endings.map(|ending| PathBuf::from(format!("{stem}{ending}"))));
    paths.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_elf::small_elf;

    #[test]
    fn recorded_paths_stay_below_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("tree");
        std::fs::create_dir_all(below.join("usr/bin")).unwrap();
        std::fs::write(below.join("usr/bin/prog"), small_elf(b"code", b"data")).unwrap();
        std::fs::write(directory.path().join("secret"), small_elf(b"code", b"data")).unwrap();
        let options = Options {
            symfs: vec![below],
            ..Options::default()
        };
        let mut images = Images::new(&options).unwrap();
        let mut find = |path: &str| {
            let wanted = Wanted {
                path: path.to_owned(),
                build_id: None,
            };
            images.find(&wanted).is_some()
        };
        assert!(find("/usr/bin/prog"));
        assert!(!find("/../secret"));
        assert!(!find("../secret"));
        assert!(!find("[vdso]"));
    }

    #[test]
    fn directories_that_do_not_exist_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            symfs: vec![directory.path().join("none")],
            ..Options::default()
        };
        let error = Images::new(&options).unwrap_err().to_string();
        let path = options.symfs[0].display().to_string();
        assert!(error.starts_with(&format!("{path}: ")), "{error}");
    }

    #[test]
    fn another_build_id_is_another_file() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("prog"), small_elf(b"code", b"data")).unwrap();
        let options = Options {
            symfs: vec![directory.path().to_owned()],
            ..Options::default()
        };
        let mut images = Images::new(&options).unwrap();
        let wanted = Wanted {
            path: "/bin/prog".to_owned(),
            build_id: BuildId::new(&[1, 2, 3, 4]),
        };
        assert!(images.find(&wanted).is_none());
        let note = "is not the file that was mapped as /bin/prog (build-id 01020304)";
        let text = images.notes[0].to_string();
        assert!(text.contains(note), "{text}");
    }
}
