//! Past registers and memory, computed from the final state and the executed instructions.
//!
//! Every value has a [`Status`]: *proved* (follows from checked facts), *inferred* (also from the
//! calling convention and from rules on where stores go), or unknown. Unknown values are absent.
//! `docs/recovery.md` describes what is proved, and `docs/recovery-limits.md` what ends proof.
//! Independent of any debugger.

mod address_space;
mod apart;
mod barriers;
mod bits;
mod blocks;
mod bounds;
mod build;
mod cells;
mod connections;
mod constants;
mod course;
mod executed;
mod final_state;
mod graph;
mod kept_frames;
mod kernel;
mod lifetimes;
mod may_write;
mod order;
mod origin;
mod queries;
mod recorded;
mod recovery;
mod refine;
mod regions;
mod signals;
mod sites;
mod solver;
mod stack_walk;
mod status;
mod system_calls;
mod template;
mod walk;
mod window;
mod writes;

#[cfg(test)]
mod tests;

pub use constants::Constants;
pub use final_state::{FinalMemory, FinalState, Others, RecordedAddresses, SnapshotMemory};
pub use origin::{Cause, End, Link, Way, What};
pub use recovery::{Options, Recovery};
pub use status::{Known, Level, Limit, Registers, Status};
pub use writes::{Accesses, Hit, MayHave, Wanted};
