//! The files that a client has open: all are the file of the program.

use std::sync::Arc;

use crate::snapshot::program::Program;

/// Maximum number of open files per client.
pub(super) const MAX_OPEN: usize = 64;

/// The open files of a client.
pub(super) struct Files {
    program: Option<Arc<Program>>,
    /// By number; whether it is open.
    pub(super) open: Vec<bool>,
}

impl Files {
    pub(super) fn new(program: Option<Arc<Program>>) -> Self {
        Self {
            program,
            open: Vec::new(),
        }
    }

    /// Returns the path of the program as reported to clients.
    pub(super) fn program_path(&self) -> &[u8] {
        match &self.program {
            Some(program) => program.elf.path.as_os_str().as_encoded_bytes(),
            None => &[],
        }
    }

    /// Returns the current size of the program's file.
    pub(super) fn remaining(&self) -> usize {
        let program = self.program.as_ref();
        program.map_or(0, |program| program.elf.remaining())
    }

    pub(super) fn bytes(&self, fd: u32) -> Option<&[u8]> {
        let is_open = self.open.get(fd as usize).copied().unwrap_or(false);
        match &self.program {
            Some(program) if is_open => Some(program.elf.bytes()),
            _ => None,
        }
    }
}
