//! The files of data addresses of a recording, one for each core.

use super::blocks::Block;
use armsnap_snapshot::leftovers::in_private;
use armsnap_trace::data_addresses::{Access, Writer};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// Writes the data addresses of all cores.
#[derive(Debug)]
pub struct AddressFiles {
    directory: PathBuf,
    cores: Vec<Option<Writer<BufWriter<File>>>>,
    /// Whether a file cannot be extended any more.
    is_full: bool,
}

impl AddressFiles {
    /// Creates the files in an existing directory.
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            cores: Vec::new(),
            is_full: false,
        }
    }

    /// Returns the path of a core's file.
    pub fn path(directory: &Path, core: u32) -> PathBuf {
        directory.join(format!("data_addresses_{core}.bin"))
    }

    /// Adds a core.
    pub fn begin(&mut self, core: u32) -> io::Result<()> {
        if self.is_full {
            return Ok(());
        }
        let count = self.cores.len().max(core as usize + 1);
        self.cores.resize_with(count, || None);
        let path = Self::path(&self.directory, core);
        let file = File::create_new(&path);
        let writer = file.and_then(|file| Writer::new(BufWriter::new(file)));
        let writer = writer.map_err(|error| self.full(core, &error))?;
        self.cores[core as usize] = Some(writer);
        Ok(())
    }

    /// Adds executed instructions of a block, and their accesses.
    #[inline]
    pub fn ran(
        &mut self,
        core: u32,
        block: &Block,
        count: usize,
        accesses: &[(u32, Access)],
    ) -> io::Result<()> {
        match self.cores.get_mut(core as usize) {
            Some(Some(writer)) => {
                let pc = |index| block.address(index as usize).0;
                let done = writer.ran(block.id, count, accesses, pc);
                done.map_err(|error| self.full(core, &error))
            }
            _ => Ok(()),
        }
    }

    /// Removes all files, because one cannot be extended any more: the trace needs the space, and further
    /// data addresses are dropped.
    #[cold]
    fn full(&mut self, core: u32, error: &io::Error) -> io::Error {
        self.is_full = true;
        for (other, writer) in (0..).zip(&mut self.cores) {
            *writer = None;
            // A core without a trace ID has none.
            let _ = std::fs::remove_file(Self::path(&self.directory, other));
        }
        in_private(&Self::path(&self.directory, core), error)
    }

    /// Completes the files.
    pub fn finish(mut self) -> io::Result<()> {
        for core in 0..self.cores.len() {
            let writer = self.cores[core].take();
            if let Some(Err(error)) = writer.map(Writer::finish) {
                return Err(self.full(core as u32, &error));
            }
        }
        match self.is_full {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}
