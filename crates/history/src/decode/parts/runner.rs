//! The decoders of a buffer, which can start, stop and continue at any piece.

use super::layout::slices;
use super::state::{PartState, SourceState};
use crate::decode::buffer::deformat;
use crate::decode::silence::Totals;
use crate::decode::state::{Resumable, StageStates, Unsaved};
use armsnap_arch::quantity::{BufferOffset, TraceId};
use armsnap_snapshot::capture::CaptureBuffer;
use armsnap_trace::formatter::{Counts, Deformatter, Demux, FRAME_BYTES, FrameKind};
use std::ops::Range;

/// The decoders of the sources of a buffer. Each belongs to a trace ID; the first one with an ID is
/// used.
pub type Decoders<'a, O> = Vec<(TraceId, Box<dyn Resumable<O> + 'a>)>;

/// How many bytes before an offset are searched for the trace ID there.
const SEARCHED: u64 = 1 << 20;

/// Decodes any range of a buffer.
pub(super) struct Runner<'a, O: ?Sized> {
    pub buffer: &'a CaptureBuffer,
    pub deformatter: Option<Deformatter>,
    demux: Demux,
    decoders: Decoders<'a, O>,
    /// Whether a decoder is the first with its ID.
    used: Vec<bool>,
    /// The states at the start of a trace.
    fresh: Vec<StageStates>,
    /// The numbers of packets at the last call of [`Self::packets`].
    counted: Vec<u64>,
}

impl<'a, O: ?Sized> Runner<'a, O> {
    /// Starts at the start of the buffer.
    pub fn new(buffer: &'a CaptureBuffer, decoders: Decoders<'a, O>) -> Result<Self, Unsaved> {
        let ids: Vec<TraceId> = decoders.iter().map(|(id, _)| *id).collect();
        let first = |(index, id)| !ids[..index].contains(id);
        let fresh = decoders.iter().map(|(_, decoder)| decoder.state());
        Ok(Self {
            buffer,
            deformatter: buffer.frames.map(Deformatter::new),
            demux: Demux::only(&ids),
            used: ids.iter().enumerate().map(first).collect(),
            fresh: fresh.collect::<Result<_, _>>()?,
            counted: vec![0; ids.len()],
            decoders,
        })
    }

    /// The number of sources.
    pub fn sources(&self) -> usize {
        self.decoders.len()
    }

    /// The trace ID of a source.
    pub fn id(&self, index: usize) -> TraceId {
        self.decoders[index].0
    }

    /// Returns to the start of the buffer.
    pub fn start(&mut self) -> Result<(), Unsaved> {
        self.deformatter = self.buffer.frames.map(Deformatter::new);
        self.reset()
    }

    /// Starts in the middle of the buffer, knowing nothing of what comes before.
    pub fn start_within(&mut self, at: u64) -> Result<(), Unsaved> {
        self.deformatter = self.buffer.frames.map(|kind| {
            let id = match kind {
                FrameKind::Memory => self.id_at(at),
                FrameKind::Tpiu | FrameKind::Dstream => None,
            };
            Deformatter::within(kind, id)
        });
        self.reset()
    }

    fn reset(&mut self) -> Result<(), Unsaved> {
        let ids: Vec<TraceId> = self.decoders.iter().map(|(id, _)| *id).collect();
        self.demux = Demux::only(&ids);
        for ((_, decoder), fresh) in self.decoders.iter_mut().zip(&self.fresh) {
            decoder.resume(fresh)?;
        }
        Ok(())
    }

    /// Assumes unknown callers below the known ones, and clears the record of missed callers. To
    /// the decoders themselves, their first synchronisation was the start of the trace.
    pub fn assume_callers(&mut self) -> Result<(), Unsaved> {
        for (_, decoder) in &mut self.decoders {
            let state = decoder.state()?.with_unknown_callers();
            decoder.resume(&state)?;
            decoder.take_missed();
        }
        Ok(())
    }

    /// The most likely source of the data at a frame.
    fn id_at(&self, at: u64) -> Option<TraceId> {
        let before = slices(self.buffer, at.saturating_sub(SEARCHED)..at).last();
        let (_, before) = before?;
        let only = || match &self.decoders[..] {
            [(id, _)] => Some(*id),
            _ => None,
        };
        Deformatter::last_id(before).or_else(only)
    }

    /// Returns the offset of a frame at or before `at`, if it is known without decoding.
    pub fn frame_at(&self, at: u64) -> u64 {
        match self.buffer.frames {
            Some(_) => at / FRAME_BYTES as u64 * FRAME_BYTES as u64,
            None => at,
        }
    }

    /// Decodes the range with the chosen sources. The bytes of others are dropped.
    pub fn run(&mut self, range: Range<u64>, chosen: impl Fn(usize) -> bool) {
        let total = self.buffer.bytes();
        for (offset, bytes) in slices(self.buffer, range) {
            let last = offset + bytes.len() as u64 == total;
            let only = self.decoders.first().map(|(id, _)| *id);
            let piece = (BufferOffset(offset), bytes, last);
            deformat(&mut self.deformatter, &mut self.demux, only, piece);
            for (index, (id, decoder)) in self.decoders.iter_mut().enumerate() {
                if !self.used[index] {
                    continue;
                }
                let stream = self.demux.stream_mut(*id);
                if !chosen(index) {
                    stream.consume(stream.payload().len());
                    continue;
                }
                decoder.piece(stream, last);
                if last {
                    decoder.end(BufferOffset(total));
                }
            }
        }
    }

    /// Returns what a source decoded since the last call: its output, and the number of packets.
    pub fn output(&mut self, index: usize) -> (&mut O, u64) {
        let decoder = &mut self.decoders[index].1;
        let all = decoder.packets();
        let before = std::mem::replace(&mut self.counted[index], all);
        (decoder.output(), all - before)
    }

    /// Returns whether a source has needed an unknown caller since the last call.
    pub fn take_missed(&mut self, index: usize) -> bool {
        self.decoders[index].1.take_missed()
    }

    /// Returns whether the start of the next packet is known in every source that had bytes.
    pub fn is_synchronised(&self) -> bool {
        let mut decoders = self.decoders.iter().zip(&self.used);
        decoders.all(|((id, decoder), used)| {
            !used || self.demux.stream(*id).total() == 0 || decoder.is_synchronised()
        })
    }

    /// Bytes by trace ID since the start, and the deformatter's counts.
    pub fn counts(&self) -> (Totals, Counts) {
        let deformatter = self.deformatter.as_ref();
        let counts = deformatter.map_or_else(Counts::default, Deformatter::counts);
        (self.demux.totals(), counts)
    }

    /// The state of all sources.
    pub fn state(&self) -> Result<PartState, Unsaved> {
        let sources = (0..self.decoders.len()).map(|index| self.source(index));
        Ok(PartState {
            frames: self.deformatter.clone(),
            sources: sources.collect::<Result<_, _>>()?,
        })
    }

    /// The state of a source.
    pub fn source(&self, index: usize) -> Result<SourceState, Unsaved> {
        let (id, decoder) = &self.decoders[index];
        Ok(SourceState {
            stream: self.demux.stream(*id).rest(),
            stages: decoder.state()?,
        })
    }

    /// Continues from the state of a source.
    pub fn resume(&mut self, index: usize, state: &SourceState) -> Result<(), Unsaved> {
        let (id, decoder) = &mut self.decoders[index];
        decoder.resume(&state.stages)?;
        let _ = decoder.take_missed();
        *self.demux.stream_mut(*id) = state.stream.clone();
        Ok(())
    }
}
