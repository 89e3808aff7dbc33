//! Decodes a trace buffer in pieces with the decoders of its sources.

use super::silence::Totals;
use super::source::Decoding;
use armsnap_arch::quantity::{BufferOffset, TraceId};
use armsnap_snapshot::capture::CaptureBuffer;
use armsnap_snapshot::stop;
use armsnap_trace::formatter::{Deformatter, Demux};

/// The memory mapping of a buffer is released each time this many bytes are decoded; whole pages.
const RELEASED: usize = 4 << 20;

/// Decodes a buffer in pieces of up to `piece` bytes. Each decoder belongs to a trace ID; the first
/// one with an ID is used. `after_piece` is called after each piece of each source, with the index of
/// its decoder and the output so far. Returns the number of bytes of each trace ID.
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
    let ids: Vec<_> = decoders.iter().map(|(id, _)| *id).collect();
    let mut demux = Demux::only(&ids);
    let mut deformatter = buffer.frames.map(Deformatter::new);
    let mut offset = 0;
    let total = buffer.bytes();
    if total == 0 {
        for (index, (_, decoder)) in decoders.iter_mut().enumerate() {
            decoder.end(BufferOffset(0));
            after_piece(index, decoder.output())?;
        }
    }
    for part in &buffer.parts {
        let mut read = 0;
        let mut released = 0;
        for bytes in part.chunks(piece.max(1)) {
            stop::check();
            let last = offset + bytes.len() as u64 == total;
            let piece = (BufferOffset(offset), bytes, last);
            deformat(&mut deformatter, &mut demux, ids.first().copied(), piece);
            offset += bytes.len() as u64;
            for (index, (id, decoder)) in decoders.iter_mut().enumerate() {
                if ids[..index].contains(id) {
                    continue;
                }
                decoder.piece(demux.stream_mut(*id), last);
                if last {
                    decoder.end(BufferOffset(total));
                }
                after_piece(index, decoder.output())?;
            }
            read += bytes.len();
            if read - released >= RELEASED {
                let whole = read / RELEASED * RELEASED;
                part.release(released..whole);
                released = whole;
            }
        }
    }
    Ok(demux.totals())
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
