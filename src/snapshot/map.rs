//! The bytes of a file, mapped into memory or read.
//!
//! Mapping is what makes a sparse dump of 4 GiB cost nothing to open; it is the one reason for
//! `unsafe` here, and giving mapped memory back is its other half. [`read`] is its safe twin, and a test holds both equal. Knows no formats.

use std::fs::File;
use std::io::{self, Read};
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a file, or made by the program. Cheap to clone; clones share the bytes.
#[derive(Clone, Debug)]
pub struct Mapped {
    bytes: Arc<Bytes>,
    range: Range<usize>,
}

#[derive(Debug)]
enum Bytes {
    Map(memmap2::Mmap),
    Owned(Vec<u8>),
}

impl Mapped {
    /// A part of the bytes, cut to what is there.
    pub fn part(&self, range: Range<usize>) -> Self {
        let begin = self.range.start.saturating_add(range.start);
        let begin = begin.min(self.range.end);
        let end = self.range.start.saturating_add(range.end);
        Self {
            bytes: Arc::clone(&self.bytes),
            range: begin..end.clamp(begin, self.range.end),
        }
    }

    /// Whether bytes behind those that are read are likely to be read too; they are unless this
    /// says otherwise. Reading ahead costs megabytes for each place that is looked at.
    pub fn read_ahead(&self, ahead: bool) {
        if let Bytes::Map(map) = &*self.bytes {
            let advice = if ahead {
                memmap2::Advice::Normal
            } else {
                memmap2::Advice::Random
            };
            // It is advice: without it the same bytes are there.
            let _ = map.advise(advice);
        }
    }

    /// Gives back the memory that holds these bytes, if they are mapped; whoever reads them
    /// again has them from the file again. Without it every byte that was ever read stays.
    pub fn release(&self, range: Range<usize>) {
        let Bytes::Map(map) = &*self.bytes else {
            return;
        };
        let part = self.part(range).range;
        // SAFETY: the mapping is a read-only view of a file: pages that are dropped come back
        // with the file's bytes, so that no reader sees a difference.
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
            Bytes::Map(map) => map,
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

/// Maps a file. Empty files, which cannot be mapped, are empty bytes.
pub fn map(path: &Path) -> io::Result<Mapped> {
    let file = File::open(path)?;
    let length = regular(&file)?;
    if length == 0 {
        return Ok(Vec::new().into());
    }
    // SAFETY: the map is private to the process and only ever read. Its bytes could change, or
    // the process be stopped by a signal, if another program cuts the file while we run: the
    // files of a snapshot are a record that nobody writes, and no other way opens a sparse dump
    // of gigabytes in no time.
    #[allow(unsafe_code)]
    let map = unsafe { memmap2::Mmap::map(&file)? };
    Ok(Mapped {
        range: 0..map.len(),
        bytes: Arc::new(Bytes::Map(map)),
    })
}

/// Reads a file whole.
pub fn read(path: &Path) -> io::Result<Mapped> {
    let mut file = File::open(path)?;
    regular(&file)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// The length of a file; an error if it is a directory, a pipe or a device.
fn regular(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok(metadata.len())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"))
    }
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
    fn what_is_no_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(map(directory.path()).is_err());
        assert!(read(directory.path()).is_err());
        assert!(map(&directory.path().join("none")).is_err());
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
}
