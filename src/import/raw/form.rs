//! Determines from the bytes of a buffer how it is formatted and which trace is in it.

use super::units::Unit;
use crate::capture::{Config, Protocol};
use crate::decode::{Read, Reading};
use crate::formatter::{Deformatter, Demux, FrameKind, ID_NULL, ID_TRIGGER, is_reserved};
use crate::mapped::Mapped;
use crate::protocol::Core;
use crate::quantity::{BufferOffset, TraceId};
use std::collections::BTreeMap;

/// The bytes that are examined at once.
const EXAMINED: usize = 1 << 20;
/// The bytes that are deformatted at once.
const PIECE: usize = 1 << 20;
/// The most places of a buffer that are examined.
const PLACES: usize = 16;
/// The size of a frame.
const FRAME: usize = 16;

/// The ID assigned to unformatted bytes.
const UNFORMATTED: TraceId = TraceId(1);

/// The kinds of trace, the likeliest first: where several fit equally well, the first is taken.
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
pub struct Found {
    /// Its trace ID; `None` if the buffer is not formatted.
    pub id: Option<u8>,
    /// The number of its bytes in the examined ones.
    pub bytes: u64,
    /// The kind of trace; `None` if its bytes are not trace of a known kind.
    pub protocol: Option<(Protocol, &'static str)>,
    /// Another kind that fits the bytes equally well.
    pub alike: Option<Protocol>,
}

/// The form of a buffer.
#[derive(Clone, Debug)]
pub struct Form {
    /// The layout of its frames; `None` if it is unformatted.
    pub frames: Option<FrameKind>,
    /// The sources in it, in order of their IDs.
    pub found: Vec<Found>,
    /// The bytes that are valid trace.
    score: u64,
}

/// Determines the form of a buffer; `known` are the units that may be in it. `None` if nothing in it
/// is trace.
///
/// Further places are examined if there is no trace, as memory around a trace buffer may have been
/// dumped, too. A formatter need not repeat its ID, so that a ring may hold frames without one.
pub fn form(bytes: &[u8], known: &[Unit], core: Core) -> Option<Form> {
    let find = |form_at: fn(&[u8], &[Unit], Core) -> Option<Form>| {
        places(bytes).find_map(|place| form_at(examined(bytes, place), known, core))
    };
    find(form_at).or_else(|| find(without_id))
}

/// The places of a buffer that are examined.
///
/// What is before the first byte that is not zero was never written.
fn places(bytes: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let written = bytes.iter().position(|&byte| byte != 0);
    // The zeros right before it may be those of a synchronisation packet.
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

/// Whether a buffer without trace has some if the bytes of each word of 32 bits are reversed.
pub fn is_reversed(bytes: &[u8], known: &[Unit], core: Core) -> bool {
    let bytes = &bytes[..bytes.len().min(EXAMINED)];
    let words = bytes.chunks_exact(4);
    let reversed: Vec<u8> = words.flat_map(|word| word.iter().rev().copied()).collect();
    form(&reversed, known, core).is_some()
}

fn form_at(bytes: &[u8], known: &[Unit], core: Core) -> Option<Form> {
    let kinds = [
        Some(FrameKind::Memory),
        Some(FrameKind::Tpiu),
        Some(FrameKind::Dstream),
        None,
    ];
    let forms = kinds.map(|frames| read_as(bytes, frames, known, core));
    // Of equal ones the first.
    let best = forms
        .into_iter()
        .reduce(|best, next| match next.score > best.score {
            true => next,
            false => best,
        })?;
    (best.score > 0).then_some(best)
}

/// The form of frames in which no ID is.
fn without_id(bytes: &[u8], known: &[Unit], core: Core) -> Option<Form> {
    if Deformatter::last_id(bytes).is_some() {
        return None;
    }
    let mut demux = Demux::new();
    let mut frames = Deformatter::within(FrameKind::Memory, Some(UNFORMATTED));
    frames.feed(BufferOffset(0), bytes, true, &mut demux);
    let (found, score) = source(&demux, UNFORMATTED, false, known, core);
    (score > 0).then(|| Form {
        frames: Some(FrameKind::Memory),
        found: vec![found],
        score,
    })
}

fn read_as(bytes: &[u8], frames: Option<FrameKind>, known: &[Unit], core: Core) -> Form {
    let mut demux = Demux::new();
    match frames {
        Some(kind) => {
            Deformatter::new(kind).feed(BufferOffset(0), bytes, true, &mut demux);
        }
        None => demux.unformatted(UNFORMATTED, BufferOffset(0), bytes),
    }
    let mut form = Form {
        frames,
        found: Vec::new(),
        score: 0,
    };
    for id in demux.ids().filter(|&id| !is_special(id)) {
        let (found, score) = source(&demux, id, frames.is_some(), known, core);
        form.score += score;
        form.found.push(found);
    }
    form
}

fn is_special(id: TraceId) -> bool {
    id.0 == ID_NULL || id.0 == ID_TRIGGER || is_reserved(id.0)
}

/// Determines the kind of trace of a source, and the number of its bytes that are valid.
fn source(
    demux: &Demux,
    id: TraceId,
    is_formatted: bool,
    known: &[Unit],
    core: Core,
) -> (Found, u64) {
    let own = known.iter().find(|unit| match is_formatted {
        true => unit.trace_id() == Some(id.0),
        false => true,
    });
    let unit = own.or_else(|| known.iter().find(|unit| unit.trace_id().is_none()));
    let best = |unit: Option<&Unit>| {
        let given = unit.and_then(Unit::protocol);
        let candidates = PROTOCOLS.into_iter();
        let candidates = candidates.filter(|(kind, _)| given.is_none_or(|given| given == *kind));
        let mut best: Option<(u64, (Protocol, &'static str))> = None;
        let mut alike = None;
        for candidate in candidates {
            let reading = reading(demux, id, candidate, unit, core);
            let score = score(&reading);
            if score > best.map_or(0, |(score, _)| score) {
                best = Some((score, candidate));
                alike = None;
            } else if score > 0 && best.is_some_and(|(best, _)| best == score) {
                alike = alike.or(Some(candidate.0));
            }
        }
        best.map(|(score, candidate)| (score, candidate, alike))
    };
    // Without its trace ID, it may be another source than the unit.
    let may_be_other = unit.is_some() && (own.is_none() || !is_formatted);
    let other = || may_be_other.then(|| best(None)).flatten();
    let best = best(unit).or_else(other);
    let found = Found {
        id: is_formatted.then_some(id.0),
        bytes: demux.stream(id).total(),
        protocol: best.map(|(_, protocol, _)| protocol),
        // ETE has the packets of ETMv4.
        alike: best
            .and_then(|(.., alike)| alike)
            .filter(|alike| *alike != Protocol::Ete),
    };
    (found, best.map_or(0, |(score, ..)| score))
}

impl Form {
    /// Adds the sources that begin after the examined bytes. Returns the bytes of each source, unless
    /// the buffer can be read as it is.
    pub fn later(&mut self, bytes: &Mapped, known: &[Unit], core: Core) -> Vec<Vec<u8>> {
        let deformatter = match self.frames {
            Some(FrameKind::Tpiu) => Deformatter::new(FrameKind::Tpiu),
            Some(kind) if self.has_id() => {
                self.at_places(kind, bytes, known, core);
                return Vec::new();
            }
            Some(kind) => Deformatter::within(kind, Some(UNFORMATTED)),
            None => return Vec::new(),
        };
        self.streams(deformatter, bytes, known, core)
    }

    fn has_id(&self) -> bool {
        self.found.iter().all(|found| found.id.is_some())
    }

    /// Adds the sources at further places of the buffer.
    fn at_places(&mut self, kind: FrameKind, bytes: &Mapped, known: &[Unit], core: Core) {
        for place in places(bytes).skip(1) {
            let examined = examined(bytes, place);
            let mut demux = Demux::new();
            Deformatter::new(kind).feed(BufferOffset(0), examined, true, &mut demux);
            for id in demux.ids() {
                if is_special(id) || self.found.iter().any(|found| found.id == Some(id.0)) {
                    continue;
                }
                // What is no trace may be memory behind the buffer.
                let (found, _) = source(&demux, id, true, known, core);
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
        core: Core,
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
        let number = |found: &Found| found.id.unwrap_or(UNFORMATTED.0);
        for (&id, bytes) in &sources {
            if self.found.iter().all(|found| number(found) != id) {
                let mut demux = Demux::new();
                let examined = &bytes[..bytes.len().min(EXAMINED)];
                demux.unformatted(TraceId(id), BufferOffset(0), examined);
                let (found, _) = source(&demux, TraceId(id), true, known, core);
                self.found.push(Found {
                    bytes: bytes.len() as u64,
                    ..found
                });
            }
        }
        self.found.sort_by_key(|found| found.id);
        let of = |found: &Found| sources.remove(&number(found)).unwrap_or_default();
        self.found.iter().map(of).collect()
    }
}

fn reading(
    demux: &Demux,
    id: TraceId,
    (protocol, kind): (Protocol, &str),
    unit: Option<&Unit>,
    core: Core,
) -> Reading {
    let assumed = Unit::new("source", kind);
    let device = &unit.unwrap_or(&assumed).device;
    let config = Config::read(device, protocol, core, &mut Vec::new());
    config.visit(Read(&mut demux.stream(id).clone()))
}

/// The bytes that are valid trace, from the first synchronisation on; 0 if too few are.
fn score(reading: &Reading) -> u64 {
    match reading.is_sound() {
        true => reading.bytes.saturating_sub(8 * reading.bad),
        false => 0,
    }
}
