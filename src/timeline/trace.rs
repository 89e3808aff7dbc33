//! The bytes of a buffer, and of one source in it, from any chunk of the buffer on.
//!
//! A chunk is a fixed number of bytes of the buffer; decoding can begin at a synchronisation
//! point in it without the chunks before. Knows no packets: a synchronisation point is a string
//! of bytes.

use crate::decode::Sources;
use crate::formatter::{Deformatter, Demux, FRAME_BYTES, FSYNC, FrameKind, Stream};
use crate::quantity::{BufferOffset, TraceId};
use crate::snapshot::map::Mapped;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Most bytes that are decoded at once.
const PIECE: u64 = 4 << 10;

/// What frames need before they can be taken apart at the begin of a chunk.
#[derive(Debug)]
enum Frames {
    /// The buffer holds one source's bytes.
    None,
    /// Frame after frame: only whose data come next.
    Plain,
    /// Synchronisation packets lie among the frames: the state before each chunk.
    Passed(Vec<Deformatter>),
}

/// A buffer, cut into chunks. Its sources share it, for it is looked through once.
#[derive(Debug)]
pub(super) struct Chunks {
    parts: Vec<(u64, Mapped)>,
    total: u64,
    kind: Option<FrameKind>,
    chunk: u64,
    frames: OnceLock<Frames>,
    /// By chunk of plain frames, once it was looked for: whose data come first.
    ids: Vec<OnceLock<Option<TraceId>>>,
}

/// One source's trace in one buffer.
#[derive(Debug)]
pub(super) struct Trace {
    chunks: Arc<Chunks>,
    id: TraceId,
    /// What begins a synchronisation point.
    sync: memchr::memmem::Finder<'static>,
}

/// A way to take the trace piece by piece.
#[derive(Clone, Debug)]
pub(super) struct Feed {
    /// The next byte of the buffer.
    pub raw: u64,
    deformatter: Option<Deformatter>,
}

impl Chunks {
    /// The buffer of `sources`, in chunks of `chunk` bytes.
    pub fn new(sources: &Sources, chunk: u64) -> Self {
        let mut total = 0;
        let parts = sources.parts.iter().map(|part| {
            let begin = total;
            total += part.len() as u64;
            (begin, part.clone())
        });
        let parts: Vec<_> = parts.collect();
        // A power of two, so that frames, blocks of a DSTREAM and pieces begin with it.
        let chunk = chunk.clamp(512, 1 << 30).next_power_of_two();
        let chunks = total.div_ceil(chunk) as usize;
        Self {
            parts,
            total,
            kind: sources.frames,
            chunk,
            frames: OnceLock::new(),
            ids: vec![OnceLock::new(); chunks],
        }
    }

    /// Bytes of the buffer.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many chunks it has.
    pub fn count(&self) -> u64 {
        self.total.div_ceil(self.chunk)
    }

    /// Where a chunk begins.
    pub fn begin(&self, chunk: u64) -> u64 {
        chunk.saturating_mul(self.chunk)
    }

    /// The chunk that begins at an offset.
    pub fn chunk_at(&self, begin: u64) -> Option<u64> {
        let chunk = begin / self.chunk;
        (begin.is_multiple_of(self.chunk) && (chunk < self.count() || chunk == 0)).then_some(chunk)
    }

    /// Bytes from `raw` on that lie together, up to `most`.
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

    /// Gives back the memory that holds these bytes of the buffer.
    pub fn release(&self, from: u64, to: u64) {
        for (begin, part) in &self.parts {
            let first = from.saturating_sub(*begin) as usize;
            let last = to.saturating_sub(*begin) as usize;
            if first < part.len() && last > first {
                part.release(first..last.min(part.len()));
            }
        }
    }

    /// Whether synchronisation packets lie among frames in memory: then frames do not begin at
    /// multiples of their size. The first one begins at even distance from the buffer's begin.
    fn has_fsync(&self) -> bool {
        let middle = self.total / 2;
        std::thread::scope(|scope| {
            let first = scope.spawn(|| self.has_fsync_within(0, middle));
            let second = self.has_fsync_within(middle, self.total);
            second || first.join().unwrap_or(true)
        })
    }

    /// Whether one begins there. What was looked at is given back.
    fn has_fsync_within(&self, begin: u64, end: u64) -> bool {
        /// Bytes that are looked at before they are given back.
        const STRIDE: u64 = 4 << 20;
        let finder = memchr::memmem::Finder::new(&FSYNC);
        let mut raw = begin;
        while raw < end {
            let bytes = self.bytes(raw, STRIDE.min(end - raw));
            let found = finder.find_iter(bytes).map(|at| raw + at as u64);
            let after = raw + bytes.len() as u64;
            // One that does not lie in one piece.
            let across = (after.saturating_sub(FSYNC.len() as u64 - 1)..after).filter(|&at| {
                (at..)
                    .zip(FSYNC)
                    .all(|(at, byte)| self.bytes(at, 1) == [byte])
            });
            if bytes.is_empty() || found.chain(across).any(|at| at.is_multiple_of(2)) {
                return !bytes.is_empty();
            }
            self.release(raw, after);
            raw = after;
        }
        false
    }

