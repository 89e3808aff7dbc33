//! Past registers and memory, computed from the final state and the executed instructions.
//!
//! Every value has a [`Status`]: *proved* (follows from checked facts), *inferred* (also from the
//! calling convention and from rules on where stores go), or unknown. Unknown values are absent.
//! `docs/recovery.md` describes what is proved, and `docs/recovery-limits.md` what ends proof.
//! Independent of any debugger.

mod apart;
mod bits;
mod executed;
mod execution;
mod facts;
mod graph;
mod kernel;
mod memory;
mod queries;
mod recovery;
mod solver;
mod status;
mod window;

#[cfg(test)]
mod tests;

pub use facts::constants::Constants;
pub use facts::final_state::{FinalMemory, FinalState, Others, RecordedAddresses, SnapshotMemory};
pub use queries::origin::{Cause, End, Link, Way, What};
pub use queries::writes::{Accesses, Hit, MayHave, Wanted};
pub use recovery::{Options, Recovery};
pub use status::{Known, Level, Limit, Registers, Status};
