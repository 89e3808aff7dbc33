//! Reads data addresses.

use super::{
    AGAIN, Access, Accessed, EXECUTED, FIRST, MAX_ACCESSES, MAX_INSTRUCTIONS, PASSED, PIECE,
    PIECE_ACCESSES, RUN, Slot, from_zigzag,
};
use std::ops::{Deref, Range};

/// An error in the data addresses of a core.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("data addresses: at {offset:#x}: {text}")]
pub struct Error {
    /// The offset in the file.
    pub offset: u64,
    /// The description of the error.
    pub text: String,
}

/// Numbers in the file, from an offset on.
#[derive(Clone, Copy, Debug)]
struct Numbers<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Numbers<'_> {
    fn bad(&self, text: impl Into<String>) -> Error {
        Error {
            offset: self.at as u64,
            text: text.into(),
        }
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn next(&mut self) -> Result<u64, Error> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.bytes.get(self.at) else {
                return Err(self.bad("the data end in a record"));
            };
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            self.at += 1;
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.bad("a number of more than 64 bits"))
    }

    /// The next number, which is at most `most`.
    fn at_most(&mut self, most: u64, text: &'static str) -> Result<u64, Error> {
        let at = self.at;
        let number = self.next()?;
        if number > most {
            self.at = at;
            return Err(self.bad(format!("{text}: expected at most {most}, found {number}")));
        }
        Ok(number)
    }
}

/// A piece of the file.
#[derive(Clone, Debug)]
struct Piece {
    instructions: Range<u64>,
    bytes: Range<usize>,
}

/// The data addresses of a core.
#[derive(Clone, Debug)]
pub struct Addresses<B> {
    bytes: B,
    pieces: Vec<Piece>,
}

impl<B: Deref<Target = [u8]>> Addresses<B> {
    /// Reads the index of a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the first line or the index is malformed.
    pub fn open(bytes: B) -> Result<Self, Error> {
        let all = &*bytes;
        if !all.starts_with(FIRST) {
            let found = &all[..all.len().min(FIRST.len())];
            let found = String::from_utf8_lossy(found);
            let text =
                format!("expected the first line \"armsnap data addresses 1\", found {found:?}");
            return Err(Error { offset: 0, text });
        }
        let (body, offset) = all.split_last_chunk::<8>().ok_or_else(|| Error {
            offset: all.len() as u64,
            text: "no index: the file ends here".to_owned(),
        })?;
        let index = usize::try_from(u64::from_le_bytes(*offset)).unwrap_or(usize::MAX);
        if !(FIRST.len()..body.len()).contains(&index) {
            return Err(Error {
                offset: body.len() as u64,
                text: format!(
                    "no index: expected its offset, from {:#x} to {:#x}, found {:#x}: the file may have been \
                     cut",
                    FIRST.len(),
                    body.len().max(FIRST.len()),
                    u64::from_le_bytes(*offset)
                ),
            });
        }
        let mut numbers = Numbers {
            bytes: body,
            at: index,
        };
        // Each entry has at least two bytes.
        let most = (body.len() - index) as u64 / 2;
        let count = numbers.at_most(most, "more pieces than the index has")?;
        let mut pieces = Vec::with_capacity(count as usize);
        let (mut first, mut begin) = (0, FIRST.len());
        for _ in 0..count {
            let instructions =
                numbers.at_most(PIECE + MAX_INSTRUCTIONS, "a piece that is too long")?;
            let length = numbers.at_most((index - begin) as u64, "a piece beyond the index")?;
            let end = begin + length as usize;
            pieces.push(Piece {
                instructions: first..first + instructions,
                bytes: begin..end,
            });
            (first, begin) = (first + instructions, end);
        }
        if begin != index || !numbers.is_at_end() {
            return Err(numbers.bad("the index does not fit the pieces"));
        }
        Ok(Self { bytes, pieces })
    }

    /// The number of instructions that the core executed.
    pub fn instructions(&self) -> u64 {
        self.pieces.last().map_or(0, |last| last.instructions.end)
    }

    /// The instructions of each piece. A piece is always read from its start, so to read backwards,
    /// go piece by piece.
    pub fn pieces(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + ExactSizeIterator + '_ {
        self.pieces.iter().map(|piece| piece.instructions.clone())
    }

    /// The accesses of a range of instructions, in order.
    pub fn accesses(&self, range: Range<u64>) -> Accesses<'_> {
        let first = self
            .pieces
            .partition_point(|piece| piece.instructions.end <= range.start);
        Accesses {
            bytes: &self.bytes,
            pieces: self.pieces[first..].iter(),
            piece: None,
            range,
        }
    }
}

/// Iterates over accesses. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Accesses<'a> {
    bytes: &'a [u8],
    pieces: std::slice::Iter<'a, Piece>,
    piece: Option<PieceReader<'a>>,
    range: Range<u64>,
}

impl Iterator for Accesses<'_> {
    type Item = Result<Accessed, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(piece) = &mut self.piece {
                match piece.next() {
                    Ok(None) => self.piece = None,
                    Ok(Some(next)) if next.instruction < self.range.start => {}
                    Ok(Some(next)) if next.instruction < self.range.end => return Some(Ok(next)),
                    Ok(Some(_)) => {
                        self.range.end = 0;
                        self.piece = None;
                    }
                    Err(error) => {
                        self.range.end = 0;
                        self.piece = None;
                        return Some(Err(error));
                    }
                }
                continue;
            }
            let end = self.range.end;
            let next = self.pieces.next();
            let next = next.filter(|piece| piece.instructions.start < end)?;
            self.piece = Some(PieceReader::new(self.bytes, next));
        }
    }
}

