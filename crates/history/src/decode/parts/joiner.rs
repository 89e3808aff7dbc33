//! Joins the pages of parts. A page is taken if the decoders of its part are in the same state as
//! decoders that decoded everything before it; otherwise, it is decoded again.

use super::Receiver;
use super::layout::{piece_end, release};
use super::runner::{Decoders, Runner};
use super::state::{Page, PartError, PartState, SourceState, grown};
use crate::decode::silence::Totals;
use crate::decode::state::Unsaved;
use armsnap_snapshot::capture::CaptureBuffer;
use armsnap_trace::flow::Below;
use armsnap_trace::formatter::Deformatter;

/// Mapped memory of a buffer is released each time this many bytes are joined.
const RELEASED: u64 = 4 << 20;

/// What is known of the state of a source at the end of the output.
enum Truth {
    /// The joiner's own decoders are in this state.
    Own,
    /// The source is in this state.
    State(Box<SourceState>),
}

/// Joins the pages of parts.
///
/// Pages must be passed in order. Missing ones are decoded.
pub struct Joiner<'a, 'f, O: ?Sized, T> {
    runner: Runner<'a, O>,
    piece: usize,
    take: &'f (dyn Fn(&mut O, u64) -> T + Sync),
    /// Where the output ends.
    at: u64,
    released: u64,
    frames: Option<Deformatter>,
    truths: Vec<Truth>,
    /// Whether the frames of the current part are those of the buffer.
    frames_followed: bool,
    /// By source: if the part's decoders continue like those that decoded everything before it, the
    /// callers that the part does not know.
    followed: Vec<Option<Below>>,
    totals: Totals,
    /// Pages of sources, with bytes, that were taken from parts.
    taken: u64,
    /// Whether the last page continued what was decoded before, for any source with bytes.
    following: bool,
}

impl<'a, 'f, O: ?Sized, T: Default> Joiner<'a, 'f, O, T> {
    /// Starts at the start of a buffer, which is decoded in pieces of up to `piece` bytes. `take`
    /// takes the output of a source; its second argument is the number of packets.
    ///
    /// # Errors
    ///
    /// If the states of the decoders cannot be saved.
    pub fn new(
        buffer: &'a CaptureBuffer,
        decoders: Decoders<'a, O>,
        piece: usize,
        take: &'f (dyn Fn(&mut O, u64) -> T + Sync),
    ) -> Result<Self, Unsaved> {
        let runner = Runner::new(buffer, decoders)?;
        Ok(Self {
            piece,
            take,
            at: 0,
            released: 0,
            frames: runner.deformatter.clone(),
            truths: (0..runner.sources()).map(|_| Truth::Own).collect(),
            frames_followed: false,
            followed: (0..runner.sources()).map(|_| None).collect(),
            totals: [0; 128],
            taken: 0,
            following: false,
            runner,
        })
    }

    /// The offset where the output ends.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The number of pages of sources that were taken from parts.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether the last page continued what was decoded before, for any source with bytes.
    pub(super) fn is_following(&self) -> bool {
        self.following
    }

    /// Bytes by trace ID so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Starts a part at `start`. Everything before it that is missing is decoded.
    ///
    /// # Errors
    ///
    /// If the part before it has not ended, or if the receiver fails.
    pub fn begin<X: From<PartError>>(
        &mut self,
        start: u64,
        receiver: &mut impl Receiver<T, X>,
    ) -> Result<(), X> {
        self.decode(start, receiver)?;
        if self.at != start {
            return Err(PartError::Misplaced.into());
        }
        Ok(())
    }

    /// Takes the next page of the part, where the receiver accepts it.
    ///
    /// # Errors
    ///
    /// If it is not the next page of this buffer, or if the receiver fails.
    pub fn page<X: From<PartError>>(
        &mut self,
        page: Page<T>,
        receiver: &mut impl Receiver<T, X>,
    ) -> Result<(), X> {
        let count = self.truths.len();
        let fits = page.range.start == self.at
            && page.range.end == piece_end(self.runner.buffer, self.at, self.piece)
            && [
                page.entry.sources.len(),
                page.outputs.len(),
                page.missed.len(),
            ] == [count; 3]
            && page.totals.len() == self.totals.len();
        if !fits {
            return Err(PartError::Misplaced.into());
        }
        self.compare(&page.entry);
        let last = page.range.end == self.runner.buffer.bytes();
        let mut again = vec![false; count];
        let mut needed = false;
        self.following = false;
        for (index, again) in again.iter_mut().enumerate() {
            let empty = page.totals[usize::from(self.runner.id(index).0 & 0x7f)] == 0;
            self.following |= !empty && self.followed[index].is_some();
            match self.followed[index].take() {
                Some(followed)
                    if !page.missed[index] && receiver.accepts(index, &page.outputs[index]) =>
                {
                    self.followed[index] = Some(followed);
                    self.taken += u64::from(!empty);
                }
                followed => {
                    if let Some(below) = followed {
                        let state = page.entry.sources[index].over(&below);
                        self.truths[index] = Truth::State(Box::new(state));
                    }
                    *again = true;
                    // A source does not change in a piece without bytes of it.
                    needed |= !(empty && page.quiet && !last && self.frames_followed);
                }
            }
        }
        let mut outputs = page.outputs;
        if self.frames_followed {
            add(&mut self.totals, &page.totals);
        }
        for index in (0..count).filter(|&index| again[index]) {
            outputs[index] = T::default();
        }
        if needed {
            return self.again(page.range.end, &again, outputs, receiver);
        }
        self.at = page.range.end;
        self.give(outputs, receiver)
    }

