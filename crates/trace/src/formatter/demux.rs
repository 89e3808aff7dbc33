//! The bytes of each trace source, with their offsets in the buffer.

use crate::protocol::{Describe, PacketDecoder, PacketSink, RangeSink};
use armsnap_arch::quantity::{BufferOffset, TraceId};
use std::ops::Range;

use super::{FRAME_BYTES, ID_NULL, is_reserved};

/// The number of payload bytes in a frame without IDs.
pub(super) const DATA_ONLY: usize = FRAME_BYTES - 1;
/// The number of payload bytes in a frame whose only ID comes first.
pub(super) const AFTER_ID: usize = FRAME_BYTES - 2;

/// The number of consumed bytes whose offsets are still known.
const LOCATABLE: u64 = 4096;

/// The offset in the buffer of payload from `start` on, up to the next segment.
///
/// A frame of 16 bytes holds 15 bytes of payload, or 14 after an ID, so a segment of several frames skips
/// one byte of the buffer after each 15 of payload, or two after each 14.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Segment {
    /// Position in the stream's payload, counted from the start of the trace.
    pub start: u64,
    /// Offset of that byte in the buffer.
    pub offset: BufferOffset,
    /// The number of payload bytes in each frame, 15 or 14; 0 if there are no frames.
    pub in_frame: u8,
}

impl Segment {
    fn offset_at(&self, position: u64) -> u64 {
        let distance = position.wrapping_sub(self.start);
        // Divisions by constants, which are faster.
        let others = match usize::from(self.in_frame) {
            DATA_ONLY => distance / DATA_ONLY as u64,
            AFTER_ID => distance / AFTER_ID as u64 * 2,
            _ => 0,
        };
        self.offset.0.wrapping_add(distance).wrapping_add(others)
    }
}

/// The payload of one trace ID that is not yet consumed.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Stream {
    payload: Vec<u8>,
    segments: Vec<Segment>,
    /// Position of `payload[0]`, counted from the start of the trace.
    consumed: u64,
    /// Positions where bytes were lost, ascending, none before `consumed`.
    losses: Vec<u64>,
    keep: bool,
    total: u64,
    /// Whether the piece of the buffer that is being decoded continues.
    #[serde(skip)]
    continues: bool,
}

