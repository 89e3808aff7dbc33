//! Whether an address means the same memory at two points of the trace.

use armsnap_arch::quantity::{ExceptionLevel, Security};
pub use armsnap_snapshot::snapshot::changed::Carrier;
use armsnap_trace::element::Context;

/// What the trace reports of the address space at a point.
///
/// EL0 and EL1 share a translation regime, EL2 and EL3 have their own (DDI 0487, D8.1.2). Where EL2
/// shares one with EL0 (FEAT_VHE), two are assumed, so less is recovered than could be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::recover) struct AddressSpace {
    /// 0 for EL0 and EL1.
    regime: Option<u8>,
    security: Option<Security>,
    vmid: Option<u32>,
    context_id: Option<u32>,
}

impl AddressSpace {
    /// From the context in the trace, without the field that identifies the version of changed
    /// code.
    pub fn of(context: Option<&Context>, versions: Option<Carrier>) -> Self {
        let Some(context) = context else {
            return Self::default();
        };
        Self {
            regime: context.el.map(|ExceptionLevel(level)| match level {
                0 | 1 => 0,
                other => other,
            }),
            security: context.security,
            vmid: context.vmid.filter(|_| versions != Some(Carrier::Vmid)),
            context_id: context
                .context_id
                .filter(|_| versions != Some(Carrier::ContextId)),
        }
    }

    /// Fills in what is unknown here from a later point.
    pub fn or(self, later: Self) -> Self {
        Self {
            regime: self.regime.or(later.regime),
            security: self.security.or(later.security),
            vmid: self.vmid.or(later.vmid),
            context_id: self.context_id.or(later.context_id),
        }
    }

    /// Whether the security state is known, and which it is.
    pub fn is_secure(self) -> Option<bool> {
        self.security.map(|security| security == Security::Secure)
    }

    /// Whether a later point is in another security state.
    pub fn changes_security(self, later: Self) -> bool {
        matches!((self.security, later.security), (Some(old), Some(new)) if old != new)
    }

    /// Moves on to a later point, keeping what is not reported there. Returns whether nothing
    /// reported has changed.
    pub fn move_to(&mut self, later: Self) -> bool {
        let before = *self;
        *self = later.or(before);
        before.or(later) == *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_machine_or_regime_is_another_space() {
        let context = |el, vmid, context_id| {
            let context = Context {
                el: Some(ExceptionLevel(el)),
                vmid,
                context_id,
                ..Context::default()
            };
            AddressSpace::of(Some(&context), None)
        };
        let mut space = AddressSpace::of(None, None);
        for (next, same) in [
            (context(0, None, Some(7)), true),
            (context(1, None, Some(7)), true),
            // What is not reported stays the same.
            (context(1, None, None), true),
            (context(1, None, Some(8)), false),
            (context(0, Some(1), Some(8)), true),
            (context(0, Some(2), Some(8)), false),
            (context(2, Some(2), Some(8)), false),
            (context(3, Some(2), Some(8)), false),
            (context(3, Some(2), Some(8)), true),
        ] {
            assert_eq!(space.move_to(next), same, "{next:?}");
        }
        // Going backward, a point that reports nothing does not hide what later ones report.
        let later = context(0, None, None).or(context(0, None, Some(7)));
        assert!(!context(0, None, Some(8)).move_to(later));
    }
}
