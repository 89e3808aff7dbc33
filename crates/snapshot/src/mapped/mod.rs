//! The bytes of a file, mapped into memory or read.
//!
//! With mapping, opening a sparse dump of 4 GiB costs nothing. Only mapping, releasing mapped
//! memory, and surviving the truncation of a mapped file (`fault`) need `unsafe` here. [`read`] is
//! the safe equivalent of [`map`]; a test compares both.
//!
//! If a file is truncated while it is mapped, the missing bytes read as zeros. Before showing
//! results, check that all bytes were present: with [`Mapped::remaining`] for one file, with
//! [`cut_file`] for all files.

#[cfg_attr(not(unix), path = "no_fault.rs")]
mod fault;
mod identity;

pub use identity::Identity;

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a file, or bytes made by the program. Cheap to clone; clones share the bytes.
#[derive(Clone, Debug)]
pub struct Mapped {
    bytes: Arc<Bytes>,
    range: Range<usize>,
}

#[derive(Debug)]
enum Bytes {
    Map(FileMap),
    Owned(Vec<u8>),
}

/// A mapped file. The watch ends before the mapping does.
#[derive(Debug)]
struct FileMap {
    known: MappedFile,
    _watch: fault::Watch,
    map: memmap2::Mmap,
}

/// The file when it was mapped, and whether it was truncated since then.
#[derive(Clone, Debug)]
struct MappedFile {
    path: PathBuf,
    identity: Identity,
    mark: fault::Mark,
}

impl MappedFile {
    /// The current size of the file. A file that was renamed or deleted stays unchanged in its
    /// mappings.
    fn remaining(&self) -> u64 {
        let length = self.identity.length;
        match Identity::at(&self.path) {
            Ok(now) if now.is_file(&self.identity) => now.length.min(length),
            _ => length,
        }
    }

    /// A message for the user, if the file was truncated.
    fn cut(&self) -> Option<String> {
        let remaining = self.remaining();
        let (path, length) = (self.path.display(), self.identity.length);
        if !self.mark.is_cut() && remaining == length {
            return None;
        }
        Some(if remaining < length {
            format!("{path}: was cut from {length} to {remaining} bytes while it was read")
        } else {
            format!("{path}: could not be read to its end, byte {length}, while it was mapped")
        })
    }
}

/// The mapped files, by the address of their mapping, and the first truncated file among those no
/// longer mapped.
#[derive(Default)]
struct Mappings {
    open: Option<HashMap<usize, MappedFile>>,
    cut: Option<String>,
}

fn mappings() -> MutexGuard<'static, Mappings> {
    static MAPPINGS: Mutex<Mappings> = Mutex::new(Mappings {
        open: None,
        cut: None,
    });
    MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for FileMap {
    fn drop(&mut self) {
        let cut = self.known.cut();
        let mut mappings = mappings();
        if let Some(open) = &mut mappings.open {
            open.remove(&(self.map.as_ptr() as usize));
        }
        if mappings.cut.is_none() {
            mappings.cut = cut;
        }
    }
}

/// Returns a message for the user if a mapped file was truncated: results from it are not reliable.
pub fn cut_file() -> Option<String> {
    let mut mappings = mappings();
    if mappings.cut.is_none() {
        let mut open = mappings.open.iter().flat_map(HashMap::values);
        mappings.cut = open.find_map(MappedFile::cut);
    }
    mappings.cut.clone()
}

/// Returns whether a file is mapped, under any name: it is input and must not be overwritten.
pub fn is_open(path: &Path) -> bool {
    let Ok(identity) = Identity::at(path) else {
        return false;
    };
    let same = |known: &MappedFile| known.identity.is_file(&identity);
    let mappings = mappings();
    mappings.open.iter().flat_map(HashMap::values).any(same)
}

/// Checks that no mapped file was truncated.
///
/// # Errors
///
/// Returns an error if a mapped file was truncated.
pub fn whole() -> io::Result<()> {
    cut_file().map_or(Ok(()), |why| Err(io::Error::other(why)))
}

/// Returns whether bytes were read that are no longer in a mapped file: a cheap check with page
/// granularity.
pub fn is_cut() -> bool {
    fault::any_cut()
}

