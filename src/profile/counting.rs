//! Decodes a capture of which only the counts of blocks are wanted: each buffer in parts, on several
//! threads.

use super::course::Replayed;
use super::run::Running;
use super::shards::{JoinError, Piece, Recorder};
use super::stack::Listener;
use super::tally::Tally;
use crate::capture::{CaptureBuffer, CaptureSource, Saved, Visitor};
use crate::decode::parts::{Decoders, Sizes, decode_in_parts};
use crate::decode::{Decoding, Image, Programs, Resumable, Source, Totals, decode_buffer};
use crate::flow::{Flow, FlowConfig};
use crate::mapped;
use crate::program::symbols::Symbols;
use crate::protocol::{ElementDecoder, PacketDecoder};
use crate::quantity::TraceId;
use std::io;

/// The most bytes of trace that are decoded at once.
const PIECE: usize = 256 << 10;
/// The fewest and the most bytes of trace in a part.
const PART: (u64, u64) = (64 << 10, 4 << 20);
/// The number of parts for each thread, if the buffer is long enough: so all have work to the end.
const PARTS: u64 = 8;
/// The number of pieces in a part, at least.
const PIECES: u64 = 8;
/// Bytes of pieces that may wait for earlier parts.
const WAITING: usize = 32 << 20;

/// A source, and the track that it belongs to.
pub(super) type Counted<'r, 'c, 'a, L> = (&'c CaptureSource, &'r mut Running<'a, L>);

/// Counts what sources of a buffer execute.
pub(super) fn count<L: Listener>(
    buffer: &CaptureBuffer,
    sources: &mut [Counted<'_, '_, '_, L>],
    programs: &Programs,
    jobs: usize,
    mut progress: impl FnMut(u64),
) -> io::Result<Option<Totals>> {
    if sources.is_empty() {
        return Ok(None);
    }
    let made: Vec<_> = sources
        .iter()
        .map(|(source, running)| (*source, running.track.core))
        .collect();
    let make = || decoders(&made, programs);
    for (_, running) in &mut *sources {
        running.start_buffer(buffer);
    }
    let mut replayed: Vec<Replayed> = Vec::new();
    replayed.resize_with(sources.len(), Replayed::default);
    let mut give = |index: usize, piece: &Piece| {
        let (_, running) = &mut sources[index];
        running.packets += piece.packets;
        running.course.replay(&mut replayed[index], piece);
    };
    let jobs = jobs.min((buffer.bytes() / PART.0) as usize);
    if jobs > 1 {
        let part = (buffer.bytes() / (PARTS * jobs as u64)).clamp(PART.0, PART.1);
        let sizes = Sizes {
            piece: PIECE.min((part / PIECES) as usize),
            part,
            output: WAITING,
            lead_in: None,
        };
        let pieces = |pieces: Vec<Piece>, done| {
            for (index, piece) in pieces.iter().enumerate() {
                give(index, piece);
            }
            progress(done);
            Ok::<_, JoinError>(mapped::whole()?)
        };
        let making = || Ok::<_, JoinError>(make());
        let totals = decode_in_parts(buffer, sizes, jobs, &making, &Tally::take, pieces);
        let totals = totals.map_err(|error| match error {
            JoinError::Io(error) => error,
            error => io::Error::other(error),
        })?;
        if totals.is_some() {
            return Ok(totals);
        }
    }
    let (mut done, mut decoders) = (0, decoding(make()));
    let totals = decode_buffer(buffer, &mut decoders, PIECE, |index, tally| {
        give(index, &tally.take(0));
        if index == 0 {
            done += PIECE as u64;
            progress(done.min(buffer.bytes()));
        }
        mapped::whole()
    })?;
    for ((_, running), (_, decoder)) in sources.iter_mut().zip(&decoders) {
        running.packets += decoder.packets();
    }
    Ok(Some(totals))
}

/// Makes the decoders of sources, each with the core that it traces.
fn decoders<'a>(
    sources: &[(&CaptureSource, Option<usize>)],
    programs: &'a Programs,
) -> Decoders<'a, Tally<'a>> {
    let decoders = sources.iter().map(|(source, core)| {
        let image = Image(core.and_then(|core| programs.memory(core)));
        let symbols = core.and_then(|core| programs.symbols(core));
        (source.trace_id, source.visit(Make { image, symbols }))
    });
    decoders.collect()
}

type Boxed<'a> = Vec<(TraceId, Box<dyn Decoding<Tally<'a>> + 'a>)>;

/// The same decoders, for decoding without parts.
fn decoding<'a>(decoders: Decoders<'a, Tally<'a>>) -> Boxed<'a> {
    let decoders = decoders.into_iter();
    decoders.map(|(id, decoder)| (id, decoder as _)).collect()
}

/// Makes the decoder of a source.
struct Make<'a> {
    image: Image<'a>,
    symbols: Option<&'a Symbols>,
}

impl<'a> Visitor for Make<'a> {
    type Output = Box<dyn Resumable<Tally<'a>> + 'a>;

    fn visit<D, E>(self, packets: D, elements: E, flow: Option<FlowConfig>) -> Self::Output
    where
        D: PacketDecoder + Saved + 'static,
        E: ElementDecoder<Packet = D::Packet> + Saved + 'static,
    {
        let tally = Tally::new(Recorder::of_blocks(self.image, self.symbols));
        match flow {
            Some(flow) => {
                let flow = Flow::new(flow, self.image);
                Box::new(Source::with_flow(packets, elements, flow, tally))
            }
            None => Box::new(Source::with_elements(packets, elements, tally)),
        }
    }
}
