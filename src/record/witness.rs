//! The witness: the ground-truth log of executed instructions, per core.
//!
//! The first line of a file is `armsnap witness 1`. It is followed by records of unsigned LEB128
//! numbers. The first number of a record is its kind:
//!
//! | kind | fields | meaning |
//! | --- | --- | --- |
//! | 0 | address, instruction set (0 A64, 1 A32, 2 T32), count; for T32 the size of each instruction | the next block, numbered from 0: a straight run of instructions |
//! | 1 | core | the following records are of this core |
//! | 2 | number, address, instruction set | an exception: a signal (Linux number) or the number in the trace protocol, and where execution would have continued |
//! | 3 | block, count | only the first `count` instructions of the block were executed |
//! | 4 | count | the previous block was executed `count` more times, completely |
//! | 5 | | the end |
//! | 8 + n | | block n was executed |

use super::blocks::{Block, NOT_IN_STREAM};
use super::input::Input;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_trace::encode::CodeAddress;
use armsnap_trace::protocol::number::leb128;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

const FIRST: &str = "armsnap witness 1\n";
const BLOCK: u64 = 0;
const CORE: u64 = 1;
const EXCEPTION: u64 = 2;
const PART: u64 = 3;
const AGAIN: u64 = 4;
const END: u64 = 5;
const EXECUTED: u64 = 8;

/// The maximum number of instructions of a block, above that of the emulator.
const MOST: u64 = 1 << 12;

/// The maximum number of instructions of all blocks.
const MAX_OF_ALL: usize = 1 << 28;

/// Writes a witness.
pub struct Writer {
    out: Box<dyn Write + Send>,
    buffer: Vec<u8>,
    /// The number in the witness of each block, by its ID in the stream.
    numbers: Vec<Option<u64>>,
    defined: u64,
    core: Option<u32>,
    /// The last completely executed block, and its number of repetitions.
    last: Option<(u64, u64)>,
    /// Whether the file cannot be extended any more.
    is_full: bool,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("core", &self.core).finish()
    }
}

fn number_of(isa: Isa) -> u64 {
    match isa {
        Isa::A64 => 0,
        Isa::A32 | Isa::Jazelle => 1,
        Isa::T32 | Isa::ThumbEe => 2,
    }
}

impl Writer {
    /// Starts a witness.
    pub fn new(out: Box<dyn Write + Send>) -> Self {
        Self {
            out,
            buffer: FIRST.into(),
            numbers: Vec::new(),
            defined: 0,
            core: None,
            last: None,
            is_full: false,
        }
    }

    fn put(&mut self, number: u64) {
        leb128(number, &mut self.buffer);
    }

    /// Writes how often the last block was repeated.
    fn settle(&mut self) {
        if let Some((_, again)) = self.last.take()
            && again > 0
        {
            self.put(AGAIN);
            self.put(again);
        }
    }

    fn select(&mut self, core: u32) -> io::Result<()> {
        if self.core != Some(core) {
            self.settle();
            self.core = Some(core);
            self.put(CORE);
            self.put(core.into());
        }
        if self.buffer.len() >= 1 << 16 {
            return self.store();
        }
        Ok(())
    }

    /// Writes the buffer, or drops it once the file cannot be extended. Only the first failure is an
    /// error.
    fn store(&mut self) -> io::Result<()> {
        let stored = match self.is_full {
            true => Ok(()),
            false => self.out.write_all(&self.buffer),
        };
        self.is_full |= stored.is_err();
        self.buffer.clear();
        stored
    }

    fn number(&mut self, block: &Block) -> u64 {
        let index = block.id as usize;
        if let Some(Some(number)) = self.numbers.get(index) {
            return *number;
        }
        self.settle();
        self.put(BLOCK);
        self.put(block.start.address.0);
        self.put(number_of(block.start.isa));
        self.put(block.instructions.len() as u64);
        if block.start.isa == Isa::T32 {
            let sizes = block.instructions.iter().map(|i| i.bytes);
            self.buffer.extend(sizes);
        }
        let number = self.defined;
        self.defined += 1;
        if block.id == NOT_IN_STREAM {
            return number;
        }
        if self.numbers.len() <= index {
            self.numbers.resize(index + 1, None);
        }
        self.numbers[index] = Some(number);
        number
    }

