//! The state of a source's decoders between two pieces of trace: kept in memory, and in an index.

use super::part::TraceState;
use super::trace::Feed;
use armsnap_arch::quantity::Address;
use armsnap_snapshot::capture::Saved as State;
use armsnap_trace::flow::FlowState;
use armsnap_trace::formatter::{Deformatter, Stream};
use serde::{Deserialize, Serialize};

/// A saved decoder state.
#[derive(Clone, Debug)]
pub(super) struct Saved<D, E> {
    pub feed: Feed,
    pub rest: Stream,
    pub packets: D,
    pub elements: E,
    pub flow: FlowState,
    pub known: TraceState,
    pub returns_to: Option<Address>,
}

/// A decoder state in an index.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stored<P, E> {
    pub raw: u64,
    frames: Option<Deformatter>,
    rest: Stream,
    packets: P,
    elements: E,
    flow: FlowState,
    known: TraceState,
    returns_to: Option<Address>,
}

impl<D: State, E: State> Saved<D, E> {
    /// Returns the state as it is stored.
    pub fn stored(&self) -> Stored<impl Serialize + use<'_, D, E>, impl Serialize + use<'_, D, E>> {
        Stored {
            raw: self.feed.raw,
            frames: self.feed.deformatter.clone(),
            rest: self.rest.clone(),
            packets: self.packets.state(),
            elements: self.elements.state(),
            flow: self.flow.clone(),
            known: self.known,
            returns_to: self.returns_to,
        }
    }

    /// Restores a stored state. The decoders have the settings of those whose state was saved.
    pub fn restored(
        stored: Stored<D::State, E::State>,
        (mut packets, mut elements): (D, E),
    ) -> Self {
        packets.restore(stored.packets);
        elements.restore(stored.elements);
        Self {
            feed: Feed {
                raw: stored.raw,
                deformatter: stored.frames,
            },
            rest: stored.rest,
            packets,
            elements,
            flow: stored.flow,
            known: stored.known,
            returns_to: stored.returns_to,
        }
    }

    /// Returns whether both states are at the same offset and decoding continues identically.
    pub fn agrees(&self, other: &Self) -> bool {
        let frames = match (&self.feed.deformatter, &other.feed.deformatter) {
            (None, None) => true,
            (Some(frames), Some(other)) => frames.continues_like(other),
            _ => false,
        };
        frames
            && self.feed.raw == other.feed.raw
            && self.rest.continues_like(&other.rest)
            && self.flow == other.flow
            && (self.known, self.returns_to) == (other.known, other.returns_to)
            && same(&self.packets.state(), &other.packets.state())
            && same(&self.elements.state(), &other.elements.state())
    }
}

/// Compares two states as they are stored.
fn same(a: &impl Serialize, b: &impl Serialize) -> bool {
    match (serde_json::to_vec(a), serde_json::to_vec(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}
