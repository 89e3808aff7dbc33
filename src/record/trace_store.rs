//! Stores trace while a program runs: all of it in a trace buffer file, or the last bytes of each
//! core in memory.
//!
//! Handles bytes and trace IDs, independent of the protocol.

use armsnap_arch::quantity::TraceId;
use armsnap_snapshot::leftovers::in_private;
use armsnap_trace::formatter::FRAME_BYTES;
use armsnap_trace::formatter::encode::Encoder;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The last bytes of one source's trace.
#[derive(Debug, Default)]
struct TraceTail {
    bytes: Vec<u8>,
    /// Offsets in `bytes` at which decoding can start, in ascending order.
    start_points: Vec<usize>,
}

impl TraceTail {
    fn write(&mut self, bytes: &[u8], start_points: &[usize], keep: u64) {
        let before = self.bytes.len();
        self.start_points
            .extend(start_points.iter().map(|place| before + place));
        self.bytes.extend_from_slice(bytes);
        // At most as many bytes are moved as were added since the last cut.
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        if self.bytes.len() >= keep.saturating_mul(2).max(1 << 16) {
            self.cut(keep);
        }
    }

    /// Drops everything before the first start point in the last `keep` bytes, or before the last
    /// start point if those bytes have none.
    fn cut(&mut self, keep: usize) {
        let from = self.bytes.len().saturating_sub(keep);
        let index = self.start_points.partition_point(|&place| place < from);
        let index = index.min(self.start_points.len().saturating_sub(1));
        let begin = self.start_points.get(index).copied().unwrap_or(0);
        self.bytes.drain(..begin);
        self.start_points.drain(..index);
        for place in &mut self.start_points {
            *place -= begin;
        }
    }
}

/// Stores the trace of all cores.
#[derive(Debug)]
pub struct TraceStore {
    path: PathBuf,
    file: BufWriter<File>,
    /// Whether the file cannot be extended any more. Further trace is dropped.
    is_full: bool,
    encoder: Encoder,
    frames: Vec<u8>,
    /// The number of bytes of all frames before these.
    framed: u64,
    /// The number of bytes to keep of each source, and the bytes kept.
    last: Option<(u64, Vec<(TraceId, TraceTail)>)>,
}

impl TraceStore {
    /// Creates a file for a trace buffer of CoreSight formatter frames. With `last`, only about that
    /// many bytes at the end of each source's trace are kept, beginning at a start point.
    pub fn create(path: &Path, last: Option<u64>) -> io::Result<Self> {
        let file = File::create_new(path).map_err(|error| in_private(path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            file: BufWriter::new(file),
            is_full: false,
            encoder: Encoder::new(),
            frames: Vec::new(),
            framed: 0,
            last: last.map(|keep| (keep, Vec::new())),
        })
    }

    /// Adds bytes of a source, and the offsets in them at which decoding can start.
    pub fn write(&mut self, id: TraceId, bytes: &[u8], start_points: &[usize]) -> io::Result<()> {
        let Some((keep, sources)) = &mut self.last else {
            return self.frames(id, bytes);
        };
        let index = match sources.iter().position(|source| source.0 == id) {
            Some(index) => index,
            None => {
                sources.push((id, TraceTail::default()));
                sources.len() - 1
            }
        };
        sources[index].1.write(bytes, start_points, *keep);
        Ok(())
    }

    /// Returns the offset in the trace buffer of the byte that will be written next, if another one of its
    /// source follows it. `None` if only the last bytes are kept.
    pub fn offset(&self, id: TraceId) -> Option<u64> {
        let next = self.framed + self.encoder.next_byte(id) as u64;
        self.last.is_none().then_some(next)
    }

    fn frames(&mut self, id: TraceId, bytes: &[u8]) -> io::Result<()> {
        self.encoder.write(id, bytes, &mut self.frames);
        self.store()
    }

    /// Writes the frames, or drops them once the file cannot be extended. Only the first failure is an
    /// error.
    fn store(&mut self) -> io::Result<()> {
        let stored = match self.is_full {
            true => Ok(()),
            false => self.file.write_all(&self.frames),
        };
        self.framed += self.frames.len() as u64;
        self.frames.clear();
        self.checked(stored)
    }

    fn checked(&mut self, done: io::Result<()>) -> io::Result<()> {
        done.map_err(|error| {
            self.is_full = true;
            in_private(&self.path, &error)
        })
    }

    /// Writes the remaining trace to the file. If the file cannot be extended, it ends with the last whole
    /// frame.
    pub fn finish(mut self) -> io::Result<()> {
        let done = self.finish_frames();
        if self.is_full {
            let (file, _) = self.file.into_parts();
            let length = file.metadata()?.len();
            file.set_len(length - length % FRAME_BYTES as u64)?;
        }
        done
    }

    fn finish_frames(&mut self) -> io::Result<()> {
        if let Some((keep, sources)) = self.last.take() {
            for (id, mut last) in sources {
                last.cut(usize::try_from(keep).unwrap_or(usize::MAX));
                self.frames(id, &last.bytes)?;
            }
        }
        self.encoder.finish(&mut self.frames);
        self.store()?;
        let flushed = match self.is_full {
            true => Ok(()),
            false => self.file.flush(),
        };
        self.checked(flushed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_start_at_a_start_point() {
        let mut last = TraceTail::default();
        for piece in 0..1000_u32 {
            let bytes: Vec<u8> = piece.to_le_bytes().repeat(100);
            last.write(&bytes, &[200], 1000);
        }
        assert!(last.bytes.len() < 1 << 17);
        last.cut(1000);
        // Each piece has 400 bytes, with a start point at 200: the last 1000 bytes start with
        // the start point of the third piece from the end.
        assert_eq!(last.bytes.len(), 1000);
        assert_eq!(last.bytes[..4], 997_u32.to_le_bytes());
        last.cut(100);
        assert_eq!(
            last.bytes.len(),
            200,
            "no start point in the last 100 bytes"
        );
        assert_eq!(last.start_points, [0]);
    }

    #[test]
    fn short_trace_is_kept() {
        let mut last = TraceTail::default();
        last.write(&[1, 2, 3], &[0], 1000);
        last.cut(1000);
        assert_eq!(last.bytes, [1, 2, 3]);
        let mut empty = TraceTail::default();
        empty.cut(10);
        assert!(empty.bytes.is_empty());
    }
}
