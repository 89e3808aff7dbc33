//! Temporary files, and private directories of recordings.
//!
//! They are removed however the work ends; a signal handler calls [`remove_all`]. The next process
//! removes the private directories of a killed one: each contains a file that its owner keeps
//! locked.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

/// The prefix of the names of private directories.
const PREFIX: &str = "armsnap-";
/// The name of the locked file in a private directory.
const LOCK: &str = "armsnap.lock";
/// Maximum number of entries of the temporary directory that are examined.
const MOST: usize = 10_000;

/// A file or directory that is removed when this is dropped.
#[derive(Debug)]
pub struct Leftover(Option<PathBuf>);

fn all() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    static ALL: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove(path: &Path) {
    // Errors are ignored: it may have been removed already.
    let _ = match path.symlink_metadata() {
        Ok(data) if data.is_dir() => fs::remove_dir_all(path),
        _ => fs::remove_file(path),
    };
}

impl Leftover {
    /// Registers a file or directory that was just created.
    pub fn new(path: PathBuf) -> Self {
        all().insert(path.clone());
        Self(Some(path))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }

    /// Renames it to its final name. On success it is no longer removed.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot rename it; it is still removed later.
    pub fn rename(&mut self, to: &Path) -> io::Result<()> {
        // A signal during the rename must not remove the final file.
        let mut all = all();
        fs::rename(self.path(), to)?;
        if let Some(path) = self.0.take() {
            all.remove(&path);
        }
        Ok(())
    }
}

