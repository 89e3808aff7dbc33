//! A file of inputs. Numbers are little endian.
//!
//! The file starts with the line `armsnap replay 1`. Records follow, each: `u32` kind, `u32` length
//! of the data, the data, and a checksum of 8 bytes. This is the start of the BLAKE3 hash of the
//! checksum before it (of 8 bytes of zeros for the first record) and the record up to here. So a
//! damaged, missing or moved record ends what can be used.
//!
//! | kind | data |
//! | --- | --- |
//! | 1 start | `u32` number of registers, each: `u8` length of the name, `u8` length of the value, name, value; then pieces of memory: what the core had before its first instruction |
//! | 2 call | `u64` address of the instruction, `u64` number of the system call, `u64` result, six `u64` arguments, then pieces of memory: what the kernel had written when the call returned |
//! | 3 checkpoint | `u64` offset in the trace buffer of a synchronisation point from which on the trace shows what the core executed after the checkpoint, `u64` address of its next instruction, then as in a start: its registers, and the memory that is different from the checkpoint or start before |
//! | 4 turn | `u32` place of a core among those for which the snapshot names this file, `u64` number of instructions that it executes before the next turn: from its first instruction on, or where it was before. The calls that follow returned, or ended it, in this turn, in this order. Before the first turn, the first core executes |
//!
//! A piece of memory is: `u32` kind, `u64` address, `u64` length, and
//!
//! | kind | data |
//! | --- | --- |
//! | 0 | none: the bytes are 0 |
//! | 1 | the bytes |
//! | 2 | the first 8 bytes of the BLAKE3 hash of the bytes, which are those that the snapshot's memory has there |
//! | 3 | none: the program has no memory there any more |
//!
//! Calls and checkpoints are in the order of execution. The first record is a start.

use super::super::model::{Register, RegisterValue};
use crate::mapped::Mapped;

/// The first line.
pub(super) const HEAD: &[u8; 17] = b"armsnap replay 1\n";
pub(super) const START: u32 = 1;
pub(super) const CALL: u32 = 2;
pub(super) const CHECKPOINT: u32 = 3;
pub(super) const TURN: u32 = 4;
pub(super) const ZEROS: u32 = 0;
pub(super) const BYTES: u32 = 1;
pub(super) const AS_SAVED: u32 = 2;
pub(super) const GONE: u32 = 3;

/// The size of a checksum.
pub(super) type Checksum = [u8; 8];

/// Why a file cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not a file of inputs, or of a later version.
    #[error("not a file of recorded inputs that this version can read")]
    Head,
    /// A record is damaged or incomplete.
    #[error("damaged at offset {0:#x}")]
    Damaged(usize),
}

/// A range of memory, and its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The first address.
    pub address: u64,
    /// The number of bytes.
    pub length: u64,
    /// The bytes.
    pub contents: Contents<'a>,
}

/// The bytes of a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents<'a> {
    /// Zeros.
    Zeros,
    /// These.
    Bytes(&'a [u8]),
    /// Those of the snapshot's memory, if they have this hash ([`checksum`]).
    AsSaved(Checksum),
    /// None: nothing is mapped there any more.
    Gone,
}

/// The start of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start<'a> {
    /// The registers, as in a device's file.
    pub registers: Vec<Register>,
    /// The memory.
    pub memory: Vec<Piece<'a>>,
}

/// A system call that returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The address of its instruction.
    pub pc: u64,
    /// Its number.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// Its result.
    pub result: u64,
    /// What the kernel wrote, as it was when the call returned.
    pub memory: Vec<Piece<'a>>,
}

/// The state in the middle of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint<'a> {
    /// The offset in the trace buffer of the synchronisation point from which on the trace shows what
    /// was executed afterwards.
    pub offset: u64,
    /// The address of the next instruction.
    pub pc: u64,
    /// The registers, as in a device's file.
    pub registers: Vec<Register>,
    /// The memory that is different from the checkpoint before, or the start.
    pub memory: Vec<Piece<'a>>,
}

/// The turn of one of several threads, of which one executes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The place of its core among those for which the snapshot names the file.
    pub core: u32,
    /// The number of instructions that it executes before the next turn.
    pub instructions: u64,
}

/// A record after the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// A system call.
    Call(Call<'a>),
    /// A checkpoint.
    Checkpoint(Checkpoint<'a>),
    /// The turn of a thread.
    Turn(Turn),
}

/// Returns the hash by which a piece of saved memory is recognised.
pub fn checksum(bytes: &[u8]) -> Checksum {
    first(blake3::hash(bytes))
}

fn first(hash: blake3::Hash) -> Checksum {
    let bytes = hash.as_bytes();
    [
        bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
    ]
}

/// Returns the checksum of a record without its checksum, given that of the record before.
pub(super) fn chained(before: Checksum, record: &[&[u8]]) -> Checksum {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&before);
    for part in record {
        hasher.update(part);
    }
    first(hasher.finalize())
}

/// A file of inputs.
#[derive(Debug)]
pub struct Inputs {
    bytes: Mapped,
    /// The offset after the start record, and its checksum.
    calls: Cursor,
}

/// A place between two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    offset: usize,
    before: Checksum,
}

