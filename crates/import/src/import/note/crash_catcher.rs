//! Notes on dumps of CrashCatcher.

/// A note on a dump of CrashCatcher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrashCatcherNote {
    /// A line of the log is not one of the dump.
    #[error("line {line}: no pairs of hexadecimal digits: the dump ends before it")]
    EndsAt {
        /// The line.
        line: usize,
    },
    /// The log has more dumps.
    #[error("the log has another dump after the first: cut it there to read it")]
    More,
    /// The stack of CrashCatcher overflowed.
    #[error("CrashCatcher says that its stack overflowed: what is after its stack may be wrong")]
    Overflowed,
    /// A region of memory is cut or damaged.
    #[error(
        "at byte {at:#x} of the dump: a region of memory is cut or damaged: the rest is left out"
    )]
    Cut {
        /// Its offset.
        at: usize,
    },
}
