//! The trace buffer as one run of bytes (`qTBuffer`), made piece by piece.
//!
//! A buffer may be larger than memory: frames are written anew for each piece, and only the
//! bytes asked for are kept.

use std::io::{self, Write};

use super::trace_runs::TraceFrames;

/// Bytes that are made at once; clients ask for some thousand at a time.
const PIECE: usize = 64 << 10;

/// Takes what is written and keeps a part of it.
pub(super) struct Part {
    /// The place of the next byte.
    at: u64,
    /// Where the part begins.
    from: u64,
    kept: Vec<u8>,
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let skipped = self.from.saturating_sub(self.at).min(bytes.len() as u64);
        let rest = &bytes[skipped as usize..];
        let room = PIECE.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&rest[..rest.len().min(room)]);
        self.at = self.at.saturating_add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client's reading of a trace buffer.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// A frame and its place: where to go on.
    frame: usize,
    place: u64,
    /// The last piece and its place.
    piece_at: u64,
    piece: Vec<u8>,
}

impl Reading {
    /// Bytes from `offset` on, up to `length`; none at the end.
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
        // GDB takes fewer bytes than it asks for as an error when it saves in CTF. A piece that is
        // not full ends with the buffer.
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
        let mut part = Part {
            at: self.place,
            from: offset,
            kept: Vec::new(),
        };
        for frame in self.frame..frames.count() {
            // The frame that is begun last is written again for the next piece.
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
