//! Walks again over what was built, to find which nodes locations have at a step.
//!
//! The first walk saves its state every [`INTERVAL`] steps. Before a query relies on a walk from a
//! saved state, it is checked that such a walk reaches the state that the first one had at the end
//! of the interval: otherwise its nodes would differ, and nothing is known there.

use super::build::{Builder, Checkpoint, Counts, Sink};
use crate::recover::facts::final_state::FinalState;
use crate::recover::window::Window;

/// Steps between checkpoints. Few in unit tests, so that their walks cross some.
pub(in crate::recover) const INTERVAL: u32 = if cfg!(test) { 8 } else { 4096 };

/// The state of a walk.
#[derive(Clone, Debug)]
pub(in crate::recover) struct Walk {
    pub builder: Builder,
    /// The next step to build.
    pub next: u32,
}

/// Ignores what is built.
struct Nobody;

impl Sink for Nobody {}

impl Window {
    /// A walk that built a step last, from the checkpoint before it; `sink` receives what is built
    /// on the way.
    pub fn walk_to(&self, facts: &FinalState, step: u32, sink: &mut impl Sink) -> Option<Walk> {
        let walk = self.walk_from(step / INTERVAL)?;
        self.walk_until(facts, walk, step, sink)
    }

    /// The same, from a walk that ended before.
    pub fn walk_until(
        &self,
        facts: &FinalState,
        mut walk: Walk,
        step: u32,
        sink: &mut impl Sink,
    ) -> Option<Walk> {
        while walk.next <= step {
            self.walk_on(facts, &mut walk, sink)?;
        }
        Some(walk)
    }

    /// A walk from the start of an interval.
    pub fn walk_from(&self, interval: u32) -> Option<Walk> {
        Some(Walk {
            builder: Builder::again(
                self.checkpoints.get(interval as usize)?,
                self.templates.is_narrow(),
            ),
            next: interval * INTERVAL,
        })
    }

    /// Builds the next step; `None` at the end of what was built, or if the walk would differ from
    /// the first one.
    pub fn walk_on(
        &self,
        facts: &FinalState,
        walk: &mut Walk,
        sink: &mut impl Sink,
    ) -> Option<u32> {
        let step = walk.next;
        if step >= self.built || !self.can_repeat(facts, step / INTERVAL)? {
            return None;
        }
        walk.builder.step(&self.through(facts), step, sink);
        walk.next += 1;
        Some(step)
    }

    /// Whether a walk over an interval reaches the state that the first one had at its end.
    fn can_repeat(&self, facts: &FinalState, interval: u32) -> Option<bool> {
        let checkpoint = self.checkpoints.get(interval as usize)?;
        let end = self.built.min((interval + 1) * INTERVAL);
        if checkpoint.repeated_until.get() >= end {
            return Some(true);
        }
        let mut builder = Builder::again(checkpoint, self.templates.is_narrow());
        for step in interval * INTERVAL..end {
            builder.step(&self.through(facts), step, &mut Nobody);
        }
        let (counts, current) = self.kept(end)?;
        let agrees = builder.agrees(counts, current);
        if agrees {
            checkpoint.repeated_until.set(end);
        }
        Some(agrees)
    }

    /// The state of the first walk before a step, if it was saved.
    fn kept(&self, step: u32) -> Option<(Counts, &[u32])> {
        if step == self.built {
            let builder = self.builder.as_ref()?;
            return Some((builder.counts, builder.current()));
        }
        let checkpoint: &Checkpoint = self.checkpoints.get((step / INTERVAL) as usize)?;
        Some((checkpoint.counts, checkpoint.current()))
    }
}
