//! The files of data addresses of a recording, one for each core.

use super::blocks::Block;
use crate::data_addresses::{Access, Writer};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// Writes the data addresses of all cores.
#[derive(Debug)]
pub struct AddressFiles {
    directory: PathBuf,
    cores: Vec<Option<Writer<BufWriter<File>>>>,
}

impl AddressFiles {
    /// Creates the files in an existing directory.
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            cores: Vec::new(),
        }
    }

    /// The path of a core's file.
    pub fn path(directory: &Path, core: u32) -> PathBuf {
        directory.join(format!("data_addresses_{core}.bin"))
    }

    /// Adds a core.
    pub fn begin(&mut self, core: u32) -> io::Result<()> {
        let count = self.cores.len().max(core as usize + 1);
        self.cores.resize_with(count, || None);
        let file = File::create_new(Self::path(&self.directory, core))?;
        self.cores[core as usize] = Some(Writer::new(BufWriter::new(file))?);
        Ok(())
    }

    /// Adds executed instructions of a block, and what they accessed.
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
                writer.ran(block.id, count, accesses, pc)
            }
            _ => Ok(()),
        }
    }

    /// Completes the files.
    pub fn finish(self) -> io::Result<()> {
        self.cores
            .into_iter()
            .flatten()
            .try_for_each(Writer::finish)
    }
}