impl Stream {
    /// Returns the bytes that are not yet consumed.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Returns the number of bytes with this ID so far, kept or not.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns a locator for the bytes of [`payload`](Self::payload).
    pub fn locator(&self) -> Locator<'_> {
        Locator::new(&self.segments, self.consumed)
    }

    /// Returns the index in [`payload`](Self::payload) of the first byte after a loss. If it is 0,
    /// bytes are missing before the first byte. It may be the length of the payload.
    pub fn loss(&self) -> Option<usize> {
        self.losses
            .first()
            .and_then(|at| usize::try_from(at.saturating_sub(self.consumed)).ok())
    }

    /// Drops the first `count` bytes of the payload, with the losses among them and before the first
    /// one.
    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.payload.len());
        let after = self.consumed + count as u64;
        self.losses.retain(|&at| at >= after && at > self.consumed);
        self.advance(count);
    }

    /// Drops the first `count` bytes of the payload.
    fn advance(&mut self, count: usize) {
        self.payload.drain(..count);
        self.consumed += count as u64;
        let passed = self.segment_of(self.consumed.saturating_sub(LOCATABLE));
        // Each time, no more segments are moved than are dropped.
        if passed > self.segments.len() / 2 {
            self.segments.drain(..passed);
        }
    }

    /// Returns the index of the segment that holds a position.
    fn segment_of(&self, position: u64) -> usize {
        let begun = self
            .segments
            .partition_point(|segment| segment.start <= position);
        begun.saturating_sub(1)
    }

    /// Sets whether the payload ends inside a piece of the buffer, with whose other bytes a search for
    /// a synchronisation point is continued: skipped bytes are one packet in a piece. A loss at the
    /// end of the payload is also left to them.
    pub fn set_continues(&mut self, continues: bool) {
        self.continues = continues;
    }

    /// Returns a copy of the stream that contains what is needed to continue.
    pub fn rest(&self) -> Self {
        // A packet may be located by the byte before it.
        let begun = self.segment_of(self.consumed.saturating_sub(1));
        Self {
            payload: self.payload.clone(),
            segments: self.segments[begun..].to_vec(),
            losses: self.losses.clone(),
            ..*self
        }
    }

    /// Returns whether both streams decode in the same way, whatever is appended and wherever each of
    /// them started.
    pub fn continues_like(&self, other: &Self) -> bool {
        let lost = |stream: &Self| -> Vec<u64> {
            let from = |at: &u64| at.wrapping_sub(stream.consumed);
            stream.losses.iter().map(from).collect()
        };
        self.payload == other.payload
            && (self.total > 0, self.consumed > 0) == (other.total > 0, other.consumed > 0)
            && lost(self) == lost(other)
            && self.places().eq(other.places())
    }

    /// Returns the offsets of the last byte consumed, of the payload, and of the next byte appended
    /// if it follows the payload directly.
    fn places(&self) -> impl Iterator<Item = BufferOffset> {
        let mut locator = self.locator();
        let first = self.consumed.saturating_sub(1);
        (first..=self.end()).map(move |position| locator.locate_position(position))
    }

    /// Splits the payload into packets and consumes it. `sink` receives every packet with its
    /// offset and its bytes. An incomplete packet at the end stays in the payload, unless this is
    /// the `last` payload or bytes are missing after it.
    pub fn decode<D: PacketDecoder, S: PacketSink<D::Packet>>(
        &mut self,
        decoder: &mut D,
        last: bool,
        sink: &mut S,
    ) {
        let mut at = 0;
        let mut losses = 0;
        let mut locator = Locator::new(&self.segments, self.consumed);
        loop {
            let loss = self.losses.get(losses).copied();
            let end = loss.map_or(self.payload.len(), |position| {
                usize::try_from(position.saturating_sub(self.consumed))
                    .map_or(self.payload.len(), |end| end.min(self.payload.len()))
            });
            while at < end {
                if S::TAKES_TARGETS && decoder.permits_targets() {
                    let start = self.consumed + at as u64;
                    let (length, _) = sink.targets(&self.payload[at..end], |index| {
                        locator.locate_if(S::LOCATES, start + index as u64, false)
                    });
                    at += length;
                }
                let rest = &self.payload[at..end];
                let start = self.consumed + at as u64;
                let taken = sink.atoms(rest, decoder.atoms(), |index| {
                    locator.locate_position(start + index as u64)
                });
                at += taken;
                let rest = &self.payload[at..end];
                if rest.is_empty() {
                    break;
                }
                if let Some(packet) = decoder.single(rest[0]) {
                    let position = self.consumed + at as u64;
                    let place = locator.locate_if(S::LOCATES, position, false);
                    sink.packet(place, &packet, &rest[..1]);
                    at += 1;
                    continue;
                }
                let mut located = Located {
                    bytes: &self.payload[..end],
                    consumed: self.consumed,
                    locator: &mut locator,
                    sink: &mut *sink,
                };
                let after = decoder.several(&self.payload[..end], at, &mut located);
                if after > at {
                    at = after;
                    continue;
                }
                if self.continues && loss.is_none() && decoder.skips_all(rest) {
                    break;
                }
                // Borrowed in place, because copying the packet is slow.
                let next = decoder.next(rest);
                let Some((packet, length)) = &next else {
                    break;
                };
                let length = (*length).min(rest.len());
                let position = self.consumed + at as u64;
                let shared = packet.shared_byte().is_some();
                let place = locator.locate_if(S::LOCATES, position, shared);
                sink.packet(place, packet, &rest[..length]);
                at += length;
            }
            if at < end && (loss.is_some() || last) {
                let rest = &self.payload[at..end];
                let next = decoder.next_at_end(rest);
                let (packet, length) = next.unwrap_or_else(|| (decoder.finish(rest), rest.len()));
                let length = length.min(rest.len());
                let position = self.consumed + at as u64;
                let shared = packet.shared_byte().is_some();
                let place = locator.locate_if(S::LOCATES, position, shared);
                sink.packet(place, &packet, &rest[..length]);
                at += length;
                if at < end {
                    continue;
                }
            }
            // A loss is located by the byte after it, which may be in the rest of the piece.
            if loss.is_none() || self.continues && at == self.payload.len() {
                break;
            }
            decoder.lost();
            sink.lost(locator.locate_position(self.consumed + at as u64));
            losses += 1;
        }
        self.losses.drain(..losses);
        self.advance(at);
    }

    /// Same as [`decode`](Self::decode) with a closure, which is not notified of losses.
    pub fn packets<D: PacketDecoder>(
        &mut self,
        decoder: &mut D,
        last: bool,
        mut each: impl FnMut(BufferOffset, &D::Packet, &[u8]),
    ) {
        self.decode(decoder, last, &mut each);
    }

    /// Returns the position of the next byte appended.
    #[inline]
    fn end(&self) -> u64 {
        self.consumed + self.payload.len() as u64
    }

    /// Returns whether frames from `offset` on, with `in_frame` bytes of payload each, continue the
    /// last segment.
    #[inline]
    fn follows(&self, offset: u64, in_frame: usize) -> bool {
        let position = self.end();
        self.segments.last().is_some_and(|last| {
            usize::from(last.in_frame) == in_frame
                && last.offset_at(position) == offset
                && (in_frame == 0 || (position - last.start).is_multiple_of(in_frame as u64))
        })
    }

    /// Starts a segment: the next byte appended is at `offset` in the buffer.
    #[inline]
    fn start_segment(&mut self, offset: BufferOffset, in_frame: usize) {
        self.segments.push(Segment {
            start: self.end(),
            offset,
            in_frame: in_frame as u8,
        });
    }

    /// Appends a byte of a frame that is not contiguous in the buffer.
    pub(super) fn append_byte(&mut self, offset: u64, byte: u8) {
        self.total += 1;
        if !self.keep {
            return;
        }
        let position = self.end();
        let last = self.segments.last();
        if last.is_none_or(|last| last.offset_at(position) != offset) {
            self.start_segment(BufferOffset(offset), DATA_ONLY);
        }
        self.payload.push(byte);
    }

    /// Appends the first `length` bytes of `bytes`, at most 15, as a segment of their own: they
    /// rarely follow the bytes before. Always copying 16 bytes is faster than copying `length`.
    #[inline]
    pub(super) fn append_apart(&mut self, offset: u64, bytes: &[u8; 16], length: usize) {
        self.total += length as u64;
        if !self.keep {
            return;
        }
        self.start_segment(BufferOffset(offset), DATA_ONLY);
        let end = self.payload.len() + length;
        self.payload.extend_from_slice(bytes);
        self.payload.truncate(end);
    }

    /// Appends the first `IN_FRAME` bytes of each frame. The frames are contiguous in the buffer, from
    /// `offset` on.
    #[inline]
    pub(super) fn append_frames<const IN_FRAME: usize>(
        &mut self,
        offset: u64,
        frames: impl ExactSizeIterator<Item = [u8; FRAME_BYTES]>,
    ) {
        let length = IN_FRAME * frames.len();
        self.total += length as u64;
        if !self.keep {
            return;
        }
        let start = self.payload.len();
        if !self.follows(offset, IN_FRAME) {
            self.start_segment(BufferOffset(offset), IN_FRAME);
        }
        // The bytes after it are overwritten by the next frame.
        self.payload
            .resize(start + length + FRAME_BYTES - IN_FRAME, 0);
        let mut rest = &mut self.payload[start..];
        for frame in frames {
            let Some(place) = rest.first_chunk_mut() else {
                break;
            };
            *place = frame;
            rest = &mut rest[IN_FRAME..];
        }
        self.payload.truncate(start + length);
    }

    pub(super) fn lose(&mut self) {
        let position = self.end();
        if self.total > 0 && self.keep && self.losses.last() != Some(&position) {
            self.losses.push(position);
        }
    }
}

