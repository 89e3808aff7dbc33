//! Trace files: bytes → description and trace frames.
//!
//! Frames are walked, not loaded: the index contains one entry for every [`STRIDE`] frames and is
//! built on demand.

use super::description::{Description, RegisterSizes};
use super::note::{LineFault, Note};
use super::{HEADER, MAGIC};
use byteorder::{BigEndian, ByteOrder as _, LittleEndian};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;

/// Frames between two entries of the index.
const STRIDE: usize = 256;

/// Frames examined to determine the byte order and the size of register blocks.
const SAMPLE: usize = 64;
/// Bytes walked before their memory is released.
const RELEASED: usize = 16 << 20;
/// The frame size in bytes from which only the header is read.
const LARGE: usize = 32 << 10;

/// The byte order of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The first two bytes.
    pub fn u16(self, bytes: &[u8]) -> u16 {
        match self {
            Self::Little => LittleEndian::read_u16(bytes),
            Self::Big => BigEndian::read_u16(bytes),
        }
    }

    /// The first four bytes.
    pub fn u32(self, bytes: &[u8]) -> u32 {
        match self {
            Self::Little => LittleEndian::read_u32(bytes),
            Self::Big => BigEndian::read_u32(bytes),
        }
    }

    /// The first eight bytes.
    pub fn u64(self, bytes: &[u8]) -> u64 {
        match self {
            Self::Little => LittleEndian::read_u64(bytes),
            Self::Big => BigEndian::read_u64(bytes),
        }
    }
}

/// Why bytes are not a trace file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The first line is not that of a trace file.
    #[error("line 1: expected \\x7fTRACE0, found {0:?}: GDB's tsave writes trace files")]
    Magic(String),
    /// The description has no end.
    #[error("line {0}: the description ends without an empty line")]
    Unended(usize),
    /// A frame extends beyond the end of the file.
    #[error(
        "trace frame {frame} at byte {at:#x}: its {size} bytes reach beyond the file's end ({left} left)"
    )]
    Cut {
        /// Its number, from 0.
        frame: usize,
        /// Its offset in the file.
        at: usize,
        /// Its size according to its header.
        size: usize,
        /// The number of bytes left in the file.
        left: usize,
    },
}

/// A trace file.
#[derive(Debug)]
pub struct File<'a> {
    bytes: &'a [u8],
    description: Description,
    order: ByteOrder,
    first: usize,
    notes: Vec<Note>,
    index: Mutex<Index>,
    release: Option<Release<'a>>,
}

/// Releases the memory of bytes that were walked.
struct Release<'a>(Box<dyn Fn(Range<usize>) + Send + Sync + 'a>);

impl fmt::Debug for Release<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Release")
    }
}

#[derive(Debug)]
struct Index {
    /// The offset of frame `n * STRIDE`.
    places: Vec<usize>,
    /// The number of frames, once known.
    count: Option<usize>,
}

impl<'a> File<'a> {
    /// Reads the description; frames are read on demand. Their byte order is the one in which they
    /// are consistent; the order of a program (`program_order`) is used only if they are consistent
    /// in both. We write little-endian frames even for big-endian programs.
    ///
    /// # Errors
    ///
    /// If the bytes do not start like a trace file, or the description has no end.
    pub fn open(bytes: &'a [u8], program_order: Option<ByteOrder>) -> Result<Self, Error> {
        if !bytes.starts_with(MAGIC) {
            let line = bytes.split(|&b| b == b'\n').next().unwrap_or_default();
            let line = &line[..line.len().min(20)];
            return Err(Error::Magic(String::from_utf8_lossy(line).into_owned()));
        }
        let mut notes = Vec::new();
        let mut description = Description::default();
        let mut index = HashMap::new();
        let mut sizes = None;
        let mut at = MAGIC.len();
        let mut number = 1;
        loop {
            number += 1;
            let rest = &bytes[at..];
            let length = memchr::memchr(b'\n', rest).ok_or(Error::Unended(number))?;
            at += length + 1;
            if length == 0 {
                break;
            }
            let line = String::from_utf8_lossy(&rest[..length]);
            let mut fault = |fault| notes.push(Note::Line { number, fault });
            if let Some(found) = description.line(&line, &mut index, &mut fault) {
                if sizes.is_some() {
                    fault(LineFault::SecondRegisterSize);
                }
                sizes = Some(found);
            }
        }
        let order = likely_order(bytes, at)
            .or(program_order)
            .unwrap_or(ByteOrder::Little);
        let mut file = Self {
            bytes,
            description,
            order,
            first: at,
            notes,
            index: Mutex::new(Index {
                places: vec![at],
                count: None,
            }),
            release: None,
        };
        file.choose_register_size(sizes);
        Ok(file)
    }

    /// Calls `release` for ranges of the file that were walked and are not needed soon, so that the
    /// owner of the mapping can release their memory.
    #[must_use]
    pub fn releasing(mut self, release: impl Fn(Range<usize>) + Send + Sync + 'a) -> Self {
        self.release = Some(Release(Box::new(release)));
        self
    }

