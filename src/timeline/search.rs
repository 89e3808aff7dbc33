//! Searches in a track, with two threads if it is long.

use super::position::Direction;
use super::scan::{Hit, Query};
use super::segments::{SearchUnit, Segments};
use super::track::{Cancelled, Start};
use super::worker::{Job, Worker};
use crate::protocol::{ElementDecoder, PacketDecoder};
use crate::stop::{self, Cancel};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of units searched before their results are examined.
const MOST_AHEAD: usize = 64;

impl<D, E> Segments<D, E>
where
    D: PacketDecoder + Clone + Send + Sync,
    E: ElementDecoder<Packet = D::Packet> + Clone + Send + Sync,
{
    /// Finds the first hit in the direction of the query.
    pub(super) fn search_units(
        &mut self,
        start: Start,
        query: &Query,
        cancel: &Cancel,
    ) -> Result<Option<(u64, Hit)>, Cancelled> {
        let direction = query.direction;
        let Some((unit, within)) = self.first_unit(start, direction) else {
            return Ok(None);
        };
        let unit = self.split(unit, direction, cancel)?;
        let jobs = self.jobs(&[unit]);
        if let Some(hit) = self.worker.scan(&jobs[0], query, within) {
            return Ok(Some((self.segment(unit.chunk), hit)));
        }
        let mut helper = None;
        let (mut last, mut ahead) = (unit, 1);
        loop {
            let units = self.units_after(last, ahead, direction, cancel)?;
            let Some(&outermost) = units.last() else {
                return Ok(None);
            };
            if cancel.is_requested() {
                return Err(Cancelled);
            }
            last = outermost;
            ahead = (2 * ahead).min(MOST_AHEAD);
            let jobs = self.jobs(&units);
            let hits = if jobs.len() < 4 {
                let scan = |job| self.worker.scan(job, query, 0..u64::MAX);
                jobs.iter().map(scan).collect()
            } else {
                let helper = helper.get_or_insert_with(|| self.worker.another());
                scan_all(&mut self.worker, helper, &jobs, query)
            };
            for (unit, hit) in units.iter().zip(hits) {
                if let Some(hit) = hit {
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

/// Searches units with two workers. Returns the results in the order of the jobs.
fn scan_all<D, E>(
    worker: &mut Worker<D, E>,
    helper: &mut Worker<D, E>,
    jobs: &[Job<D, E>],
    query: &Query,
) -> Vec<Option<Hit>>
where
    D: PacketDecoder + Clone + Send + Sync,
    E: ElementDecoder<Packet = D::Packet> + Clone + Send + Sync,
{
    let next = AtomicUsize::new(0);
    let hits = Mutex::new(vec![None; jobs.len()]);
    let work = |worker: &mut Worker<D, E>| {
        while let Some((at, job)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(at).map(|job| (at, job))
        } {
            let hit = worker.scan(job, query, 0..u64::MAX);
            if hit.is_some() {
                // Later hits are irrelevant.
                next.store(jobs.len(), Ordering::Relaxed);
            }
            match hits.lock() {
                Ok(mut hits) => hits[at] = hit,
                Err(mut poisoned) => poisoned.get_mut()[at] = hit,
            }
        }
    };
    let cancel = Cancel::current();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| stop::with_cancel(cancel.as_ref(), || work(helper)));
        work(worker);
        if let Err(why) = second.join() {
            std::panic::resume_unwind(why);
        }
    });
    match hits.into_inner() {
        Ok(hits) => hits,
        Err(poisoned) => poisoned.into_inner(),
    }
}
