//! What the rules for calls ask of the code.

use armsnap_arch::quantity::Address;
use armsnap_snapshot::program::symbols::Symbols;
use std::ops::Range;

/// What the code says about calls.
pub trait Code {
    /// Returns the extent of the symbol that contains an address.
    fn symbol(&self, address: Address) -> Option<Range<u64>>;
}

impl Code for Symbols {
    fn symbol(&self, address: Address) -> Option<Range<u64>> {
        self.extent(address.0)
    }
}
