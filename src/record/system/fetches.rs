//! Where a core with TrustZone-M executed secure code, and where non-secure code.
//!
//! A core executes secure memory in secure state and other memory in non-secure state (Armv8-M ARM DDI 0553,
//! B3.13). The emulator logs the security of code before it is executed for the first time.

use std::collections::BTreeMap;

/// Maximum number of bytes that the emulator looks up at once.
const PAGE: u64 = 1 << 10;
/// The size of the regions of memory that are secure or not (SAU_RBAR).
const GRANULE: u64 = 1 << 5;

/// The instruction fetches that the emulator logged.
#[derive(Debug, Default)]
pub struct Fetches(BTreeMap<u64, bool>);

impl Fetches {
    /// Notes that code was executed at an address, secure or not.
    pub fn note(&mut self, address: u64, secure: bool) {
        self.0.insert(address & !(GRANULE - 1), secure);
    }

    /// Returns whether the code at an address is secure; `None` if nothing was executed near it.
    pub fn is_secure(&self, address: u64) -> Option<bool> {
        let (granule, page) = (address & !(GRANULE - 1), address & !(PAGE - 1));
        let near = || {
            self.0
                .range(page..=page | (PAGE - 1))
                .next()
                .map(|(_, secure)| secure)
        };
        self.0.get(&granule).or_else(near).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_fetch_decides() {
        let mut fetches = Fetches::default();
        assert_eq!(fetches.is_secure(0x1000), None);
        fetches.note(0x1010, true);
        assert_eq!(fetches.is_secure(0x1000), Some(true));
        assert_eq!(fetches.is_secure(0x13fe), Some(true));
        assert_eq!(fetches.is_secure(0x1400), None);
        fetches.note(0x1024, false);
        assert_eq!(fetches.is_secure(0x103e), Some(false));
        assert_eq!(fetches.is_secure(0x101e), Some(true));
        fetches.note(0x1000, false);
        assert_eq!(fetches.is_secure(0x101e), Some(false));
        assert_eq!(fetches.is_secure(u64::MAX), None);
    }
}