impl Mapped {
    /// Returns a part of the bytes, limited to the available ones.
    pub fn part(&self, range: Range<usize>) -> Self {
        let begin = self.range.start.saturating_add(range.start);
        let begin = begin.min(self.range.end);
        let end = self.range.start.saturating_add(range.end);
        Self {
            bytes: Arc::clone(&self.bytes),
            range: begin..end.clamp(begin, self.range.end),
        }
    }

    /// Sets whether the bytes after a read are likely to be read too, which is the default. Reading
    /// ahead costs megabytes for each accessed location.
    pub fn read_ahead(&self, ahead: bool) {
        #[cfg(unix)]
        if let Bytes::Map(FileMap { map, .. }) = &*self.bytes {
            let advice = if ahead {
                memmap2::Advice::Normal
            } else {
                memmap2::Advice::Random
            };
            // This is only advice; it does not affect the contents.
            let _ = map.advise(advice);
        }
        #[cfg(not(unix))]
        let _ = ahead;
    }

    /// Returns how many of these bytes, counted from the first, are still in the file: all, unless it
    /// was truncated.
    pub fn remaining(&self) -> usize {
        let Bytes::Map(map) = &*self.bytes else {
            return self.len();
        };
        if map.known.mark.is_cut() && map.known.remaining() == map.known.identity.length {
            // The file was truncated and has grown again.
            return 0;
        }
        let remaining = usize::try_from(map.known.remaining()).unwrap_or(usize::MAX);
        remaining.saturating_sub(self.range.start).min(self.len())
    }

    /// Returns a message for the user if the file of these bytes was truncated.
    #[cfg(test)]
    fn bytes_cut(&self) -> Option<String> {
        match &*self.bytes {
            Bytes::Map(map) => map.known.cut(),
            Bytes::Owned(_) => None,
        }
    }

    /// Releases the memory of these bytes, if they are mapped; the next access reads them from the
    /// file again. Without this, every page that was read stays in memory. On Windows, this does
    /// nothing: the system reclaims pages when it needs them.
    pub fn release(&self, range: Range<usize>) {
        #[cfg(not(unix))]
        let _ = range;
        #[cfg(unix)]
        self.release_mapped(range);
    }

    #[cfg(unix)]
    fn release_mapped(&self, range: Range<usize>) {
        let Bytes::Map(FileMap { map, .. }) = &*self.bytes else {
            return;
        };
        let part = self.part(range).range;
        // SAFETY: the mapping is a read-only view of a file: dropped pages are read again from the
        // file, so no reader sees a difference.
        #[allow(unsafe_code)]
        let _ = unsafe {
            map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, part.start, part.len())
        };
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes: &[u8] = match &*self.bytes {
            Bytes::Map(file) => &file.map,
            Bytes::Owned(bytes) => bytes,
        };
        bytes.get(self.range.clone()).unwrap_or(&[])
    }
}

impl From<Vec<u8>> for Mapped {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            range: 0..bytes.len(),
            bytes: Arc::new(Bytes::Owned(bytes)),
        }
    }
}

/// Opens a file for reading. Every input is opened with this function. The directory may come from
/// an untrusted source: anything but a regular file is refused, for example a pipe, which would
/// block the reader.
///
/// # Errors
///
/// Returns an error if it cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // Opening some devices changes them.
    if !path.metadata()?.is_file() {
        return Err(not_a_file());
    }
    let mut options = File::options();
    // A pipe may have replaced the file in the meantime; opening it must not block.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NONBLOCK | libc::O_NOCTTY,
    );
    let file = options.read(true).open(path)?;
    regular(&file)?;
    Ok(file)
}