impl Inputs {
    /// Reads the first record of a file.
    ///
    /// # Errors
    ///
    /// If it is not a file of inputs, or the first record is damaged.
    pub fn open(bytes: Mapped) -> Result<Self, Error> {
        if !bytes.starts_with(HEAD) {
            return Err(Error::Head);
        }
        let head = Cursor {
            offset: HEAD.len(),
            before: Checksum::default(),
        };
        let mut inputs = Self { bytes, calls: head };
        let (kind, _, next) = inputs.record(head)?.ok_or(Error::Damaged(head.offset))?;
        if kind != START {
            return Err(Error::Damaged(head.offset));
        }
        inputs.calls = next;
        Ok(inputs)
    }

    /// Returns the start of the recording.
    ///
    /// # Errors
    ///
    /// If the record is malformed.
    pub fn start(&self) -> Result<Start<'_>, Error> {
        let from = HEAD.len();
        let length = self.calls.offset - from - size_of::<Checksum>();
        let data = &self.bytes[from + 8..from + length];
        start(&mut Fields(data)).ok_or(Error::Damaged(from))
    }

    /// Returns the place after the start.
    pub fn calls(&self) -> Cursor {
        self.calls
    }

    /// Returns the record at a place, and the place of the next one; `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// If the record is damaged.
    pub fn input(&self, at: Cursor) -> Result<Option<(Input<'_>, Cursor)>, Error> {
        let Some((kind, data, next)) = self.record(at)? else {
            return Ok(None);
        };
        let fields = &mut Fields(data);
        let input = match kind {
            CALL => call(fields).map(Input::Call),
            CHECKPOINT => checkpoint(fields).map(Input::Checkpoint),
            TURN => turn(fields).map(Input::Turn),
            _ => None,
        };
        Ok(Some((input.ok_or(Error::Damaged(at.offset))?, next)))
    }

    /// Returns the first call at or after a place, and the place after it; `None` if no call follows.
    ///
    /// # Errors
    ///
    /// If a record is damaged.
    pub fn call(&self, mut at: Cursor) -> Result<Option<(Call<'_>, Cursor)>, Error> {
        while let Some((input, next)) = self.input(at)? {
            if let Input::Call(call) = input {
                return Ok(Some((call, next)));
            }
            at = next;
        }
        Ok(None)
    }

    /// The record at a place.
    fn record(&self, at: Cursor) -> Result<Option<Record<'_>>, Error> {
        let rest = &self.bytes[at.offset..];
        if rest.is_empty() {
            return Ok(None);
        }
        let mut fields = Fields(rest);
        let read = (|| {
            let (kind, length) = (fields.u32()?, fields.u32()?);
            let data = fields.bytes(length as usize)?;
            let sum = *fields.bytes(size_of::<Checksum>())?.first_chunk()?;
            let whole = chained(at.before, &[&rest[..8], data]) == sum;
            whole.then_some((kind, data, sum))
        })();
        let (kind, data, before) = read.ok_or(Error::Damaged(at.offset))?;
        let offset = self.bytes.len() - fields.0.len();
        Ok(Some((kind, data, Cursor { offset, before })))
    }
}

/// The kind and data of a record, and the place after it.
type Record<'a> = (u32, &'a [u8], Cursor);

/// Reads fields from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.bytes(4)?.first_chunk()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.bytes(8)?.first_chunk()?))
    }

    fn registers(&mut self) -> Option<Vec<Register>> {
        let mut registers = Vec::new();
        for _ in 0..self.u32()? {
            let (name, value) = (self.u8()?, self.u8()?);
            let name = str::from_utf8(self.bytes(name.into())?).ok()?.to_owned();
            let value = self.bytes(value.into())?.to_vec();
            registers.push(Register {
                name,
                size: Some(8 * value.len() as u32),
                value: RegisterValue(value),
                ..Register::default()
            });
        }
        Some(registers)
    }

    fn pieces(&mut self) -> Option<Vec<Piece<'a>>> {
        let mut pieces = Vec::new();
        while !self.0.is_empty() {
            let (kind, address, length) = (self.u32()?, self.u64()?, self.u64()?);
            address.checked_add(length)?;
            let contents = match kind {
                ZEROS => Contents::Zeros,
                BYTES => Contents::Bytes(self.bytes(usize::try_from(length).ok()?)?),
                AS_SAVED => Contents::AsSaved(*self.bytes(8)?.first_chunk()?),
                GONE => Contents::Gone,
                _ => return None,
            };
            pieces.push(Piece {
                address,
                length,
                contents,
            });
        }
        Some(pieces)
    }
}

fn start<'a>(fields: &mut Fields<'a>) -> Option<Start<'a>> {
    Some(Start {
        registers: fields.registers()?,
        memory: fields.pieces()?,
    })
}

fn checkpoint<'a>(fields: &mut Fields<'a>) -> Option<Checkpoint<'a>> {
    Some(Checkpoint {
        offset: fields.u64()?,
        pc: fields.u64()?,
        registers: fields.registers()?,
        memory: fields.pieces()?,
    })
}

fn turn(fields: &mut Fields<'_>) -> Option<Turn> {
    Some(Turn {
        core: fields.u32()?,
        instructions: fields.u64()?,
    })
}

fn call<'a>(fields: &mut Fields<'a>) -> Option<Call<'a>> {
    let (pc, number, result) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = fields.u64()?;
    }
    Some(Call {
        pc,
        number,
        arguments,
        result,
        memory: fields.pieces()?,
    })
}
