//! Trace files: description and trace frames → bytes.

use super::read::ByteOrder;
use super::{Description, HEADER, MAGIC, TRACEPOINT_LIMIT};
use byteorder::{BigEndian, ByteOrder as _, LittleEndian};
use std::io::{self, Write};

/// Writes a trace file, frame by frame.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    order: ByteOrder,
    register_bytes: usize,
    /// The frame under construction, including space for its header.
    frame: Vec<u8>,
    frames: u64,
}

/// The maximum number of bytes of memory in one block.
const BLOCK: usize = u16::MAX as usize;

/// The number of bytes that memory of `length` bytes takes in a frame.
pub fn memory_size(length: usize) -> usize {
    length + length.div_ceil(BLOCK) * 11
}

/// The maximum amount of memory that fits into `room` bytes of a frame.
pub fn memory_length(room: usize) -> usize {
    const WHOLE: usize = BLOCK + 11;
    room / WHOLE * BLOCK + (room % WHOLE).saturating_sub(11)
}

fn memory_blocks(address: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let parts = bytes.chunks(BLOCK).enumerate();
    parts.map(move |(number, part)| (address.wrapping_add((number * BLOCK) as u64), part))
}

fn invalid(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

impl<W: Write> Writer<W> {
    /// Writes the first line and the description.
    ///
    /// # Errors
    ///
    /// If GDB could not read the description, or writing fails.
    pub fn new(mut out: W, description: &Description, order: ByteOrder) -> io::Result<Self> {
        let text = description.write().map_err(invalid)?;
        out.write_all(MAGIC)?;
        out.write_all(text.as_bytes())?;
        out.write_all(b"\n")?;
        Ok(Self::bare(out, description.register_bytes as usize, order))
    }

    /// Writes only trace frames, as in a trace buffer. Register blocks have `register_bytes` bytes.
    pub fn bare(out: W, register_bytes: usize, order: ByteOrder) -> Self {
        Self {
            out,
            order,
            register_bytes,
            frame: vec![0; HEADER],
            frames: 0,
        }
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

    /// Adds a register block to the frame.
    ///
    /// # Errors
    ///
    /// If its size is not the one in `R`.
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
        for (address, part) in memory_blocks(address, bytes) {
            self.memory_header(address, part.len() as u16);
            self.frame.extend_from_slice(part);
        }
    }

    fn memory_header(&mut self, address: u64, length: u16) {
        self.frame.push(b'M');
        self.u64(address);
        self.u16(length);
    }

    /// Adds the value of a trace state variable to the frame.
    pub fn variable(&mut self, number: i32, value: i64) {
        self.frame.push(b'V');
        self.u32(number.cast_unsigned());
        self.u64(value.cast_unsigned());
    }

    /// Ends the frame, which belongs to a tracepoint with a number from 1 to 32767.
    ///
    /// # Errors
    ///
    /// If the number is out of range, the frame is too large, or writing fails.
    pub fn end_frame(&mut self, tracepoint: u16) -> io::Result<()> {
        self.end_frame_with(tracepoint, &[])
    }

    /// Ends the frame with memory that is not copied into it first: address and bytes of each
    /// piece, in blocks of up to 65535 bytes.
    ///
    /// # Errors
    ///
    /// Those of [`Self::end_frame`].
    pub fn end_frame_with(&mut self, tracepoint: u16, memory: &[(u64, &[u8])]) -> io::Result<()> {
        if !(1..=TRACEPOINT_LIMIT).contains(&tracepoint) {
            return Err(invalid(format!(
                "tracepoint {tracepoint}: expected a number from 1 to {TRACEPOINT_LIMIT}"
            )));
        }
        let streamed: usize = memory
            .iter()
            .map(|(_, bytes)| memory_size(bytes.len()))
            .sum();
        let size = u32::try_from(self.frame.len() - HEADER + streamed)
            .map_err(|_| invalid("a trace frame of 4 GiB or more".to_owned()))?;
        let body = self.frame.len();
        self.u16(tracepoint);
        self.u32(size);
        self.frame.copy_within(body.., 0);
        self.out.write_all(&self.frame[..body])?;
        for (address, bytes) in memory {
            for (address, part) in memory_blocks(*address, bytes) {
                self.frame.clear();
                self.memory_header(address, part.len() as u16);
                self.out.write_all(&self.frame)?;
                self.out.write_all(part)?;
            }
        }
        self.frame.clear();
        self.frame.resize(HEADER, 0);
        self.frames += 1;
        Ok(())
    }

    /// The number of frames written.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the underlying writer, without ending the file.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Ends the file as GDB does, and returns the underlying writer.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 4])?;
        self.out.flush()?;
        Ok(self.out)
    }
}
