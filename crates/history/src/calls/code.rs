//! What the rules for calls ask of the code.

use armsnap_arch::quantity::Address;
use armsnap_snapshot::program::landing_pads::LandingPads;
use armsnap_snapshot::program::symbols::Symbols;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// What the code says about calls.
pub trait Code {
    /// Returns the extent of the symbol that contains an address.
    fn symbol(&self, address: Address) -> Option<Range<u64>>;

    /// Returns where execution continues if the call that returns to an address throws.
    fn landing_pad(&self, returns_to: Address) -> Option<Address> {
        let _ = returns_to;
        None
    }

    /// Returns whether an address is a landing pad.
    fn lands(&self, address: Address) -> bool {
        let _ = address;
        false
    }
}

impl Code for Symbols {
    fn symbol(&self, address: Address) -> Option<Range<u64>> {
        self.extent(address.0)
    }
}

/// The code of programs, with where their functions continue when an exception passes through them.
#[derive(Clone, Default)]
pub struct ProgramCode {
    /// The functions.
    pub symbols: Arc<Symbols>,
    /// The landing pads.
    pub landing_pads: Arc<LandingPads>,
}

impl Code for ProgramCode {
    fn symbol(&self, address: Address) -> Option<Range<u64>> {
        self.symbols.symbol(address)
    }

    fn landing_pad(&self, returns_to: Address) -> Option<Address> {
        self.landing_pads.of_call(returns_to.0).map(Address)
    }

    fn lands(&self, address: Address) -> bool {
        self.landing_pads.contains(address.0)
    }
}

impl fmt::Debug for ProgramCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramCode").finish_non_exhaustive()
    }
}
