//! The witness of states: the registers of a thread and its stores, instruction by instruction.
//!
//! A file begins with the line `armsnap registers 1`. Numbers are LEB128 without sign. Behind the
//! line come the count of registers and the name of each (its length, its bytes). Then come
//! steps, the first one with the state before the first instruction, each other one with what the
//! next instruction did: `1`; the count of registers that changed; of each its index and its new
//! value; the count of stores; of each its address, its count of bytes, and these as they are in
//! memory behind the instruction. `0` ends the file.
//!
//! Before the first step all registers are zero. Knows nothing of trace.

use std::io::{self, BufRead, Write};

const MAGIC: &[u8] = b"armsnap registers 1\n";

/// A store: where, and the bytes that are there now.
pub type Store = (u64, Vec<u8>);

/// Writes a witness of states.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    buffer: Vec<u8>,
    values: Vec<u64>,
}

fn put(buffer: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        buffer.push(number as u8 | 0x80);
        number >>= 7;
    }
    buffer.push(number as u8);
}

impl<W: Write> Writer<W> {
    /// Begins with the names of the registers.
    pub fn new(out: W, names: &[String]) -> io::Result<Self> {
        let mut buffer = MAGIC.to_vec();
        put(&mut buffer, names.len() as u64);
        for name in names {
            put(&mut buffer, name.len() as u64);
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

    /// All registers after an instruction, and its stores.
    pub fn step(&mut self, values: &[u64], stores: &[Store]) -> io::Result<()> {
        let pairs = self.values.iter().zip(values).enumerate();
        let changed = pairs.filter(|(_, (old, new))| old != new);
        let changed: Vec<(usize, u64)> = changed.map(|(index, (_, new))| (index, *new)).collect();
        put(&mut self.buffer, 1);
        put(&mut self.buffer, changed.len() as u64);
        for (index, value) in changed {
            put(&mut self.buffer, index as u64);
            put(&mut self.buffer, value);
            self.values[index] = value;
        }
        put(&mut self.buffer, stores.len() as u64);
        for (address, bytes) in stores {
            put(&mut self.buffer, *address);
            put(&mut self.buffer, bytes.len() as u64);
            self.buffer.extend_from_slice(bytes);
        }
        self.flush()
    }

    /// Writes the end.
    pub fn finish(mut self) -> io::Result<()> {
        put(&mut self.buffer, 0);
        self.flush()?;
        self.out.flush()
    }
}

/// Reads a witness of states.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    names: Vec<String>,
    values: Vec<u64>,
    stores: Vec<Store>,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("witness of registers: {what}"),
    )
}

impl<R: BufRead> Reader<R> {
    /// Reads the begin.
    pub fn new(mut input: R) -> io::Result<Self> {
        const MOST: u64 = 1 << 10;
        let mut magic = [0; MAGIC.len()];
        input.read_exact(&mut magic)?;
        if magic != MAGIC {
            return Err(bad("expected \"armsnap registers 1\" at the begin"));
        }
        let mut reader = Self {
            input,
            names: Vec::new(),
            values: Vec::new(),
            stores: Vec::new(),
        };
        let count = reader.number()?;
        if count > MOST {
            return Err(bad("too many registers"));
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

    fn number(&mut self) -> io::Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.input.read_exact(&mut byte)?;
            number |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(bad("a number of more than 64 bits"))
    }

    fn bytes(&mut self) -> io::Result<Vec<u8>> {
        const MOST: u64 = 1 << 10;
        let count = self.number()?;
        if count > MOST {
            return Err(bad("a name or a store is too long"));
        }
        let mut bytes = vec![0; count as usize];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// The names of the registers.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Their values after the step that was read last.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// The stores of the step that was read last.
    pub fn stores(&self) -> &[Store] {
        &self.stores
    }

    /// Reads the next step; false at the end.
    pub fn step(&mut self) -> io::Result<bool> {
        match self.number()? {
            0 => return Ok(false),
            1 => {}
            _ => return Err(bad("a record of an unknown kind")),
        }
        for _ in 0..self.number()? {
            let index = self.number()?;
            let value = self.number()?;
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            let register = self.values.get_mut(index);
            *register.ok_or_else(|| bad("a register that has no name"))? = value;
        }
        self.stores.clear();
        for _ in 0..self.number()? {
            let address = self.number()?;
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
    fn what_is_written_is_read() {
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
