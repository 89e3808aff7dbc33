//! The bytes of a buffer, and of one source in it, readable from any chunk.
//!
//! A chunk is a fixed number of bytes of the buffer; decoding can start at a synchronisation
//! point in it without the chunks before. Independent of packets: a synchronisation point is a
//! byte string.

use super::parallel::{Then, each};
use crate::decode::parts::frames_alike;
use armsnap_arch::quantity::{BufferOffset, TraceId};
use armsnap_snapshot::cache::{Fields, Name};
use armsnap_snapshot::capture::CaptureBuffer;
use armsnap_snapshot::mapped::{self, Mapped};
use armsnap_snapshot::stop::Unwind;
use armsnap_trace::formatter::{Deformatter, Demux, FRAME_BYTES, FSYNC, FrameKind, Stream};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Maximum number of bytes decoded at once.
const PIECE: u64 = 4 << 10;

/// The state needed to deformat frames from the start of any chunk.
#[derive(Debug)]
enum Frames {
    /// The buffer holds the bytes of one source, without frames.
    None,
    /// Contiguous frames: by chunk, the last ID before it, to which its first data belong.
    Plain(Vec<Option<TraceId>>),
    /// Frames with synchronisation packets among them: by chunk, the state before it.
    Passed(Vec<Deformatter>),
}

/// A buffer, cut into chunks. Shared by its sources, so that it is examined only once.
#[derive(Debug)]
pub(super) struct Chunks {
    parts: Vec<(u64, Mapped)>,
    total: u64,
    kind: Option<FrameKind>,
    chunk: u64,
    frames: OnceLock<Frames>,
    hash: OnceLock<Name>,
}

/// One source's trace in one buffer.
#[derive(Debug)]
pub(super) struct Trace {
    chunks: Arc<Chunks>,
    id: TraceId,
    /// The byte string at the start of a synchronisation point.
    sync: memchr::memmem::Finder<'static>,
    unwind: Unwind,
}

/// A read position in the trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Feed {
    /// Offset of the next byte in the buffer.
    pub raw: u64,
    pub deformatter: Option<Deformatter>,
}

impl Feed {
    /// Returns whether both are at the same offset and continue their frames in the same way.
    pub fn continues_like(&self, other: &Self) -> bool {
        self.raw == other.raw && frames_alike(self.deformatter.as_ref(), other.deformatter.as_ref())
    }
}

impl Chunks {
    /// Cuts `buffer` into chunks of `chunk` bytes.
    pub fn new(buffer: &CaptureBuffer, chunk: u64) -> Self {
        let mut total = 0;
        let parts = buffer.parts.iter().map(|part| {
            let begin = total;
            total += part.len() as u64;
            (begin, part.clone())
        });
        let parts: Vec<_> = parts.collect();
        // A power of two, so that frames, DSTREAM blocks and pieces are aligned with it.
        let chunk = chunk.clamp(512, 1 << 30).next_power_of_two();
        Self {
            parts,
            total,
            kind: buffer.frames,
            chunk,
            frames: OnceLock::new(),
            hash: OnceLock::new(),
        }
    }

    /// Returns the number of bytes in the buffer.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Returns a hash of the bytes of the buffer, all of which are read the first time.
    fn hash(&self, jobs: usize, unwind: &Unwind) -> Name {
        /// Bytes that one thread reads at once.
        const STRIPE: u64 = 4 << 20;
        let stripe = |number: usize| {
            let begin = STRIPE * number as u64;
            let end = (begin + STRIPE).min(self.total);
            let (mut at, mut fields) = (begin, Fields::default());
            while at < end {
                unwind.check();
                let bytes = self.bytes(at, end - at);
                if bytes.is_empty() {
                    break;
                }
                fields.add(bytes);
                at += bytes.len() as u64;
            }
            self.release(begin, end);
            fields.name()
        };
        *self.hash.get_or_init(|| {
            let count = self.total.div_ceil(STRIPE) as usize;
            let mut threads = vec![(); jobs.max(1)];
            let stripes = each(&mut threads, count, |(), at| (stripe(at), Then::Continue));
            let mut fields = Fields::default();
            for stripe in stripes.iter().flatten() {
                fields.add(stripe.as_bytes());
            }
            fields.name()
        })
    }

