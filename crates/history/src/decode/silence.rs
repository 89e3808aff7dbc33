//! Diagnoses why little or nothing of a buffer is decoded and suggests remedies: one note for each
//! cause.
//!
//! Examines the start of a buffer in its declared format and, if that yields nothing plausible, in
//! the others. Does not affect decoding.

use super::note::{BufferNote, FORMATS, NamedSource, Note};
use super::reading::{Reading, read};
use armsnap_arch::quantity::{BufferOffset, TraceId};
use armsnap_snapshot::capture::{Capture, CaptureBuffer, CaptureSource};
use armsnap_snapshot::snapshot::OpenSnapshot;
use armsnap_trace::formatter::{Deformatter, Demux, FrameKind, ID_NULL, ID_TRIGGER, is_reserved};

/// Bytes of every buffer that are examined at first.
const FIRST: u64 = 64 << 10;
/// Bytes that are examined if the first ones are inconclusive.
const MOST: u64 = 4 << 20;
/// The number of bytes of each buffer that [`first_look`] and [`silence_at_start`] examine.
pub const FIRST_BYTES: u64 = 256 << 10;
/// The maximum number of buffers that [`first_look`] examines.
const FIRST_BUFFERS: usize = 64;

/// Bytes by trace ID.
pub type Totals = [u64; 128];

/// The first `most` bytes of a buffer, deformatted according to `frames`; without frames, all
/// belong to `id`.
fn deformat(buffer: &CaptureBuffer, frames: Option<FrameKind>, id: TraceId, most: u64) -> Demux {
    let mut demux = Demux::new();
    feed(buffer, frames, id, most, &mut demux);
    demux
}

/// The bytes of each ID in the first `most` bytes of a buffer.
fn totals_of(buffer: &CaptureBuffer, most: u64) -> Totals {
    let mut demux = Demux::only(&[]);
    if buffer.frames.is_some() {
        feed(buffer, buffer.frames, TraceId(0), most, &mut demux);
    }
    demux.totals()
}

fn feed(
    buffer: &CaptureBuffer,
    frames: Option<FrameKind>,
    id: TraceId,
    most: u64,
    demux: &mut Demux,
) {
    let mut deformatter = frames.map(Deformatter::new);
    let mut at = 0;
    for part in &buffer.parts {
        let length = usize::try_from(most - at).unwrap_or(usize::MAX);
        let bytes = &part[..part.len().min(length)];
        match &mut deformatter {
            Some(deformatter) => deformatter.feed(BufferOffset(at), bytes, false, demux),
            None => demux.unformatted(id, BufferOffset(at), bytes),
        }
        at += bytes.len() as u64;
    }
}

/// Diagnoses a buffer with all its sources. `totals` are the bytes of each ID, if the buffer was
/// decoded.
pub fn silence(
    loaded: &OpenSnapshot,
    buffer: &CaptureBuffer,
    totals: Option<&Totals>,
) -> Vec<Note> {
    diagnose(loaded, buffer, totals, u64::MAX)
}

/// Diagnoses the start of each buffer of a snapshot that is not decoded (yet).
pub fn first_look(loaded: &OpenSnapshot) -> Vec<Note> {
    let (capture, _) = Capture::open(loaded);
    let buffers = capture.buffers.iter().take(FIRST_BUFFERS);
    buffers
        .flat_map(|buffer| silence_at_start(loaded, buffer))
        .collect()
}

/// Diagnoses the first [`FIRST_BYTES`] of a buffer.
pub fn silence_at_start(loaded: &OpenSnapshot, buffer: &CaptureBuffer) -> Vec<Note> {
    diagnose(loaded, buffer, None, FIRST_BYTES)
}

/// Diagnoses the first `most` bytes of a buffer.
fn diagnose(
    loaded: &OpenSnapshot,
    buffer: &CaptureBuffer,
    totals: Option<&Totals>,
    most: u64,
) -> Vec<Note> {
    let written = loaded.snapshot.trace.as_ref();
    let Some(written) = written.and_then(|trace| trace.buffers.get(buffer.index)) else {
        return Vec::new();
    };
    let note = |note| Note::Buffer {
        place: written.place.clone(),
        name: written.name.clone(),
        note,
    };
    if buffer.bytes() == 0 {
        let files = written.files.clone();
        return vec![note(BufferNote::Empty { files })];
    }
    let counted;
    let totals = match totals {
        Some(totals) => totals,
        None => {
            counted = totals_of(buffer, most);
            &counted
        }
    };
    let examined = Examined {
        buffer,
        totals,
        most,
    };
    examined.notes().into_iter().map(note).collect()
}

