//! Frames → bytes per trace ID.

use armsnap_arch::quantity::{BufferOffset, TraceId};

use super::demux::{AFTER_ID, DATA_ONLY};
use super::{Demux, FRAME_BYTES, FSYNC, HSYNC, Stream};

/// The layout of frames in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum FrameKind {
    /// Contiguous frames from the first byte on, as in the memory of an ETB, ETF or ETR
    /// (`coresight`). FSYNC is not part of this format but is accepted: the next frame starts
    /// after it, and four in a row separate two captures.
    Memory,
    /// As on the pins of a trace port: the first frame starts after the first FSYNC. FSYNC occurs
    /// between frames, HSYNC between any two pairs of bytes.
    Tpiu,
    /// As a DSTREAM probe stores a capture from a trace port (`dstream_coresight`): blocks of 512
    /// bytes, the last 8 of which are the probe's own. Offsets do not count them.
    Dstream,
}

/// Size in bytes of a block in a DSTREAM capture.
const BLOCK: u64 = 512;
/// The number of bytes at the start of a block that came from the trace port.
const BLOCK_TRACE: u64 = 504;

/// The bytes of a buffer, counted by use. After the last piece, the sum is the number of bytes fed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes appended to a stream.
    pub payload: u64,
    /// Trace IDs and auxiliary bytes.
    pub overhead: u64,
    /// FSYNC and HSYNC.
    pub sync: u64,
    /// The probe's own bytes ([`FrameKind::Dstream`]).
    pub blocks: u64,
    /// Data before the first ID, bytes before the first FSYNC or after a loss, frames cut off.
    pub skipped: u64,
}

impl Counts {
    /// Returns the sum of all counts.
    pub fn sum(&self) -> u64 {
        self.payload + self.overhead + self.sync + self.blocks + self.skipped
    }
}

/// Reads a buffer in pieces and appends each source's bytes to a [`Demux`].
///
/// The offset of a byte follows the convention of other CoreSight tools: data after an ID byte are
/// counted from the offset of the ID byte. It is the offset of the byte itself or of an earlier byte
/// of the same frame.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Deformatter {
    kind: FrameKind,
    /// The trace ID of the next data.
    id: Option<u8>,
    state: State,
    #[serde(skip)]
    counts: Counts,
    /// FSYNCs in a row.
    fsyncs: u32,
}

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
enum State {
    /// Searching for FSYNC. `window` holds the last bytes, the latest lowest; `held` is their number.
    Searching { window: u32, held: u32 },
    /// In a frame.
    Frame(Partial),
}

/// The start of a frame that is not contiguous in the buffer.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
struct Partial {
    bytes: [u8; FRAME_BYTES],
    /// Offset of each pair of bytes.
    places: [u64; FRAME_BYTES / 2],
    /// Number of bytes in `bytes`, even.
    filled: usize,
    /// The first byte of a pair, with its offset.
    half: Option<(u64, u8)>,
    /// Offset of a pair `ff ff`, which may be the first half of FSYNC.
    held: Option<u64>,
}

impl Partial {
    fn is_empty(&self) -> bool {
        self.filled == 0 && self.half.is_none() && self.held.is_none()
    }

    fn continues_like(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.filled, one.half, one.held);
        of(self) == of(other)
            && self.bytes[..self.filled] == other.bytes[..self.filled]
            && self.places[..self.filled / 2] == other.places[..self.filled / 2]
    }

    fn len(&self) -> u64 {
        self.filled as u64 + u64::from(self.half.is_some()) + 2 * u64::from(self.held.is_some())
    }
}

/// Bit 0 of each even byte of half a frame, from four auxiliary bits.
const LOW_BITS: [u64; 16] = {
    let mut table = [0; 16];
    let mut aux = 0;
    while aux < 16 {
        let mut bit = 0;
        while bit < 4 {
            table[aux] |= ((aux as u64 >> bit) & 1) << (16 * bit);
            bit += 1;
        }
        aux += 1;
    }
    table
};

/// Maximum number of frames without ID bytes processed at once: they stay in the L1 cache.
const MAX_FRAMES: usize = 256;

const EVEN_LOW_BITS: u64 = 0x0001_0001_0001_0001;

