//! Temporary files, and private directories of recordings.
//!
//! They are removed no matter how the work ends; a signal handler calls [`remove_all`]. If a
//! process is killed, the next process removes its private directories: each contains a file that
//! its owner keeps locked.

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
/// Its name until it is locked.
const NEW_LOCK: &str = "lock";
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
    // Errors are ignored: the file may have been removed already.
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

    /// Renames the file to its final name. On success it is no longer removed.
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

/// Creates a file or directory beside its final name, under an unused name: an earlier process with
/// the same number may have been killed.
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
    sweep(path);
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

/// Removes files and directories that killed processes of this user left beside a final name: those
/// that [`beside`] makes (`NAME.PROCESS.part`, `NAME.PROCESS-NUMBER.part`), and directories
/// `.NAME.PROCESS.NUMBER`.
pub fn sweep(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let entries = fs::read_dir(parent.unwrap_or(Path::new(".")));
    for entry in entries.into_iter().flatten().take(MOST).flatten() {
        let found = entry.file_name();
        let Some(process) = found.to_str().and_then(|found| maker(&name, found)) else {
            continue;
        };
        let path = entry.path();
        let data = path.symlink_metadata();
        let own = data.is_ok_and(|data| !data.is_symlink() && is_own(&data));
        if own && has_ended(process) {
            remove(&path);
        }
    }
}

/// Returns the number of the process that made a temporary file or directory for a final name.
fn maker(name: &str, found: &str) -> Option<u32> {
    let numbers = |text: &str, between| {
        let (process, number) = text.split_once(between).unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let process = Some(process).filter(|process| digits(process) && digits(number));
        process?.parse().ok()
    };
    if let Some(rest) = found
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('.'))
    {
        return numbers(rest.strip_suffix(".part")?, '-');
    }
    let rest = found.strip_prefix('.')?.strip_prefix(name)?;
    let rest = rest.strip_prefix('.')?;
    rest.contains('.').then(|| numbers(rest, '.'))?
}

/// Whether no process with this number exists.
#[cfg(unix)]
fn has_ended(process: u32) -> bool {
    let number = i32::try_from(process).ok();
    let found = number.and_then(rustix::process::Pid::from_raw);
    found.is_some_and(|found| {
        rustix::process::test_kill_process(found) == Err(rustix::io::Errno::SRCH)
    })
}

/// Not known on other systems, where leftover files stay.
#[cfg(not(unix))]
const fn has_ended(_: u32) -> bool {
    false
}

/// Adds the temporary directory to an error about creating or writing a file in it.
pub fn in_temporary(error: &io::Error) -> io::Error {
    in_private(&std::env::temp_dir(), error)
}

/// Adds a file, or the directory that contains it, to an error about creating or writing a file for
/// private use.
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

/// The longest usable path of a temporary directory: a socket in a private directory may have a
/// path of at most 107 bytes.
const LONGEST: usize = 64;

/// Returns where private directories are made: the temporary directory, unless its path is too long
/// for sockets or contains a comma, which separates an emulator's arguments.
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

/// A private directory, with a lock that is held as long as its owner lives.
#[derive(Debug)]
pub struct Private {
    // Dropped first: Windows does not remove a directory with an open file.
    _lock: File,
    directory: TempDir,
}

impl Private {
    /// Creates a private directory in the temporary directory, and removes those of dead owners
    /// there.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory or its lock cannot be created.
    pub fn new() -> io::Result<Self> {
        let folder = place(&std::env::temp_dir());
        clean(&folder);
        Self::within(&folder)
    }

    /// Creates a private directory for files whose paths are passed to other programs: the path is
    /// short enough for a socket, and has no characters that separate paths or options. It is in
    /// the temporary directory, or in another directory of the system if the path of the temporary
    /// directory is unsuitable.
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
        Self::made_in(folder).map_err(|error| in_private(folder, &error))
    }

    fn made_in(folder: &Path) -> io::Result<Self> {
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let directory = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(folder)?;
        // Created under another name first, so that no other process can lock it.
        let new = directory.path().join(NEW_LOCK);
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

/// Whether a directory has a plain path that leaves room for names in the path of a socket, which
/// systems limit to about 100 bytes.
fn is_plain(folder: &Path) -> bool {
    const MOST: usize = 56;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(byte);
    let bytes = folder.as_os_str().as_encoded_bytes();
    bytes.len() <= MOST && bytes.iter().all(plain)
}

/// Cleans a directory of private directories whose owners have died.
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
        if !named || !data.is_ok_and(|data| data.is_dir() && is_own(&data)) {
            continue;
        }
        if is_dead(&path) {
            let _ = fs::remove_dir_all(&path);
        } else if is_begun(&path) {
            // Fails if it contains anything else.
            let _ = fs::remove_file(path.join(NEW_LOCK));
            let _ = fs::remove_dir(&path);
        }
    }
}

#[cfg(unix)]
fn is_own(data: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(data) == rustix::process::getuid().as_raw()
}

/// On Windows, the temporary directory belongs to one user.
#[cfg(not(unix))]
const fn is_own(_: &Metadata) -> bool {
    true
}

/// Whether the process whose number is in the name ended before it locked a directory.
fn is_begun(directory: &Path) -> bool {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let process = { name.strip_prefix(PREFIX) }.and_then(|rest| rest.split_once('-'));
    let process = process.and_then(|(process, _)| process.parse().ok());
    let unlocked = directory.join(LOCK).symlink_metadata().is_err();
    unlocked && process.is_some_and(has_ended)
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
        // Directories whose owners ended before they had locks.
        let ended = ended();
        let begun = ["a", "b"].map(|more| at(&format!("armsnap-{ended}-{more}")));
        let kept = at(&format!("armsnap-{ended}-c"));
        let begins = at(&format!("armsnap-{}-d", std::process::id()));
        for directory in begun.iter().chain([&kept, &begins]) {
            fs::create_dir(directory).unwrap();
        }
        fs::write(begun[1].join("lock"), "").unwrap();
        fs::write(kept.join("notes"), "").unwrap();
        std::os::unix::fs::symlink(at("other"), at("armsnap-link")).unwrap();
        fs::write(at("armsnap-file"), "").unwrap();
        clean(folder.path());
        assert!(!dead.exists());
        assert!(lives.path().exists());
        assert!(begun.iter().all(|begun| !begun.exists()));
        assert!(kept.join("notes").exists() && begins.exists());
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

    /// Returns the number of a process that has ended.
    fn ended() -> u32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn what_killed_processes_left_beside_a_name_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (dead, own) = (ended(), std::process::id());
        let gone = [
            format!(".out.{dead}.0"),
            format!("out.{dead}.part"),
            format!("out.{dead}-12.part"),
        ];
        let stays = [
            format!(".out.{own}.0"),
            format!("out.{own}.part"),
            format!(".other.{dead}.0"),
            format!("other.{dead}.part"),
            format!(".out.{dead}"),
            format!(".out.{dead}.x"),
            format!("out.{dead}"),
            format!("out.x{dead}.part"),
            ".out.aB3xyz".to_owned(),
            "out".to_owned(),
        ];
        for name in gone.iter().chain(&stays) {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), "").unwrap();
        }
        let link = at(&format!(".out.{dead}.7"));
        std::os::unix::fs::symlink(at("out"), &link).unwrap();
        sweep(&at("out"));
        for name in &gone {
            assert!(!at(name).exists(), "{name}");
        }
        for name in &stays {
            assert!(at(name).join("file").exists(), "{name}");
        }
        assert!(link.symlink_metadata().is_ok());
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
