//! The identity of a file, independent of the path by which it was opened.

use std::fs::File;
use std::io;
use std::path::Path;

/// The system's numbers for a file (device and inode), and its size when they were read.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    volume: u64,
    number: u64,
    /// The size in bytes.
    pub length: u64,
}

impl Identity {
    /// Returns the numbers that identify the file.
    pub const fn key(&self) -> (u64, u64) {
        (self.volume, self.number)
    }

    /// Returns whether both are the same file.
    pub const fn is_file(&self, other: &Self) -> bool {
        self.volume == other.volume && self.number == other.number
    }
}

#[cfg(unix)]
impl Identity {
    /// Returns the identity of the file or directory at a path.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot access it.
    pub fn at(path: &Path) -> io::Result<Self> {
        path.metadata().map(|data| Self::new(&data))
    }

    /// Returns the identity of an open file.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot report it.
    pub fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|data| Self::new(&data))
    }

    fn new(data: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self {
            volume: data.dev(),
            number: data.ino(),
            length: data.len(),
        }
    }
}

#[cfg(windows)]
impl Identity {
    /// Returns the identity of the file or directory at a path.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot access it.
    pub fn at(path: &Path) -> io::Result<Self> {
        Self::new(winapi_util::Handle::from_path_any(path)?)
    }

    /// Returns the identity of an open file.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot report it.
    pub fn of(file: &File) -> io::Result<Self> {
        Self::new(file)
    }

    fn new(file: impl winapi_util::AsHandleRef) -> io::Result<Self> {
        let data = winapi_util::file::information(file)?;
        Ok(Self {
            volume: data.volume_serial_number(),
            number: data.file_index(),
            length: data.file_size(),
        })
    }
}
