//! Searches in a track, on several threads if it is long.

use super::parallel::{Then, each};
use super::position::Direction;
use super::scan::{Hit, Query};
use super::segments::{SearchUnit, Segments};
use super::track::{Cancelled, Start};
use super::worker::{Contradiction, Worker};
use armsnap_snapshot::stop::Cancel;

/// Maximum number of units searched before their results are examined, for each thread.
const MAX_AHEAD: usize = 32;
/// Fewer units are searched on this thread.
const FEW: usize = 4;

/// Why a search has no result.
enum Ended {
    Cancelled,
    Contradicted,
}

impl From<Cancelled> for Ended {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<Contradiction> for Ended {
    fn from(_: Contradiction) -> Self {
        Self::Contradicted
    }
}

impl Segments {
    /// Finds the first hit in the direction of the query.
    pub(super) fn search_units(
        &mut self,
        start: Start,
        query: &Query,
        cancel: &Cancel,
    ) -> Result<Option<(u64, Hit)>, Cancelled> {
        let found = match self.search_indexed(start, query, cancel) {
            Err(Ended::Contradicted) => {
                self.distrust();
                self.search_indexed(start, query, cancel)
            }
            found => found,
        };
        self.helpers.clear();
        found.map_err(|_| Cancelled)
    }

    fn search_indexed(
        &mut self,
        start: Start,
        query: &Query,
        cancel: &Cancel,
    ) -> Result<Option<(u64, Hit)>, Ended> {
        let direction = query.direction;
        let Some((unit, within)) = self.first_unit(start, direction) else {
            return Ok(None);
        };
        let unit = self.split(unit, direction, cancel)?;
        let jobs = self.jobs(&[unit]);
        if let Some(hit) = self.worker.scan(&jobs[0], query, within)? {
            return Ok(Some((self.segment(unit.chunk), hit)));
        }
        let (mut last, mut ahead) = (unit, 1);
        let most = MAX_AHEAD.saturating_mul(self.threads());
        loop {
            self.find_cuts_beside(last.chunk, ahead as u64 + 1, direction);
            let units = self.units_after(last, ahead, direction, cancel)?;
            let Some(&outermost) = units.last() else {
                return Ok(None);
            };
            last = outermost;
            ahead = (2 * ahead).min(most);
            let jobs = self.jobs(&units);
            let mut workers = self.workers(if jobs.len() < FEW { 1 } else { jobs.len() });
            let scanned = each(&mut workers, jobs.len(), |worker: &mut &mut Worker, at| {
                if cancel.is_requested() {
                    return (Err(Ended::Cancelled), Then::Stop);
                }
                match worker.scan(&jobs[at], query, 0..u64::MAX) {
                    Ok(None) => (Ok(None), Then::Continue),
                    // Later hits are irrelevant.
                    Ok(hit) => (Ok(hit), Then::Stop),
                    Err(why) => (Err(why.into()), Then::Stop),
                }
            });
            for (unit, hit) in units.iter().zip(scanned) {
                if let Some(hit) = hit.transpose()?.flatten() {
                    return Ok(Some((self.segment(unit.chunk), hit)));
                }
            }
            self.release(&units);
        }
    }

    /// Returns up to `most` units after `last`.
    fn units_after(
        &mut self,
        mut last: SearchUnit,
        most: usize,
        direction: Direction,
        cancel: &Cancel,
    ) -> Result<Vec<SearchUnit>, Cancelled> {
        let mut units = Vec::new();
        while units.len() < most {
            let Some(next) = self.unit_beside(last, direction) else {
                break;
            };
            last = self.split(next, direction, cancel)?;
            units.push(last);
        }
        Ok(units)
    }
}