    /// Records the execution of the first `count` instructions of a block.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn ran(&mut self, core: u32, block: &Block, count: usize) -> io::Result<()> {
        self.select(core)?;
        let number = self.number(block);
        if count < block.instructions.len() {
            self.settle();
            self.put(PART);
            self.put(number);
            self.put(count as u64);
        } else if let Some((last, again)) = &mut self.last
            && *last == number
        {
            *again += 1;
        } else {
            self.settle();
            self.put(EXECUTED + number);
            self.last = Some((number, 0));
        }
        Ok(())
    }

    /// Records an exception; execution would have continued at `return_to`.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn exception(&mut self, core: u32, number: u32, return_to: CodeAddress) -> io::Result<()> {
        self.select(core)?;
        self.settle();
        self.put(EXCEPTION);
        self.put(number.into());
        self.put(return_to.address.0);
        self.put(number_of(return_to.isa));
        Ok(())
    }

    /// Writes the end of the witness.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.settle();
        self.put(END);
        self.store()?;
        match self.is_full {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => self.out.flush(),
        }
    }
}

/// A record of a witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A core executed the first `count` instructions of a block, `times` times.
    Ran {
        /// The core.
        core: u32,
        /// The block's number.
        block: usize,
        /// The number of instructions.
        count: usize,
        /// The number of executions.
        times: u64,
    },
    /// A core took an exception.
    Exception {
        /// The core.
        core: u32,
        /// Its number.
        number: u32,
        /// Where execution would have continued.
        return_to: CodeAddress,
    },
}

/// A straight run of instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionRun {
    /// The first instruction.
    pub start: CodeAddress,
    /// The size of each instruction in bytes.
    pub sizes: Vec<u8>,
}

impl InstructionRun {
    /// Returns the addresses and instruction sets of its instructions.
    pub fn places(&self) -> impl Iterator<Item = CodeAddress> {
        let mut next = self.start;
        self.sizes.iter().map(move |&size| {
            let place = next;
            next.address.0 = next.address.0.wrapping_add(size.into());
            place
        })
    }
}

