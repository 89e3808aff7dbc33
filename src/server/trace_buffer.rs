//! The trace buffer as a byte stream (`qTBuffer`), written in pieces.
//!
//! A buffer may be larger than memory: frames are written again for each piece, and only the
//! requested bytes are kept.

use std::io;

use super::trace_frames::{PIECE, PieceWriter, TraceFrames};

/// The state of a client that reads a trace buffer.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// A frame and its offset: where to continue.
    frame: usize,
    place: u64,
    /// The last piece and its offset.
    piece_at: u64,
    piece: Vec<u8>,
}

impl Reading {
    /// Reads up to `length` bytes from `offset`; none at the end.
    pub(super) fn read(
        &mut self,
        frames: &dyn TraceFrames,
        offset: u64,
        length: usize,
    ) -> io::Result<&[u8]> {
        if let Some(whole) = frames.buffer() {
            self.piece_at = offset;
            let rest = usize::try_from(offset).ok().and_then(|at| whole.get(at..));
            let rest = rest.unwrap_or(&[]);
            self.piece = rest[..rest.len().min(length)].to_vec();
            return Ok(&self.piece);
        }
        let inside = |reading: &Self| {
            let skip = usize::try_from(offset.checked_sub(reading.piece_at)?).ok()?;
            (skip < reading.piece.len()).then_some(skip)
        };
        // When GDB saves in CTF, it treats a short reply as an error. A piece is short only at the
        // end of the buffer.
        let enough = |skip| skip + length <= self.piece.len() || self.piece.len() < PIECE;
        if !inside(self).is_some_and(enough) {
            self.make(frames, offset)?;
        }
        let rest = &self.piece[inside(self).unwrap_or(self.piece.len())..];
        Ok(&rest[..rest.len().min(length)])
    }

    fn make(&mut self, frames: &dyn TraceFrames, offset: u64) -> io::Result<()> {
        if offset < self.place {
            (self.frame, self.place) = (0, 0);
        }
        let mut part = PieceWriter {
            at: self.place,
            from: offset,
            kept: Vec::new(),
        };
        for frame in self.frame..frames.count() {
            // The last frame started is written again for the next piece.
            (self.frame, self.place) = (frame, part.at);
            part = frames.write(frame, part)?;
            if part.kept.len() >= PIECE {
                break;
            }
        }
        self.piece_at = offset;
        self.piece = part.kept;
        Ok(())
    }
}
