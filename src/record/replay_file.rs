//! The file of what a Linux program started with and what entered it, for its replay.
//!
//! System calls are written while the program runs. At the end, the start is put before them, and what
//! the snapshot holds anyway is left out.

use super::snapshot_files::SavedRegion;
use super::stream::{SystemCall, Written};
use armsnap_snapshot::leftovers::in_private;
use armsnap_snapshot::mapped::{self, Mapped};
use armsnap_snapshot::snapshot::model::Register;
use armsnap_snapshot::snapshot::replay::{
    Call, Checkpoint, Contents, Input, Inputs, Piece, Turn, Writer,
};
use armsnap_trace::encode::CodeAddress;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::slice::Iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most bytes that one call may write, and be recorded.
const MOST: usize = 1 << 30;

/// The most bytes of all checkpoints.
const MOST_OF_CHECKPOINTS: u64 = 4 << 30;

/// The state of the program before its first instruction.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The registers.
    pub registers: Vec<Register>,
    /// The memory.
    pub memory: Vec<SavedRegion>,
}

/// The file, shared by the tracing thread and the controller of the emulator.
pub type SharedCalls = Arc<Mutex<CallFile>>;

/// Returns the file for exclusive use.
pub fn locked(calls: &SharedCalls) -> MutexGuard<'_, CallFile> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The turn of a thread begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnBegins {
    /// The number of the turn, from 1.
    pub number: u64,
    /// The number of the thread.
    pub core: u32,
    /// The number of instructions that the thread had executed before.
    pub executed: u64,
}

/// Returns the turns in order, up to the first one whose beginning is not known. `executed` has the number of
/// instructions that each thread executed in total.
pub fn turns(mut begins: Vec<TurnBegins>, mut executed: Vec<u64>) -> Vec<Turn> {
    begins.sort_by_key(|turn| turn.number);
    let known = (1..)
        .zip(&begins)
        .take_while(|(number, turn)| *number == turn.number);
    let known = known.count();
    let mut turns = Vec::with_capacity(known);
    // From the last one: a turn ends where the next one of the thread begins.
    for (index, turn) in begins.iter().enumerate().rev() {
        let end = executed.get_mut(turn.core as usize);
        let end = end.map_or(turn.executed, |end| std::mem::replace(end, turn.executed));
        if index < known {
            turns.push(Turn {
                core: turn.core,
                instructions: end.saturating_sub(turn.executed),
            });
        }
    }
    turns.reverse();
    turns
}

/// Writes the system calls of a program, and its checkpoints before its second thread.
///
/// At a checkpoint, the controller says where the program is stopped ([`want`](Self::want)), the tracing
/// thread asks for a synchronisation point there ([`accept`](Self::accept)), the controller writes the state
/// ([`checkpoint`](Self::checkpoint)), and the tracing thread adds the offset of the point once it is in the
/// trace ([`synchronised`](Self::synchronised)).
#[derive(Debug)]
pub struct CallFile {
    /// `None` if the file cannot be extended any more.
    writer: Option<Writer<BufWriter<File>>>,
    /// What the next call wrote: address, length, and the bytes unless they are zeros.
    written: Vec<(u64, u64, Option<Vec<u8>>)>,
    /// How many bytes that takes.
    bytes: usize,
    /// Where the program is stopped for a checkpoint.
    wanted: Option<CodeAddress>,
    /// Whether a synchronisation point there was asked for.
    accepted: bool,
    /// Whether the offset of the last checkpoint may become known.
    expected: bool,
    /// The offset in the trace buffer for each checkpoint, if it is known.
    offsets: Vec<Option<u64>>,
    /// How many bytes of memory the checkpoints have.
    checkpoint_bytes: u64,
    /// The turn in which each call returned.
    turns: Vec<u64>,
}