/// Reads a witness.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    blocks: Vec<InstructionRun>,
    /// The number of instructions of all blocks.
    instructions: usize,
    core: u32,
    /// The last completely executed block.
    last: Option<usize>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// If the input cannot be read, or is no witness.
    pub fn new(input: R) -> io::Result<Self> {
        Ok(Self {
            input: Input::new(input, "witness", FIRST)?,
            blocks: Vec::new(),
            instructions: 0,
            core: 0,
            last: None,
        })
    }

    /// Returns a block by number.
    pub fn block(&self, number: usize) -> Option<&InstructionRun> {
        self.blocks.get(number)
    }

    fn place(&mut self) -> io::Result<CodeAddress> {
        let address = Address(self.input.number()?);
        let isa = match self.input.number()? {
            0 => Isa::A64,
            1 => Isa::A32,
            2 => Isa::T32,
            _ => return Err(self.input.bad("an unknown instruction set")),
        };
        Ok(CodeAddress { address, isa })
    }

    fn define(&mut self) -> io::Result<()> {
        let start = self.place()?;
        let count = self.input.number()?;
        if !(1..=MOST).contains(&count) {
            return Err(self
                .input
                .bad("a block without instructions, or with too many"));
        }
        let count = count as usize;
        self.instructions += count;
        if self.instructions > MAX_OF_ALL {
            return Err(self.input.bad("too many blocks"));
        }
        let sizes = match start.isa {
            Isa::T32 => self.input.bytes(count)?,
            _ => vec![4; count],
        };
        self.blocks.push(InstructionRun { start, sizes });
        Ok(())
    }

    fn ran(&self, block: usize, count: Option<usize>, times: u64) -> io::Result<Record> {
        let all = self
            .blocks
            .get(block)
            .ok_or_else(|| self.input.bad("a block that is not defined"))?
            .sizes
            .len();
        Ok(Record::Ran {
            core: self.core,
            block,
            count: count.unwrap_or(all).min(all),
            times,
        })
    }

    /// Reads the next record; `None` at the end.
    ///
    /// # Errors
    ///
    /// If the input cannot be read or is malformed.
    pub fn read(&mut self) -> io::Result<Option<Record>> {
        loop {
            match self.input.number()? {
                BLOCK => self.define()?,
                CORE => {
                    let core = self.input.number()?;
                    self.core = u32::try_from(core)
                        .map_err(|_| self.input.bad("an invalid core number"))?;
                    self.last = None;
                }
                EXCEPTION => {
                    let number = self.input.number()? as u32;
                    let return_to = self.place()?;
                    self.last = None;
                    return Ok(Some(Record::Exception {
                        core: self.core,
                        number,
                        return_to,
                    }));
                }
                PART => {
                    let (block, count) =
                        (self.input.number()? as usize, self.input.number()? as usize);
                    self.last = None;
                    return self.ran(block, Some(count), 1).map(Some);
                }
                AGAIN => {
                    let times = self.input.number()?;
                    let block = self
                        .last
                        .ok_or_else(|| self.input.bad("a repetition without a block"))?;
                    return self.ran(block, None, times).map(Some);
                }
                END => return Ok(None),
                executed => {
                    let block = executed
                        .checked_sub(EXECUTED)
                        .ok_or_else(|| self.input.bad("a record of an unknown kind"))?;
                    self.last = Some(block as usize);
                    return self.ran(block as usize, None, 1).map(Some);
                }
            }
        }
    }

    /// Reads all instructions of each core, in order.
    ///
    /// # Errors
    ///
    /// If the input cannot be read or is malformed, or has more than `most` instructions.
    pub fn places(mut self, most: u64) -> io::Result<BTreeMap<u32, Vec<CodeAddress>>> {
        let mut cores: BTreeMap<u32, Vec<CodeAddress>> = BTreeMap::new();
        let mut left = most;
        while let Some(record) = self.read()? {
            let Record::Ran {
                core,
                block,
                count,
                times,
            } = record
            else {
                continue;
            };
            let run = &self.blocks[block];
            let places = cores.entry(core).or_default();
            for _ in 0..times {
                left = left
                    .checked_sub(count as u64)
                    .ok_or_else(|| self.input.bad("more instructions than the caller's limit"))?;
                places.extend(run.places().take(count));
            }
        }
        Ok(cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::blocks::{BlockTable, Sets};
    use crate::record::stream::Definition;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn witness() -> Vec<u8> {
        let mut table = BlockTable::new(Sets::T32);
        // nop, nop.w
        let code = [0x00, 0xbf, 0xaf, 0xf3, 0x00, 0x80];
        for (id, address) in (0..).zip([0x1000, 0x2000]) {
            let definition = Definition {
                id,
                address,
                sizes: &[2, 4],
                bytes: &code,
                text: &[],
                isa: None,
            };
            table.add(&definition).unwrap();
        }
        let out = Shared::default();
        let mut writer = Writer::new(Box::new(out.clone()));
        let (first, second) = (table.get(0).unwrap(), table.get(1).unwrap());
        for _ in 0..3 {
            writer.ran(0, first, 2).unwrap();
        }
        writer.ran(1, second, 1).unwrap();
        let return_to = CodeAddress {
            address: Address(0x2002),
            isa: Isa::T32,
        };
        writer.exception(1, 11, return_to).unwrap();
        writer.ran(0, second, 2).unwrap();
        writer.finish().unwrap();
        out.0.lock().unwrap().clone()
    }

    #[test]
    fn a_written_witness_is_read_back() {
        let bytes = witness();
        let places = Reader::new(&*bytes).unwrap().places(100).unwrap();
        let of = |core: u32| -> Vec<u64> { places[&core].iter().map(|p| p.address.0).collect() };
        let once = [0x1000, 0x1002];
        assert_eq!(of(0), [&once[..], &once, &once, &[0x2000, 0x2002]].concat());
        assert_eq!(of(1), [0x2000]);
        assert!(Reader::new(&*bytes).unwrap().places(8).is_err());
    }

    #[test]
    fn blocks_of_impossible_lengths() {
        let read = |numbers: &[u64]| {
            let mut bytes = Vec::from(FIRST);
            for &number in numbers {
                leb128(number, &mut bytes);
            }
            Reader::new(&*bytes).and_then(|reader| reader.places(1000))
        };
        // A block that is defined, executed, and executed `times` more times.
        let read_all = |count, times| read(&[BLOCK, 0x1000, 0, count, EXECUTED, AGAIN, times, END]);
        assert_eq!(read_all(2, 4).unwrap()[&0].len(), 10);
        for (count, times) in [(0, u64::MAX), (2, u64::MAX), (MOST + 1, 0), (u64::MAX, 0)] {
            assert!(read_all(count, times).is_err(), "{count} {times}");
        }
    }

    #[test]
    fn a_truncated_or_changed_witness_causes_no_panic() {
        let bytes = witness();
        for length in 0..bytes.len() {
            let read = Reader::new(&bytes[..length]).and_then(|reader| reader.places(1000));
            assert!(read.is_err(), "{length}");
        }
        for place in 0..bytes.len() {
            for value in [0, 1, 4, 0x80, 0xff] {
                let mut bytes = bytes.clone();
                bytes[place] = value;
                let _ = Reader::new(&*bytes).and_then(|reader| reader.places(1000));
            }
        }
    }
}
