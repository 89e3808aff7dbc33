//! What packets of ETMv3 and PTM say of synchronisation and of the state of the core.

use crate::element::{Context, ElementSink, Mark, NoSyncReason};
use crate::quantity::{BufferOffset, ExceptionLevel, Security};

/// How far decoding has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing was seen.
    Start,
    /// The next A-sync is waited for.
    ASync,
    /// The next I-sync is waited for.
    ISync,
    /// Everything is known.
    Decoding,
}

impl State {
    /// Says before the first packet that nothing is known.
    pub fn begin(&mut self, at: BufferOffset, out: &mut impl ElementSink) {
        if *self == Self::Start {
            out.mark(at, Mark::NoSync(NoSyncReason::Start));
            *self = Self::ASync;
        }
    }

    /// Takes a loss of bytes; returns whether decoding ends with it.
    pub fn lose(&mut self) -> bool {
        let before = *self;
        if before != Self::Start {
            *self = Self::ASync;
        }
        before == Self::Decoding
    }
}

/// What is known of a core before any packet.
pub(crate) const UNKNOWN: Context = Context {
    isa: crate::quantity::Isa::A32,
    el: None,
    security: None,
    is_64bit: Some(false),
    vmid: None,
    context_id: None,
};

/// Takes the state that a packet tells; returns whether it changed.
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