    /// Ends the part, in the state `exit`.
    ///
    /// # Errors
    ///
    /// If the state does not belong to this buffer.
    pub fn end(&mut self, exit: &PartState) -> Result<(), PartError> {
        if exit.sources.len() != self.truths.len() {
            return Err(PartError::Misplaced);
        }
        if std::mem::take(&mut self.frames_followed) {
            self.frames.clone_from(&exit.frames);
        }
        for (index, source) in exit.sources.iter().enumerate() {
            if let Some(below) = self.followed[index].take() {
                let state = source.over(&below);
                self.truths[index] = Truth::State(Box::new(state));
            }
        }
        Ok(())
    }

    /// Decodes up to `end`, between two parts.
    ///
    /// # Errors
    ///
    /// If a part has not ended, or if the receiver fails.
    pub fn decode<X: From<PartError>>(
        &mut self,
        end: u64,
        receiver: &mut impl Receiver<T, X>,
    ) -> Result<(), X> {
        if self.frames_followed {
            return Err(PartError::Misplaced.into());
        }
        let end = end.min(self.runner.buffer.bytes());
        let all = vec![true; self.truths.len()];
        while self.at < end {
            let piece = piece_end(self.runner.buffer, self.at, self.piece);
            let outputs = all.iter().map(|_| T::default()).collect();
            self.again(piece, &all, outputs, receiver)?;
        }
        Ok(())
    }

    /// Decodes up to `end` with the chosen sources; `outputs` has the output of the others.
    fn again<X: From<PartError>, R: Receiver<T, X>>(
        &mut self,
        end: u64,
        chosen: &[bool],
        mut outputs: Vec<T>,
        receiver: &mut R,
    ) -> Result<(), X> {
        let cut = self.piece / R::CUTS;
        while self.at < end {
            let next = piece_end(self.runner.buffer, self.at, cut).min(end);
            let mut cut: Vec<T> = match next == end {
                true => std::mem::take(&mut outputs),
                false => outputs.iter().map(|_| T::default()).collect(),
            };
            self.run(next, chosen, &mut cut)?;
            self.give(cut, receiver)?;
        }
        Ok(())
    }

    fn give<X>(&mut self, outputs: Vec<T>, receiver: &mut impl Receiver<T, X>) -> Result<(), X> {
        if self.at - self.released >= RELEASED {
            release(self.runner.buffer, self.released..self.at);
            self.released = self.at;
        }
        receiver.receive(outputs, self.at)
    }

    /// Finds the sources whose state in the part is the true one.
    fn compare(&mut self, entry: &PartState) {
        if self.frames_followed {
            self.frames.clone_from(&entry.frames);
        } else {
            self.frames_followed = entry.frames_like(self.frames.as_ref());
        }
        if !self.frames_followed {
            return;
        }
        for (index, part) in entry.sources.iter().enumerate() {
            if self.followed[index].is_some() {
                continue;
            }
            self.followed[index] = match &self.truths[index] {
                Truth::Own => self
                    .runner
                    .source(index)
                    .ok()
                    .and_then(|own| own.below(part)),
                Truth::State(state) => state.below(part),
            };
        }
    }

    /// Same as [`Self::again`], without cutting the piece.
    fn run(&mut self, end: u64, chosen: &[bool], outputs: &mut [T]) -> Result<(), PartError> {
        for index in (0..chosen.len()).filter(|&index| chosen[index]) {
            if let Truth::State(state) = &self.truths[index] {
                self.runner.resume(index, state)?;
                self.truths[index] = Truth::Own;
            }
        }
        self.runner.deformatter.clone_from(&self.frames);
        let (before, _) = self.runner.counts();
        self.runner.run(self.at..end, |index| chosen[index]);
        let (after, _) = self.runner.counts();
        self.frames.clone_from(&self.runner.deformatter);
        if !self.frames_followed {
            add(&mut self.totals, &grown(&before, &after));
        }
        for index in (0..chosen.len()).filter(|&index| chosen[index]) {
            let (output, packets) = self.runner.output(index);
            outputs[index] = (self.take)(output, packets);
        }
        self.at = end;
        Ok(())
    }
}

fn add(totals: &mut Totals, grown: &[u64]) {
    for (total, grown) in totals.iter_mut().zip(grown) {
        *total = total.wrapping_add(*grown);
    }
}
