//! A private directory with results that can be recomputed.
//!
//! Each file holds one result. It is named by a hash of everything that the result depends on, and
//! sealed with a key that only this user can read: a file that is damaged or was written by
//! somebody else is not used. A result that was read is therefore as trustworthy as a recomputed
//! one. Nothing here fails: without a usable directory, results are recomputed. The least recently
//! used files are removed.

use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

/// The magic number of a file. It includes the version of the file layout; contents have their own.
const MAGIC: [u8; 16] = *b"armsnap cache 1\n";
/// The size of a seal in bytes.
const SEAL: usize = 32;
/// The name of the file with the key.
const SECRET: &str = "key";
/// The suffix of the names of results.
const ENDING: &str = ".result";
/// The prefix of the names of files that are being written.
const NEW: &str = "new-";
/// The age from which an unfinished file is assumed to belong to a process that was killed.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of entries of the directory that are examined.
const MAX_ENTRIES: usize = 10_000;

/// Identifies a result by a hash of everything that it depends on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name([u8; 32]);

impl Name {
    /// Returns its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not the name of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 64 hexadecimal digits")]
pub struct NoName;

impl FromStr for Name {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Self, NoName> {
        let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !digits || text.len() != 64 {
            return Err(NoName);
        }
        let mut name = [0; 32];
        for (at, byte) in name.iter_mut().enumerate() {
            let two = text.get(2 * at..2 * at + 2).ok_or(NoName)?;
            *byte = u8::from_str_radix(two, 16).map_err(|_| NoName)?;
        }
        Ok(Self(name))
    }
}

/// Hashes a sequence of fields, including their boundaries.
#[derive(Clone, Debug, Default)]
pub struct Fields(blake3::Hasher);

impl Fields {
    /// Starts with a field that identifies this version of the program, because another version may
    /// decode differently.
    #[must_use]
    pub fn of_this_program() -> Self {
        static IDENTITY: OnceLock<String> = OnceLock::new();
        let identity = IDENTITY.get_or_init(|| {
            let file = std::env::current_exe().and_then(fs::metadata);
            let data = file.map(|data| (data.len(), data.modified().ok()));
            format!("{} {data:?}", env!("CARGO_PKG_VERSION"))
        });
        let mut fields = Self::default();
        fields.add(identity.as_bytes());
        fields
    }

    /// Adds a field.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Returns the hash.
    #[must_use]
    pub fn name(&self) -> Name {
        Name(*self.0.finalize().as_bytes())
    }
}

/// Limits of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a file in bytes.
    pub file: u64,
    /// Maximum size of all files in bytes.
    pub total: u64,
    /// Maximum number of files.
    pub files: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file: 32 << 20,
            total: 256 << 20,
            files: 1000,
        }
    }
}

/// A directory with results.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
    limits: Limits,
}

impl Cache {
    /// Returns the user's cache: `armsnap` in `XDG_CACHE_HOME`, otherwise in `~/.cache`; in
    /// `LOCALAPPDATA` on Windows. `None` if the environment names no such directory.
    #[must_use]
    pub fn of_user() -> Option<Self> {
        let named = |variable| {
            let path = PathBuf::from(std::env::var_os(variable)?);
            // Relative paths are ignored (XDG Base Directory Specification, "Basics").
            path.is_absolute().then_some(path)
        };
        let parent = if cfg!(windows) {
            named("LOCALAPPDATA")
        } else {
            named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")))
        };
        Some(Self::at(parent?.join("armsnap"), Limits::default()))
    }