/// Names a source, with its own ID or another.
fn named(source: &CaptureSource, trace_id: TraceId) -> NamedSource {
    NamedSource {
        name: source.name.clone(),
        trace_id,
        protocol: source.protocol,
    }
}

/// A buffer, its sources and its contents.
struct Examined<'a> {
    buffer: &'a CaptureBuffer,
    totals: &'a Totals,
    /// The number of bytes that are examined.
    most: u64,
}

/// A source with bytes but no plausible trace.
struct Silent<'a> {
    known: &'a CaptureSource,
    /// Whether the whole buffer was examined and no synchronisation point was found in it.
    never: bool,
}

impl Examined<'_> {
    fn notes(&self) -> Vec<BufferNote> {
        if self.buffer.frames.is_none() {
            return self.unformatted().into_iter().collect();
        }
        let unclaimed = self.unclaimed();
        let mut silent = self.silent(FIRST);
        if !silent.is_empty() {
            silent = self.silent(self.most());
        }
        let with_bytes = self
            .buffer
            .sources
            .iter()
            .filter(|known| self.bytes(known.trace_id) > 0);
        if silent.len() == with_bytes.count() {
            if self.guess(&unclaimed).is_none()
                && let Some(other) = self.other_format()
            {
                return vec![other];
            }
            let all = self.buffer.bytes() <= self.most;
            if all && unclaimed.is_empty() && silent.is_empty() && !self.buffer.sources.is_empty() {
                return vec![self.nothing()];
            }
        }
        let mut notes = Vec::new();
        if unclaimed.len() > self.buffer.left_out.len() {
            notes.push(self.unclaimed_ids(&unclaimed));
        }
        let never = silent.iter().filter(|silent| silent.never);
        let never: Vec<&CaptureSource> = never.map(|silent| silent.known).collect();
        if !never.is_empty() {
            notes.push(not_synchronised(&never));
        }
        notes
    }

    /// The number of bytes that are decoded tentatively.
    fn most(&self) -> u64 {
        self.most.min(MOST)
    }

    fn bytes(&self, id: TraceId) -> u64 {
        self.totals[usize::from(id.0 & 0x7F)]
    }

    /// IDs that have bytes and no source.
    fn unclaimed(&self) -> Vec<TraceId> {
        let ids = (0..128).map(TraceId);
        let claimed = |id: TraceId| self.buffer.sources.iter().any(|known| known.trace_id == id);
        let special = |id: TraceId| id.0 == ID_NULL || id.0 == ID_TRIGGER || is_reserved(id.0);
        ids.filter(|&id| self.bytes(id) > 0 && !special(id) && !claimed(id))
            .collect()
    }

    /// The sources with bytes but no plausible trace in the first `most` bytes of the buffer.
    fn silent(&self, most: u64) -> Vec<Silent<'_>> {
        let mut demux = deformat(self.buffer, self.buffer.frames, TraceId(0), most);
        let with_bytes = self
            .buffer
            .sources
            .iter()
            .filter(|known| self.bytes(known.trace_id) > 0);
        let mut silent = Vec::new();
        for known in with_bytes {
            let all = self.buffer.bytes() <= self.most;
            let whole = all && demux.stream(known.trace_id).total() == self.bytes(known.trace_id);
            let reading = read(&known.config, demux.stream_mut(known.trace_id));
            if !reading.is_possible() {
                silent.push(Silent {
                    known,
                    never: whole && reading.synchronised.is_none(),
                });
            }
        }
        silent
    }

    /// An ID without a source whose trace decodes like that of a known source, and this source.
    fn guess(&self, unclaimed: &[TraceId]) -> Option<(TraceId, &CaptureSource)> {
        let taken = deformat(self.buffer, self.buffer.frames, TraceId(0), self.most());
        unclaimed.iter().find_map(|&id| {
            let fits = |known: &&CaptureSource| {
                let mut stream = taken.stream(id).clone();
                read(&known.config, &mut stream).is_sound()
            };
            Some((id, self.protocols().find(fits)?))
        })
    }

    /// One source of each protocol.
    fn protocols(&self) -> impl Iterator<Item = &CaptureSource> {
        let of = |known: &CaptureSource| known.protocol;
        let first = move |(at, known): &(usize, &CaptureSource)| {
            let mut before = self.buffer.sources[..*at].iter();
            !before.any(|before| of(before) == of(known))
        };
        self.buffer
            .sources
            .iter()
            .enumerate()
            .filter(first)
            .map(|(_, known)| known)
    }

    /// A note if the buffer decodes well in another format while nothing synchronises in its own.
    fn other_format(&self) -> Option<BufferNote> {
        for frames in FORMATS.map(|(frames, _)| frames) {
            if frames == self.buffer.frames {
                continue;
            }
            let taken = deformat(self.buffer, frames, TraceId(1), self.most());
            for known in self.protocols() {
                // Try the source's own ID first.
                let mut ids: Vec<TraceId> = taken.ids().collect();
                ids.sort_by_key(|&id| id != known.trace_id);
                for id in ids {
                    let reading = read(&known.config, &mut taken.stream(id).clone());
                    if reading.is_sound() {
                        return self.in_format(frames, named(known, id), &reading, false);
                    }
                }
            }
        }
        None
    }

    /// A note if the buffer, although it decodes as the bytes of a source, is more likely frames
    /// with only its ID: synchronisation points may fit into one frame by chance.
    fn rather_frames(&self, known: &CaptureSource) -> Option<BufferNote> {
        for frames in [FrameKind::Memory, FrameKind::Dstream].map(Some) {
            let mut taken = deformat(self.buffer, frames, TraceId(1), FIRST);
            let all: u64 = taken.totals()[1..].iter().sum();
            let own = taken.stream(known.trace_id).total();
            let reading = read(&known.config, taken.stream_mut(known.trace_id));
            if reading.is_sound() && reading.bad == 0 && own * 8 >= all * 7 {
                let source = named(known, known.trace_id);
                return self.in_format(frames, source, &reading, true);
            }
        }
        None
    }

    /// A note that the buffer decodes well according to `frames`.
    fn in_format(
        &self,
        frames: Option<FrameKind>,
        source: NamedSource,
        reading: &Reading,
        synchronises: bool,
    ) -> Option<BufferNote> {
        let mut formats = FORMATS.iter();
        formats.find(|(frames, _)| *frames == self.buffer.frames)?;
        Some(BufferNote::OtherFormat {
            synchronises,
            declared: self.buffer.frames,
            other: frames,
            found: source,
            from: reading.synchronised?,
        })
    }

    fn unformatted(&self) -> Option<BufferNote> {
        let Some(known) = self.buffer.sources.first() else {
            let assigned = !self.buffer.left_out.is_empty();
            return (!assigned).then_some(BufferNote::NoSource);
        };
        let mut reading = Reading::default();
        for most in [FIRST, self.most()] {
            let mut demux = deformat(self.buffer, None, TraceId(1), most);
            reading = read(&known.config, demux.stream_mut(TraceId(1)));
            if reading.is_possible() {
                let perfect = reading.bad == 0 && reading.synchronised == Some(BufferOffset(0));
                return (!perfect).then(|| self.rather_frames(known)).flatten();
            }
        }
        let never = reading.synchronised.is_none() && self.buffer.bytes() <= self.most();
        let none = || never.then(|| not_synchronised(&[known]));
        self.other_format().or_else(none)
    }

    fn unclaimed_ids(&self, unclaimed: &[TraceId]) -> BufferNote {
        let ids = unclaimed.iter().map(|&id| (id, self.bytes(id)));
        let guess = self.guess(unclaimed);
        BufferNote::UnclaimedIds {
            ids: ids.collect(),
            examined: (self.buffer.bytes() > self.most).then_some(self.most),
            sources: self.sources(),
            guess: guess.map(|(id, known)| named(known, id)),
        }
    }

    fn nothing(&self) -> BufferNote {
        BufferNote::NothingOfSources {
            bytes: self.buffer.bytes(),
            sources: self.sources(),
        }
    }

    fn sources(&self) -> Vec<NamedSource> {
        let sources = self.buffer.sources.iter();
        sources.map(|known| named(known, known.trace_id)).collect()
    }
}

fn not_synchronised(silent: &[&CaptureSource]) -> BufferNote {
    let sources = silent.iter();
    BufferNote::NeverSynchronised {
        sources: sources.map(|known| named(known, known.trace_id)).collect(),
    }
}
