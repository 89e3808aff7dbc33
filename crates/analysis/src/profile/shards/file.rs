//! A shard file: a header, then its records, each with its length.

use super::Piece;
use super::plan::Planned;
use armsnap_history::decode::parts::{Page, PartState};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// The first bytes of a shard file.
const MAGIC: &[u8; 16] = b"armsnap shard 2\n";
/// The maximum size of a record in bytes.
const MOST: u64 = 1 << 28;

/// Describes what a shard is part of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of armsnap that decoded it.
    pub armsnap: String,
    /// Its number; the first is 0.
    pub shard: u32,
    /// The number of shards.
    pub shards: u32,
    /// Bytes of trace in a page.
    pub page: u64,
    /// The names of the tracks.
    pub tracks: Vec<String>,
    /// The size of each buffer, and a hash of its start.
    pub buffers: Vec<(u64, u64)>,
}

impl Header {
    /// Whether both are shards of the same plan.
    pub fn is_like(&self, other: &Self) -> bool {
        let same = Self {
            shard: other.shard,
            ..self.clone()
        };
        same == *other
    }
}

/// A part of a shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Record {
    /// A part of a buffer starts.
    Begin(Planned),
    /// Its next page.
    Page(Box<Page<Piece>>),
    /// Its end; `None` if the decoders cannot be stopped within it, so that it must be decoded
    /// again.
    End(Option<Box<PartState>>),
}

/// Why a shard file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is not a shard file, or was written by another version of armsnap.
    #[error("it is not the course of a shard as armsnap {} writes it", env!("CARGO_PKG_VERSION"))]
    Foreign,
    /// A record cannot be read.
    #[error("the record at byte {0} is damaged")]
    Damaged(u64),
}

/// Writes a shard file.
pub struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn new(mut out: W, header: &Header) -> Result<Self, FileError> {
        out.write_all(MAGIC)?;
        let mut writer = Self { out };
        writer.put(header)?;
        Ok(writer)
    }

    fn put(&mut self, value: &impl Serialize) -> Result<(), FileError> {
        let bytes = postcard::to_allocvec(value).map_err(io::Error::other)?;
        self.out.write_all(&(bytes.len() as u64).to_le_bytes())?;
        self.out.write_all(&bytes)?;
        Ok(())
    }

    /// Appends a record.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn record(&mut self, record: &Record) -> Result<(), FileError> {
        self.put(record)
    }

    /// Marks the end.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn finish(mut self) -> Result<W, FileError> {
        self.out.write_all(&u64::MAX.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Reads a shard file.
pub struct Reader<R> {
    from: R,
    at: u64,
    header: Header,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// If it is not a shard file.
    pub fn new(mut from: R) -> Result<Self, FileError> {
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic)
            .map_err(|_| FileError::Foreign)?;
        if magic != *MAGIC {
            return Err(FileError::Foreign);
        }
        let mut at = MAGIC.len() as u64;
        let header = read(&mut from, &mut at)?.ok_or(FileError::Foreign)?;
        Ok(Self { from, at, header })
    }

    /// Describes what the shard is part of.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Reads the next record; `None` at the end.
    ///
    /// # Errors
    ///
    /// If the next record cannot be read, or is damaged.
    pub fn read(&mut self) -> Result<Option<Record>, FileError> {
        let at = self.at;
        let record = read(&mut self.from, &mut self.at)?;
        if let Some(Record::Page(page)) = &record
            && !page.outputs.iter().all(Piece::is_sound)
        {
            return Err(FileError::Damaged(at));
        }
        Ok(record)
    }
}

/// Reads a value with its length; `None` at the end of the file.
fn read<T: for<'d> Deserialize<'d>>(
    from: &mut impl Read,
    at: &mut u64,
) -> Result<Option<T>, FileError> {
    let start = *at;
    let damaged = |_| FileError::Damaged(start);
    let mut length = [0; 8];
    from.read_exact(&mut length).map_err(damaged)?;
    let length = u64::from_le_bytes(length);
    if length == u64::MAX {
        return Ok(None);
    }
    if length > MOST {
        return Err(FileError::Damaged(start));
    }
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length {
        return Err(FileError::Damaged(start));
    }
    *at += 8 + length;
    let value = postcard::from_bytes(&bytes).map_err(|_| FileError::Damaged(start))?;
    Ok(Some(value))
}