    fn choose_register_size(&mut self, sizes: Option<RegisterSizes>) {
        let Some(sizes) = sizes else {
            self.notes.push(Note::NoRegisterSize);
            return;
        };
        let fits = |size: Option<u32>| {
            size.map(|size| {
                let misfits = self
                    .walk(self.first)
                    .map_while(Result::ok)
                    .take(SAMPLE)
                    .filter(|frame| !frame.fits(size))
                    .count();
                (misfits, size)
            })
        };
        let (hex, decimal) = (fits(sizes.hex), fits(sizes.decimal));
        self.description.register_bytes = match (hex, decimal) {
            (Some((misfits, size)), Some((other, decimal))) if size != decimal => {
                let is_decimal = other < misfits;
                let chosen = if is_decimal { decimal } else { size };
                // The blocks of the frames do not prove that the size is hexadecimal, as GDB writes
                // it.
                if other <= misfits {
                    self.notes.push(Note::RegisterSize {
                        decimal: is_decimal,
                        bytes: chosen,
                    });
                }
                chosen
            }
            (Some((_, size)), _) | (None, Some((_, size))) => size,
            (None, None) => 0,
        };
    }

    /// The contents of the description.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The byte order of the frames.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// Problems of the description.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// All trace frames, starting with the first.
    pub fn frames(&self) -> Frames<'_, 'a> {
        self.walk(self.first)
    }

    /// Whether the first frames are so large that walking the frames skips most of the file.
    pub fn is_sparse(&self) -> bool {
        let first = self.frames().map_while(Result::ok).take(SAMPLE);
        let (frames, bytes) = first.fold((0, 0_usize), |(frames, bytes), frame| {
            (frames + 1, bytes.saturating_add(frame.data.len()))
        });
        bytes / LARGE > frames
    }

    /// The number of trace frames. The first call walks to the end.
    pub fn count(&self) -> usize {
        self.locate(usize::MAX);
        self.lock().count.unwrap_or(0)
    }

    /// Trace frame `number`, from 0.
    pub fn frame(&self, number: usize) -> Option<Result<TraceFrame<'a>, Error>> {
        self.frames_from(number).next()
    }

    /// Trace frames from `number` on.
    pub fn frames_from(&self, number: usize) -> Frames<'_, 'a> {
        let Some(place) = self.locate(number) else {
            let mut none = self.walk(self.bytes.len());
            none.ended = true;
            return none;
        };
        let mut frames = self.walk(place);
        frames.number = number / STRIDE * STRIDE;
        for _ in 0..number % STRIDE {
            frames.next();
        }
        frames
    }

    /// The bytes of all complete trace frames. Walks to the end.
    pub fn buffer(&self) -> &'a [u8] {
        let after = self.frames_from(self.count()).at;
        &self.bytes[self.first..after]
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Index> {
        self.index
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Walks to frame `number`, or to the end, so that it is found at once later. Calls `between` after
    /// each few hundred frames.
    pub fn reach(&self, number: usize, mut between: impl FnMut()) {
        while self.walk_on(number) {
            between();
        }
    }

    /// Adds an entry to the index, or the number of frames, unless it has the one for frame `number`.
    fn walk_on(&self, number: usize) -> bool {
        let mut index = self.lock();
        if index.count.is_some() || index.places.len() > number / STRIDE {
            return false;
        }
        let known = (index.places.len() - 1) * STRIDE;
        let Some(last) = index.places.last() else {
            return false;
        };
        let mut frames = self.walk(*last);
        let walked = frames
            .by_ref()
            .take_while(Result::is_ok)
            .take(STRIDE)
            .count();
        if walked < STRIDE {
            index.count = Some(known + walked);
        } else {
            index.places.push(frames.at);
        }
        true
    }

    /// The last index entry at or before frame `number`, within the file.
    fn locate(&self, number: usize) -> Option<usize> {
        self.reach(number, || ());
        let index = self.lock();
        if index.count.is_some_and(|count| number > count) {
            return None;
        }
        index.places.get(number / STRIDE).copied()
    }

    fn walk(&self, at: usize) -> Frames<'_, 'a> {
        Frames {
            file: self,
            at,
            released: at,
            number: 0,
            ended: false,
        }
    }
}

/// The byte order in which more of the first frames are consistent; `None` if there is no
/// difference.
fn likely_order(bytes: &[u8], first: usize) -> Option<ByteOrder> {
    let whole = |order: ByteOrder| {
        let mut at = first;
        let mut frames = 0;
        while frames < SAMPLE {
            let rest = &bytes[at.min(bytes.len())..];
            if rest.len() < 2 || order.u16(rest) == 0 {
                return (true, frames);
            }
            if rest.len() < HEADER {
                break;
            }
            let size = order.u32(&rest[2..]) as usize;
            if size > rest.len() - HEADER {
                break;
            }
            at += HEADER + size;
            frames += 1;
        }
        (frames == SAMPLE, frames)
    };
    match whole(ByteOrder::Big).cmp(&whole(ByteOrder::Little)) {
        Ordering::Greater => Some(ByteOrder::Big),
        Ordering::Less => Some(ByteOrder::Little),
        Ordering::Equal => None,
    }
}

