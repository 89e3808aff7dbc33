//! IT blocks of T32 among the executed instructions.
//!
//! A branch never goes into a block; the return from an exception may. If it is not known how
//! execution reached an instruction, the code before it shows whether it may be in a block.

use super::template::{Template, half};
use crate::timeline::History;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_arch::semantics::Control;
use armsnap_arch::semantics::t32::ItState;
use armsnap_trace::flow::View;

/// The most bytes that a block takes after its IT instruction: four instructions.
const LONGEST: u64 = 16;

/// The state after the instructions passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::recover) struct Blocks {
    /// The address after the last instruction, and the state there; `None` if unknown.
    last: Option<(u64, Option<ItState>)>,
    /// Whether the last instruction was a branch.
    branches: bool,
}

impl Blocks {
    /// The state after a branch, wherever it led.
    pub fn after_branch() -> Self {
        Self {
            last: Some((u64::MAX, None)),
            branches: true,
        }
    }

    /// Forgets the state: execution came here by an exception or across a gap.
    pub fn lose(&mut self) {
        *self = Self::default();
    }

    /// The address that an exception interrupts, and the state there, if both are known. `to` is where
    /// the exception returns to according to the trace.
    pub fn interrupted(&self, to: Option<u64>) -> Option<(u64, ItState)> {
        let (end, state) = self.last?;
        match to {
            Some(to) if to != end => self.branches.then_some((to, ItState::OUTSIDE)),
            None if self.branches => None,
            _ => Some((end, state?)),
        }
    }

    /// The state where an exception returns to, if it is known.
    pub fn resumed(interrupted: Option<(u64, ItState)>) -> Self {
        Self {
            last: interrupted.map(|(address, state)| (address, Some(state))),
            branches: false,
        }
    }

    /// The state before an instruction; `None` if it may be in an unknown block.
    pub fn before(&self, history: &History, view: View, address: Address) -> Option<ItState> {
        match self.last {
            Some((end, state)) if end == address.0 && state.is_some() => state,
            Some((end, _)) if end != address.0 && self.branches => Some(ItState::OUTSIDE),
            _ => is_apart(history, view, address).then_some(ItState::OUTSIDE),
        }
    }

    /// Passes an instruction, given the state found before it.
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

/// Whether no IT instruction is so near before an address that its block may reach it.
fn is_apart(history: &History, view: View, address: Address) -> bool {
    (2..=LONGEST).step_by(2).all(|back| {
        let code = history.code(view, Address(address.0.wrapping_sub(back)));
        // IT with a mask that is not 0 (DDI 0487, F5.1.57).
        !half(code).is_some_and(|half| half & 0xff00 == 0xbf00 && half & 15 != 0)
    })
}
