//! Determines from the bytes of a buffer how it is formatted and which trace it contains.

use super::frames;
use super::hints::{Fit, Hints};
use super::units::Unit;
use armsnap_arch::quantity::{BufferOffset, TraceId};
use armsnap_history::decode::{self, Reading};
use armsnap_snapshot::capture::{Config, Protocol};
use armsnap_snapshot::mapped::Mapped;
use armsnap_trace::formatter::{
    Deformatter, Demux, FrameKind, ID_NULL, ID_TRIGGER, Stream, is_reserved,
};
use armsnap_trace::protocol::Core;
use std::collections::BTreeMap;

/// The number of bytes that are examined at once.
const EXAMINED: usize = 1 << 20;
/// The number of bytes that are searched for frames that do not begin with the first byte.
const SHIFTED: usize = 32 << 10;
/// The number of bytes that are deformatted at once.
const PIECE: usize = 1 << 20;
/// The maximum number of positions in a buffer that are examined.
const PLACES: usize = 16;
/// The number of bytes that are read as ITM trace if they are unlike it.
const OF_ITM: usize = 16 << 10;
/// The end of each synchronisation packet of an ITM (ARM DDI 0403E, D4.2.1).
const ITM_SYNC: [u8; 6] = [0, 0, 0, 0, 0, 0x80];
/// The bits of evidence required for frames, for each source in them.
const FOR_EACH_SOURCE: u64 = 12;
/// The additional bits of evidence required for frames that do not begin with the first byte.
const FOR_SHIFT: u64 = 8;
/// The size of a frame.
const FRAME: usize = 16;

/// The ID assigned to unformatted bytes.
const UNFORMATTED: TraceId = TraceId(1);

/// The kinds of trace, the likeliest first: if several fit equally well, the first is used.
pub const PROTOCOLS: [(Protocol, &str); 6] = [
    (Protocol::Etmv4, "ETM4"),
    (Protocol::Ete, "ETE"),
    (Protocol::Ptm, "PTM"),
    (Protocol::Etmv3, "ETM3"),
    (Protocol::Stm, "STM"),
    (Protocol::Itm, "ITM"),
];

/// A trace source in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct DetectedSource {
    /// Its trace ID; `None` if the buffer is not formatted.
    pub id: Option<u8>,
    /// The number of its bytes among the examined ones.
    pub bytes: u64,
    /// The kind of trace; `None` if its bytes are not trace of a known kind.
    pub protocol: Option<(Protocol, &'static str)>,
    /// Another kind that fits the bytes equally well.
    pub alike: Option<Protocol>,
    /// Whether it fits only as trace of an M-profile core.
    pub is_micro: bool,
}

/// The form of a buffer.
#[derive(Clone, Debug)]
pub struct Form {
    /// The layout of its frames; `None` if it is unformatted.
    pub frames: Option<FrameKind>,
    /// The offset of the first frame.
    pub from: usize,
    /// The sources in it, in order of their IDs.
    pub found: Vec<DetectedSource>,
    score: Score,
}

/// The evidence that bytes are trace.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    /// The number of bytes of trace with synchronisation.
    bytes: u64,
    /// The bits of evidence for ITM trace without synchronisation.
    bits: u64,
}

impl Score {
    /// The evidence in bits: each valid byte of trace with synchronisation counts as several bits.
    const fn total(self) -> u64 {
        4 * self.bytes + self.bits
    }
}

/// Determines the form of a buffer; `known` are the units that may be in it. `None` if it contains
/// no trace.
///
/// If there is no trace, further positions are examined, because the dump may include memory around
/// a trace buffer. A formatter need not repeat its ID, so a ring may contain frames without one.
pub fn form(bytes: &[u8], known: &[Unit], hints: &Hints) -> Option<Form> {
    let find = |form_at: fn(&[u8], &[Unit], &Hints) -> Option<Form>| {
        places(bytes).find_map(|place| form_at(examined(bytes, place), known, hints))
    };
    find(form_at).or_else(|| find(without_id))
}

/// The positions in a buffer that are examined.
///
/// The bytes before the first non-zero byte were never written.
fn places(bytes: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let written = bytes.iter().position(|&byte| byte != 0);
    // The zeros immediately before it may belong to a synchronisation packet.
    let first = written.unwrap_or(bytes.len()).saturating_sub(FRAME);
    let first = first - first % FRAME;
    let step = (bytes.len() - first) / PLACES;
    let step = step.max(EXAMINED).next_multiple_of(FRAME);
    let end = if written.is_some() {
        bytes.len()
    } else {
        first
    };
    (first..end).step_by(step).take(PLACES)
}