#[derive(Clone, Debug)]
struct Run {
    address: u64,
    instructions: u64,
    slots: Vec<Slot>,
}

#[derive(Clone, Debug)]
struct PieceReader<'a> {
    numbers: Numbers<'a>,
    /// The instructions of the piece that are not executed yet.
    instructions: Range<u64>,
    accesses: usize,
    runs: Vec<Run>,
    address: u64,
    last: u64,
    executed: Option<usize>,
    again: u64,
    /// The run being executed, the next of its accesses, and its first instruction.
    running: Option<(usize, usize, u64)>,
}

impl<'a> PieceReader<'a> {
    fn new(bytes: &'a [u8], piece: &Piece) -> Self {
        Self {
            numbers: Numbers {
                bytes: &bytes[..piece.bytes.end],
                at: piece.bytes.start,
            },
            instructions: piece.instructions.clone(),
            accesses: 0,
            runs: Vec::new(),
            address: 0,
            last: 0,
            executed: None,
            again: 0,
            running: None,
        }
    }

    fn next(&mut self) -> Result<Option<Accessed>, Error> {
        loop {
            if let Some((run, slot, instruction)) = self.running {
                let Run { address, slots, .. } = &self.runs[run];
                if let Some(slot) = slots.get(slot) {
                    let access = Access {
                        address: slot.last,
                        bytes: slot.bytes,
                        store: slot.store,
                    };
                    let pc = address.wrapping_add(slot.offset.into());
                    let index = u64::from(slot.instruction);
                    self.running = self
                        .running
                        .map(|(run, slot, first)| (run, slot + 1, first));
                    return Ok(Some(Accessed {
                        instruction: instruction + index,
                        pc,
                        access,
                    }));
                }
                self.running = None;
            }
            if let (1.., Some(run)) = (self.again, self.executed) {
                self.again -= 1;
                self.run(run, false)?;
            } else if self.numbers.is_at_end() {
                if !self.instructions.is_empty() {
                    return Err(self.numbers.bad("a piece without all its instructions"));
                }
                return Ok(None);
            } else {
                self.record()?;
            }
        }
    }

    fn record(&mut self) -> Result<(), Error> {
        const MANY: &str = "more instructions than the piece has";
        let left = self.instructions.end - self.instructions.start;
        match self.numbers.next()? {
            RUN => self.define(),
            AGAIN => {
                self.again = self.numbers.at_most(left, MANY)?;
                match self.executed {
                    Some(_) => Ok(()),
                    None => Err(self.numbers.bad("a repetition without a run")),
                }
            }
            PASSED => {
                self.instructions.start += self.numbers.at_most(left, MANY)?;
                self.executed = None;
                Ok(())
            }
            executed => {
                let run = usize::try_from(executed - EXECUTED).unwrap_or(usize::MAX);
                self.executed = Some(run);
                self.run(run, true)
            }
        }
    }

    fn define(&mut self) -> Result<(), Error> {
        const WIDE: &str = "an access that is too wide, or too far from the start of its run";
        let difference = from_zigzag(self.numbers.next()?);
        self.address = self.address.wrapping_add(difference);
        let instructions = self
            .numbers
            .at_most(MAX_INSTRUCTIONS, "a run with too many instructions")?;
        if instructions == 0 {
            // Repeating it would take unlimited time.
            return Err(self.numbers.bad("a run without instructions"));
        }
        // Each access has at least three bytes.
        let most = (self.numbers.bytes.len() - self.numbers.at) / 3;
        let most = most.min(MAX_ACCESSES) as u64;
        let count = self
            .numbers
            .at_most(most, "a run with too many accesses to memory")?;
        let mut slots = Vec::with_capacity(count as usize);
        let (mut instruction, mut offset) = (0, 0);
        for _ in 0..count {
            instruction += self.numbers.at_most(MAX_INSTRUCTIONS, WIDE)?;
            offset += self.numbers.at_most(u16::MAX.into(), WIDE)?;
            let size = self.numbers.at_most(u32::MAX.into(), WIDE)?;
            if instruction >= instructions || offset > u64::from(u32::MAX) {
                return Err(self
                    .numbers
                    .bad("an access of an instruction after the run"));
            }
            slots.push(Slot {
                instruction: instruction as u32,
                offset: offset as u32,
                bytes: (size >> 1) as u32,
                store: size & 1 == 1,
                last: self.last,
                stride: 0,
            });
        }
        self.executed = None;
        self.runs.push(Run {
            address: self.address,
            instructions,
            slots,
        });
        Ok(())
    }

    /// Executes a run, with the differences from the predicted addresses if there are any.
    fn run(&mut self, number: usize, differs: bool) -> Result<(), Error> {
        let Some(run) = self.runs.get_mut(number) else {
            return Err(self.numbers.bad("a run that is not defined"));
        };
        self.accesses += run.slots.len();
        let left = self.instructions.end - self.instructions.start;
        if run.instructions > left || self.accesses > PIECE_ACCESSES + MAX_ACCESSES {
            let text = "more instructions or accesses than a piece has";
            return Err(self.numbers.bad(text));
        }
        for slot in &mut run.slots {
            let mut address = slot.predicted();
            if differs {
                address = address.wrapping_add(from_zigzag(self.numbers.next()?));
            }
            slot.moves_to(address);
            self.last = address;
        }
        self.running = Some((number, 0, self.instructions.start));
        self.instructions.start += run.instructions;
        Ok(())
    }
}
