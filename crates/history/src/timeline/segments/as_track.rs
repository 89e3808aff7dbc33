//! Segments as a [`Track`]: neighbouring parts, times and cycles.

use super::{LONG, PartStart, SearchUnit, Segments};
use crate::timeline::part::TraceState;
use crate::timeline::position::Direction;
use crate::timeline::scan::{Hit, Query};
use crate::timeline::stretch::TraceEnd;
use crate::timeline::track::{Cancelled, PartKey, Placed, Start, Track};
use armsnap_snapshot::stop::Cancel;

impl Segments {
    /// Returns the cycles counted in a segment.
    fn cycles_of(&mut self, chunk: u64, cancel: &Cancel) -> Result<u64, Cancelled> {
        if !self.cycles.contains_key(&chunk) {
            if cancel.is_requested() {
                return Err(Cancelled);
            }
            let unit = SearchUnit { chunk, part: None };
            self.split(unit, Direction::Forward, cancel)?;
            if !self.cycles.contains_key(&chunk) {
                let job = self.job(unit);
                let counted = self.worker.count_cycles(&job);
                self.cycles.insert(chunk, counted);
                self.release(&[unit]);
            }
        }
        Ok(self.cycles[&chunk])
    }

    /// Returns the first place of the last part that starts before `was` becomes true.
    fn part_before(&mut self, chunk: u64, was: impl Fn(&TraceState) -> bool) -> u64 {
        let parts = &self.layout(chunk).parts;
        let was = |part: &PartStart| part.saved.as_ref().is_some_and(|s| was(&s.known));
        let first = parts.iter().position(was).unwrap_or(parts.len());
        parts[first.saturating_sub(1)].first
    }
}

impl Track for Segments {
    fn first(&mut self) -> Placed {
        self.placed(0, 0)
    }

    fn last(&mut self) -> Placed {
        let chunk = self.last_segment();
        let parts = self.layout(chunk).parts.len();
        self.placed(chunk, parts - 1)
    }

    fn previous(&mut self, key: PartKey) -> Option<Placed> {
        let chunk = self.trace.chunk_at(key.segment)?;
        if let Some(number) = (key.number as usize).checked_sub(1) {
            return Some(self.placed(chunk, number));
        }
        let before = self.segment_before(chunk)?;
        let parts = self.layout(before).parts.len();
        Some(self.placed(before, parts - 1))
    }

    fn next(&mut self, key: PartKey) -> Option<Placed> {
        let chunk = self.trace.chunk_at(key.segment)?;
        let number = key.number as usize + 1;
        if number < self.layout(chunk).parts.len() {
            return Some(self.placed(chunk, number));
        }
        let after = self.segment_after(chunk)?;
        Some(self.placed(after, 0))
    }

    fn at(&mut self, segment: u64, index: u64) -> Option<Placed> {
        let chunk = self.trace.chunk_at(segment)?;
        if !self.is_segment(chunk) {
            return None;
        }
        let layout = self.layout(chunk);
        if index > layout.places {
            return None;
        }
        let after = layout.parts.partition_point(|part| part.first <= index);
        Some(self.placed(chunk, after.saturating_sub(1)))
    }

    fn bytes(&self) -> u64 {
        self.trace.total()
    }

    fn reach_end(&mut self, cancel: &Cancel) -> bool {
        let last = self.last_segment();
        self.lays_out(last, cancel)
    }

    fn end(&mut self) -> TraceEnd {
        let chunk = self.last_segment();
        self.layout(chunk).ended
    }

    fn search(
        &mut self,
        start: Start,
        query: &Query,
        cancel: &Cancel,
    ) -> Result<Option<(u64, Hit)>, Cancelled> {
        self.search_units(start, query, cancel)
    }

    fn known_before(&mut self, segment: u64) -> Option<TraceState> {
        let chunk = self.trace.chunk_at(segment)?;
        let before = self.segment_before(chunk)?;
        // Decoding a long segment for this takes too long.
        (chunk - before <= LONG).then(|| self.layout(before).after)
    }

    fn cycles_before(&mut self, segment: u64, cancel: &Cancel) -> Result<u64, Cancelled> {
        let (mut total, mut chunk) = (0_u64, Some(0).filter(|_| self.counts_cycles));
        while let Some(at) = chunk.filter(|&chunk| self.segment(chunk) < segment) {
            total = total.saturating_add(self.cycles_of(at, cancel)?);
            chunk = self.segment_after(at);
        }
        Ok(total)
    }

    fn before_cycle(
        &mut self,
        cycles: u64,
        cancel: &Cancel,
    ) -> Result<Option<(u64, u64, u64)>, Cancelled> {
        let (mut total, mut chunk) = (0_u64, Some(0).filter(|_| self.counts_cycles));
        while let Some(at) = chunk {
            let after = total.saturating_add(self.cycles_of(at, cancel)?);
            if after >= cycles {
                let place = self.part_before(at, |known| {
                    known
                        .cycles
                        .is_some_and(|counted| total.saturating_add(counted) >= cycles)
                });
                return Ok(Some((self.segment(at), place, total)));
            }
            total = after;
            chunk = self.segment_after(at);
        }
        Ok(None)
    }

    fn before_time(&mut self, time: u64) -> (u64, u64) {
        // Segments up to `low` start before `time`, segments from `high` on do not.
        let (mut low, mut high) = (0, self.trace.count());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let probe = if self.is_segment(middle) {
                Some(middle)
            } else {
                self.segment_after(middle).filter(|&chunk| chunk < high)
            };
            let Some(chunk) = probe else {
                high = middle;
                continue;
            };
            let first = self.placed(chunk, 0).part.first_time();
            // Without a timestamp the segment may start too late.
            if first.is_some_and(|first| first < time) {
                low = chunk;
            } else {
                high = middle;
            }
        }
        let place = self.part_before(low, |known| known.time.is_some_and(|at| at >= time));
        (self.segment(low), place)
    }

    fn before_offset(&mut self, offset: u64) -> u64 {
        let chunk = self.trace.chunk_with(offset);
        let starts = chunk == 0 || self.cut(chunk).is_some_and(|cut| cut.join <= offset);
        let chunk = match starts {
            true => chunk,
            false => self.segment_before(chunk).unwrap_or(0),
        };
        self.segment(chunk)
    }

    fn is_timed(&mut self) -> bool {
        /// Maximum number of segments examined.
        const MOST: usize = 16;
        let mut chunk = self.last_segment();
        for _ in 0..MOST {
            if self.layout(chunk).after.time.is_some() {
                return true;
            }
            match self.segment_before(chunk) {
                Some(before) if chunk - before <= LONG => chunk = before,
                _ => break,
            }
        }
        false
    }
}
