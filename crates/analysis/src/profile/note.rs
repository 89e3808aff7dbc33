//! Notes on a profile.

/// What a profile lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// Execution does not reach the start of the selected part.
    #[error("execution does not reach the start of the selected part")]
    Unreached,
    /// There are too many chains of callers.
    #[error(
        "more than {limit} chains of callers: what is called beyond them counts for its caller"
    )]
    ManyChains {
        /// The maximum number of chains that are kept apart.
        limit: usize,
    },
}