/// Returns offsets in the buffer of payload bytes, requested in ascending order.
#[derive(Clone, Debug)]
pub struct Locator<'a> {
    /// The segments after the current one.
    later: &'a [Segment],
    base: u64,
    current: Segment,
    /// Start of the segment after the current one.
    until: u64,
}

impl<'a> Locator<'a> {
    fn new(segments: &'a [Segment], base: u64) -> Self {
        let nowhere = Segment {
            start: 0,
            offset: BufferOffset(0),
            in_frame: 0,
        };
        let (&current, later) = segments.split_first().unwrap_or((&nowhere, &[]));
        Self {
            later,
            base,
            current,
            until: later.first().map_or(u64::MAX, |next| next.start),
        }
    }

    #[inline(never)]
    fn advance(&mut self, position: u64) {
        while let Some((&next, later)) = self.later.split_first()
            && next.start <= position
        {
            self.current = next;
            self.later = later;
        }
        self.until = self.later.first().map_or(u64::MAX, |next| next.start);
    }

    /// Returns the offset of `payload[index]`. `index` must not be less than in the previous call.
    #[inline]
    pub fn locate(&mut self, index: usize) -> BufferOffset {
        self.locate_position(self.base + index as u64)
    }

    /// Returns the offset of the byte at `position` of the whole stream. `position` must be at most
    /// 4096 bytes before the last byte consumed, and not less than in the previous call.
    #[inline]
    pub fn locate_position(&mut self, position: u64) -> BufferOffset {
        if position >= self.until {
            self.advance(position);
        }
        BufferOffset(self.current.offset_at(position))
    }

