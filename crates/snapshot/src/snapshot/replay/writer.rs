//! Writes files of inputs.

use super::super::model::Register;
use super::file::{
    self, AS_SAVED, BYTES, CALL, CHECKPOINT, Checksum, GONE, HEAD, START, TURN, ZEROS, chained,
    checksum,
};
use crate::mapped;
use std::io::{self, Write};

/// The granule in which bytes are compared with zeros and with saved memory.
const GRANULE: usize = 4096;

/// Memory that the snapshot saves, by address.
pub type Saved<'a> = &'a [(u64, &'a [u8])];

/// Writes a file of inputs.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    before: Checksum,
}

impl<W: Write> Writer<W> {
    /// Writes the first line.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(HEAD)?;
        Ok(Self {
            out,
            before: Checksum::default(),
        })
    }

    /// Writes the registers and the memory before the first instruction. `saved` is the memory that
    /// the snapshot holds anyway, sorted by address.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn start<'a>(
        &mut self,
        registers: &[Register],
        memory: impl IntoIterator<Item = file::Piece<'a>>,
        saved: Saved<'_>,
    ) -> io::Result<()> {
        let mut data = Vec::new();
        put_registers(&mut data, registers)?;
        for piece in memory {
            put(&mut data, piece, saved);
        }
        self.record(START, &data)
    }

    /// Writes a system call.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn call(&mut self, call: &file::Call<'_>, saved: Saved<'_>) -> io::Result<()> {
        let mut data = Vec::new();
        let numbers = [call.pc, call.number, call.result];
        for number in numbers.iter().chain(&call.arguments) {
            data.extend(number.to_le_bytes());
        }
        for &piece in &call.memory {
            put(&mut data, piece, saved);
        }
        self.record(CALL, &data)
    }

    /// Writes a checkpoint.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn checkpoint(
        &mut self,
        checkpoint: &file::Checkpoint<'_>,
        saved: Saved<'_>,
    ) -> io::Result<()> {
        let mut data = Vec::new();
        data.extend(checkpoint.offset.to_le_bytes());
        data.extend(checkpoint.pc.to_le_bytes());
        put_registers(&mut data, &checkpoint.registers)?;
        for &piece in &checkpoint.memory {
            put(&mut data, piece, saved);
        }
        self.record(CHECKPOINT, &data)
    }

    /// Writes a turn.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn turn(&mut self, turn: file::Turn) -> io::Result<()> {
        let mut data = Vec::from(turn.core.to_le_bytes());
        data.extend(turn.instructions.to_le_bytes());
        self.record(TURN, &data)
    }

    fn record(&mut self, kind: u32, data: &[u8]) -> io::Result<()> {
        let length = u32::try_from(data.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let head = [kind.to_le_bytes(), length.to_le_bytes()].concat();
        self.before = chained(self.before, &[&head, data]);
        self.out.write_all(&head)?;
        self.out.write_all(data)?;
        self.out.write_all(&self.before)
    }

    /// Completes the file.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

fn put_registers(data: &mut Vec<u8>, registers: &[Register]) -> io::Result<()> {
    data.extend((registers.len() as u32).to_le_bytes());
    for register in registers {
        let (name, value) = (register.name.as_bytes(), &register.value.0);
        let lengths = u8::try_from(name.len())
            .ok()
            .zip(u8::try_from(value.len()).ok());
        let (name_length, value_length) = lengths.ok_or(io::ErrorKind::InvalidInput)?;
        data.extend([name_length, value_length]);
        data.extend(name);
        data.extend(value);
    }
    Ok(())
}

/// Appends a piece, divided where its bytes are zeros or as in saved memory.
fn put(data: &mut Vec<u8>, piece: file::Piece<'_>, saved: Saved<'_>) {
    let bytes = match piece.contents {
        file::Contents::Bytes(bytes) => bytes,
        contents => {
            head(data, &contents, piece.address, piece.length);
            return;
        }
    };
    let kind = |at: usize, end: usize| {
        let (part, address) = (&bytes[at..end], piece.address + at as u64);
        if mapped::is_zero(part) {
            ZEROS
        } else if part.len() == GRANULE && of(saved, address, part.len()) == Some(part) {
            AS_SAVED
        } else {
            BYTES
        }
    };
    let end_of = |at: usize| {
        let offset = (piece.address as usize).wrapping_add(at) % GRANULE;
        bytes.len().min(at + GRANULE - offset)
    };
    let mut at = 0;
    while at < bytes.len() {
        let mut end = end_of(at);
        let first = kind(at, end);
        while end < bytes.len() && kind(end, end_of(end)) == first {
            end = end_of(end);
        }
        let part = &bytes[at..end];
        let (address, length) = (piece.address + at as u64, part.len() as u64);
        // Adjacent granules may be saved in different regions.
        let contents = match first {
            ZEROS => file::Contents::Zeros,
            AS_SAVED if of(saved, address, part.len()) == Some(part) => {
                file::Contents::AsSaved(checksum(part))
            }
            _ => file::Contents::Bytes(part),
        };
        head(data, &contents, address, length);
        at = end;
    }
}

fn head(data: &mut Vec<u8>, contents: &file::Contents<'_>, address: u64, length: u64) {
    let (kind, bytes): (u32, &[u8]) = match contents {
        file::Contents::Zeros => (ZEROS, &[]),
        file::Contents::Bytes(bytes) => (BYTES, bytes),
        file::Contents::AsSaved(hash) => (AS_SAVED, hash),
        file::Contents::Gone => (GONE, &[]),
    };
    data.extend(kind.to_le_bytes());
    data.extend(address.to_le_bytes());
    data.extend(length.to_le_bytes());
    data.extend(bytes);
}

/// Saved bytes, if they are in one region.
fn of<'s>(saved: Saved<'s>, address: u64, length: usize) -> Option<&'s [u8]> {
    let after = saved.partition_point(|(start, _)| *start <= address);
    let (start, bytes) = saved[..after].last()?;
    let offset = usize::try_from(address - start).ok()?;
    bytes.get(offset..)?.get(..length)
}

