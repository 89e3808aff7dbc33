//! The wanted part of a core's execution.

use super::clock::Moment;
use armsnap_arch::quantity::BufferOffset;
use armsnap_trace::flow::Range;
use std::collections::BTreeSet;

/// One end of a [`Window`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A number of executed instructions.
    Instructions(u64),
    /// A timestamp.
    Time(u64),
    /// A position in a buffer: the instructions of the packets from this offset on.
    Offset {
        /// Index of the buffer among those of the core, in order.
        buffer: usize,
        /// The offset.
        at: BufferOffset,
        /// The number of the packet's instructions to skip.
        skip: u64,
    },
    /// One of these instructions is about to be executed, maybe after others in a straight line.
    Code(BTreeSet<u64>),
}

impl Bound {
    /// Returns whether it is a time that has passed.
    pub(super) fn is_past(&self, now: &Moment) -> bool {
        matches!(self, Self::Time(time) if now.time.is_some_and(|now| now >= *time))
    }

    /// Returns whether it is reached before or in a straight line; `skipped` instructions of the
    /// same packet preceded the line.
    pub(super) fn is_reached(&self, now: &Moment, line: &Range, skipped: u64) -> bool {
        match self {
            Self::Instructions(number) => now.instructions >= *number,
            Self::Time(_) => self.is_past(now),
            Self::Offset { buffer, at, skip } => {
                let here = (now.buffer, now.at);
                here > (*buffer, *at) || here == (*buffer, *at) && skipped >= *skip
            }
            Self::Code(addresses) => {
                let mut executed = addresses.range(line.start.0..line.end.0.max(line.start.0));
                executed.next().is_some()
            }
        }
    }
}

/// The wanted part. Straight lines belong to it entirely or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Where it starts; at the start of the trace if `None`.
    pub from: Option<Bound>,
    /// Where it ends, exclusively; at the end of the trace if `None`.
    pub to: Option<Bound>,
}

impl Window {
    /// Returns whether it is known to end before it starts.
    pub fn is_reversed(&self) -> bool {
        match (&self.from, &self.to) {
            (Some(Bound::Instructions(from)), Some(Bound::Instructions(to)))
            | (Some(Bound::Time(from)), Some(Bound::Time(to))) => from > to,
            (
                Some(Bound::Offset { buffer, at, skip }),
                Some(Bound::Offset {
                    buffer: to_buffer,
                    at: to_at,
                    skip: to_skip,
                }),
            ) => (buffer, at, skip) > (to_buffer, to_at, to_skip),
            _ => false,
        }
    }

    /// Returns whether it covers everything.
    pub fn is_whole(&self) -> bool {
        self.from.is_none() && self.to.is_none()
    }
}
