//! The trace protocols.

use super::TraceArchitecture;
use crate::snapshot::model::Device;

/// A trace protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// ETM architecture 1 to 3.
    Etmv3,
    /// Program flow trace (PTM).
    Ptm,
    /// ETM architecture 4.
    Etmv4,
    /// Embedded trace extension.
    Ete,
    /// Instrumentation trace macrocell, with the DWT's packets.
    Itm,
    /// System trace macrocell.
    Stm,
}

impl Protocol {
    /// The protocols of program flow, decoded with the code of a core.
    pub const FOLLOWING: [Self; 4] = [Self::Etmv3, Self::Ptm, Self::Etmv4, Self::Ete];

    /// Returns the protocol of a trace source, determined by its ID registers, or else by its
    /// `type`. `None` if neither determines it.
    pub fn of(device: &Device) -> Option<Self> {
        TraceArchitecture::of(device).protocol()
    }

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etmv3 => "ETMv3",
            Self::Ptm => "PTM",
            Self::Etmv4 => "ETMv4",
            Self::Ete => "ETE",
            Self::Itm => "ITM",
            Self::Stm => "STM",
        }
    }

    /// Returns whether it traces program flow, which is decoded with the code of a core.
    pub const fn needs_core(self) -> bool {
        match self {
            Self::Etmv3 | Self::Ptm | Self::Etmv4 | Self::Ete => true,
            Self::Itm | Self::Stm => false,
        }
    }
}
