//! Walks again over what was built, to find which nodes locations have at a step.
//!
//! The first walk saves its state every [`INTERVAL`] steps. Before a query relies on a walk from a
//! saved state, it is checked that such a walk reaches the state that the first one had at the end
//! of the interval: otherwise its nodes would differ, and nothing is known there.

use super::build::{Builder, Checkpoint, Counts, Sink, Through};

/// Steps between checkpoints. Few in unit tests, so that their walks cross some.
pub(in crate::recover) const INTERVAL: u32 = if cfg!(test) { 8 } else { 4096 };

/// The walk that builds each step for the first time, as far as it got.
#[derive(Debug, Default)]
pub(in crate::recover) struct FirstWalk {
    pub builder: Option<Builder>,
    /// The state before every step whose number is a multiple of [`INTERVAL`].
    pub checkpoints: Vec<Checkpoint>,
    /// The number of steps built.
    pub built: u32,
}

impl FirstWalk {
    /// The latest step at which an address may mean other memory than at the end.
    pub fn other_space(&self) -> Option<u32> {
        self.builder.as_ref()?.counts.other_space
    }

    /// The state before a step, if it was saved.
    fn kept(&self, step: u32) -> Option<(Counts, &[u32])> {
        if step == self.built {
            let builder = self.builder.as_ref()?;
            return Some((builder.counts, builder.current()));
        }
        let checkpoint: &Checkpoint = self.checkpoints.get((step / INTERVAL) as usize)?;
        Some((checkpoint.counts, checkpoint.current()))
    }
}

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

/// What walks go over.
#[derive(Clone, Copy)]
pub(in crate::recover) struct Walks<'a> {
    pub through: Through<'a>,
    pub first: &'a FirstWalk,
}

impl Walks<'_> {
    /// A walk that built a step last, from the checkpoint before it; `sink` receives what is built
    /// on the way.
    pub fn to(&self, step: u32, sink: &mut impl Sink) -> Option<Walk> {
        let walk = self.from(step / INTERVAL)?;
        self.until(walk, step, sink)
    }

    /// The same, from a walk that ended before.
    pub fn until(&self, mut walk: Walk, step: u32, sink: &mut impl Sink) -> Option<Walk> {
        while walk.next <= step {
            self.on(&mut walk, sink)?;
        }
        Some(walk)
    }

    /// A walk from the start of an interval.
    pub fn from(&self, interval: u32) -> Option<Walk> {
        let checkpoint = self.first.checkpoints.get(interval as usize)?;
        Some(Walk {
            builder: Builder::again(checkpoint, self.through.templates.is_narrow()),
            next: interval * INTERVAL,
        })
    }

    /// Builds the next step; `None` at the end of what was built, or if the walk would differ from
    /// the first one.
    pub fn on(&self, walk: &mut Walk, sink: &mut impl Sink) -> Option<u32> {
        let step = walk.next;
        if step >= self.first.built || !self.can_repeat(step / INTERVAL)? {
            return None;
        }
        walk.builder.step(&self.through, step, sink);
        walk.next += 1;
        Some(step)
    }

    /// Whether a walk over an interval reaches the state that the first one had at its end.
    fn can_repeat(&self, interval: u32) -> Option<bool> {
        let checkpoint = self.first.checkpoints.get(interval as usize)?;
        let end = self.first.built.min((interval + 1) * INTERVAL);
        if checkpoint.repeated_until.get() >= end {
            return Some(true);
        }
        let mut builder = Builder::again(checkpoint, self.through.templates.is_narrow());
        for step in interval * INTERVAL..end {
            builder.step(&self.through, step, &mut Nobody);
        }
        let (counts, current) = self.first.kept(end)?;
        let agrees = builder.agrees(counts, current);
        if agrees {
            checkpoint.repeated_until.set(end);
        }
        Some(agrees)
    }
}
