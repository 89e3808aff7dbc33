//! Decodes a trace buffer in pieces with the decoders of its sources.
//!
//! [`decode_buffer`] passes a buffer that is complete; a buffer that grows is passed to the same
//! [`BufferDecoder`] as its bytes arrive.

use super::silence::Totals;
use super::source::Decoding;
use armsnap_arch::quantity::{BufferOffset, TraceId};
use armsnap_snapshot::capture::CaptureBuffer;
use armsnap_trace::formatter::{Deformatter, Demux, FrameKind};

/// The memory mapping of a buffer is released each time this many bytes are decoded; whole pages.
const RELEASED: usize = 4 << 20;

/// Decodes a buffer whose bytes are passed one after another.
pub struct BufferDecoder<'a, 'd, O: ?Sized> {
    decoders: &'a mut [(TraceId, Box<dyn Decoding<O> + 'd>)],
    ids: Vec<TraceId>,
    deformatter: Option<Deformatter>,
    demux: Demux,
    /// The maximum size of a piece.
    piece: usize,
    /// The number of bytes so far.
    offset: u64,
    /// Where the part of the buffer starts whose pieces are decoded.
    part: u64,
}

impl<'a, 'd, O: ?Sized> BufferDecoder<'a, 'd, O> {
    /// Creates a decoder for the start of a buffer whose layout is `frames`; `None` if it is
    /// unformatted. Each decoder belongs to a trace ID; the first one with an ID is used. Pieces of
    /// the buffer have `piece` bytes.
    pub fn new(
        frames: Option<FrameKind>,
        piece: usize,
        decoders: &'a mut [(TraceId, Box<dyn Decoding<O> + 'd>)],
    ) -> Self {
        let ids: Vec<_> = decoders.iter().map(|(id, _)| *id).collect();
        Self {
            decoders,
            deformatter: frames.map(Deformatter::new),
            demux: Demux::only(&ids),
            ids,
            piece: piece.max(1),
            offset: 0,
            part: 0,
        }
    }

    /// Decodes the next bytes, however many have arrived; `last` is whether the buffer ends with
    /// them. What they complete is the same as in a whole piece. `after_piece` is called for each
    /// source with the index of its decoder and the output so far.
    ///
    /// # Errors
    ///
    /// If `after_piece` fails: its error.
    pub fn arrived<X>(
        &mut self,
        bytes: &[u8],
        last: bool,
        mut after_piece: impl FnMut(usize, &mut O) -> Result<(), X>,
    ) -> Result<(), X> {
        let mut rest = bytes;
        loop {
            let left = self.piece - self.in_piece();
            let (now, later) = rest.split_at(left.min(rest.len()));
            let last = last && later.is_empty();
            let continues = !last && now.len() < left;
            self.decode(now, continues, last, &mut after_piece)?;
            if later.is_empty() {
                return Ok(());
            }
            rest = later;
        }
    }

    /// Ends a part of the buffer, such as a file: pieces are counted anew. `after_piece` is that of
    /// [`arrived`](Self::arrived).
    ///
    /// # Errors
    ///
    /// If `after_piece` fails: its error.
    pub fn end_part<X>(
        &mut self,
        mut after_piece: impl FnMut(usize, &mut O) -> Result<(), X>,
    ) -> Result<(), X> {
        if self.in_piece() > 0 {
            self.decode(&[], false, false, &mut after_piece)?;
        }
        self.part = self.offset;
        Ok(())
    }

    /// The number of bytes so far of the piece that is not complete.
    const fn in_piece(&self) -> usize {
        ((self.offset - self.part) % self.piece as u64) as usize
    }

    fn decode<X>(
        &mut self,
        bytes: &[u8],
        continues: bool,
        last: bool,
        mut after_piece: impl FnMut(usize, &mut O) -> Result<(), X>,
    ) -> Result<(), X> {
        let only = self.ids.first().copied();
        let piece = (BufferOffset(self.offset), bytes, last);
        deformat(&mut self.deformatter, &mut self.demux, only, piece);
        self.offset += bytes.len() as u64;
        for (index, (id, decoder)) in self.decoders.iter_mut().enumerate() {
            if self.ids[..index].contains(id) {
                continue;
            }
            let stream = self.demux.stream_mut(*id);
            stream.set_continues(continues);
            decoder.piece(stream, last);
            if last {
                decoder.end(BufferOffset(self.offset));
            }
            after_piece(index, decoder.output())?;
        }
        Ok(())
    }

    /// Returns the number of bytes of each trace ID so far.
    pub fn totals(&self) -> Totals {
        self.demux.totals()
    }
}

/// Decodes a buffer in pieces of up to `piece` bytes with a [`BufferDecoder`]. Returns the number of
/// bytes of each trace ID.
///
/// # Errors
///
/// If `after_piece` fails: its error.
pub fn decode_buffer<O: ?Sized, X>(
    buffer: &CaptureBuffer,
    decoders: &mut [(TraceId, Box<dyn Decoding<O> + '_>)],
    piece: usize,
    mut after_piece: impl FnMut(usize, &mut O) -> Result<(), X>,
) -> Result<Totals, X> {
    let mut decoder = BufferDecoder::new(buffer.frames, piece, decoders);
    let total = buffer.bytes();
    if total == 0 {
        decoder.decode(&[], false, true, &mut after_piece)?;
    }
    for part in &buffer.parts {
        let mut read = 0;
        let mut released = 0;
        for bytes in part.chunks(decoder.piece) {
            let last = decoder.offset + bytes.len() as u64 == total;
            decoder.decode(bytes, false, last, &mut after_piece)?;
            read += bytes.len();
            if read - released >= RELEASED {
                let whole = read / RELEASED * RELEASED;
                part.release(released..whole);
                released = whole;
            }
        }
    }
    Ok(decoder.totals())
}

/// Passes a piece of a buffer to the streams of its sources; if the buffer is unformatted, to that
/// of `only`. `last` is whether the buffer ends with the piece.
pub(super) fn deformat(
    deformatter: &mut Option<Deformatter>,
    demux: &mut Demux,
    only: Option<TraceId>,
    (offset, bytes, last): (BufferOffset, &[u8], bool),
) {
    match (deformatter, only) {
        (Some(deformatter), _) => deformatter.feed(offset, bytes, last, demux),
        (None, Some(only)) => demux.unformatted(only, offset, bytes),
        (None, None) => {}
    }
}