/// What is known of the records of a file once the recording has ended.
#[derive(Debug, Default)]
pub struct Places<'a> {
    /// The offset in the trace buffer for each checkpoint, if it is known.
    pub offsets: &'a [Option<u64>],
    /// The turns of threads, in order.
    pub turns: &'a [Turn],
    /// The number of the turn in which each call returned.
    pub of_calls: &'a [u64],
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
            writer: writer.ok(),
            written: Vec::new(),
            bytes: 0,
            wanted: None,
            accepted: false,
            expected: false,
            offsets: Vec::new(),
            checkpoint_bytes: 0,
            turns: Vec::new(),
        }
    }

    /// Sets where the program is stopped, which may be for a checkpoint.
    pub fn want(&mut self, place: CodeAddress) {
        self.wanted = Some(place);
        self.accepted = false;
    }

    /// Takes the place set by [`want`](Self::want).
    pub fn take_wanted(&mut self) -> Option<CodeAddress> {
        self.wanted.take()
    }

    /// Notes that a synchronisation point was asked for at that place.
    pub fn accept(&mut self) {
        self.accepted = true;
        self.expected = false;
    }

    /// Returns whether a checkpoint can be written now.
    pub fn is_accepted(&mut self) -> bool {
        self.wanted = None;
        self.accepted && self.takes_checkpoints()
    }

    /// Returns whether checkpoints can be written.
    pub fn takes_checkpoints(&self) -> bool {
        self.writer.is_some() && self.checkpoint_bytes < MOST_OF_CHECKPOINTS
    }

    /// Adds a checkpoint, whose offset is not known yet.
    pub fn checkpoint(&mut self, checkpoint: &Checkpoint<'_>) {
        self.accepted = false;
        if let Some(writer) = &mut self.writer {
            match writer.checkpoint(checkpoint, &[]) {
                Ok(()) => self.offsets.push(None),
                Err(_) => self.writer = None,
            }
        }
        self.expected = self.writer.is_some();
        let bytes = |piece: &Piece<'_>| match piece.contents {
            Contents::Bytes(bytes) => bytes.len() as u64 + 20,
            _ => 20,
        };
        self.checkpoint_bytes += checkpoint.memory.iter().map(bytes).sum::<u64>();
    }

    /// Sets the offset in the trace buffer that belongs to the last checkpoint.
    pub fn synchronised(&mut self, offset: u64) {
        if std::mem::take(&mut self.expected)
            && let Some(last) = self.offsets.last_mut()
        {
            *last = Some(offset);
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
        let turn = call.turn;
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
        if let Some(writer) = &mut self.writer {
            match writer.call(&call, &[]) {
                Ok(()) => self.turns.push(turn),
                Err(_) => self.writer = None,
            }
        }
        self.written.clear();
        self.bytes = 0;
    }

    /// Completes the file, and returns the offset for each checkpoint, if it is known, and the number of the
    /// turn in which each call returned.
    pub fn finish(&mut self) -> (Vec<Option<u64>>, Vec<u64>) {
        // An incomplete last record is not read.
        let _ = self.writer.take().map(Writer::finish);
        (
            std::mem::take(&mut self.offsets),
            std::mem::take(&mut self.turns),
        )
    }
}

/// Writes the turns up to that in which the next call returned. Returns whether that turn is known.
fn begin_turns<'t>(
    writer: &mut Writer<impl Write>,
    turns: &mut Peekable<impl Iterator<Item = (u64, &'t Turn)>>,
    of_calls: &mut Iter<'_, u64>,
    known: u64,
) -> io::Result<bool> {
    let now = of_calls.next().copied().unwrap_or(0);
    while let Some((_, turn)) = turns.next_if(|(number, _)| *number <= now) {
        writer.turn(*turn)?;
    }
    Ok(now <= known)
}

/// Writes the start, the calls, the checkpoints and the turns of a directory to one file there, without what is
/// in `saved`; `None` if no calls were recorded. What has changed before a checkpoint without an offset belongs
/// to the next one.
///
/// # Errors
///
/// If the file cannot be written.
pub fn join(
    directory: &Path,
    start: &Start,
    places: &Places<'_>,
    saved: &[SavedRegion],
) -> io::Result<Option<Mapped>> {
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
        let (mut offsets, mut changed) = (places.offsets.iter(), Vec::new());
        let known = places.turns.len() as u64;
        let (mut turns, mut of_calls) =
            ((1..).zip(places.turns).peekable(), places.of_calls.iter());
        while let Ok(Some((input, next))) = calls.input(at) {
            match input {
                Input::Call(call) => {
                    if !begin_turns(&mut writer, &mut turns, &mut of_calls, known)? {
                        break;
                    }
                    writer.call(&call, &saved)?;
                }
                // A file of calls has no turns.
                Input::Turn(_) => {}
                Input::Checkpoint(mut checkpoint) => {
                    changed.append(&mut checkpoint.memory);
                    if let Some(&Some(offset)) = offsets.next() {
                        checkpoint.offset = offset;
                        std::mem::swap(&mut checkpoint.memory, &mut changed);
                        match writer.checkpoint(&checkpoint, &saved) {
                            // Later checkpoints would lack what changed.
                            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                                offsets = [].iter();
                            }
                            done => done?,
                        }
                    }
                }
            }
            at = next;
        }
        for (_, turn) in turns {
            writer.turn(*turn)?;
        }
        writer.finish().map(drop)
    };
    write().map_err(|error| in_private(&path, &error))?;
    Ok(Some(mapped::map(&path)?))
}
