//! Decodes a capture for sums: each buffer in parts, on several threads.

use super::course::Replayed;
use super::pieces::{Facts, Piece, Recorder, Wanted, decoder};
use super::run::Running;
use super::shards::JoinError;
use super::stack::Listener;
use armsnap_arch::quantity::Address;
use armsnap_history::decode::parts::{
    Decoders, Output, Receiver, Role, Sizes, decode_in_pages, decode_in_parts,
};
use armsnap_history::decode::{Image, Programs, Totals};
use armsnap_snapshot::capture::{CaptureBuffer, CaptureSource};
use armsnap_snapshot::mapped;
use armsnap_snapshot::program::symbols::Symbols;
use armsnap_trace::flow::{CodeImage, ContextKey, InstructionKind, LastInstruction, View};
use std::sync::{Mutex, PoisonError};

#[cfg(test)]
mod tests;

/// The maximum number of bytes of trace in a piece.
const PIECE: usize = 1 << 20;
/// The minimum and maximum number of bytes of trace in a part.
const PART: (u64, u64) = (64 << 10, 4 << 20);
/// The minimum number of parts per thread, so that all have work to the end.
const PARTS: u64 = 8;
/// The minimum number of pieces in a part.
const PIECES: u64 = 4;
/// Bytes of pieces that may wait for earlier parts.
const WAITING: usize = 32 << 20;

/// A source, and the track that it belongs to.
pub(super) type Sums<'r, 'c, 'a, L> = (&'c CaptureSource, &'r mut Running<'a, L>);

/// The recorder of pieces for sums.
type Summing<'a> = Recorder<'a, true>;

/// Sizes for a buffer that is decoded on a number of threads.
pub(super) fn sizes(bytes: u64, jobs: usize) -> Sizes {
    let part = (bytes / (PARTS * jobs.max(1) as u64)).clamp(PART.0, PART.1);
    Sizes {
        piece: match jobs {
            0 | 1 => PIECE,
            _ => PIECE.min((part / PIECES) as usize),
        },
        part,
        output: WAITING,
        lead_in: None,
    }
}

/// Decodes a buffer for courses that want sums, on a number of threads.
pub(super) fn sum<L: Listener>(
    buffer: &CaptureBuffer,
    sources: &mut [Sums<'_, '_, '_, L>],
    programs: &Programs,
    (jobs, sizes): (usize, Sizes),
    progress: &mut dyn FnMut(u64),
) -> Result<Totals, JoinError> {
    let made: Vec<_> = sources
        .iter()
        .map(|(source, running)| (*source, running.track.core))
        .collect();
    let make = |role| Ok::<_, JoinError>(decoders::<L>(&made, programs, role));
    let facts = Mutex::new(Facts::default());
    let take = |recorder: &mut Summing<'_>, packets| {
        let piece = recorder.take(packets);
        recorder.learn_facts(&facts.lock().unwrap_or_else(PoisonError::into_inner));
        piece
    };
    let mut tracks = Vec::new();
    for (_, running) in sources {
        running.start_buffer(buffer);
        tracks.push((&mut **running, Replayed::default()));
    }
    let mut courses = Courses {
        tracks,
        facts: &facts,
        progress,
    };
    if jobs > 1
        && let Some(totals) = decode_in_parts(buffer, sizes, jobs, &make, &take, &mut courses)?
    {
        return Ok(totals);
    }
    decode_in_pages(buffer, sizes.piece, &make, &take, &mut courses)
}

/// The courses of the sources in a buffer, which follow the pieces of the sources.
struct Courses<'r, 'a, 'd, L> {
    tracks: Vec<(&'r mut Running<'a, L>, Replayed)>,
    facts: &'d Mutex<Facts>,
    progress: &'d mut dyn FnMut(u64),
}

impl<L: Listener> Receiver<Piece, JoinError> for Courses<'_, '_, '_, L> {
    /// These pieces have a step for each call, and are bounded only by their size.
    const CUTS: usize = 64;

    fn accepts(&mut self, source: usize, piece: &Piece) -> bool {
        if piece.is_full() {
            return false;
        }
        let (running, _) = &mut self.tracks[source];
        match running.course.grants(piece) {
            Ok(()) => {
                #[cfg(test)]
                {
                    running.course.accepted += 1;
                }
                true
            }
            Err(found) => {
                let facts = self.facts.lock();
                facts.unwrap_or_else(PoisonError::into_inner).extend(&found);
                false
            }
        }
    }

    fn receive(&mut self, pieces: Vec<Piece>, at: u64) -> Result<(), JoinError> {
        for ((running, replayed), piece) in self.tracks.iter_mut().zip(&pieces) {
            running.packets += piece.packets;
            running.course.replay(replayed, piece);
        }
        (self.progress)(at);
        Ok(mapped::whole()?)
    }
}

impl Output for Piece {
    fn bytes(&self) -> usize {
        self.size()
    }
}

/// Makes the decoders of sources, each with the core that it traces.
fn decoders<'a, L: Listener>(
    sources: &[(&CaptureSource, Option<usize>)],
    programs: &'a Programs,
    role: Role,
) -> Decoders<'a, Summing<'a>> {
    let wanted = Wanted {
        lines: false,
        calls: L::CALLS,
        each_call: role == Role::Joiner,
    };
    let decoders = sources.iter().map(|(source, core)| {
        let image = Image(core.and_then(|core| programs.memory(core)));
        let symbols = core.and_then(|core| programs.symbols(core));
        let watched = Watched {
            image,
            symbols,
            calls: L::CALLS,
        };
        let recorder = Recorder::new(image, symbols, wanted);
        (source.trace_id, decoder(source, watched, recorder))
    });
    decoders.collect()
}

/// A core's memory, with the steps between blocks that a [`Recorder`] of calls wants.
#[derive(Clone)]
pub(super) struct Watched<'a, C> {
    pub image: C,
    pub symbols: Option<&'a Symbols>,
    pub calls: bool,
}

impl<C: CodeImage> CodeImage for Watched<'_, C> {
    const WATCHES: bool = true;

    fn view(&self, context: &ContextKey) -> View {
        self.image.view(context)
    }

    fn slice(&self, view: View, address: Address) -> &[u8] {
        self.image.slice(view, address)
    }

    fn is_straight(&self, view: View, address: Address) -> bool {
        self.image.is_straight(view, address)
    }

    /// Watches calls, and steps to another function.
    fn watches(&self, from: Address, last: &LastInstruction, to: Address) -> bool {
        let around = |address: Address| {
            let extent = self.symbols.and_then(|symbols| symbols.extent(address.0));
            extent.map(|extent| extent.start)
        };
        let calls = last.kind == InstructionKind::Branch && last.link && last.taken;
        self.calls && (calls || around(to).is_some_and(|to| around(from) != Some(to)))
    }
}