    /// Returns how the sources are framed; `None` without frames.
    pub fn frame_kind(&self) -> Option<FrameKind> {
        self.kind
    }

    /// Returns the size of the buffer in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of chunks.
    pub fn count(&self) -> u64 {
        self.total.div_ceil(self.chunk)
    }

    /// Returns the start of a chunk.
    pub fn start(&self, chunk: u64) -> u64 {
        chunk.saturating_mul(self.chunk)
    }

    /// Returns the chunk that contains an offset, or the last one.
    pub fn chunk_with(&self, offset: u64) -> u64 {
        (offset / self.chunk).min(self.count().saturating_sub(1))
    }

    /// Returns the chunk that starts at an offset.
    pub fn chunk_at(&self, begin: u64) -> Option<u64> {
        let chunk = begin / self.chunk;
        (begin.is_multiple_of(self.chunk) && (chunk < self.count() || chunk == 0)).then_some(chunk)
    }

    /// Returns the contiguous bytes from `raw`, up to `most`.
    fn bytes(&self, raw: u64, most: u64) -> &[u8] {
        let after = self.parts.partition_point(|(begin, _)| *begin <= raw);
        let holding = self.parts[..after].iter().rev();
        for (begin, part) in holding {
            let Ok(from) = usize::try_from(raw - begin) else {
                continue;
            };
            if let Some(rest) = part.get(from..).filter(|rest| !rest.is_empty()) {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                return &rest[..rest.len().min(most)];
            }
        }
        &[]
    }

    /// Releases the memory that holds these bytes of the buffer.
    pub fn release(&self, from: u64, to: u64) {
        for (begin, part) in &self.parts {
            let first = from.saturating_sub(*begin) as usize;
            let last = to.saturating_sub(*begin) as usize;
            if first < part.len() && last > first {
                part.release(first..last.min(part.len()));
            }
        }
    }

    /// Returns the state needed to deformat from the start of any chunk.
    fn frames(&self, unwind: &Unwind) -> &Frames {
        self.frames.get_or_init(|| match self.kind {
            None => Frames::None,
            Some(kind) => match kind {
                FrameKind::Memory => self.plain(unwind),
                FrameKind::Tpiu | FrameKind::Dstream => None,
            }
            .unwrap_or_else(|| self.passed(kind, unwind)),
        })
    }

    /// Finds the last ID before each chunk, if there is no FSYNC among frames in memory, which
    /// are then aligned to their size. Reads all bytes once.
    fn plain(&self, unwind: &Unwind) -> Option<Frames> {
        let fsync = AtomicBool::new(false);
        let middle = self.count() / 2;
        let halves = [0..middle, middle..self.count()];
        let ids = each(&mut [(), ()], halves.len(), |(), half| {
            let ids = self.last_ids(halves[half].clone(), &fsync, unwind);
            (ids, Then::Continue)
        });
        let mut ids: Vec<_> = ids.into_iter().flatten().flatten().collect();
        let mut last = None;
        for id in &mut ids {
            last = std::mem::replace(id, last).or(last);
        }
        (!fsync.into_inner()).then_some(Frames::Plain(ids))
    }