fn examined(bytes: &[u8], place: usize) -> &[u8] {
    &bytes[place..(place + EXAMINED).min(bytes.len())]
}

/// Whether a buffer without trace contains some if the bytes of each 32-bit word are reversed.
pub fn is_reversed(bytes: &[u8], known: &[Unit], hints: &Hints) -> bool {
    let bytes = &bytes[..bytes.len().min(EXAMINED)];
    let words = bytes.chunks_exact(4);
    let reversed: Vec<u8> = words.flat_map(|word| word.iter().rev().copied()).collect();
    form(&reversed, known, hints).is_some()
}

fn form_at(bytes: &[u8], known: &[Unit], hints: &Hints) -> Option<Form> {
    let best = best_form(bytes, known, hints);
    if best.frames.is_some() && best.score.bytes > 0 {
        return Some(best);
    }
    let shifts = frames::shifts(&bytes[..bytes.len().min(SHIFTED)]);
    // The cost of examining a part is proportional to the number of shifts.
    for most in [SHIFTED, bytes.len()] {
        let part = &bytes[..bytes.len().min(most)];
        let here = match part.len() == bytes.len() {
            true => best.score.total(),
            false if shifts.is_empty() => break,
            false => best_form(part, known, hints).score.total(),
        };
        let shifted = shifts.iter().map(|&shift| {
            let form = read_as(&part[shift..], Some(FrameKind::Memory), known, hints);
            (form.score.total(), shift)
        });
        // Among equal ones, the first.
        let shifted = shifted.reduce(|best, next| if next.0 > best.0 { next } else { best });
        match shifted {
            Some((score, from)) if score > here + FOR_SHIFT => {
                let form = read_as(&bytes[from..], Some(FrameKind::Memory), known, hints);
                return Some(Form { from, ..form });
            }
            _ if here > 0 || part.len() == bytes.len() || !frames::may_synchronise(bytes) => break,
            _ => {}
        }
    }
    (best.score.total() > 0).then_some(best)
}

/// The best form of bytes whose first frame, if there are frames, begins with the first byte.
fn best_form(bytes: &[u8], known: &[Unit], hints: &Hints) -> Form {
    let kinds = [FrameKind::Memory, FrameKind::Tpiu, FrameKind::Dstream];
    let mut best = read_as(bytes, None, known, hints);
    for kind in kinds.into_iter().rev() {
        let form = read_as(bytes, Some(kind), known, hints);
        if form.score.total() >= best.score.total() {
            best = form;
        }
    }
    best
}

/// The form of frames that contain no ID.
fn without_id(bytes: &[u8], known: &[Unit], hints: &Hints) -> Option<Form> {
    if Deformatter::last_id(bytes).is_some() {
        return None;
    }
    let mut demux = Demux::new();
    let mut frames = Deformatter::within(FrameKind::Memory, Some(UNFORMATTED));
    frames.feed(BufferOffset(0), bytes, true, &mut demux);
    let (found, score) = source(&demux, UNFORMATTED, false, known, hints);
    (score.total() > 0).then(|| Form {
        frames: Some(FrameKind::Memory),
        from: 0,
        found: vec![found],
        score,
    })
}

fn read_as(bytes: &[u8], frames: Option<FrameKind>, known: &[Unit], hints: &Hints) -> Form {
    let mut demux = Demux::new();
    match frames {
        Some(kind) => {
            Deformatter::new(kind).feed(BufferOffset(0), bytes, true, &mut demux);
        }
        None => demux.unformatted(UNFORMATTED, BufferOffset(0), bytes),
    }
    let mut form = Form {
        frames,
        from: 0,
        found: Vec::new(),
        score: Score::default(),
    };
    for id in demux.ids().filter(|&id| !is_special(id)) {
        let (found, score) = source(&demux, id, frames.is_some(), known, hints);
        form.score.bytes += score.bytes;
        form.score.bits += score.bits;
        form.found.push(found);
    }
    if frames.is_some() && !form.is_of_few() {
        form.score.bits = 0;
    }
    form
}

