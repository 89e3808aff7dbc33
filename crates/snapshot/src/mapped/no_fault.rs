//! Windows refuses to truncate a mapped file: there is nothing to watch.

use std::ops::Range;

/// Stands for a watched mapping.
#[derive(Debug)]
pub(super) struct Watch;

impl Watch {
    /// Does nothing.
    ///
    /// # Safety
    ///
    /// The same as on Unix, where the range is replaced with zeros.
    #[allow(unsafe_code)]
    pub const unsafe fn new(_: Range<usize>) -> Self {
        Self
    }

    /// Returns the mark of this mapping.
    #[allow(clippy::unused_self, reason = "as on Unix")]
    pub const fn mark(&self) -> Mark {
        Mark
    }
}

/// Stands for the mark of a watched mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark;

impl Mark {
    /// Returns `false`.
    #[allow(clippy::unused_self, reason = "as on Unix")]
    pub const fn is_cut(self) -> bool {
        false
    }
}

/// Returns `false`.
pub(super) const fn any_cut() -> bool {
    false
}
