//! Calls: which function called which, and which call a return ends.
//!
//! [`Transitions`] says how execution reached an instruction. [`decide`] says what that means for
//! the open calls: the rules of profiles, exports, listings of calls, and back traces of the past. A
//! [`CallStack`] follows them forward; [`OpenCalls`] has the open calls at any position of a history.

mod call_stack;
mod code;
mod open_calls;
mod rules;
mod transitions;

pub use call_stack::{CallStack, Function, Open};
pub use code::{Code, ProgramCode};
pub use open_calls::{OpenCall, OpenCalls, Outside};
pub use rules::{
    Decision, Frame, MAX_OPEN, MAX_SUSPENDED, Place, Restorers, SEARCHED, Signal, decide, returning,
};
pub use transitions::{How, Taken, Transition, Transitions};
