//! Past registers and memory, computed from the final state and the executed instructions.
//!
//! Every value has a [`Status`]: *proved* (follows from checked facts), *inferred* (also from the
//! calling convention and from rules on where stores go), or unknown. Unknown values are absent.
//! `docs/recovery.md` describes what is proved, and `docs/recovery-limits.md` what ends proof.
//! Independent of any debugger.
//!
//! A [`Recovery`] explores the history backward in a window, whose steps pass through three phases:
//! they are built into nodes and relations; what follows from them is proved; and the rest is
//! inferred on top of what is proved. Each part imports only from those above it:
//!
//! | part | what it is for |
//! | --- | --- |
//! | `bits`, `status` | partly known values, how well a value is known |
//! | `facts` | final registers and memory, recorded addresses, where registers are |
//! | `kernel` | what Linux does in system calls and for signals |
//! | `execution` | the executed steps, and the operations of their instructions |
//! | `graph` | steps → nodes and relations; walks that do this again |
//! | `memory` | words over time: accesses, barriers, regions, the lifetimes of stack slots |
//! | `solver` | what was built, and both layers: `Solver<Proof>` and `Solver<Inference>` |
//! | `queries` | values, accesses, origins and executed code at the steps of a solved window |
//! | `phase`, `window` | the phases of a window, and how it grows |
//! | `apart` | a window for positions that memory does not suffice to reach from the end |
//! | `replay` | execution again from the start of a recording, with its inputs |
//! | `replayed` | where values of replayed history came from, at any distance |
//! | `recovery`, `code` | the entry point |

mod apart;
mod bits;
mod code;
mod execution;
mod facts;
mod graph;
mod kernel;
mod memory;
mod phase;
mod queries;
mod recovery;
mod replay;
mod replayed;
mod solver;
mod status;
mod window;

#[cfg(test)]
mod tests;

pub use facts::constants::Constants;
pub use facts::final_state::{FinalMemory, FinalState, Others, RecordedAddresses, SnapshotMemory};
pub use facts::microcontroller::{Microcontroller, Reset};
pub use facts::register_locations::RegisterLocations;
pub use kernel::outputs::{BufferSize, KernelBuffer};
pub use kernel::system_calls::kernel_buffers;
pub use queries::origin::{Cause, Contribution, End, Way, What};
pub use queries::writes::{Accesses, Hit, MayHave, Wanted};
pub use recovery::{Options, Recovery};
pub use status::{Known, Level, Limit, Registers, Status};
