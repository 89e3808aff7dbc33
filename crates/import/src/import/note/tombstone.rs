//! Notes on tombstones of Android.

use armsnap_snapshot::text;

/// A note on a tombstone of Android.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TombstoneNote {
    /// What the program said when it aborted.
    #[error("the program says: {0}")]
    Abort(String),
    /// What Android says of the cause.
    #[error("Android says: {0}")]
    Cause(String),
    /// The file ends early, or is damaged.
    #[error("the tombstone is cut or damaged at byte {at}: the rest is left out")]
    Cut {
        /// The offset in the file.
        at: usize,
    },
    /// The log has another tombstone.
    #[error("the log has another tombstone after the first: cut it there to read it")]
    More,
    /// There is no memory map.
    #[error(
        "the tombstone has no memory map: only modules in which a thread stopped are found by their frames"
    )]
    NoMap,
    /// There are too many threads and parts of memory.
    #[error(
        "the tombstone has {} and {} of memory: the threads after the first {used} are left out",
        text::count(*.threads as u64, "thread"),
        text::count(*.parts as u64, "part")
    )]
    ManyThreads {
        /// The number of threads.
        threads: usize,
        /// The number of parts of memory.
        parts: usize,
        /// The number of threads that are used.
        used: usize,
    },
}
