//! The watchpoints of a client.

use std::collections::BTreeSet;

/// Maximum number of watchpoints per client.
const MOST: usize = 1 << 10;

/// The accesses that a watchpoint watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// `Z2`.
    Write,
    /// `Z3`.
    Read,
    /// `Z4`.
    Access,
}

/// The watchpoints set now.
#[derive(Default)]
pub(super) struct Watchpoints {
    /// Address, length and kind.
    pub set: BTreeSet<(u64, u64, Kind)>,
}

impl Watchpoints {
    /// Sets a watchpoint. Returns `false` if it has no addresses, or too many, or if there are too
    /// many watchpoints.
    pub fn add(&mut self, address: u64, length: u64, kind: Kind) -> bool {
        let last = length.checked_sub(1);
        let last = last.and_then(|last| address.checked_add(last));
        let fits = last.is_some() && self.set.len() < MOST;
        if fits {
            self.set.insert((address, length, kind));
        }
        fits
    }

    /// Removes a watchpoint, if it is set.
    pub fn remove(&mut self, address: u64, length: u64, kind: Kind) {
        self.set.remove(&(address, length, kind));
    }

    /// Returns whether no watchpoint is set.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchpoints_are_set_and_removed() {
        let mut all = Watchpoints::default();
        assert!(all.is_empty());
        assert!(all.add(0x1000, 4, Kind::Write));
        assert!(all.add(0x1000, 4, Kind::Read));
        assert!(all.add(0x3000, 1, Kind::Access));
        all.remove(0x1000, 4, Kind::Write);
        all.remove(0x3000, 1, Kind::Write);
        let set: Vec<_> = all.set.iter().copied().collect();
        assert_eq!(set, [(0x1000, 4, Kind::Read), (0x3000, 1, Kind::Access)]);
    }

    #[test]
    fn watchpoints_have_addresses() {
        let mut all = Watchpoints::default();
        assert!(!all.add(0x1000, 0, Kind::Write));
        assert!(!all.add(u64::MAX, 2, Kind::Write));
        assert!(all.is_empty());
        assert!(all.add(u64::MAX, 1, Kind::Write));
    }
}