#[cfg(test)]
mod tests {
    use super::super::{Call, Contents, Error, Inputs, Piece};
    use super::*;
    use crate::snapshot::model::RegisterValue;

    fn piece(address: u64, bytes: &[u8]) -> Piece<'_> {
        Piece {
            address,
            length: bytes.len() as u64,
            contents: Contents::Bytes(bytes),
        }
    }

    fn file() -> Vec<u8> {
        let saved = [0x11; 2 * GRANULE];
        let mut memory = vec![0x22; 8];
        memory.resize(GRANULE, 0x33);
        memory.extend([0; GRANULE]);
        memory.extend([0x11; GRANULE]);
        let x0 = Register {
            name: "X0".to_owned(),
            size: Some(64),
            value: RegisterValue(vec![1, 2, 3, 4, 5, 6, 7, 8]),
            ..Register::default()
        };
        let mut writer = Writer::new(Vec::new()).unwrap();
        let saved: Saved<'_> = &[(0x5000, &saved)];
        writer
            .start(&[x0], [piece(0x3000, &memory)], saved)
            .unwrap();
        for number in 0..2 {
            let call = Call {
                pc: 0x1000,
                number,
                arguments: [1, 2, 3, 4, 5, 6],
                result: 7,
                memory: vec![piece(0x8001, b"abc")],
            };
            writer.call(&call, saved).unwrap();
        }
        writer.finish().unwrap()
    }

    /// The calls that can be read, and why no more can be.
    fn calls(file: Vec<u8>) -> (u64, Option<Error>) {
        let inputs = match Inputs::open(file.into()) {
            Ok(inputs) => inputs,
            Err(error) => return (0, Some(error)),
        };
        let mut at = inputs.calls();
        for count in 0.. {
            match inputs.call(at) {
                Ok(Some((call, next))) => {
                    assert_eq!(
                        (call.number, call.memory[0]),
                        (count, piece(0x8001, b"abc"))
                    );
                    at = next;
                }
                Ok(None) => return (count, None),
                Err(error) => return (count, Some(error)),
            }
        }
        unreachable!()
    }

    #[test]
    fn memory_that_is_saved_anyway_is_not_stored_twice() {
        let file = file();
        assert!(file.len() < 2 * GRANULE);
        let inputs = Inputs::open(file.into()).unwrap();
        let start = inputs.start().unwrap();
        assert_eq!(start.registers[0].name, "X0");
        assert_eq!(start.registers[0].value.0, [1, 2, 3, 4, 5, 6, 7, 8]);
        let found: Vec<_> = start.memory.iter().map(|p| (p.address, p.length)).collect();
        assert_eq!(
            found,
            [0x3000, 0x4000, 0x5000].map(|at| (at, GRANULE as u64))
        );
        assert_eq!(start.memory[1].contents, Contents::Zeros);
        let hash = checksum(&[0x11; GRANULE]);
        assert_eq!(start.memory[2].contents, Contents::AsSaved(hash));
    }

    #[test]
    fn damage_ends_what_is_read() {
        let whole = file();
        assert_eq!(calls(whole.clone()), (2, None));
        for at in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            assert!(calls(damaged).1.is_some(), "{at}");
            let (count, _) = calls(whole[..at].to_vec());
            assert!(count < 2, "{at}");
        }
    }
}
