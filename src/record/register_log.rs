//! The register log: the registers and stores of a thread after each instruction.
//!
//! The first line of a file is `armsnap registers 1`. All numbers are unsigned LEB128. The line is
//! followed by the number of registers and the name of each (length, bytes), and then by the steps.
//! The first step is the state before the first instruction; each further step is the effect of one
//! instruction:
//!
//! - `1`
//! - the number of changed registers; for each: index, new value
//! - the number of stores; for each: address, length, and the bytes in memory after the instruction
//!
//! `0` ends the file. Before the first step all registers are zero.

use super::input::Input;
use armsnap_trace::protocol::number::leb128;
use std::io::{self, BufRead, Write};

const FIRST: &str = "armsnap registers 1\n";

/// A store: its address, and the bytes in memory after it.
pub type Store = (u64, Vec<u8>);

/// Writes a register log.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    buffer: Vec<u8>,
    values: Vec<u64>,
}

impl<W: Write> Writer<W> {
    /// Writes the header with the names of the registers.
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    pub fn new(out: W, names: &[String]) -> io::Result<Self> {
        let mut buffer = Vec::from(FIRST);
        leb128(names.len() as u64, &mut buffer);
        for name in names {
            leb128(name.len() as u64, &mut buffer);
            buffer.extend_from_slice(name.as_bytes());
        }
        let mut writer = Self {
            out,
            buffer,
            values: vec![0; names.len()],
        };
        writer.flush()?;
        Ok(writer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the values of all registers after an instruction, and its stores.
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    pub fn step(&mut self, values: &[u64], stores: &[Store]) -> io::Result<()> {
        let pairs = self.values.iter().zip(values).enumerate();
        let changed = pairs.filter(|(_, (old, new))| old != new);
        let changed: Vec<(usize, u64)> = changed.map(|(index, (_, new))| (index, *new)).collect();
        leb128(1_u64, &mut self.buffer);
        leb128(changed.len() as u64, &mut self.buffer);
        for (index, value) in changed {
            leb128(index as u64, &mut self.buffer);
            leb128(value, &mut self.buffer);
            self.values[index] = value;
        }
        leb128(stores.len() as u64, &mut self.buffer);
        for (address, bytes) in stores {
            leb128(*address, &mut self.buffer);
            leb128(bytes.len() as u64, &mut self.buffer);
            self.buffer.extend_from_slice(bytes);
        }
        self.flush()
    }

    /// Writes the end of the log.
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        leb128(0_u64, &mut self.buffer);
        self.flush()?;
        self.out.flush()
    }
}

/// Reads a register log.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    names: Vec<String>,
    values: Vec<u64>,
    stores: Vec<Store>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// If the input cannot be read, or is no register log.
    pub fn new(input: R) -> io::Result<Self> {
        const MOST: u64 = 1 << 10;
        let mut reader = Self {
            input: Input::new(input, "register log", FIRST)?,
            names: Vec::new(),
            values: Vec::new(),
            stores: Vec::new(),
        };
        let count = reader.input.number()?;
        if count > MOST {
            return Err(reader.input.bad("too many registers"));
        }
        for _ in 0..count {
            let name = reader.bytes()?;
            reader
                .names
                .push(String::from_utf8_lossy(&name).into_owned());
        }
        reader.values = vec![0; reader.names.len()];
        Ok(reader)
    }

    fn bytes(&mut self) -> io::Result<Vec<u8>> {
        const MOST: u64 = 1 << 10;
        let count = self.input.number()?;
        if count > MOST {
            return Err(self.input.bad("a name or store that is too long"));
        }
        self.input.bytes(count as usize)
    }

    /// Returns the names of the registers.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the values of the registers after the last step read.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// Returns the stores of the last step read.
    pub fn stores(&self) -> &[Store] {
        &self.stores
    }

    /// Reads the next step; returns false at the end.
    ///
    /// # Errors
    ///
    /// If the input cannot be read or is malformed.
    pub fn step(&mut self) -> io::Result<bool> {
        match self.input.number()? {
            0 => return Ok(false),
            1 => {}
            _ => return Err(self.input.bad("a record of an unknown kind")),
        }
        for _ in 0..self.input.number()? {
            let index = self.input.number()?;
            let value = self.input.number()?;
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            match self.values.get_mut(index) {
                Some(register) => *register = value,
                None => return Err(self.input.bad("a register without a name")),
            }
        }
        self.stores.clear();
        for _ in 0..self.input.number()? {
            let address = self.input.number()?;
            let bytes = self.bytes()?;
            self.stores.push((address, bytes));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_logs_are_read_back() {
        let mut bytes = Vec::new();
        let names = ["x0".to_owned(), "pc".to_owned()];
        let mut writer = Writer::new(&mut bytes, &names).unwrap();
        writer.step(&[0, 0x40_0000], &[]).unwrap();
        let store = (0x1234_5678, vec![1, 2, 3, 4]);
        writer
            .step(&[u64::MAX, 0x40_0004], std::slice::from_ref(&store))
            .unwrap();
        writer.finish().unwrap();
        let mut reader = Reader::new(&*bytes).unwrap();
        assert_eq!(reader.names(), names);
        assert!(reader.step().unwrap());
        assert_eq!(
            (reader.values(), reader.stores()),
            (&[0, 0x40_0000][..], &[][..])
        );
        assert!(reader.step().unwrap());
        assert_eq!(reader.values(), [u64::MAX, 0x40_0004]);
        assert_eq!(reader.stores(), [store]);
        assert!(!reader.step().unwrap());
        for length in 0..bytes.len() {
            let read = Reader::new(&bytes[..length]).and_then(|mut reader| {
                while reader.step()? {}
                Ok(())
            });
            assert!(read.is_err(), "{length}");
        }
    }
}