    /// Returns the last ID in each of some chunks of plain frames; stops at an FSYNC.
    fn last_ids(
        &self,
        chunks: Range<u64>,
        fsync: &AtomicBool,
        unwind: &Unwind,
    ) -> Vec<Option<TraceId>> {
        /// Bytes that are read before their memory is released.
        const STRIDE: u64 = 4 << 20;
        let finder = memchr::memmem::Finder::new(&FSYNC);
        let mut held = self.start(chunks.start);
        let mut look = |chunk| {
            unwind.check();
            let (begin, end) = (self.start(chunk), self.start(chunk + 1).min(self.total));
            // An FSYNC may extend beyond the chunk.
            let bytes = self.joined(begin, end + FSYNC.len() as u64 - 1);
            let (frames, _) = bytes[..bytes.len().min((end - begin) as usize)].as_chunks();
            // FSYNC starts like an ID. Most chunks of a single source have neither, which this
            // detects quickly.
            let seen = frames.iter().fold(0, |seen, frame| seen | id_bits(frame));
            let rest = (end - begin) % FRAME_BYTES as u64;
            let mut id = None;
            if seen != 0 || rest != 0 {
                if finder.find_iter(&bytes).any(|at| at.is_multiple_of(2)) {
                    fsync.store(true, Ordering::Relaxed);
                }
                id = frames.iter().rev().find_map(last_id_of).map(TraceId);
            }
            if end - held >= STRIDE || chunk + 1 == chunks.end {
                self.release(held, end);
                held = end;
            }
            id
        };
        let known = chunks.clone();
        known
            .take_while(|_| !fsync.load(Ordering::Relaxed))
            .map(&mut look)
            .collect()
    }

    /// Returns bytes of the buffer, joined if they lie in several pieces.
    fn joined(&self, begin: u64, end: u64) -> Cow<'_, [u8]> {
        let first = self.bytes(begin, end - begin);
        let mut at = begin + first.len() as u64;
        if at >= end.min(self.total) {
            return first.into();
        }
        let mut joined = first.to_vec();
        while at < end {
            let next = self.bytes(at, end - at);
            if next.is_empty() {
                break;
            }
            joined.extend_from_slice(next);
            at += next.len() as u64;
        }
        joined.into()
    }

    /// Deformats the whole buffer and returns the state before each chunk.
    fn passed(&self, kind: FrameKind, unwind: &Unwind) -> Frames {
        let mut deformatter = Deformatter::new(kind);
        let mut none = Demux::only(&[]);
        let mut passed = Vec::new();
        let mut raw = 0;
        while raw < self.total {
            unwind.check();
            passed.push(deformatter.clone());
            let end = (raw + self.chunk).min(self.total);
            let begin = raw;
            while raw < end {
                let bytes = self.bytes(raw, end - raw);
                if bytes.is_empty() {
                    break;
                }
                deformatter.feed(BufferOffset(raw), bytes, false, &mut none);
                raw += bytes.len() as u64;
            }
            self.release(begin, end);
            raw = end;
        }
        Frames::Passed(passed)
    }

    /// Returns a read position at the start of a chunk.
    fn feed(&self, chunk: u64, unwind: &Unwind) -> Feed {
        let deformatter = match (self.frames(unwind), self.kind) {
            (Frames::None, _) | (_, None) => None,
            (Frames::Plain(ids), Some(kind)) => {
                let id = usize::try_from(chunk).ok().and_then(|at| *ids.get(at)?);
                Some(Deformatter::within(kind, id))
            }
            (Frames::Passed(passed), Some(kind)) => {
                let state = usize::try_from(chunk).ok().and_then(|at| passed.get(at));
                Some(state.cloned().unwrap_or_else(|| Deformatter::new(kind)))
            }
        };
        Feed {
            raw: self.start(chunk),
            deformatter,
        }
    }
}

impl Deref for Trace {
    type Target = Chunks;

    fn deref(&self) -> &Chunks {
        &self.chunks
    }
}

impl Trace {
    /// Selects the bytes of `id`. `sync` is the start of a synchronisation point.
    pub fn new(chunks: Arc<Chunks>, id: TraceId, sync: &[u8], unwind: Unwind) -> Self {
        Self {
            chunks,
            id,
            sync: memchr::memmem::Finder::new(sync).into_owned(),
            unwind,
        }
    }

    /// Returns a hash of the bytes of the buffer, all of which are read the first time.
    pub fn hash(&self, jobs: usize) -> Name {
        self.chunks.hash(jobs, &self.unwind)
    }

    /// Returns a read position at the start of a chunk.
    pub fn feed(&self, chunk: u64) -> Feed {
        self.chunks.feed(chunk, &self.unwind)
    }

