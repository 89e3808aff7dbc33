//! The file of what a Linux program started with and what entered it, for its replay.
//!
//! System calls are written while the program runs. At the end, the start is put before them, and what
//! the snapshot holds anyway is left out.

use super::snapshot_files::SavedRegion;
use super::stream::{SystemCall, Written};
use armsnap_snapshot::leftovers::in_private;
use armsnap_snapshot::mapped::{self, Mapped};
use armsnap_snapshot::snapshot::model::Register;
use armsnap_snapshot::snapshot::replay::{Call, Contents, Inputs, Piece, Writer};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// The most bytes that one call may write, and be recorded.
const MOST: usize = 1 << 30;

/// The state of the program before its first instruction.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The registers.
    pub registers: Vec<Register>,
    /// The memory.
    pub memory: Vec<SavedRegion>,
}

/// Writes the system calls of a program with one thread.
#[derive(Debug)]
pub struct CallFile {
    path: PathBuf,
    /// `None` if the file cannot be extended any more.
    writer: Option<Writer<BufWriter<File>>>,
    /// What the next call wrote: address, length, and the bytes unless they are zeros.
    written: Vec<(u64, u64, Option<Vec<u8>>)>,
    /// How many bytes that takes.
    bytes: usize,
}

impl CallFile {
    /// Returns the path of the file.
    pub fn path(directory: &Path) -> PathBuf {
        directory.join("calls.bin")
    }

    /// Creates the file in an existing directory.
    pub fn new(directory: &Path) -> Self {
        let path = Self::path(directory);
        let writer = File::create_new(&path).and_then(|file| {
            let mut writer = Writer::new(BufWriter::new(file))?;
            writer.start(&[], [], &[])?;
            Ok(writer)
        });
        Self {
            path,
            writer: writer.ok(),
            written: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds what the next call wrote.
    pub fn written(&mut self, address: u64, written: Written<'_>) {
        let (length, bytes) = match written {
            Written::Bytes(bytes) => (bytes.len() as u64, Some(bytes.to_vec())),
            Written::Zeros(length) => (length, None),
        };
        self.bytes += bytes.as_ref().map_or(0, Vec::len);
        match self.bytes <= MOST {
            true => self.written.push((address, length, bytes)),
            // What is missing is unknown in the replay.
            false => self.written.clear(),
        }
    }

    /// Adds a call.
    pub fn call(&mut self, call: SystemCall) {
        let pieces = self.written.iter().map(|(address, length, bytes)| Piece {
            address: *address,
            length: *length,
            contents: bytes.as_deref().map_or(Contents::Zeros, Contents::Bytes),
        });
        let call = Call {
            pc: call.pc,
            number: call.number,
            arguments: call.arguments,
            result: call.result,
            memory: pieces.collect(),
        };
        // Without space, the calls so far are kept.
        if let Some(writer) = &mut self.writer
            && writer.call(&call, &[]).is_err()
        {
            self.writer = None;
        }
        self.written.clear();
        self.bytes = 0;
    }

    /// Ends the recording of calls, and removes the file: there are several threads.
    pub fn abandon(self) {
        drop(self.writer);
        let _ = std::fs::remove_file(self.path);
    }

    /// Completes the file.
    pub fn finish(self) {
        // An incomplete last record is not read.
        let _ = self.writer.map(Writer::finish);
    }
}

/// Writes the start and the calls of a directory to one file there, without what is in `saved`;
/// `None` if no calls were recorded.
///
/// # Errors
///
/// If the file cannot be written.
pub fn join(directory: &Path, start: &Start, saved: &[SavedRegion]) -> io::Result<Option<Mapped>> {
    let calls = CallFile::path(directory);
    if !calls.exists() || start.registers.is_empty() {
        return Ok(None);
    }
    let Ok(calls) = Inputs::open(mapped::map(&calls)?) else {
        return Ok(None);
    };
    let mut saved: Vec<(u64, &[u8])> = saved
        .iter()
        .map(|region| (region.address, &*region.bytes))
        .collect();
    saved.sort_by_key(|region| region.0);
    let path = directory.join("replay.bin");
    let write = || -> io::Result<()> {
        let mut writer = Writer::new(BufWriter::new(File::create_new(&path)?))?;
        let memory = start.memory.iter().map(|region| Piece {
            address: region.address,
            length: region.bytes.len() as u64,
            contents: Contents::Bytes(&region.bytes),
        });
        writer.start(&start.registers, memory, &saved)?;
        let mut at = calls.calls();
        while let Ok(Some((call, next))) = calls.call(at) {
            writer.call(&call, &saved)?;
            at = next;
        }
        writer.finish().map(drop)
    };
    write().map_err(|error| in_private(&path, &error))?;
    Ok(Some(mapped::map(&path)?))
}
