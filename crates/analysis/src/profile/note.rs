//! Notes on a profile.

use std::fmt;

/// What a profile lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// Execution does not reach the start of the selected part: nothing was counted.
    Unreached,
    /// There are too many chains of callers: calls beyond the limit count for their caller.
    ManyChains {
        /// The maximum number of chains that are kept apart.
        limit: usize,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreached => {
                f.write_str("execution does not reach the start of the selected part")
            }
            Self::ManyChains { limit } => write!(
                f,
                "more than {limit} chains of callers: what is called beyond them counts for its \
                 caller"
            ),
        }
    }
}