pub fn is_special(id: TraceId) -> bool {
    id.0 == ID_NULL || id.0 == ID_TRIGGER || is_reserved(id.0)
}

/// A kind that fits the bytes of a source.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    kind: (Protocol, &'static str),
    /// Whether it is read as trace of an M-profile core although no core is known.
    is_micro: bool,
    score: Score,
    fit: Fit,
}

/// Determines the kind of trace of a source, and the evidence for it.
fn source(
    demux: &Demux,
    id: TraceId,
    is_formatted: bool,
    known: &[Unit],
    hints: &Hints,
) -> (DetectedSource, Score) {
    let own = known.iter().find(|unit| match is_formatted {
        true => unit.trace_id() == Some(id.0),
        false => true,
    });
    let unit = own.or_else(|| known.iter().find(|unit| unit.trace_id().is_none()));
    // Without a trace ID, the source may be another one than the unit.
    let may_be_other = unit.is_some() && (own.is_none() || !is_formatted);
    let mut candidates = candidates(demux.stream(id), unit, own.is_some(), hints);
    if candidates.is_empty() && may_be_other {
        candidates = self::candidates(demux.stream(id), None, false, hints);
    }
    let key = |candidate: &Candidate| (candidate.fit, candidate.score.bytes);
    // Among equal ones, the first.
    let best = candidates.iter().copied();
    let best = best.reduce(|best, next| if key(&next) > key(&best) { next } else { best });
    let alike = best.and_then(|best| {
        let alike = |other: &&Candidate| {
            // ETE has the same packets as ETMv4.
            key(other) == key(&best) && other.kind.0 != best.kind.0 && other.kind.0 != Protocol::Ete
        };
        candidates.iter().find(alike)
    });
    let found = DetectedSource {
        id: is_formatted.then_some(id.0),
        bytes: demux.stream(id).total(),
        protocol: best.map(|best| best.kind),
        alike: alike.map(|other| other.kind.0),
        is_micro: best.is_some_and(|best| best.is_micro),
    };
    (found, best.map(|best| best.score).unwrap_or_default())
}

/// The kinds of trace that bytes may be; `unit` is their trace unit, and `said` is whether it is
/// known to be.
fn candidates(stream: &Stream, unit: Option<&Unit>, said: bool, hints: &Hints) -> Vec<Candidate> {
    let given = unit.and_then(Unit::protocol);
    let mut all: Vec<Candidate> = Vec::new();
    // The trace units of Cortex-M3 and Cortex-M4 encode branches differently.
    let of_micro = (Protocol::Etmv3, "ETM3");
    let kinds = PROTOCOLS.into_iter().map(|kind| (kind, false));
    let kinds = kinds.chain((!hints.is_known).then_some((of_micro, true)));
    for (kind, is_micro) in kinds {
        if given.is_some_and(|given| given != kind.0) {
            continue;
        }
        let core = match is_micro {
            true => Core::microcontroller(7),
            false => hints.core,
        };
        let assumed = Unit::new("source", kind.1);
        let device = &unit.unwrap_or(&assumed).device;
        let config = Config::read(device, kind.0, core, &mut Vec::new());
        let reading = read(&config, stream);
        let score = score(&reading, said && given.is_some());
        // Trace without synchronisation counts only if nothing else does.
        if score.total() > 0 && (score.bytes > 0 || all.is_empty()) {
            let fit = hints.fit(kind.0, &config, stream);
            all.push(Candidate {
                kind,
                is_micro,
                score,
                fit,
            });
        }
    }
    // The best one, and those that are hardly worse.
    let most = all.iter().map(|candidate| candidate.score.total()).max();
    all.retain(|candidate| candidate.score.total() >= most.unwrap_or(0) / 2);
    all
}

impl Form {
    /// Whether frames contain the sources of a real system: other bytes look like frames of many
    /// sources with a few bytes each, one of which may look like an ITM. (Trace with
    /// synchronisation is unlikely to occur by chance.)
    fn is_of_few(&self) -> bool {
        let all: u64 = self.found.iter().map(|found| found.bytes).sum();
        let known = self.found.iter().filter(|found| found.protocol.is_some());
        let known: u64 = known.map(|found| found.bytes).sum();
        let required = FOR_EACH_SOURCE * self.found.len() as u64;
        self.score.bytes > 0 || known * 4 >= all * 3 && self.score.bits >= required
    }

