//! Follows a linked list that may be damaged.

use super::broken::What;
use std::collections::HashSet;

/// The maximum number of entries of all lists of a kernel together.
const MOST: usize = 4096;

/// What may still be followed.
#[derive(Debug)]
pub(super) struct Limit(usize);

impl Limit {
    /// The limit of a kernel.
    pub(super) fn new() -> Self {
        Self(MOST)
    }

    /// Follows a list from an entry to one that is `end`. `next` returns the entry after one, or the
    /// address that is not known. Returns the entries, and why there may be more.
    pub(super) fn follow(
        &mut self,
        first: u64,
        mut end: impl FnMut(u64) -> bool,
        mut next: impl FnMut(u64) -> Result<u64, u64>,
    ) -> (Vec<u64>, Option<What>) {
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        let mut entry = first;
        while !end(entry) {
            if !seen.insert(entry) {
                return (entries, Some(What::Loop(entry)));
            }
            let after = match next(entry) {
                Ok(after) => after,
                Err(address) => return (entries, Some(What::Unknown(address))),
            };
            if self.0 == 0 {
                return (entries, Some(What::TooLong(MOST)));
            }
            self.0 -= 1;
            entries.push(entry);
            entry = after;
        }
        (entries, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_lists_end() {
        let follow = |next: &dyn Fn(u64) -> Result<u64, u64>| {
            let (entries, why) = Limit::new().follow(1, |entry| entry == 0, next);
            (entries.len(), why)
        };
        assert_eq!(follow(&|entry| Ok((entry + 1) % 4)), (3, None));
        let to_the_second = |entry| Ok(if entry == 4 { 2 } else { entry + 1 });
        assert_eq!(follow(&to_the_second), (4, Some(What::Loop(2))));
        let wild = |entry| if entry == 3 { Err(7) } else { Ok(entry + 1) };
        assert_eq!(follow(&wild), (2, Some(What::Unknown(7))));
        assert_eq!(
            follow(&|entry| Ok(entry + 1)),
            (MOST, Some(What::TooLong(MOST)))
        );
    }

    #[test]
    fn all_lists_share_a_limit() {
        let mut limit = Limit::new();
        let mut follow = || {
            let (entries, why) = limit.follow(1, |entry| entry == 3000, |entry| Ok(entry + 1));
            (entries.len(), why.is_some())
        };
        assert_eq!(follow(), (2999, false));
        assert_eq!(follow(), (MOST - 2999, true));
        assert_eq!(follow(), (0, true));
    }
}
