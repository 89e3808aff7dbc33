//! Notes on Tarmac traces.

use armsnap_snapshot::text;

/// A note on a Tarmac trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TarmacNote {
    /// What was read.
    #[error(
        "the trace has {} of {}: the snapshot is the state before the last one",
        text::count(*.instructions + 1, "instruction"),
        text::count(*.cores as u64, "core")
    )]
    Read {
        /// The number of executed instructions, without the last one.
        instructions: u64,
        /// The number of cores.
        cores: usize,
    },
    /// Code was changed.
    #[error(
        "code was changed after it was executed: where it was executed before, the last code is shown"
    )]
    ChangedCode,
    /// Others wrote memory.
    #[error(
        "loads returned what no store in the trace wrote: devices or others write the memory, and no past value is inferred from it"
    )]
    OtherWriters,
    /// Lines are left out.
    #[error("{} of the trace left out: they are of no known form, or of too many cores", text::count(*.lines, "line"))]
    Unread {
        /// Their number.
        lines: u64,
    },
    /// Parts of memory are left out.
    #[error("{} of the memory left out: there are more than is in proportion", text::count(*.parts as u64, "part"))]
    MoreMemory {
        /// Their number.
        parts: usize,
    },
}
