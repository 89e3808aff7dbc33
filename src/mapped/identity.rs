//! Which file a name leads to: the same one under any name.

use std::fs::File;
use std::io;
use std::path::Path;

/// A file as the system numbers it, and its size when this was asked.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    volume: u64,
    number: u64,
    /// The size in bytes.
    pub length: u64,
}

impl Identity {
    /// Returns whether both are one file.
    pub const fn is_file(&self, other: &Self) -> bool {
        self.volume == other.volume && self.number == other.number
    }
}

#[cfg(unix)]
impl Identity {
    /// The file or directory at a path.
    pub fn at(path: &Path) -> io::Result<Self> {
        path.metadata().map(|data| Self::new(&data))
    }

    /// An open file.
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
    /// The file or directory at a path.
    pub fn at(path: &Path) -> io::Result<Self> {
        Self::new(winapi_util::Handle::from_path_any(path)?)
    }

    /// An open file.
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
