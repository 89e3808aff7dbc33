//! The breakpoints of a client.

use std::collections::BTreeSet;

/// Maximum number of breakpoints per client.
const MOST: usize = 1 << 16;

/// A kind of breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `Z0`.
    Software,
    /// `Z1`.
    Hardware,
}

/// The breakpoints set now. They apply to all cores.
#[derive(Debug, Default)]
pub struct Breakpoints(BTreeSet<(u64, Kind)>);

impl Breakpoints {
    /// Sets a breakpoint. Returns `false` if there are too many.
    pub fn add(&mut self, address: u64, kind: Kind) -> bool {
        let fits = self.0.len() < MOST;
        if fits {
            self.0.insert((address, kind));
        }
        fits
    }

    /// Removes a breakpoint, if it is set.
    pub fn remove(&mut self, address: u64, kind: Kind) {
        self.0.remove(&(address, kind));
    }

    /// Returns the kind of the breakpoint at an address.
    pub fn at(&self, address: u64) -> Option<Kind> {
        let mut kinds = self
            .0
            .range((address, Kind::Software)..=(address, Kind::Hardware));
        kinds.next().map(|(_, kind)| *kind)
    }

    /// Returns all addresses with a breakpoint.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|(address, _)| *address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_independent() {
        let mut all = Breakpoints::default();
        assert!(all.add(0x1000, Kind::Software));
        assert!(all.add(0x1000, Kind::Hardware));
        assert!(all.add(0x2000, Kind::Hardware));
        assert_eq!(all.at(0x1000), Some(Kind::Software));
        assert_eq!(all.at(0x2000), Some(Kind::Hardware));
        assert_eq!(all.at(0x1fff), None);
        all.remove(0x1000, Kind::Software);
        assert_eq!(all.at(0x1000), Some(Kind::Hardware));
        assert_eq!(all.addresses().collect::<Vec<_>>(), [0x1000, 0x2000]);
    }

    #[test]
    fn their_number_is_limited() {
        let mut all = Breakpoints::default();
        for address in 0..MOST as u64 {
            assert!(all.add(address, Kind::Software));
        }
        assert!(!all.add(u64::MAX, Kind::Software));
        all.remove(0, Kind::Software);
        assert!(all.add(u64::MAX, Kind::Software));
    }
}