    fn frames(&self) -> &Frames {
        self.frames.get_or_init(|| match self.kind {
            None => Frames::None,
            Some(FrameKind::Memory) if !self.has_fsync() => Frames::Plain,
            Some(kind) => {
                let mut deformatter = Deformatter::new(kind);
                let mut none = Demux::only(&[]);
                let mut passed = Vec::new();
                let mut raw = 0;
                while raw < self.total {
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
        })
    }

    /// Whose data come first in a chunk of plain frames: those of the last ID before it.
    fn id_before(&self, chunk: u64) -> Option<TraceId> {
        let slot = |chunk: u64| self.ids.get(usize::try_from(chunk).ok()?);
        let mut at = chunk;
        let found = loop {
            if let Some(&known) = slot(at).and_then(OnceLock::get) {
                break known;
            }
            let Some(before) = at.checked_sub(1) else {
                break None;
            };
            if let Some(id) = self.last_id(before) {
                break Some(TraceId(id));
            }
            at = before;
        };
        for slot in (at..=chunk).filter_map(slot) {
            slot.get_or_init(|| found);
        }
        found
    }

    /// The last ID byte in a chunk of plain frames.
    fn last_id(&self, chunk: u64) -> Option<u8> {
        let (begin, end) = (self.begin(chunk), self.begin(chunk + 1).min(self.total));
        let mut joined = Vec::new();
        let mut bytes = self.bytes(begin, end - begin);
        if (bytes.len() as u64) < end - begin {
            while begin + (joined.len() as u64) < end {
                let at = begin + joined.len() as u64;
                let next = self.bytes(at, end - at);
                if next.is_empty() {
                    break;
                }
                joined.extend_from_slice(next);
            }
            bytes = &joined;
        }
        let (frames, _) = bytes.as_chunks();
        // Most chunks of a single source have none, which is quick to see.
        let seen = frames.iter().fold(0, |seen, frame| seen | id_bits(frame));
        let last = frames
            .iter()
            .rev()
            .filter(|_| seen != 0)
            .find_map(last_id_of);
        if last.is_none() {
            self.release(begin, end);
        }
        last
    }

    /// The begin of a chunk.
    pub fn feed(&self, chunk: u64) -> Feed {
        let deformatter = match (self.frames(), self.kind) {
            (Frames::None, _) | (_, None) => None,
            (Frames::Plain, Some(kind)) => Some(Deformatter::within(kind, self.id_before(chunk))),
            (Frames::Passed(passed), Some(kind)) => {
                let state = usize::try_from(chunk).ok().and_then(|at| passed.get(at));
                Some(state.cloned().unwrap_or_else(|| Deformatter::new(kind)))
            }
        };
        Feed {
            raw: self.begin(chunk),
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
    /// The bytes of `id`, where `sync` is what begins a synchronisation point.
    pub fn new(chunks: Arc<Chunks>, id: TraceId, sync: &[u8]) -> Self {
        Self {
            chunks,
            id,
            sync: memchr::memmem::Finder::new(sync).into_owned(),
        }
    }

    pub fn id(&self) -> TraceId {
        self.id
    }

    /// Takes the next piece to `demux`; says whether it was the last one.
    pub fn take(&self, feed: &mut Feed, demux: &mut Demux) -> bool {
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

    /// The synchronisation points that lie in a chunk: for each, how many bytes of the source
    /// come before it since the begin of the chunk.
    pub fn synchronisations(&self, chunk: u64) -> Vec<u64> {
        let mut feed = self.feed(chunk);
        let end = self.begin(chunk + 1);
        let mut demux = Demux::only(&[self.id]);
        while feed.raw < end && !self.take(&mut feed, &mut demux) {}
        let stream: &Stream = demux.stream(self.id);
        self.sync
            .find_iter(stream.payload())
            .map(|at| at as u64)
            .collect()
    }
}

/// Of each ID byte in a frame its lowest bit.
fn id_bits(frame: &[u8; FRAME_BYTES]) -> u128 {
    u128::from_le_bytes(*frame) & (u128::MAX / 0xffff)
}

/// The last ID byte of a frame.
fn last_id_of(frame: &[u8; FRAME_BYTES]) -> Option<u8> {
    // The highest bit that is set lies in it.
    let last = id_bits(frame).checked_ilog2()? / 8;
    Some(frame[last as usize] >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(parts: &[&[u8]], frames: Option<FrameKind>) -> Chunks {
        let sources = Sources {
            buffer: 0,
            parts: parts.iter().map(|part| part.to_vec().into()).collect(),
            frames,
            sources: Vec::new(),
        };
        Chunks::new(&sources, 512)
    }

    #[test]
    fn synchronisation_packets_are_found_wherever_they_lie() {
        for length in [64, 4096, 5 << 20] {
            let plain = vec![0; length];
            assert!(!chunks(&[&plain], Some(FrameKind::Memory)).has_fsync());
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
                    assert_eq!(chunks.has_fsync(), wanted, "{at} of {length}, cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn data_belong_to_the_last_id_before_them() {
        let mut bytes = vec![0; 3000];
        // The ID 0x10 at the begin, 0x11 and 0x12 in one frame of the third chunk.
        bytes[0] = 0x21;
        bytes[1024 + 32] = 0x23;
        bytes[1024 + 46] = 0x25;
        let chunks = chunks(&[&bytes[..1500], &bytes[1500..]], Some(FrameKind::Memory));
        let ids: Vec<_> = (0..6).rev().map(|chunk| chunks.id_before(chunk)).collect();
        let id = |id| Some(TraceId(id));
        assert_eq!(
            ids,
            [id(0x12), id(0x12), id(0x12), id(0x10), id(0x10), None]
        );
    }
}