/// Creates a file or directory beside its final name, under a name that is free: an earlier process of the
/// same number may have been killed.
///
/// # Errors
///
/// Returns an error if it cannot be created.
pub fn beside<T>(
    path: &Path,
    create: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(T, Leftover)> {
    const TRIES: u32 = 1000;
    let own = path.file_name().unwrap_or_default();
    let mut failure = None;
    for number in 0..TRIES {
        let mut name = own.to_owned();
        name.push(match number {
            0 => format!(".{}.part", std::process::id()),
            _ => format!(".{}-{number}.part", std::process::id()),
        });
        let temporary = path.with_file_name(name);
        match create(&temporary) {
            Ok(made) => return Ok((made, Leftover::new(temporary))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => failure = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(failure.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
}

/// Names the temporary directory, in which something cannot be made or written.
pub fn in_temporary(error: &io::Error) -> io::Error {
    in_private(&std::env::temp_dir(), error)
}

/// Names a file of a private directory that cannot be made or written.
pub fn in_private(place: &Path, error: &io::Error) -> io::Error {
    let text = format!(
        "{}: {error}: TMPDIR names another temporary directory",
        place.display()
    );
    io::Error::new(error.kind(), text)
}

impl Drop for Leftover {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            remove(&path);
            all().remove(&path);
        }
    }
}

/// Removes all registered files and directories, because the process ends.
pub fn remove_all() {
    for path in std::mem::take(&mut *all()) {
        remove(&path);
    }
}

/// The longest path of a temporary directory: those of sockets in private directories have 107 bytes.
const LONGEST: usize = 64;

/// Where private directories are made: the temporary directory, unless sockets do not fit there, or its name
/// has a comma, which separates an emulator's arguments.
fn place(temporary: &Path) -> PathBuf {
    let fits = |path: &Path| {
        let bytes = path.as_os_str().as_encoded_bytes();
        bytes.len() <= LONGEST && !bytes.contains(&b',')
    };
    let others = ["/tmp", "/var/tmp"].map(Path::new);
    let mut others = others
        .into_iter()
        .filter(|path| cfg!(unix) && path.is_dir());
    match fits(temporary) {
        true => temporary.to_owned(),
        false => others.next().unwrap_or(temporary).to_owned(),
    }
}

/// A private directory, and the lock that is held while its owner lives.
#[derive(Debug)]
pub struct Private {
    // Dropped first: Windows does not remove a directory with an open file.
    _lock: File,
    directory: TempDir,
}

impl Private {
    /// Creates one in the temporary directory, and removes the directories of dead owners there.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory or its lock cannot be created.
    pub fn new() -> io::Result<Self> {
        let folder = place(&std::env::temp_dir());
        clean(&folder);
        Self::within(&folder)
    }

    /// Creates one for files whose paths other programs get: the path is short enough for the name of
    /// a socket, and has no characters that separate paths or options. It is in the temporary directory, or
    /// in another one of the system where the temporary directory has no such path.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory or its lock cannot be created.
    pub fn with_plain_path() -> io::Result<Self> {
        let folder = std::env::temp_dir();
        if is_plain(&folder) {
            return Self::within(&folder);
        }
        let mut made = Err(io::ErrorKind::NotFound.into());
        for folder in ["/tmp", "/var/tmp", "/dev/shm"].map(Path::new) {
            clean(folder);
            made = Self::within(folder);
            if made.is_ok() {
                break;
            }
        }
        made
    }

    fn within(folder: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(folder)?;
        // Created under another name, so that no other process can lock it first.
        let new = directory.path().join("lock");
        let lock = File::create_new(&new)?;
        lock.lock()?;
        fs::rename(new, directory.path().join(LOCK))?;
        Ok(Self {
            _lock: lock,
            directory,
        })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Whether a directory's path has a plain form, and leaves room for names in the path of a socket, of
/// which systems take about 100 bytes.
fn is_plain(folder: &Path) -> bool {
    const MOST: usize = 56;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(byte);
    let bytes = folder.as_os_str().as_encoded_bytes();
    bytes.len() <= MOST && bytes.iter().all(plain)
}

/// Removes the private directories of dead owners in a directory.
fn clean(folder: &Path) {
    for entry in fs::read_dir(folder)
        .into_iter()
        .flatten()
        .take(MOST)
        .flatten()
    {
        let named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let path = entry.path();
        // The metadata of a symbolic link itself, not of its target.
        let data = path.symlink_metadata();
        if named && data.is_ok_and(|data| data.is_dir() && is_own(&data)) && is_dead(&path) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(unix)]
fn is_own(data: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(data) == rustix::process::getuid().as_raw()
}

/// The temporary directory of Windows belongs to one user.
#[cfg(not(unix))]
const fn is_own(_: &Metadata) -> bool {
    true
}

fn is_dead(directory: &Path) -> bool {
    let lock = directory.join(LOCK);
    let is_file = lock.symlink_metadata().is_ok_and(|data| data.is_file());
    is_file && File::open(lock).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_directories_of_dead_owners_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let lives = Private::within(folder.path()).unwrap();
        let dead = Private::within(folder.path()).unwrap();
        // As if it had been killed.
        let Private { directory, _lock } = dead;
        let dead = directory.keep();
        drop(_lock);
        for (name, lock) in [
            ("armsnap-begun", "lock"),
            ("armsnap-notes", "x"),
            ("other", LOCK),
        ] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join(lock), "").unwrap();
        }
        std::os::unix::fs::symlink(at("other"), at("armsnap-link")).unwrap();
        fs::write(at("armsnap-file"), "").unwrap();
        clean(folder.path());
        assert!(!dead.exists());
        assert!(lives.path().exists());
        for name in [
            "armsnap-begun",
            "armsnap-notes",
            "other",
            "armsnap-link",
            "armsnap-file",
        ] {
            assert!(at(name).exists(), "{name}");
        }
    }

    #[test]
    fn private_directories_are_made_where_sockets_fit() {
        assert_eq!(place(Path::new("/some/tmp")), Path::new("/some/tmp"));
        for unfit in ["/some/tmp,x".to_owned(), format!("/{}", "x".repeat(64))] {
            assert!(["/tmp", "/var/tmp"].contains(&place(Path::new(&unfit)).to_str().unwrap()));
        }
    }

    #[test]
    fn a_name_that_a_killed_process_left_is_not_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let id = std::process::id();
        fs::write(folder.path().join(format!("out.{id}.part")), "").unwrap();
        let (_, first) = beside(&path, |path| File::create_new(path)).unwrap();
        let (_, second) = beside(&path, |path| fs::create_dir(path)).unwrap();
        assert!(first.path().ends_with(format!("out.{id}-1.part")));
        assert!(second.path().ends_with(format!("out.{id}-2.part")));
        assert!(beside(&folder.path().join("none/out"), |path| fs::create_dir(path)).is_err());
    }

    #[test]
    fn leftovers_are_removed_and_renamed_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "").unwrap();
        fs::write(at("b"), "").unwrap();
        let a = Leftover::new(at("a"));
        let mut b = Leftover::new(at("b"));
        b.rename(&at("c")).unwrap();
        drop((a, b));
        assert!(!at("a").exists() && !at("b").exists() && at("c").exists());
    }
}
