//! Where the segments of a track start.

use super::{Cut, LONG, Segments, TRIES};
use crate::timeline::parallel::{Then, each};
use crate::timeline::position::Direction;
use crate::timeline::stretch::SyncPoint;
use crate::timeline::trace::Trace;
use crate::timeline::worker::Worker;
use std::ops::Range;

/// Maximum number of chunks examined at once.
const MAX_AT_ONCE: u64 = 1024;
/// Fewer chunks are examined on this thread.
const FEW: usize = 4;

impl Segments {
    /// Returns the cut in a chunk other than the first.
    pub(super) fn cut(&mut self, chunk: u64) -> Option<Cut> {
        if let Some(&known) = self.cuts.get(&chunk) {
            return known;
        }
        let cut = find(&mut self.worker, &self.trace, chunk);
        self.cuts.insert(chunk, cut);
        cut
    }

    /// Finds the cuts of many chunks at once, if they are not known.
    fn find_cuts(&mut self, chunks: Range<u64>) {
        let unknown = chunks.filter(|chunk| *chunk > 0 && !self.cuts.contains_key(chunk));
        let unknown: Vec<u64> = unknown.collect();
        if unknown.len() < FEW || self.threads() == 1 {
            return;
        }
        let trace = std::sync::Arc::clone(&self.trace);
        let searches = !self.helpers.is_empty();
        let mut workers = self.workers(unknown.len());
        let found = each(&mut workers, unknown.len(), |worker, at| {
            (find(worker, &trace, unknown[at]), Then::Continue)
        });
        let found = unknown.iter().zip(found);
        let found = found.filter_map(|(&chunk, cut)| Some((chunk, cut?)));
        self.cuts.extend(found);
        if !searches {
            self.helpers.clear();
        }
    }

    /// Finds the cuts of the next chunks in a direction.
    pub fn find_cuts_beside(&mut self, chunk: u64, most: u64, direction: Direction) {
        let most = most.min(MAX_AT_ONCE);
        self.find_cuts(match direction {
            Direction::Forward => chunk + 1..(chunk + 1 + most).min(self.trace.count()),
            Direction::Backward => chunk.saturating_sub(most)..chunk,
        });
    }

    pub(super) fn is_segment(&mut self, chunk: u64) -> bool {
        chunk == 0 || chunk < self.trace.count() && self.cut(chunk).is_some()
    }

    /// Returns the segment after a chunk.
    pub fn segment_after(&mut self, chunk: u64) -> Option<u64> {
        if let Some(&known) = self.after.get(&chunk) {
            return known;
        }
        let chunks = self.trace.count();
        let mut after = None;
        for at in chunk + 1..chunks {
            self.look_beyond(at - chunk, at, Direction::Forward);
            if self.is_segment(at) {
                after = Some(at);
                break;
            }
        }
        if after.unwrap_or(chunks) - chunk > LONG {
            self.after.insert(chunk, after);
        }
        after
    }

    /// Returns the segment before a chunk.
    pub fn segment_before(&mut self, chunk: u64) -> Option<u64> {
        for at in (0..chunk).rev() {
            self.look_beyond(chunk - at, at, Direction::Backward);
            if self.is_segment(at) {
                return Some(at);
            }
        }
        None
    }

    /// Prepares for a long segment, if `passed` chunks were examined up to `chunk`.
    fn look_beyond(&mut self, passed: u64, chunk: u64, direction: Direction) {
        if passed <= LONG || self.cuts.contains_key(&chunk) {
            return;
        }
        // Reading an index requires reading the whole trace.
        if passed > self.trace.count() / 64 {
            self.read_index();
        }
        if !self.cuts.contains_key(&chunk) {
            match direction {
                Direction::Forward => self.find_cuts_beside(chunk - 1, MAX_AT_ONCE, direction),
                Direction::Backward => self.find_cuts_beside(chunk + 1, MAX_AT_ONCE, direction),
            }
        }
    }

    pub fn last_segment(&mut self) -> u64 {
        if let Some(last) = self.last {
            return last;
        }
        let chunks = self.trace.count();
        let last = self.segment_before(chunks).unwrap_or(0);
        self.last = Some(last);
        last
    }
}

/// Finds the cut in a chunk.
fn find(worker: &mut Worker, trace: &Trace, chunk: u64) -> Option<Cut> {
    let tried = trace.synchronisations(chunk);
    let cut = tried.into_iter().take(TRIES).find_map(|skip| {
        let at = SyncPoint { chunk, skip };
        let join = worker.probe(at)?;
        Some(Cut { at, join })
    });
    if cut.is_none() {
        trace.release(trace.start(chunk), trace.start(chunk + 1));
    }
    cut
}