/// Returns a bit for each of the four even bytes of half a frame that is an ID.
#[inline]
fn id_bits(half: u64) -> u32 {
    // Moves bits 0, 16, 32 and 48 to 60 … 63. No two products of bits meet, so nothing carries.
    const GATHER: u64 = 1 << 60 | 1 << 45 | 1 << 30 | 1 << 15;
    ((half & EVEN_LOW_BITS).wrapping_mul(GATHER) >> 60) as u32
}

/// Returns a bit for each of the eight even bytes of a frame that is an ID.
#[inline]
fn frame_ids(frame: &[u8; FRAME_BYTES]) -> u32 {
    let (low, high) = halves(frame);
    id_bits(low) | id_bits(high) << 4
}

/// Returns whether a frame has no ID bytes.
#[inline]
fn is_data(frame: &[u8; FRAME_BYTES]) -> bool {
    let (low, high) = halves(frame);
    (low | high) & EVEN_LOW_BITS == 0
}

/// Returns whether `header` is the first byte of a frame and its only ID byte.
#[inline]
fn starts_with_only_id(frame: &[u8; FRAME_BYTES], header: u8) -> bool {
    let (low, high) = halves(frame);
    low & (EVEN_LOW_BITS | 0xff) == u64::from(header) && high & EVEN_LOW_BITS == 0
}

/// Returns whether one of the IDs of a frame looks like FSYNC or HSYNC: whether an even byte is ff,
/// the only value that carries when 1 is added.
#[inline]
fn may_hold_sync(frame: &[u8; FRAME_BYTES]) -> bool {
    let (low, high) = halves(frame);
    let sums = |half: u64| (half & (0xff * EVEN_LOW_BITS)) + EVEN_LOW_BITS;
    (sums(low) | sums(high)) & (EVEN_LOW_BITS << 8) != 0
}

/// Returns bit 0 of each even byte of a frame, from eight auxiliary bits.
#[inline]
fn low_bits(aux: usize) -> u128 {
    u128::from(LOW_BITS[aux & 0xf]) | u128::from(LOW_BITS[aux >> 4 & 0xf]) << 64
}

/// Returns the bytes of a frame with bit 0 of each even byte taken from the auxiliary byte.
#[inline]
fn frame_data(frame: &[u8; FRAME_BYTES]) -> [u8; FRAME_BYTES] {
    let aux = usize::from(frame[FRAME_BYTES - 1]);
    (u128::from_le_bytes(*frame) | low_bits(aux)).to_le_bytes()
}

/// Returns [`frame_data`] with each ID (one bit each in `ids`) replaced by the byte after it: if
/// the ID takes effect only after that byte, the byte continues the data before the ID.
#[inline]
fn data_without_ids(frame: &[u8; FRAME_BYTES], ids: u32) -> u128 {
    let data = u128::from_le_bytes(frame_data(frame));
    let places = low_bits(ids as usize) * 0xff;
    data & !places | data >> 8 & places
}

impl Deformatter {
    /// Creates a deformatter for the start of a buffer.
    pub fn new(kind: FrameKind) -> Self {
        let state = match kind {
            FrameKind::Memory => State::Frame(Partial::default()),
            FrameKind::Tpiu | FrameKind::Dstream => State::Searching { window: 0, held: 0 },
        };
        Self {
            kind,
            id: None,
            state,
            counts: Counts::default(),
            fsyncs: 0,
        }
    }

    /// Creates a deformatter for the start of a frame in the middle of a buffer. `id` is the source
    /// of the next data.
    pub fn within(kind: FrameKind, id: Option<TraceId>) -> Self {
        Self {
            id: id.map(|id| id.0 & 0x7f),
            ..Self::new(kind)
        }
    }

    /// Returns the source of the data after `frames`: contiguous frames of the
    /// [`Memory`](FrameKind::Memory) kind without FSYNC. `None` if no ID is in them.
    pub fn last_id(frames: &[u8]) -> Option<TraceId> {
        let (_, frames) = frames.as_rchunks::<FRAME_BYTES>();
        frames.iter().rev().find_map(|frame| {
            let pair = frame_ids(frame).checked_ilog2()?;
            Some(TraceId(frame[2 * pair as usize] >> 1))
        })
    }

