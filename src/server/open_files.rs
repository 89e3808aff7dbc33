//! The files that a client has open: those of the programs.

use std::sync::Arc;

use super::endpoint::Endpoint;
use armsnap_snapshot::snapshot::program::Program;

/// Maximum number of open files per client.
pub(super) const MAX_OPEN: usize = 64;

/// The open files of a client.
pub(super) struct Files {
    programs: Vec<Arc<Program>>,
    /// By number: the program of an open file.
    pub(super) open: Vec<Option<Arc<Program>>>,
}

impl Files {
    pub(super) fn new(endpoint: &Endpoint) -> Self {
        let first = endpoint.program.iter();
        Self {
            programs: first.chain(&endpoint.further).cloned().collect(),
            open: Vec::new(),
        }
    }

    /// Returns the path of the program as reported to clients.
    pub(super) fn program_path(&self) -> &[u8] {
        let program = self.programs.first();
        program.map_or(&[], |program| path(program))
    }

    /// Returns the program with a path.
    pub(super) fn program(&self, wanted: &[u8]) -> Option<Arc<Program>> {
        let mut programs = self.programs.iter();
        let found = programs.find(|program| path(program) == wanted && !wanted.is_empty());
        found.cloned()
    }

    /// Returns the program whose file is open.
    pub(super) fn opened(&self, fd: u32) -> Option<&Program> {
        self.open.get(fd as usize)?.as_deref()
    }
}

fn path(program: &Program) -> &[u8] {
    program.elf.path.as_os_str().as_encoded_bytes()
}
