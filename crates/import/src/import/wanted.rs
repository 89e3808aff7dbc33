//! Files that were mapped when an input was made.

use super::build_id::BuildId;
use std::fmt;

/// A file that was mapped.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wanted {
    /// Its recorded path, or a name such as `[vdso]`.
    pub path: String,
    /// Its build-id, if it was recorded.
    pub build_id: Option<BuildId>,
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.build_id {
            Some(id) => write!(f, "{} (build-id {id})", self.path),
            None => write!(f, "{} (no build-id recorded)", self.path),
        }
    }
}