    /// Returns the cache in a directory, which is created when it is needed.
    #[must_use]
    pub fn at(directory: PathBuf, limits: Limits) -> Self {
        Self { directory, limits }
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the path of a result.
    #[must_use]
    pub fn path(&self, name: Name) -> PathBuf {
        self.directory.join(format!("{name}{ENDING}"))
    }

    /// Returns the names of the results.
    #[must_use]
    pub fn names(&self) -> Vec<Name> {
        self.files().into_iter().filter_map(|file| file.0).collect()
    }

    /// Returns a result, if it exists and was written by this user.
    #[must_use]
    pub fn get(&self, name: Name) -> Option<Vec<u8>> {
        if !is_private(&self.directory) {
            return None;
        }
        let key = self.key()?;
        let most = self.limits.file + (MAGIC.len() + SEAL) as u64;
        let (file, mut bytes) = read(&self.path(name), most)?;
        if bytes.len() < MAGIC.len() + SEAL {
            return None;
        }
        let content = bytes.split_off(MAGIC.len() + SEAL);
        let (magic, seal) = bytes.split_at(MAGIC.len());
        let seal = blake3::Hash::from_slice(seal).ok()?;
        // Compared in constant time.
        if magic != MAGIC || seal != sealed(&key, name, &content) {
            return None;
        }
        // Marks it as used now; if that fails, it is merely removed earlier.
        let _ = file.set_modified(SystemTime::now());
        Some(content)
    }

    /// Keeps a result, if it is not too large, and removes the least recently used ones.
    pub fn put(&self, name: Name, content: &[u8]) {
        if content.len() as u64 <= self.limits.file && self.write(name, content).is_ok() {
            self.shrink();
        }
    }

    /// Removes a result.
    pub fn remove(&self, name: Name) {
        if is_private(&self.directory) {
            let _ = fs::remove_file(self.path(name));
        }
    }

    fn write(&self, name: Name, content: &[u8]) -> io::Result<()> {
        if !self.directory.exists() {
            create(&self.directory)?;
        }
        if !is_private(&self.directory) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let key = self.key().map_or_else(|| self.new_key(), Ok)?;
        let mut file = self.new_file()?;
        file.write_all(&MAGIC)?;
        file.write_all(sealed(&key, name, content).as_bytes())?;
        file.write_all(content)?;
        // Replaces an existing file, even a link.
        file.persist(self.path(name))?;
        Ok(())
    }

    /// Creates a file that only its owner can read; it is removed unless it receives its final
    /// name.
    fn new_file(&self) -> io::Result<tempfile::NamedTempFile> {
        tempfile::Builder::new()
            .prefix(NEW)
            .tempfile_in(&self.directory)
    }

    fn key(&self) -> Option<[u8; SEAL]> {
        let (_, bytes) = read(&self.directory.join(SECRET), SEAL as u64)?;
        bytes.try_into().ok()
    }

    fn new_key(&self) -> io::Result<[u8; SEAL]> {
        let mut key = [0; SEAL];
        getrandom::fill(&mut key).map_err(|_| io::ErrorKind::Other)?;
        let mut file = self.new_file()?;
        file.write_all(&key)?;
        // Another process may do the same; the last one wins, and results sealed by the other are
        // not used.
        file.persist(self.directory.join(SECRET))?;
        self.key().ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// Lists results and abandoned files: name, path, time of the last use, size.
    fn files(&self) -> Vec<(Option<Name>, PathBuf, SystemTime, u64)> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        let files = entries.take(MAX_ENTRIES).flatten().filter_map(|entry| {
            let file_name = entry.file_name();
            let file_name = file_name.to_str()?;
            let name = file_name.strip_suffix(ENDING);
            let name = name.and_then(|name| name.parse().ok());
            // The metadata of a link itself, not of its target.
            let data = entry.path().symlink_metadata().ok()?;
            let used = data.modified().ok()?;
            let is_abandoned =
                || file_name.starts_with(NEW) && used.elapsed().is_ok_and(|age| age > ABANDONED);
            (!data.is_dir() && (name.is_some() || is_abandoned())).then(|| {
                let size = data.len();
                (name, entry.path(), used, size)
            })
        });
        files.collect()
    }

    fn shrink(&self) {
        let mut files = self.files();
        // The most recently used results first, then the abandoned files.
        files.sort_by_key(|(name, _, used, _)| (name.is_none(), std::cmp::Reverse(*used)));
        let mut total = 0_u64;
        for (index, (name, path, _, size)) in files.iter().enumerate() {
            total = total.saturating_add(*size);
            if name.is_none() || total > self.limits.total || index >= self.limits.files {
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn sealed(key: &[u8; SEAL], name: Name, content: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&name.0).update(content);
    hasher.finalize()
}

/// Reads a file of at most `most` bytes that only this user can read and write.
fn read(path: &Path, most: u64) -> Option<(File, Vec<u8>)> {
    let mut file = open(path).ok()?;
    let data = file.metadata().ok()?;
    if !data.is_file() || !is_own(&data, 0o077) || data.len() > most {
        return None;
    }
    let mut bytes = Vec::new();
    // It may have grown in the meantime.
    (&mut file).take(most + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some((file, bytes))
}

/// Opens a file, but does not follow a link or wait for a pipe.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NOFOLLOW | libc::O_NONBLOCK,
    );
    #[cfg(not(unix))]
    if path.symlink_metadata()?.is_symlink() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    options.open(path)
}

/// Whether this is a directory, not a link to one, in which only this user can write.
fn is_private(directory: &Path) -> bool {
    let data = directory.symlink_metadata();
    data.is_ok_and(|data| data.is_dir() && is_own(&data, 0o022))
}

/// Whether a file belongs to this user, and nobody else has any of these permissions.
#[cfg(unix)]
fn is_own(data: &Metadata, others: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    data.uid() == rustix::process::geteuid().as_raw() && data.mode() & others == 0
}

/// On Windows, the directory for local data belongs to one user.
#[cfg(not(unix))]
const fn is_own(_: &Metadata, _: u32) -> bool {
    true
}

/// Makes a directory that only this user can read (XDG Base Directory Specification, "Referencing
/// this specification").
fn create(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        let mut fields = Fields::of_this_program();
        fields.add(text.as_bytes());
        fields.name()
    }

    fn cache(directory: &Path, limits: Limits) -> Cache {
        Cache::at(directory.join("deep/er/armsnap"), limits)
    }

    #[test]
    fn a_result_is_read_as_written_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), Limits::default());
        assert_eq!(cache.get(name("a")), None);
        cache.put(name("a"), b"first");
        cache.put(name("b"), b"");
        cache.put(name("a"), b"second");
        assert_eq!(cache.get(name("a")).as_deref(), Some(&b"second"[..]));
        assert_eq!(cache.get(name("b")).as_deref(), Some(&b""[..]));
        let mut names = cache.names();
        names.sort();
        let mut wanted = [name("a"), name("b")];
        wanted.sort();
        assert_eq!(names, wanted);
        assert_eq!(name("a").to_string().parse(), Ok(name("a")));
        assert_eq!("x".repeat(64).parse::<Name>(), Err(NoName));
        cache.remove(name("a"));
        assert_eq!(cache.get(name("a")), None);
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
            assert_eq!(mode(&cache.path(name("b"))), 0o600);
            assert_eq!(mode(&cache.directory), 0o700);
        }
    }

    #[test]
    fn a_file_that_was_changed_in_any_way_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), Limits::default());
        cache.put(name("a"), b"content");
        let path = cache.path(name("a"));
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            fs::write(&path, &other).unwrap();
            assert_eq!(cache.get(name("a")), None, "byte {at}");
            fs::write(&path, &bytes[..at]).unwrap();
            assert_eq!(cache.get(name("a")), None, "cut to {at}");
        }
        fs::write(&path, [&bytes[..], b"x"].concat()).unwrap();
        assert_eq!(cache.get(name("a")), None);
        fs::write(&path, &bytes).unwrap();
        assert!(cache.get(name("a")).is_some());
        // The result of another input under this name.
        fs::copy(&path, cache.path(name("b"))).unwrap();
        assert_eq!(cache.get(name("b")), None);
        // A result of another user, whose key is not known.
        let foreign = Cache::at(directory.path().join("other"), Limits::default());
        foreign.put(name("c"), b"foreign");
        fs::copy(foreign.path(name("c")), cache.path(name("c"))).unwrap();
        assert_eq!(cache.get(name("c")), None);
    }

    #[test]
    fn the_least_recently_used_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let limits = Limits {
            file: 100,
            total: 3 * (100 + 48),
            files: 1000,
        };
        let cache = cache(directory.path(), limits);
        cache.put(name("large"), &[0; 101]);
        assert_eq!(cache.names(), []);
        let hour = Duration::from_secs(3600);
        for (index, text) in ["a", "b", "c"].into_iter().enumerate() {
            cache.put(name(text), &[0; 100]);
            let file = File::open(cache.path(name(text))).unwrap();
            let long_ago = SystemTime::now() - hour * (10 - index as u32);
            file.set_modified(long_ago).unwrap();
        }
        assert!(cache.get(name("a")).is_some());
        let abandoned = cache.directory.join("new-1");
        let file = File::create(&abandoned).unwrap();
        file.set_modified(SystemTime::now() - 2 * ABANDONED)
            .unwrap();
        let other = cache.directory.join("other");
        fs::write(&other, [0; 1000]).unwrap();
        cache.put(name("d"), &[0; 100]);
        let kept = ["a", "b", "c", "d"].map(|text| cache.get(name(text)).is_some());
        assert_eq!(kept, [true, false, true, true]);
        assert!(!abandoned.exists() && other.exists());
        // The modification time of a new file comes from another clock, which may lag by a few
        // milliseconds.
        for known in cache.names() {
            let file = File::open(cache.path(known)).unwrap();
            file.set_modified(SystemTime::now() - hour).unwrap();
        }
        let few = Cache::at(cache.directory.clone(), Limits { files: 1, ..limits });
        few.put(name("e"), b"");
        assert_eq!(few.names(), [name("e")]);
    }

    #[cfg(unix)]
    #[test]
    fn nothing_is_read_or_written_where_others_can_write() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), Limits::default());
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        cache.put(name("a"), b"content");
        let path = cache.path(name("a"));
        for wrong in [0o644, 0o620] {
            mode(&path, wrong);
            assert_eq!(cache.get(name("a")), None, "{wrong:o}");
        }
        mode(&path, 0o600);
        mode(&cache.directory, 0o777);
        assert_eq!(cache.get(name("a")), None);
        cache.put(name("b"), b"content");
        mode(&cache.directory, 0o700);
        assert_eq!(cache.names(), [name("a")]);
        // A link to the file, then a link that replaces the directory.
        let elsewhere = directory.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert_eq!(cache.get(name("a")), None);
        cache.put(name("a"), b"again");
        assert!(cache.get(name("a")).is_some());
        assert!(path.symlink_metadata().unwrap().is_file());
        let held = fs::read(&elsewhere).unwrap();
        assert!(held.ends_with(b"content"));
        let link = Cache::at(directory.path().join("link"), Limits::default());
        symlink(&cache.directory, &link.directory).unwrap();
        assert_eq!(link.get(name("a")), None);
        link.put(name("c"), b"content");
        assert_eq!(cache.names(), [name("a")]);
        // A pipe does not block the reader.
        fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        if made.is_ok_and(|status| status.success()) {
            mode(&path, 0o600);
            assert_eq!(cache.get(name("a")), None);
        }
        // A damaged key is replaced.
        fs::write(cache.directory.join(SECRET), b"short").unwrap();
        cache.put(name("d"), b"content");
        assert!(cache.get(name("d")).is_some());
    }

    #[cfg(unix)]
    #[test]
    fn a_directory_that_cannot_be_written_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for directory in [file.path().join("armsnap"), "/proc/armsnap".into()] {
            let cache = Cache::at(directory, Limits::default());
            cache.put(name("a"), b"content");
            assert_eq!(cache.get(name("a")), None);
            cache.remove(name("a"));
            assert_eq!(cache.names(), []);
        }
    }
}
