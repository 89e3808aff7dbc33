//! Writes data addresses.

use super::{
    AGAIN, Access, EXECUTED, FIRST, MAX_ACCESSES, MAX_INSTRUCTIONS, PASSED, PIECE, PIECE_ACCESSES,
    RUN, Slot, zigzag,
};
use crate::protocol::number::leb128;
use std::io::{self, Write};

/// A run of instructions with its accesses.
#[derive(Debug)]
struct Run {
    instructions: u64,
    slots: Vec<Slot>,
    /// The previous run with the same key.
    before: Option<u32>,
}

impl Run {
    fn fits(&self, instructions: u64, accesses: &[(u32, Access)]) -> bool {
        let same = |(slot, (instruction, access)): (&Slot, &(u32, Access))| {
            (slot.instruction, slot.bytes, slot.store) == (*instruction, access.bytes, access.store)
        };
        self.instructions == instructions
            && self.slots.len() == accesses.len()
            && self.slots.iter().zip(accesses).all(same)
    }
}

/// Writes the data addresses of a core.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    /// Bytes written so far.
    offset: u64,
    /// The index so far, and its number of pieces.
    index: Vec<u8>,
    pieces: u64,
    /// The current piece.
    piece: Vec<u8>,
    instructions: u64,
    accesses: usize,
    runs: Vec<Run>,
    /// For each key, the run defined last: the number of its piece, from 1, and its number in the
    /// piece, from 0.
    by_key: Vec<(u64, u32)>,
    /// The address of the run that was defined last.
    address: u64,
    /// The last access.
    last: u64,
    /// Instructions without accesses that are not written yet.
    passed: u64,
    /// The run executed last, and how many more times it was executed.
    executed: Option<u32>,
    again: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the first line.
    ///
    /// # Errors
    ///
    /// Returns an error if `out` cannot be written.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(FIRST)?;
        Ok(Self {
            out,
            offset: FIRST.len() as u64,
            index: Vec::new(),
            pieces: 0,
            piece: Vec::new(),
            instructions: 0,
            accesses: 0,
            runs: Vec::new(),
            by_key: Vec::new(),
            address: 0,
            last: 0,
            passed: 0,
            executed: None,
            again: 0,
        })
    }

    /// Adds `instructions` executed in a row and their accesses in order, each with the index of its
    /// instruction. Runs with the same key have the same code; keys are small numbers. `pc` returns the
    /// address of an instruction by index.
    ///
    /// # Errors
    ///
    /// Returns an error if the output cannot be written, or there are too many instructions or accesses.
    pub fn ran(
        &mut self,
        key: u32,
        instructions: usize,
        accesses: &[(u32, Access)],
        pc: impl Fn(u32) -> u64,
    ) -> io::Result<()> {
        let count = instructions as u64;
        if count > MAX_INSTRUCTIONS || accesses.len() > MAX_ACCESSES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a run with too many instructions or accesses to memory",
            ));
        }
        if accesses.is_empty() {
            self.repeat();
            self.passed += count;
        } else {
            let run = match self.find(key, count, accesses) {
                Some(run) => run,
                None => self.define(key, count, accesses, pc),
            };
            self.execute(run, accesses);
        }
        self.instructions += count;
        self.accesses += accesses.len();
        if self.instructions >= PIECE || self.accesses >= PIECE_ACCESSES {
            self.end_piece()?;
        }
        Ok(())
    }

    fn find(&self, key: u32, count: u64, accesses: &[(u32, Access)]) -> Option<u32> {
        let &(piece, run) = self.by_key.get(key as usize)?;
        let mut next = (piece == self.pieces + 1).then_some(run);
        while let Some(number) = next {
            let run = &self.runs[number as usize];
            if run.fits(count, accesses) {
                return Some(number);
            }
            next = run.before;
        }
        None
    }

    #[cold]
    fn define(
        &mut self,
        key: u32,
        count: u64,
        accesses: &[(u32, Access)],
        pc: impl Fn(u32) -> u64,
    ) -> u32 {
        self.repeat();
        let start = pc(0);
        let mut put = |number: u64| leb128(number, &mut self.piece);
        put(RUN);
        put(zigzag(start.wrapping_sub(self.address)));
        put(count);
        put(accesses.len() as u64);
        let mut slots: Vec<Slot> = Vec::with_capacity(accesses.len());
        let mut before = (0, 0);
        for &(instruction, Access { bytes, store, .. }) in accesses {
            let offset = pc(instruction).wrapping_sub(start) as u32;
            put((instruction - before.0).into());
            put((offset - before.1).into());
            put(u64::from(bytes) << 1 | u64::from(store));
            before = (instruction, offset);
            slots.push(Slot {
                instruction,
                offset,
                bytes,
                store,
                last: self.last,
                stride: 0,
            });
        }
        self.address = start;
        let number = self.runs.len() as u32;
        let count_of_keys = self.by_key.len().max(key as usize + 1);
        self.by_key.resize(count_of_keys, (0, 0));
        let known = &mut self.by_key[key as usize];
        let piece = self.pieces + 1;
        let before = (known.0 == piece).then_some(known.1);
        *known = (piece, number);
        self.runs.push(Run {
            instructions: count,
            slots,
            before,
        });
        number
    }

    fn execute(&mut self, number: u32, accesses: &[(u32, Access)]) {
        let slots = &self.runs[number as usize].slots;
        let mut pairs = slots.iter().zip(accesses);
        let predicted = pairs.all(|(slot, (_, access))| slot.predicted() == access.address);
        if predicted && self.executed == Some(number) {
            self.again += 1;
        } else {
            self.repeat();
            self.pass();
            leb128(EXECUTED + u64::from(number), &mut self.piece);
            for (slot, (_, access)) in self.runs[number as usize].slots.iter().zip(accesses) {
                let difference = access.address.wrapping_sub(slot.predicted());
                leb128(zigzag(difference), &mut self.piece);
            }
            self.executed = Some(number);
        }
        for (slot, (_, access)) in self.runs[number as usize].slots.iter_mut().zip(accesses) {
            slot.moves_to(access.address);
            self.last = access.address;
        }
    }

    /// Writes how many more times the last run was executed. Its next execution is written in full.
    fn repeat(&mut self) {
        if self.again > 0 {
            leb128(AGAIN, &mut self.piece);
            leb128(self.again, &mut self.piece);
        }
        self.again = 0;
        self.executed = None;
    }

    fn pass(&mut self) {
        if self.passed > 0 {
            leb128(PASSED, &mut self.piece);
            leb128(self.passed, &mut self.piece);
        }
        self.passed = 0;
    }

    fn end_piece(&mut self) -> io::Result<()> {
        self.repeat();
        self.pass();
        self.out.write_all(&self.piece)?;
        self.offset += self.piece.len() as u64;
        self.pieces += 1;
        leb128(self.instructions, &mut self.index);
        leb128(self.piece.len() as u64, &mut self.index);
        self.piece.clear();
        self.runs.clear();
        (self.instructions, self.accesses) = (0, 0);
        (self.address, self.last) = (0, 0);
        Ok(())
    }

    /// Writes what remains, and the index.
    ///
    /// # Errors
    ///
    /// Returns an error if the output cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        if self.instructions > 0 {
            self.end_piece()?;
        }
        let mut count = Vec::new();
        leb128(self.pieces, &mut count);
        self.out.write_all(&count)?;
        self.out.write_all(&self.index)?;
        self.out.write_all(&self.offset.to_le_bytes())?;
        self.out.flush()
    }
}