    /// Adds the sources that begin after the examined bytes. Returns the bytes of each source,
    /// unless the buffer can be read as it is.
    pub fn later(&mut self, bytes: &Mapped, known: &[Unit], hints: &Hints) -> Vec<Vec<u8>> {
        let deformatter = match self.frames {
            Some(FrameKind::Tpiu) => Deformatter::new(FrameKind::Tpiu),
            Some(kind) if self.has_id() => {
                self.at_places(kind, bytes, known, hints);
                return Vec::new();
            }
            Some(kind) => Deformatter::within(kind, Some(UNFORMATTED)),
            None => return Vec::new(),
        };
        self.streams(deformatter, bytes, known, hints)
    }

    fn has_id(&self) -> bool {
        self.found.iter().all(|found| found.id.is_some())
    }

    /// Adds the sources at further positions in the buffer.
    fn at_places(&mut self, kind: FrameKind, bytes: &Mapped, known: &[Unit], hints: &Hints) {
        for place in places(bytes).skip(1) {
            let examined = examined(bytes, place);
            let mut demux = Demux::new();
            Deformatter::new(kind).feed(BufferOffset(0), examined, true, &mut demux);
            for id in demux.ids() {
                if is_special(id) || self.found.iter().any(|found| found.id == Some(id.0)) {
                    continue;
                }
                // Bytes that are not trace may be memory after the buffer.
                let (found, _) = source(&demux, id, true, known, hints);
                self.found.extend(found.protocol.map(|_| found));
            }
            bytes.release(place..place + examined.len());
        }
        self.found.sort_by_key(|found| found.id);
    }

    fn streams(
        &mut self,
        mut frames: Deformatter,
        bytes: &Mapped,
        known: &[Unit],
        hints: &Hints,
    ) -> Vec<Vec<u8>> {
        let mut demux = Demux::new();
        let mut sources: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        let mut at = 0;
        while at < bytes.len() {
            let piece = &bytes[at..(at + PIECE).min(bytes.len())];
            let last = at + piece.len() == bytes.len();
            frames.feed(BufferOffset(at as u64), piece, last, &mut demux);
            for id in demux.ids().filter(|&id| !is_special(id)) {
                let source = sources.entry(id.0).or_default();
                source.extend_from_slice(demux.stream(id).payload());
            }
            demux.clear();
            bytes.release(at..at + piece.len());
            at += piece.len();
        }
        let number = |found: &DetectedSource| found.id.unwrap_or(UNFORMATTED.0);
        for (&id, bytes) in &sources {
            if self.found.iter().all(|found| number(found) != id) {
                let mut demux = Demux::new();
                let examined = &bytes[..bytes.len().min(EXAMINED)];
                demux.unformatted(TraceId(id), BufferOffset(0), examined);
                let (found, _) = source(&demux, TraceId(id), true, known, hints);
                self.found.push(DetectedSource {
                    bytes: bytes.len() as u64,
                    ..found
                });
            }
        }
        self.found.sort_by_key(|found| found.id);
        let of = |found: &DetectedSource| sources.remove(&number(found)).unwrap_or_default();
        self.found.iter().map(of).collect()
    }
}

/// Reads bytes as trace. Bytes that are unlike ITM trace take long to be read as such, so they are
/// read only to a limit if they contain no synchronisation packet.
fn read(config: &Config, stream: &Stream) -> Reading {
    let bytes = stream.payload();
    if matches!(config, Config::Itm(_)) && bytes.len() > OF_ITM {
        let mut demux = Demux::new();
        demux.unformatted(UNFORMATTED, BufferOffset(0), &bytes[..OF_ITM]);
        let start = decode::read(config, demux.stream_mut(UNFORMATTED));
        if !start.is_sound() && memchr::memmem::find(bytes, &ITM_SYNC).is_none() {
            return start;
        }
    }
    decode::read(config, &mut stream.clone())
}

/// The evidence that bytes are trace; `said` is whether the user says so.
fn score(reading: &Reading, said: bool) -> Score {
    let is_one = reading.is_sound() || said && reading.is_possible();
    let bytes = reading.score();
    Score {
        bytes,
        bits: match bytes {
            0 if is_one => reading.bits.max(1),
            _ => 0,
        },
    }
}