    /// Returns the offset that listings show for a packet at `position`: that of its first byte, or
    /// the one after the byte that it shares with the previous packet.
    #[inline]
    pub fn locate_packet(&mut self, position: u64, shared: bool) -> BufferOffset {
        if shared && position > 0 {
            BufferOffset(self.locate_position(position - 1).0.wrapping_add(1))
        } else {
            self.locate_position(position)
        }
    }
}

impl Locator<'_> {
    /// [Locates](Self::locate_packet) a packet if its offset is `wanted`.
    #[inline(always)]
    fn locate_if(&mut self, wanted: bool, position: u64, shared: bool) -> BufferOffset {
        match wanted {
            true => self.locate_packet(position, shared),
            false => BufferOffset(0),
        }
    }
}

/// Locates packets by their ranges of the payload, and passes them on.
struct Located<'a, 'b, S> {
    bytes: &'a [u8],
    /// Position of the first of `bytes`.
    consumed: u64,
    locator: &'b mut Locator<'a>,
    sink: &'b mut S,
}

impl<P: Describe, S: PacketSink<P>> RangeSink<P> for Located<'_, '_, S> {
    #[inline(always)]
    fn packet(&mut self, packet: &P, range: Range<usize>) {
        let position = self.consumed + range.start as u64;
        let shared = packet.shared_byte().is_some();
        let place = self.locator.locate_if(S::LOCATES, position, shared);
        self.sink.packet(place, packet, &self.bytes[range]);
    }
}

/// The payload of every trace ID.
#[derive(Clone, Debug)]
pub struct Demux {
    streams: Box<[Stream; 128]>,
}

impl Default for Demux {
    fn default() -> Self {
        Self::new()
    }
}

impl Demux {
    /// Creates a demultiplexer that keeps the payload of all IDs that a source may use, and of the
    /// trigger.
    pub fn new() -> Self {
        Self::keep(|id| id.0 != ID_NULL && !is_reserved(id.0))
    }

    /// Creates a demultiplexer that keeps the payload of some IDs and only counts that of others.
    pub fn only(ids: &[TraceId]) -> Self {
        Self::keep(|id| ids.contains(&id))
    }

    fn keep(wanted: impl Fn(TraceId) -> bool) -> Self {
        let streams = Box::new(std::array::from_fn(|id| Stream {
            keep: wanted(TraceId(id as u8)),
            ..Stream::default()
        }));
        Self { streams }
    }

    /// Returns the stream of a trace ID (its low 7 bits).
    #[inline]
    pub fn stream(&self, id: TraceId) -> &Stream {
        &self.streams[usize::from(id.0 & 0x7f)]
    }

    /// Returns the stream of a trace ID (its low 7 bits), to consume from it.
    #[inline]
    pub fn stream_mut(&mut self, id: TraceId) -> &mut Stream {
        &mut self.streams[usize::from(id.0 & 0x7f)]
    }

    /// Returns the number of bytes so far, by ID.
    pub fn totals(&self) -> [u64; 128] {
        std::array::from_fn(|id| self.streams[id].total)
    }

    /// Returns the IDs with bytes so far, ascending.
    pub fn ids(&self) -> impl Iterator<Item = TraceId> + '_ {
        (0..128u8)
            .map(TraceId)
            .filter(|&id| self.stream(id).total > 0)
    }

    /// Appends bytes of a buffer without frames, from `offset` on, to the payload of `id`.
    pub fn unformatted(&mut self, id: TraceId, offset: BufferOffset, bytes: &[u8]) {
        let stream = self.stream_mut(id);
        if !stream.follows(offset.0, 0) {
            stream.start_segment(offset, 0);
        }
        stream.payload.extend_from_slice(bytes);
        stream.total += bytes.len() as u64;
    }

    /// Drops all payload that is not consumed.
    pub fn clear(&mut self) {
        for stream in self.streams.iter_mut() {
            stream.consume(stream.payload.len());
        }
    }

    pub(super) fn lose(&mut self) {
        for stream in self.streams.iter_mut() {
            stream.lose();
        }
    }
}
