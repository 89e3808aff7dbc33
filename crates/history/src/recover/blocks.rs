//! IT blocks of T32 along the course of execution.
//!
//! A branch never leads into a block; the return from an exception may. Where it is not known how
//! execution came to an instruction, the code before it says whether it may be in a block.

use super::template::{Template, half};
use crate::timeline::History;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_arch::semantics::Control;
use armsnap_arch::semantics::t32::ItState;
use armsnap_trace::flow::View;

/// The bytes behind an IT instruction that its block takes at most: four instructions.
const LONGEST: u64 = 16;

/// The state behind the instructions passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Blocks {
    /// The address behind the last instruction, and the state there; `None` if nobody knows.
    last: Option<(u64, Option<ItState>)>,
    /// The last instruction was a branch.
    branches: bool,
}

impl Blocks {
    /// Execution came here in another way: an exception, or a gap.
    pub fn lose(&mut self) {
        *self = Self::default();
    }

    /// The state before an instruction; `None` if it may be in an unknown block.
    pub fn before(&self, history: &History, view: View, address: Address) -> Option<ItState> {
        match self.last {
            Some((end, state)) if end == address.0 && state.is_some() => state,
            Some((end, _)) if end != address.0 && self.branches => Some(ItState::OUTSIDE),
            _ => is_apart(history, view, address).then_some(ItState::OUTSIDE),
        }
    }

    /// Passes an instruction, in the state that was found before it.
    pub fn pass(&mut self, template: &Template, code: &[u8], state: Option<ItState>) {
        let state = match (template.isa, half(code), state) {
            (Isa::T32, Some(first), Some(state)) => Some(state.next(first)),
            (Isa::T32, ..) => None,
            _ => Some(ItState::OUTSIDE),
        };
        self.last = Some((template.end(), state));
        self.branches = matches!(
            template.control,
            Control::Jump(_) | Control::Conditional { .. } | Control::Indirect { .. }
        ) && !template.opaque;
    }
}

/// Whether no IT instruction lies before an address so near that its block may reach it.
fn is_apart(history: &History, view: View, address: Address) -> bool {
    (2..=LONGEST).step_by(2).all(|back| {
        let code = history.code(view, Address(address.0.wrapping_sub(back)));
        // IT with a mask that is not 0 (DDI 0487, F5.1.57).
        !half(code).is_some_and(|half| half & 0xff00 == 0xbf00 && half & 15 != 0)
    })
}
