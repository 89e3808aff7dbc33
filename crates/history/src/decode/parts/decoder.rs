//! Decodes parts one after another, each without the parts before it.

use super::layout::{next_end, piece_end};
use super::runner::{Decoders, Runner};
use super::state::{Page, Part, PartState, grown};
use crate::decode::state::Unsaved;
use armsnap_snapshot::capture::CaptureBuffer;
use std::iter;
use std::ops::Range;

/// Bytes of the shortest lead-in.
pub(super) const SHORTEST_LEAD: u64 = 8 << 10;

/// Decodes parts of a buffer. It caches the code that it has seen, so one decoder should decode
/// successive parts.
pub struct PartDecoder<'a, 'f, O: ?Sized, T> {
    runner: Runner<'a, O>,
    piece: usize,
    take: &'f (dyn Fn(&mut O, u64) -> T + Sync),
}

impl<'a, 'f, O: ?Sized, T> PartDecoder<'a, 'f, O, T> {
    /// Creates a decoder of parts; its parameters are those of [`Joiner::new`].
    ///
    /// # Errors
    ///
    /// If the states of the decoders cannot be saved.
    ///
    /// [`Joiner::new`]: super::Joiner::new
    pub fn new(
        buffer: &'a CaptureBuffer,
        decoders: Decoders<'a, O>,
        piece: usize,
        take: &'f (dyn Fn(&mut O, u64) -> T + Sync),
    ) -> Result<Self, Unsaved> {
        Ok(Self {
            runner: Runner::new(buffer, decoders)?,
            piece,
            take,
        })
    }

    /// Decodes a part. `each` receives its pages and returns whether to continue. Returns the state
    /// after the last page; this is before the end of the part if the state cannot be saved there.
    ///
    /// # Errors
    ///
    /// If there is no page.
    pub fn decode(
        &mut self,
        part: &Part,
        mut each: impl FnMut(Page<T>) -> bool,
    ) -> Result<PartState, Unsaved> {
        if part.start == 0 {
            self.runner.start()?;
        } else {
            self.start(part.lead_in..part.start)?;
        }
        let mut entry = self.runner.state()?;
        let mut at = part.start;
        while at < part.end {
            let range = at..piece_end(self.runner.buffer, at, self.piece);
            at = range.end;
            let before = self.runner.counts();
            self.runner.run(range.clone(), |_| true);
            let after = self.runner.counts();
            let sources = 0..self.runner.sources();
            let missed = sources.clone().map(|index| self.runner.take_missed(index));
            let missed = missed.collect();
            let outputs = sources.map(|index| {
                let (output, packets) = self.runner.output(index);
                (self.take)(output, packets)
            });
            let outputs = outputs.collect();
            let Ok(exit) = self.runner.state() else {
                break;
            };
            let of = |counts: armsnap_trace::formatter::Counts| (counts.sync, counts.skipped);
            let page = Page {
                range,
                entry: std::mem::replace(&mut entry, exit),
                outputs,
                missed,
                totals: grown(&before.0, &after.0),
                quiet: of(before.1) == of(after.1),
            };
            if !each(page) {
                break;
            }
        }
        Ok(entry)
    }

    /// Decodes a lead-in. Its output is dropped.
    fn start(&mut self, lead_in: Range<u64>) -> Result<(), Unsaved> {
        let from = self.runner.frame_at(lead_in.start.min(lead_in.end));
        self.runner.start_within(from)?;
        let mut at = from;
        while at < lead_in.end {
            let end = piece_end(self.runner.buffer, at, self.piece).min(lead_in.end);
            self.runner.run(at..end, |_| true);
            at = end;
            for index in 0..self.runner.sources() {
                let (output, packets) = self.runner.output(index);
                (self.take)(output, packets);
            }
        }
        self.runner.assume_callers()
    }

    /// Returns the first lead-in in `leads` with which the decoders are synchronised at an offset;
    /// `None` if no lead-in is long enough.
    ///
    /// # Errors
    ///
    /// If the states of the decoders cannot be saved.
    pub(super) fn lead_in(
        &mut self,
        at: u64,
        leads: impl Iterator<Item = u64>,
    ) -> Result<Option<u64>, Unsaved> {
        for lead in leads {
            self.start(at.saturating_sub(lead)..at)?;
            if self.runner.is_synchronised() {
                return Ok(Some(lead));
            }
        }
        Ok(None)
    }

    /// Returns a location at `at`, or up to a piece after it, where a part can start: the start of
    /// its lead-in, which has at most `longest` bytes, and its first byte. `None` if the decoders
    /// do not synchronise there.
    ///
    /// # Errors
    ///
    /// If the states of the decoders cannot be saved.
    pub fn seam(&mut self, at: u64, longest: u64) -> Result<Option<(u64, u64)>, Unsaved> {
        let start = next_end(self.runner.buffer, at, self.piece);
        let longest = longest.min(start);
        let shorter = iter::successors(Some(SHORTEST_LEAD), |lead| lead.checked_mul(4));
        let shorter = shorter.take_while(|&lead| lead < longest);
        let found = self.lead_in(start, shorter.chain([longest]))?;
        Ok(found.map(|lead| (start - lead, start)))
    }
}
