//! Trace files: description and trace frames → bytes.

use super::read::ByteOrder;
use super::{Description, MAGIC, TRACEPOINT_LIMIT};
use byteorder::{BigEndian, ByteOrder as _, LittleEndian};
use std::io::{self, Write};

/// Writes a trace file, frame by frame.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    order: ByteOrder,
    register_bytes: usize,
    /// The frame that is being put together, with its header.
    frame: Vec<u8>,
    frames: u64,
}

/// Tracepoint number and size, before a frame's data.
const HEADER: usize = 6;

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl<W: Write> Writer<W> {
    /// Writes the first line and the description.
    pub fn new(mut out: W, description: &Description, order: ByteOrder) -> io::Result<Self> {
        let text = description.write().map_err(invalid)?;
        out.write_all(MAGIC)?;
        out.write_all(text.as_bytes())?;
        out.write_all(b"\n")?;
        Ok(Self {
            out,
            order,
            register_bytes: description.register_bytes as usize,
            frame: vec![0; HEADER],
            frames: 0,
        })
    }

    fn u16(&mut self, value: u16) {
        let mut bytes = [0; 2];
        match self.order {
            ByteOrder::Little => LittleEndian::write_u16(&mut bytes, value),
            ByteOrder::Big => BigEndian::write_u16(&mut bytes, value),
        }
        self.frame.extend_from_slice(&bytes);
    }

    fn u32(&mut self, value: u32) {
        let mut bytes = [0; 4];
        match self.order {
            ByteOrder::Little => LittleEndian::write_u32(&mut bytes, value),
            ByteOrder::Big => BigEndian::write_u32(&mut bytes, value),
        }
        self.frame.extend_from_slice(&bytes);
    }

    fn u64(&mut self, value: u64) {
        let mut bytes = [0; 8];
        match self.order {
            ByteOrder::Little => LittleEndian::write_u64(&mut bytes, value),
            ByteOrder::Big => BigEndian::write_u64(&mut bytes, value),
        }
        self.frame.extend_from_slice(&bytes);
    }

    /// Adds a register block to the frame. It has exactly the bytes that `R` tells.
    pub fn registers(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() != self.register_bytes {
            return Err(invalid(format!(
                "a register block of {} bytes, expected {}",
                bytes.len(),
                self.register_bytes
            )));
        }
        self.frame.push(b'R');
        self.frame.extend_from_slice(bytes);
        Ok(())
    }

    /// Adds memory to the frame, in blocks of up to 65535 bytes.
    pub fn memory(&mut self, address: u64, bytes: &[u8]) {
        let parts = bytes.chunks(usize::from(u16::MAX));
        for (number, part) in parts.enumerate() {
            let offset = (number * usize::from(u16::MAX)) as u64;
            self.frame.push(b'M');
            self.u64(address.wrapping_add(offset));
            self.u16(part.len() as u16);
            self.frame.extend_from_slice(part);
        }
    }

    /// Adds the value of a trace state variable to the frame.
    pub fn variable(&mut self, number: i32, value: i64) {
        self.frame.push(b'V');
        self.u32(number.cast_unsigned());
        self.u64(value.cast_unsigned());
    }

    /// Ends the frame, which belongs to a tracepoint of number 1 to 32767.
    pub fn end_frame(&mut self, tracepoint: u16) -> io::Result<()> {
        if !(1..=TRACEPOINT_LIMIT).contains(&tracepoint) {
            return Err(invalid(format!(
                "tracepoint {tracepoint}: expected a number from 1 to {TRACEPOINT_LIMIT}"
            )));
        }
        let size = u32::try_from(self.frame.len() - HEADER)
            .map_err(|_| invalid("a trace frame of 4 GiB or more".to_owned()))?;
        let body = self.frame.len();
        self.u16(tracepoint);
        self.u32(size);
        self.frame.copy_within(body.., 0);
        self.out.write_all(&self.frame[..body])?;
        self.frame.clear();
        self.frame.resize(HEADER, 0);
        self.frames += 1;
        Ok(())
    }

    /// How many frames were written.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Ends the file as GDB does, and gives back what it was written to.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 4])?;
        self.out.flush()?;
        Ok(self.out)
    }
}
