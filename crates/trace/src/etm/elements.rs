//! Synchronisation and the state of the core, for the elements of ETMv3 and PTM.

use crate::element::{Context, ElementSink, Mark, NoSyncReason};
use armsnap_arch::quantity::{BufferOffset, ExceptionLevel, Security};

/// The progress of synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum State {
    /// No packet was seen.
    Start,
    /// Waiting for the next A-sync.
    ASync,
    /// Waiting for the next I-sync.
    ISync,
    /// Synchronised.
    Decoding,
}

impl State {
    /// Reports missing synchronisation before the first packet.
    pub(crate) fn begin(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        if *self == Self::Start {
            out.mark(at, Mark::NoSync(NoSyncReason::Start));
            *self = Self::ASync;
        }
    }

    /// Handles a loss of bytes; returns whether it ends synchronisation.
    pub(crate) fn lose(&mut self) -> bool {
        let before = *self;
        if before != Self::Start {
            *self = Self::ASync;
        }
        before == Self::Decoding
    }
}

/// The state of a core before any packet.
pub(crate) const UNKNOWN: Context = Context {
    isa: armsnap_arch::quantity::Isa::A32,
    el: None,
    security: None,
    is_64bit: Some(false),
    vmid: None,
    context_id: None,
};

/// Applies the state in a packet; returns whether it changed.
pub(crate) fn update(context: &mut Context, non_secure: Option<bool>, hyp: Option<bool>) -> bool {
    let before = *context;
    if let Some(non_secure) = non_secure {
        context.security = Some(if non_secure {
            Security::NonSecure
        } else {
            Security::Secure
        });
    }
    if let Some(hyp) = hyp {
        context.el = hyp.then_some(ExceptionLevel(2));
    }
    before != *context
}
