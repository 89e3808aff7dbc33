//! The state of a source's decoders between two pieces of trace: kept in memory, and in an index.

use super::part::TraceState;
use super::trace::Feed;
use crate::decode::parts::SourceState;
use armsnap_arch::quantity::Address;
use serde::{Deserialize, Serialize};

/// A saved decoder state, and what is known of execution there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Saved {
    pub feed: Feed,
    pub source: SourceState,
    pub known: TraceState,
    pub returns_to: Option<Address>,
}

impl Saved {
    /// Returns whether both states are at the same offset and decoding continues identically.
    pub fn agrees(&self, other: &Self) -> bool {
        self.feed.continues_like(&other.feed)
            && self.source.continues_like(&other.source)
            && (self.known, self.returns_to) == (other.known, other.returns_to)
    }
}