    /// Returns whether both continue in the same way, whatever is fed to them.
    pub fn continues_like(&self, other: &Self) -> bool {
        // The fourth FSYNC in a row matters.
        let of = |one: &Self| (one.kind, one.id, one.fsyncs.min(5));
        let same = match (&self.state, &other.state) {
            (
                State::Searching { window, held },
                State::Searching {
                    window: others,
                    held: more,
                },
            ) => (window, held) == (others, more),
            (State::Frame(one), State::Frame(other)) => one.continues_like(other),
            _ => false,
        };
        of(self) == of(other) && same
    }

    /// Returns the counts of the bytes fed so far. The bytes of an incomplete frame are not counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Processes the next bytes of the buffer, which start at offset `first`. Pieces may end
    /// anywhere; `last` marks the last one.
    pub fn feed(&mut self, first: BufferOffset, bytes: &[u8], last: bool, out: &mut Demux) {
        if self.kind == FrameKind::Dstream {
            self.blocks(first.0, bytes, out);
        } else {
            self.frames(first.0, bytes, out);
        }
        if last {
            self.cut_off(out);
        }
    }

    /// Processes bytes of DSTREAM blocks.
    fn blocks(&mut self, first: u64, bytes: &[u8], out: &mut Demux) {
        let mut at = first;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (block, within) = (at / BLOCK, at % BLOCK);
            let end = if within < BLOCK_TRACE {
                BLOCK_TRACE
            } else {
                BLOCK
            };
            let (piece, after) = rest.split_at(rest.len().min((end - within) as usize));
            if within < BLOCK_TRACE {
                self.frames(block * BLOCK_TRACE + within, piece, out);
            } else {
                self.counts.blocks += piece.len() as u64;
            }
            at = at.wrapping_add(piece.len() as u64);
            rest = after;
        }
    }

    fn frames(&mut self, first: u64, bytes: &[u8], out: &mut Demux) {
        let mut at = first;
        let mut rest = bytes;
        while !rest.is_empty() {
            let between = match &self.state {
                State::Frame(partial) => partial.is_empty(),
                State::Searching { .. } => false,
            };
            let mut taken = 0;
            if between {
                taken = self.whole_frames(at, rest, out);
            }
            if taken == 0 {
                self.byte(at, rest[0], out);
                taken = 1;
            }
            at = at.wrapping_add(taken as u64);
            rest = &rest[taken..];
        }
    }

    /// Reports that bytes of the buffer are missing before the next piece.
    pub fn lost(&mut self, out: &mut Demux) {
        self.cut_off(out);
        self.id = None;
        self.fsyncs = 0;
        out.lose();
        self.state = Self::new(self.kind).state;
    }

    /// Processes FSYNCs and contiguous frames; stops before anything else. Returns the number of
    /// bytes processed.
    fn whole_frames(&mut self, at: u64, bytes: &[u8], out: &mut Demux) -> usize {
        let mut done = 0;
        loop {
            let rest = &bytes[done..];
            let offset = at.wrapping_add(done as u64);
            let plain = self.data_frames(offset, rest, out);
            if plain > 0 {
                self.fsyncs = 0;
                done += plain;
                continue;
            }
            if rest.starts_with(&FSYNC) {
                self.fsync(out);
                done += FSYNC.len();
                continue;
            }
            let Some(frame) = rest.first_chunk::<FRAME_BYTES>() else {
                break;
            };
            let ids = frame_ids(frame);
            if may_hold_sync(frame) {
                break;
            }
            self.fsyncs = 0;
            if ids == 1 && self.goes_to(frame[0] >> 1, frame) {
                done += self.one_source_frames(offset, rest, out);
                continue;
            }
            self.mixed_frame(frame, ids, out, |stream, counted, data, length| {
                stream.append_apart(offset.wrapping_add(counted as u64), data, length);
            });
            done += FRAME_BYTES;
        }
        done
    }

    /// Processes the frames without ID bytes at the start of `bytes`; returns their size in bytes.
    /// (FSYNC looks like an ID.)
    #[inline]
    fn data_frames(&mut self, offset: u64, bytes: &[u8], out: &mut Demux) -> usize {
        let (frames, _) = bytes.as_chunks::<FRAME_BYTES>();
        let count = frames
            .iter()
            .take(MAX_FRAMES)
            .take_while(|frame| is_data(frame))
            .count();
        if count == 0 {
            return 0;
        }
        self.counts.overhead += count as u64;
        let payload = (FRAME_BYTES as u64 - 1) * count as u64;
        if let Some(id) = self.id {
            self.counts.payload += payload;
            let data = frames[..count].iter().map(frame_data);
            out.stream_mut(TraceId(id))
                .append_frames::<DATA_ONLY>(offset, data);
        } else {
            self.counts.skipped += payload;
        }
        count * FRAME_BYTES
    }

    /// Returns whether all data of a frame that starts with an ID belong to that source.
    fn goes_to(&self, id: u8, frame: &[u8; FRAME_BYTES]) -> bool {
        self.id == Some(id) || frame[FRAME_BYTES - 1] & 1 == 0
    }

    /// Processes the frames at the start of `bytes` that each start with the same ID and contain no
    /// other, as is usual where one source of several writes; returns their size in bytes.
    #[inline]
    fn one_source_frames(&mut self, offset: u64, bytes: &[u8], out: &mut Demux) -> usize {
        let (frames, _) = bytes.as_chunks::<FRAME_BYTES>();
        let header = bytes[0];
        let count = frames
            .iter()
            .take(MAX_FRAMES)
            .take_while(|frame| starts_with_only_id(frame, header))
            .count();
        let id = header >> 1;
        self.id = Some(id);
        self.counts.overhead += 2 * count as u64;
        self.counts.payload += (AFTER_ID * count) as u64;
        let data = frames[..count]
            .iter()
            .map(|frame| (u128::from_le_bytes(frame_data(frame)) >> 8).to_le_bytes());
        out.stream_mut(TraceId(id))
            .append_frames::<AFTER_ID>(offset, data);
        count * FRAME_BYTES
    }

    /// Processes a frame with ID bytes, one bit each in `ids`. `append` is called with the stream of
    /// each piece of data, the index in the frame that the offset of its first byte is counted from,
    /// and the piece itself with its length.
    #[inline(always)]
    fn mixed_frame(
        &mut self,
        frame: &[u8; FRAME_BYTES],
        ids: u32,
        out: &mut Demux,
        mut append: impl FnMut(&mut Stream, usize, &[u8; FRAME_BYTES], usize),
    ) {
        let aux = usize::from(frame[FRAME_BYTES - 1]);
        let data = data_without_ids(frame, ids);
        let mut overhead = 1;
        let mut skipped = 0;
        let mut source = self.id;

        // The index that the offset of the source's next byte is counted from, and whether the
        // source had a byte since.
        let mut counted = 0;
        let mut any = false;
        let mut from = 0;
        let mut left = ids;
        loop {
            let pair = left.trailing_zeros() as usize;
            // After the last ID, the auxiliary byte ends the data.
            let id_at = (2 * pair).min(FRAME_BYTES - 1);
            let id = frame[id_at] >> 1;
            let changes = source != Some(id);
            let late = changes && pair < 7 && aux >> pair & 1 != 0;
            let length = id_at + usize::from(late) - from;
            if length > 0 {
                if let Some(source) = source {
                    let piece = (data >> (8 * from)).to_le_bytes();
                    append(out.stream_mut(TraceId(source)), counted, &piece, length);
                } else {
                    skipped = length as u64;
                }
            }
            if left == 0 {
                break;
            }
            left &= left - 1;
            overhead += 1;
            any |= length > 0;
            counted += length;
            from = id_at + 1 + usize::from(late);
            if changes {
                source = Some(id);
                if any {
                    counted = id_at;
                    any = false;
                }
            }
        }
        self.id = source;
        self.counts.overhead += overhead;
        self.counts.skipped += skipped;
        self.counts.payload += FRAME_BYTES as u64 - overhead - skipped;
    }

    /// Processes one byte where frames are not contiguous or FSYNC is searched for.
    fn byte(&mut self, at: u64, byte: u8, out: &mut Demux) {
        match &mut self.state {
            State::Searching { window, held } => {
                *window = *window << 8 | u32::from(byte);
                *held += 1;
                if *window == u32::from_be_bytes(FSYNC) && *held >= 4 {
                    self.counts.skipped += u64::from(*held - 4);
                    self.state = State::Frame(Partial::default());
                    self.fsync(out);
                } else if *held > 4 {
                    self.counts.skipped += 1;
                    *held -= 1;
                }
            }
            State::Frame(partial) => match partial.half.take() {
                None => partial.half = Some((at, byte)),
                Some((place, first)) => self.pair(place, [first, byte], out),
            },
        }
    }

    /// Processes a pair of bytes at offset `place`: HSYNC, half of FSYNC, or part of a frame.
    fn pair(&mut self, place: u64, pair: [u8; 2], out: &mut Demux) {
        let State::Frame(partial) = &mut self.state else {
            return;
        };
        if let Some(held) = partial.held.take() {
            if pair == HSYNC {
                let dropped = partial.filled as u64;
                *partial = Partial::default();
                if dropped > 0 {
                    self.counts.skipped += dropped;
                    self.id = None;
                    out.lose();
                }
                self.fsync(out);
                return;
            }
            match self.kind {
                FrameKind::Memory => self.fill(held, [0xff, 0xff], out),
                FrameKind::Tpiu | FrameKind::Dstream => {
                    // No frame contains this pair: frame alignment is lost.
                    let dropped = partial.filled as u64 + 2;
                    self.counts.skipped += dropped;
                    self.id = None;
                    out.lose();
                    self.state = State::Searching { window: 0, held: 0 };
                    self.byte(place, pair[0], out);
                    self.byte(place.wrapping_add(1), pair[1], out);
                    return;
                }
            }
        }
        if pair == [0xff, 0xff] {
            if let State::Frame(partial) = &mut self.state {
                partial.held = Some(place);
            }
        } else if pair == HSYNC && self.kind != FrameKind::Memory {
            self.counts.sync += 2;
        } else {
            self.fill(place, pair, out);
        }
    }

    /// Adds a pair of bytes to the incomplete frame, and processes the frame once it is complete.
    fn fill(&mut self, place: u64, pair: [u8; 2], out: &mut Demux) {
        let State::Frame(partial) = &mut self.state else {
            return;
        };
        partial.bytes[partial.filled..partial.filled + 2].copy_from_slice(&pair);
        partial.places[partial.filled / 2] = place;
        partial.filled += 2;
        if partial.filled == FRAME_BYTES {
            let Partial { bytes, places, .. } = *partial;
            partial.filled = 0;
            self.fsyncs = 0;
            self.mixed_frame(
                &bytes,
                frame_ids(&bytes),
                out,
                |stream, counted, data, length| {
                    for (index, &byte) in (counted..).zip(&data[..length]) {
                        let at = places[index / 2].wrapping_add(index as u64 & 1);
                        stream.append_byte(at, byte);
                    }
                },
            );
        }
    }

    /// Counts an FSYNC. In memory, the fourth in a row separates two captures.
    fn fsync(&mut self, out: &mut Demux) {
        self.counts.sync += FSYNC.len() as u64;
        self.fsyncs = self.fsyncs.saturating_add(1);
        if self.kind == FrameKind::Memory && self.fsyncs == 4 {
            self.id = None;
            out.lose();
        }
    }

    /// Counts the bytes of an incomplete frame as skipped.
    fn cut_off(&mut self, out: &mut Demux) {
        match &mut self.state {
            State::Searching { window, held } => {
                self.counts.skipped += u64::from(*held);
                (*window, *held) = (0, 0);
            }
            State::Frame(partial) => {
                // A pair `ff ff` that is not part of FSYNC may complete the frame.
                if let Some(held) = partial.held.take() {
                    let half = partial.half.take();
                    self.fill(held, [0xff, 0xff], out);
                    if let State::Frame(partial) = &mut self.state {
                        partial.half = half;
                    }
                }
                if let State::Frame(partial) = &mut self.state {
                    self.counts.skipped += partial.len();
                    *partial = Partial::default();
                }
            }
        }
    }
}

fn halves(frame: &[u8; FRAME_BYTES]) -> (u64, u64) {
    let value = u128::from_le_bytes(*frame);
    (value as u64, (value >> 64) as u64)
}
