//! Output of a listener while the trace is decoded: a temporary file for each track, so that memory
//! use does not grow with the trace and tracks do not wait for each other.

use armsnap_snapshot::leftovers::in_temporary;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};

/// A temporary file of one track. The first error is kept until the end.
#[derive(Debug)]
pub struct Spool {
    file: io::Result<BufWriter<File>>,
}

impl Spool {
    /// Creates an unnamed file, which vanishes with the process.
    pub fn new() -> Self {
        let file = tempfile::tempfile();
        Self {
            file: file
                .map(|file| BufWriter::with_capacity(1 << 16, file))
                .map_err(|error| in_temporary(&error)),
        }
    }

    /// Appends bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        if let Ok(file) = &mut self.file
            && let Err(error) = file.write_all(bytes)
        {
            self.file = Err(in_temporary(&error));
        }
    }

    /// Copies everything to `out`.
    ///
    /// # Errors
    ///
    /// The first error so far.
    pub fn copy_to(self, out: &mut impl Write) -> io::Result<()> {
        io::copy(&mut self.into_file()?, out)?;
        Ok(())
    }

    /// Returns the file, at its start.
    ///
    /// # Errors
    ///
    /// The first error so far.
    pub fn into_file(self) -> io::Result<File> {
        let mut file = self
            .file?
            .into_inner()
            .map_err(|error| in_temporary(&error.into_error()))?;
        file.rewind()?;
        Ok(file)
    }
}

impl Default for Spool {
    fn default() -> Self {
        Self::new()
    }
}
