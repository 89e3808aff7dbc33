//! A part of a buffer, what it decodes to, and the states at its seams.

use super::Output;
use crate::decode::silence::Totals;
use crate::decode::state::{StageStates, Unsaved};
use armsnap_trace::flow::Below;
use armsnap_trace::formatter::{Deformatter, Stream};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Parts cannot be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// A state of a decoder cannot be saved or restored.
    #[error(transparent)]
    State(#[from] Unsaved),
    /// A page is not the next one of the buffer.
    #[error("a page of decoded trace is not the next one of its buffer")]
    Misplaced,
}

/// A part of a buffer that is decoded on its own. It can be decoded anywhere that has the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Where decoding starts, without any state. The output up to `start` is dropped.
    pub lead_in: u64,
    /// The offset of its first byte in the buffer.
    pub start: u64,
    /// The offset after its last byte.
    pub end: u64,
}

/// The state of all decoders of a buffer between two pieces.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartState {
    /// `None` if the buffer has no frames.
    pub(super) frames: Option<Deformatter>,
    pub(super) sources: Vec<SourceState>,
}

impl PartState {
    /// Whether both continue their frames in the same way.
    pub(super) fn frames_like(&self, other: Option<&Deformatter>) -> bool {
        frames_alike(self.frames.as_ref(), other)
    }
}

/// Whether both continue their frames in the same way.
pub(crate) fn frames_alike(a: Option<&Deformatter>, b: Option<&Deformatter>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.continues_like(b),
        _ => false,
    }
}

/// The state of the decoders of one source, and its bytes that are not decoded yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SourceState {
    pub stream: Stream,
    pub stages: StageStates,
}

impl SourceState {
    /// Compares this state, in which everything is known, with that of a part: see
    /// [`StageStates::below`].
    pub fn below(&self, part: &Self) -> Option<Below> {
        let below = self.stages.below(&part.stages)?;
        self.stream.continues_like(&part.stream).then_some(below)
    }

    /// Returns whether both continue identically.
    pub fn continues_like(&self, other: &Self) -> bool {
        self.stages == other.stages && self.stream.continues_like(&other.stream)
    }

    fn bytes(&self) -> usize {
        self.stream.payload().len() + self.stages.bytes()
    }

    /// Completes the state of a part: see [`StageStates::over`].
    pub fn over(&self, below: &Below) -> Self {
        Self {
            stream: self.stream.clone(),
            stages: self.stages.over(below),
        }
    }
}

/// What a piece of the buffer decodes to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Page<T> {
    /// The piece.
    pub range: Range<u64>,
    /// The state before it.
    pub(super) entry: PartState,
    /// The output of each source.
    pub outputs: Vec<T>,
    /// For each source, whether it needed a caller from before the part.
    pub(super) missed: Vec<bool>,
    /// Bytes by trace ID, for all 128 IDs.
    pub(super) totals: Vec<u64>,
    /// Only frames are in it, so no source can have lost bytes.
    pub(super) quiet: bool,
}

impl<T: Default> Page<T> {
    /// Drops the outputs that cannot be used because they depend on a caller from before the part.
    pub fn drop_missed(&mut self) {
        let outputs = self.outputs.iter_mut().zip(&self.missed);
        for (output, _) in outputs.filter(|(_, missed)| **missed) {
            *output = T::default();
        }
    }
}

impl<T: Output> Page<T> {
    /// Returns the approximate size in bytes, including the state.
    pub(super) fn bytes(&self) -> usize {
        let outputs: usize = self.outputs.iter().map(T::bytes).sum();
        let entry = self.entry.sources.iter().map(SourceState::bytes);
        outputs + entry.sum::<usize>() + 2048
    }
}

/// The growth of totals.
pub(super) fn grown(before: &Totals, after: &Totals) -> Vec<u64> {
    let both = after.iter().zip(before);
    both.map(|(after, before)| after.wrapping_sub(*before))
        .collect()
}
