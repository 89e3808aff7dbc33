//! Where trace goes while a program runs: to a trace buffer in a file, or, of each core, its last
//! bytes to memory.
//!
//! Knows bytes and trace IDs; no protocols.

use crate::formatter::encode::Encoder;
use crate::quantity::TraceId;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The last bytes of one source.
#[derive(Debug, Default)]
struct Last {
    bytes: Vec<u8>,
    /// Where in `bytes` a decoder can begin; ascending.
    beginnings: Vec<usize>,
}

impl Last {
    fn write(&mut self, bytes: &[u8], beginnings: &[usize], keep: u64) {
        let before = self.bytes.len();
        self.beginnings
            .extend(beginnings.iter().map(|place| before + place));
        self.bytes.extend_from_slice(bytes);
        // Moving what is kept costs as much as what was added, at most.
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        if self.bytes.len() >= keep.saturating_mul(2).max(1 << 16) {
            self.cut(keep);
        }
    }

    /// Cuts off what lies before the first beginning of the last `keep` bytes, or before the
    /// last beginning if there is none.
    fn cut(&mut self, keep: usize) {
        let from = self.bytes.len().saturating_sub(keep);
        let index = self.beginnings.partition_point(|&place| place < from);
        let index = index.min(self.beginnings.len().saturating_sub(1));
        let begin = self.beginnings.get(index).copied().unwrap_or(0);
        self.bytes.drain(..begin);
        self.beginnings.drain(..index);
        for place in &mut self.beginnings {
            *place -= begin;
        }
    }
}

/// The trace of all cores.
#[derive(Debug)]
pub struct Store {
    file: BufWriter<File>,
    encoder: Encoder,
    frames: Vec<u8>,
    /// Bytes to keep of each source, and what is kept.
    last: Option<(u64, Vec<(TraceId, Last)>)>,
}

impl Store {
    /// Writes a trace buffer in CoreSight's format to a new file.
    pub fn create(path: &Path, last: Option<u64>) -> io::Result<Self> {
        Ok(Self {
            file: BufWriter::new(File::create_new(path)?),
            encoder: Encoder::new(),
            frames: Vec::new(),
            last: last.map(|keep| (keep, Vec::new())),
        })
    }

    /// Bytes of a source, and where in them a decoder can begin.
    pub fn write(&mut self, id: TraceId, bytes: &[u8], beginnings: &[usize]) -> io::Result<()> {
        let Some((keep, sources)) = &mut self.last else {
            return self.frames(id, bytes);
        };
        let index = match sources.iter().position(|source| source.0 == id) {
            Some(index) => index,
            None => {
                sources.push((id, Last::default()));
                sources.len() - 1
            }
        };
        sources[index].1.write(bytes, beginnings, *keep);
        Ok(())
    }

    fn frames(&mut self, id: TraceId, bytes: &[u8]) -> io::Result<()> {
        self.encoder.write(id, bytes, &mut self.frames);
        self.file.write_all(&self.frames)?;
        self.frames.clear();
        Ok(())
    }

    /// Nothing more comes.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some((keep, sources)) = self.last.take() {
            for (id, mut last) in sources {
                last.cut(usize::try_from(keep).unwrap_or(usize::MAX));
                self.frames(id, &last.bytes)?;
            }
        }
        self.encoder.finish(&mut self.frames);
        self.file.write_all(&self.frames)?;
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_begin_where_a_decoder_can() {
        let mut last = Last::default();
        for piece in 0..1000_u32 {
            let bytes: Vec<u8> = piece.to_le_bytes().repeat(100);
            last.write(&bytes, &[200], 1000);
        }
        assert!(last.bytes.len() < 1 << 17);
        last.cut(1000);
        // Pieces have 400 bytes: of the last 1000, the first with a beginning is the one before
        // the last two.
        assert_eq!(last.bytes.len(), 1000);
        assert_eq!(last.bytes[..4], 997_u32.to_le_bytes());
        last.cut(100);
        assert_eq!(last.bytes.len(), 200, "no beginning in the last 100 bytes");
        assert_eq!(last.beginnings, [0]);
    }

    #[test]
    fn a_trace_that_is_short_is_kept() {
        let mut last = Last::default();
        last.write(&[1, 2, 3], &[0], 1000);
        last.cut(1000);
        assert_eq!(last.bytes, [1, 2, 3]);
        let mut empty = Last::default();
        empty.cut(10);
        assert!(empty.bytes.is_empty());
    }
}