/// Walks trace frames. A truncated frame is the last item.
#[derive(Clone, Debug)]
pub struct Frames<'f, 'a> {
    file: &'f File<'a>,
    at: usize,
    /// The end of the released memory.
    released: usize,
    number: usize,
    ended: bool,
}

impl<'a> Iterator for Frames<'_, 'a> {
    type Item = Result<TraceFrame<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let rest = &self.file.bytes[self.at..];
        let order = self.file.order;
        // GDB ends the frames with 4 zero bytes, its manual says 2; a file may also just end.
        if rest.len() < 2 || order.u16(rest) == 0 {
            self.ended = true;
            return None;
        }
        let size = rest
            .get(2..HEADER)
            .map_or(0, |size| order.u32(size) as usize);
        let Some(data) = rest
            .len()
            .checked_sub(HEADER)
            .filter(|&left| left >= size)
            .map(|_| &rest[HEADER..HEADER + size])
        else {
            self.ended = true;
            return Some(Err(Error::Cut {
                frame: self.number,
                at: self.at,
                size,
                left: rest.len().saturating_sub(HEADER),
            }));
        };
        let frame = TraceFrame {
            number: self.number,
            tracepoint: order.u16(rest),
            data,
            order,
            register_bytes: self.file.description.register_bytes as usize,
        };
        if self.at - self.released >= RELEASED {
            if let Some(Release(release)) = &self.file.release {
                release(self.released..self.at);
            }
            self.released = self.at;
        }
        self.at += HEADER + size;
        self.number += 1;
        Some(Ok(frame))
    }
}

/// One trace frame: what was collected at one hit of a tracepoint.
#[derive(Clone, Copy, Debug)]
pub struct TraceFrame<'a> {
    /// Its number in the file, from 0.
    pub number: usize,
    /// The tracepoint that was hit.
    pub tracepoint: u16,
    data: &'a [u8],
    order: ByteOrder,
    register_bytes: usize,
}

/// A block of a trace frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block<'a> {
    /// `R`: registers, as a reply to `g` without its hex.
    Registers(&'a [u8]),
    /// `M`: memory.
    Memory {
        /// The address of the first byte.
        address: u64,
        /// The bytes, up to 65535.
        bytes: &'a [u8],
    },
    /// `V`: a trace state variable.
    Variable {
        /// Its number.
        number: i32,
        /// Its value.
        value: i64,
    },
    /// An unreadable block: of another type, or truncated. It is the last one.
    Unreadable {
        /// The block's type.
        kind: u8,
        /// Its offset in the frame's data.
        at: usize,
    },
}

impl<'a> TraceFrame<'a> {
    /// The raw data of the frame.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Its blocks in order.
    pub fn blocks(&self) -> Blocks<'a> {
        Blocks {
            frame: *self,
            at: 0,
        }
    }

    fn fits(&self, register_bytes: u32) -> bool {
        let frame = TraceFrame {
            register_bytes: register_bytes as usize,
            ..*self
        };
        !frame
            .blocks()
            .any(|block| matches!(block, Block::Unreadable { .. }))
    }
}

/// Walks the blocks of a trace frame.
#[derive(Clone, Debug)]
pub struct Blocks<'a> {
    frame: TraceFrame<'a>,
    at: usize,
}

impl<'a> Blocks<'a> {
    fn block(&self, kind: u8, rest: &'a [u8]) -> Option<(Block<'a>, usize)> {
        let order = self.frame.order;
        match kind {
            b'R' => {
                let length = self.frame.register_bytes;
                Some((Block::Registers(rest.get(..length)?), length))
            }
            b'M' => {
                let address = order.u64(rest.get(..8)?);
                let length = usize::from(order.u16(rest.get(8..10)?));
                let bytes = rest.get(10..10 + length)?;
                Some((Block::Memory { address, bytes }, 10 + length))
            }
            b'V' => {
                let number = order.u32(rest.get(..4)?).cast_signed();
                let value = order.u64(rest.get(4..12)?).cast_signed();
                Some((Block::Variable { number, value }, 12))
            }
            _ => None,
        }
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Block<'a>;

    fn next(&mut self) -> Option<Block<'a>> {
        let (&kind, rest) = self.frame.data.get(self.at..)?.split_first()?;
        let at = self.at;
        match self.block(kind, rest) {
            Some((block, length)) => {
                self.at += 1 + length;
                Some(block)
            }
            None => {
                self.at = self.frame.data.len();
                Some(Block::Unreadable { kind, at })
            }
        }
    }
}