/// Reads the first bytes of a file, at most `most`.
///
/// # Errors
///
/// Returns the errors of [`open`], or an error if the file cannot be read.
pub fn head(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Maps a file. An empty file, which cannot be mapped, results in empty bytes.
///
/// # Errors
///
/// Returns an error if it cannot be opened or mapped, or is not a regular file.
pub fn map(path: &Path) -> io::Result<Mapped> {
    let file = open(path)?;
    if regular(&file)?.len() == 0 {
        return Ok(Vec::new().into());
    }
    // SAFETY: the map is private to the process and only ever read. Its bytes could change if
    // another program writes the file while we run: any bytes are valid here, and nothing else
    // opens a sparse dump of gigabytes instantly. The watch handles truncation of the file.
    #[allow(unsafe_code)]
    let map = unsafe { memmap2::Mmap::map(&file)? };
    let begin = map.as_ptr() as usize;
    // SAFETY: the mapping is not shared, and the watch is dropped before it.
    #[allow(unsafe_code)]
    let watch = unsafe { fault::Watch::new(begin..begin + map.len()) };
    let known = MappedFile {
        path: path.to_owned(),
        identity: Identity::of(&file)?,
        mark: watch.mark(),
    };
    let mut mappings = mappings();
    let open = mappings.open.get_or_insert_default();
    open.insert(begin, known.clone());
    Ok(Mapped {
        range: 0..map.len(),
        bytes: Arc::new(Bytes::Map(FileMap {
            known,
            _watch: watch,
            map,
        })),
    })
}

/// Whether any input was private.
static PRIVATE: AtomicBool = AtomicBool::new(false);

/// Same as [`map`], for an input of the user: if only its owner may access it, everything made from
/// it is private ([`is_private`]).
///
/// # Errors
///
/// Returns the errors of [`map`], or an error if the system cannot report the permissions.
pub fn map_input(path: &Path) -> io::Result<Mapped> {
    note_privacy(path)?;
    map(path)
}

/// Same as [`open`], for an input of the user, as [`map_input`].
///
/// # Errors
///
/// Returns the errors of [`open`], or an error if the system cannot report the permissions.
pub fn open_input(path: &Path) -> io::Result<File> {
    note_privacy(path)?;
    open(path)
}

#[cfg(unix)]
fn note_privacy(path: &Path) -> io::Result<()> {
    let mode = std::os::unix::fs::MetadataExt::mode(&path.metadata()?);
    if mode & 0o077 == 0 {
        PRIVATE.store(true, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(not(unix))]
fn note_privacy(path: &Path) -> io::Result<()> {
    path.metadata().map(|_| ())
}

/// Returns whether any input can be accessed by its owner only, as is common for core files and
/// recordings. In this case, everything made from the inputs must be private too.
pub fn is_private() -> bool {
    PRIVATE.load(Ordering::Relaxed)
}

/// Creates a file for output, which is private if an input is.
///
/// # Errors
///
/// Returns an error if it exists, or cannot be created.
pub fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    #[cfg(unix)]
    if is_private() {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    options.write(true).create_new(true).open(path)
}

/// Creates a directory for output, which is private if an input is.
///
/// # Errors
///
/// Returns an error if it exists, or cannot be created.
pub fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    if is_private() {
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    }
    builder.create(path)
}

/// Makes the files in an output directory private if an input is.
///
/// # Errors
///
/// Returns an error if the system refuses it.
pub fn keep_private(directory: &Path) -> io::Result<()> {
    #[cfg(unix)]
    for entry in directory.read_dir()?.filter(|_| is_private()) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        let path = entry?.path();
        if path.is_file() {
            std::fs::set_permissions(path, mode)?;
        }
    }
    #[cfg(not(unix))]
    let _ = directory;
    Ok(())
}

/// Reads a whole file.
///
/// # Errors
///
/// Returns an error if it cannot be read, or is not a regular file.
pub fn read(path: &Path) -> io::Result<Mapped> {
    let mut file = open(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// Returns the metadata of a file; an error if it is a directory, a pipe or a device.
fn regular(file: &File) -> io::Result<Metadata> {
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok(metadata)
    } else {
        Err(not_a_file())
    }
}

fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a file")
}

/// Whether all bytes are zero, so that a file may have a hole in their place.
pub fn is_zero(bytes: &[u8]) -> bool {
    // Each byte equals the previous one: a single memory comparison, even without optimisation.
    bytes
        .first()
        .is_none_or(|&first| first == 0 && bytes[1..] == bytes[..bytes.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn mapping_and_reading_give_the_same() {
        for length in [0_usize, 1, 4095, 4096, 4097, 100_000] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            let bytes: Vec<u8> = (0..length).map(|i| (i * 7 + i / 256) as u8).collect();
            file.write_all(&bytes).unwrap();
            let (mapped, read) = (map(file.path()).unwrap(), read(file.path()).unwrap());
            assert_eq!(*mapped, bytes);
            assert_eq!(*mapped, *read);
            for range in [0..0, 0..length, 3..10, length..length + 5, length..0] {
                assert_eq!(*mapped.part(range.clone()), *read.part(range));
            }
        }
    }

    #[test]
    fn directories_and_devices_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        assert!(map(directory.path()).is_err());
        assert!(read(directory.path()).is_err());
        assert!(map(&directory.path().join("none")).is_err());
        assert!(open(Path::new("/dev/zero")).is_err());
    }

    #[test]
    #[cfg(unix)]
    fn pipes_are_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for path in [&path, &link] {
            let found = [map(path).err(), read(path).err(), head(path, 4).err()];
            for error in found {
                assert_eq!(error.unwrap().to_string(), "not a file");
            }
        }
    }

    #[test]
    fn a_sparse_file_of_four_gib_is_mapped_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        if file.as_file().set_len(4 << 30).is_err() {
            eprintln!("SKIPPED: no sparse files here");
            return;
        }
        let mapped = map(file.path()).unwrap();
        assert_eq!(mapped.len(), 4 << 30);
        assert_eq!(mapped[(4 << 30) - 1], 0);
    }

    #[test]
    fn released_bytes_come_back() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        let mapped = map(file.path()).unwrap();
        assert_eq!(*mapped, bytes);
        mapped.release(0..mapped.len());
        mapped.part(5000..9000).release(1..usize::MAX);
        mapped.read_ahead(false);
        assert_eq!(*mapped, bytes);
    }

    #[test]
    fn a_truncated_file_reads_as_zeros_and_is_reported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes = vec![0xA5_u8; 40_000];
        for (left, remaining) in [(10_000, 10_000), (39_990, 39_990), (0, 0)] {
            std::fs::write(file.path(), &bytes).unwrap();
            let mapped = map(file.path()).unwrap();
            assert_eq!((mapped[0], mapped.remaining()), (0xA5, 40_000));
            file.as_file().set_len(left).unwrap();
            assert_eq!(mapped[39_999], 0);
            assert!(mapped.iter().filter(|byte| **byte == 0xA5).count() <= left as usize);
            assert_eq!(mapped.remaining(), remaining);
            assert_eq!(
                mapped.part(9_000..40_000).remaining(),
                remaining.saturating_sub(9_000)
            );
            let wanted = format!("was cut from 40000 to {left} bytes while it was read");
            assert!(mapped.bytes_cut().unwrap().ends_with(&wanted));
        }
        // A new mapping at the same address is intact.
        std::fs::write(file.path(), &bytes).unwrap();
        let mapped = map(file.path()).unwrap();
        assert_eq!(*mapped, bytes);
        assert_eq!(mapped.bytes_cut(), None);
    }

    #[test]
    fn only_zeros_are_zero() {
        assert!(is_zero(&[]) && is_zero(&[0]) && is_zero(&[0; 4096]));
        for at in [0, 1, 4095] {
            let mut bytes = [0; 4096];
            bytes[at] = 1;
            assert!(!is_zero(&bytes), "{at}");
        }
        assert!(!is_zero(&[1]) && !is_zero(&[7; 4096]));
    }

    #[test]
    fn a_renamed_file_is_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let mapped = map(&path).unwrap();
        std::fs::write(directory.path().join("b"), [2; 10]).unwrap();
        std::fs::rename(directory.path().join("b"), &path).unwrap();
        assert_eq!((mapped[9_999], mapped.remaining()), (1, 10_000));
        std::fs::remove_file(&path).unwrap();
        assert_eq!((mapped[9_999], mapped.remaining()), (1, 10_000));
    }

    #[test]
    fn a_file_that_was_truncated_and_has_its_size_again_is_reported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![0xA5_u8; 40_000]).unwrap();
        let mapped = map(file.path()).unwrap();
        let name = file.path().to_string_lossy().into_owned();
        file.as_file().set_len(0).unwrap();
        assert_eq!(mapped[39_999], 0);
        std::fs::write(file.path(), vec![0x5A_u8; 40_000]).unwrap();
        assert_eq!((mapped[39_999], mapped.remaining()), (0, 0));
        let mappings = mappings();
        let mut open = mappings.open.iter().flat_map(HashMap::values);
        let cut = open.find_map(MappedFile::cut);
        assert!(cut.is_some_and(|text| text.contains(&name)));
        drop(mappings);
    }
}