    pub fn id(&self) -> TraceId {
        self.id
    }

    /// Feeds the next piece to `demux`. Returns whether it was the last one.
    pub fn take(&self, feed: &mut Feed, demux: &mut Demux) -> bool {
        self.unwind.check();
        if mapped::is_cut() {
            self.unwind.end();
        }
        let piece = PIECE.min(self.chunk);
        let most = piece - feed.raw % piece;
        let bytes = self.bytes(feed.raw, most);
        let at = BufferOffset(feed.raw);
        feed.raw += bytes.len() as u64;
        let last = feed.raw >= self.total || bytes.is_empty();
        match &mut feed.deformatter {
            Some(deformatter) => deformatter.feed(at, bytes, last, demux),
            None => demux.unformatted(self.id, at, bytes),
        }
        last
    }

    /// Returns the synchronisation points in a chunk, as numbers of bytes of the source since the
    /// start of the chunk.
    pub fn synchronisations(&self, chunk: u64) -> Vec<u64> {
        let mut feed = self.feed(chunk);
        let end = self.start(chunk + 1);
        let mut demux = Demux::only(&[self.id]);
        while feed.raw < end && !self.take(&mut feed, &mut demux) {}
        let stream: &Stream = demux.stream(self.id);
        self.sync
            .find_iter(stream.payload())
            .map(|at| at as u64)
            .collect()
    }
}

/// Masks the lowest bit of each byte of a frame that may be an ID.
fn id_bits(frame: &[u8; FRAME_BYTES]) -> u128 {
    u128::from_le_bytes(*frame) & (u128::MAX / 0xffff)
}

/// Returns the last ID of a frame.
fn last_id_of(frame: &[u8; FRAME_BYTES]) -> Option<u8> {
    // The highest bit set is in that byte.
    let last = id_bits(frame).checked_ilog2()? / 8;
    Some(frame[last as usize] >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(parts: &[&[u8]], frames: Option<FrameKind>) -> Chunks {
        let buffer = CaptureBuffer {
            index: 0,
            name: String::new(),
            parts: parts.iter().map(|part| part.to_vec().into()).collect(),
            frames,
            sources: Vec::new(),
            left_out: Vec::new(),
        };
        Chunks::new(&buffer, 512)
    }

    fn has_fsync(chunks: &Chunks) -> bool {
        matches!(chunks.frames(&Unwind::default()), Frames::Passed(_))
    }

    #[test]
    fn synchronisation_packets_are_found_wherever_they_lie() {
        for length in [64, 4096, 5 << 20] {
            let plain = vec![0; length];
            assert!(!has_fsync(&chunks(&[&plain], Some(FrameKind::Memory))));
            for at in [
                0,
                1,
                2,
                length / 2 - 3,
                length / 2 - 2,
                length / 2,
                length - 4,
                length - 5,
            ] {
                let mut bytes = plain.clone();
                bytes[at..at + 4].copy_from_slice(&FSYNC);
                let wanted = at % 2 == 0;
                for cut in [0, at + 1, at + 3, length / 2, length] {
                    let (first, second) = bytes.split_at(cut);
                    let chunks = chunks(&[first, second], Some(FrameKind::Memory));
                    assert_eq!(has_fsync(&chunks), wanted, "{at} of {length}, cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn data_belong_to_the_last_id_before_them() {
        let mut bytes = vec![0; 3000];
        // The ID 0x10 at the start, 0x11 and 0x12 in one frame of the third chunk.
        bytes[0] = 0x21;
        bytes[1024 + 32] = 0x23;
        bytes[1024 + 46] = 0x25;
        let chunks = chunks(&[&bytes[..1500], &bytes[1500..]], Some(FrameKind::Memory));
        let Frames::Plain(ids) = chunks.frames(&Unwind::default()) else {
            panic!("plain frames: {chunks:?}");
        };
        let id = |id| Some(TraceId(id));
        assert_eq!(
            *ids,
            [None, id(0x10), id(0x10), id(0x12), id(0x12), id(0x12)]
        );
    }
}
