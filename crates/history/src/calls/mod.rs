//! Calls: which function called which, and which call a return ends.
//!
//! [`Transitions`] says how execution reached an instruction. [`decide`] says what that means for
//! the open calls: the rules of profiles, exports and listings of calls. A [`CallStack`] follows them
//! forward. [`OpenCalls`] has the open calls at any position of a history, for back traces: where the
//! rules infer a caller, it has none.

mod call_stack;
mod code;
mod open_calls;
mod rules;
mod suspended;
mod transitions;

pub use call_stack::{CallStack, Function, Open};
pub use code::Code;
pub use open_calls::{LandingPads, OpenCall, OpenCalls, Outside};
pub use rules::{Decision, Frame, MAX_OPEN, Place, Restorers, SEARCHED, Signal, decide, returning};
pub use suspended::Suspended;
pub use transitions::{How, Taken, Transition, Transitions};
