//! The address spaces in which a core can see memory (Debug and Trace Snapshot File Format 0.2,
//! section 3.2.3).

use crate::quantity::{ExceptionLevel, Security};
use std::fmt;

/// An address space: one of the format (3.2.3), or one that other readers of snapshots know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    /// `ANY`, the default.
    #[default]
    Any,
    /// `N`: non-secure.
    N,
    /// `S`: secure.
    S,
    /// `H`: hypervisor.
    H,
    /// `EL1N`: non-secure EL1 and EL0.
    El1N,
    /// `EL1S`: secure EL1 and EL0.
    El1S,
    /// `EL2`.
    El2,
    /// `EL3`.
    El3,
    /// `P`: physical.
    P,
    /// `SP`: secure physical.
    Sp,
    /// `NP`: non-secure physical.
    Np,
    /// `EL1R`: Realm EL1 and EL0.
    El1R,
    /// `EL2S`: secure EL2.
    El2S,
    /// `EL2N`: non-secure EL2.
    El2N,
    /// `EL2R`: Realm EL2.
    El2R,
    /// `ROOT`: EL3 of a core with the Realm Management Extension.
    Root,
    /// `R`: Realm.
    R,
}

impl Space {
    /// All spaces.
    pub const ALL: [Self; 17] = [
        Self::Any,
        Self::N,
        Self::S,
        Self::H,
        Self::El1N,
        Self::El1S,
        Self::El2,
        Self::El3,
        Self::P,
        Self::Sp,
        Self::Np,
        Self::El1R,
        Self::El2S,
        Self::El2N,
        Self::El2R,
        Self::Root,
        Self::R,
    ];

    /// The name in a snapshot.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "ANY",
            Self::N => "N",
            Self::S => "S",
            Self::H => "H",
            Self::El1N => "EL1N",
            Self::El1S => "EL1S",
            Self::El2 => "EL2",
            Self::El3 => "EL3",
            Self::P => "P",
            Self::Sp => "SP",
            Self::Np => "NP",
            Self::El1R => "EL1R",
            Self::El2S => "EL2S",
            Self::El2N => "EL2N",
            Self::El2R => "EL2R",
            Self::Root => "ROOT",
            Self::R => "R",
        }
    }

    /// The space with a name, ignoring case; an empty name is [`Space::Any`].
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() {
            return Some(Self::Any);
        }
        let mut all = Self::ALL.into_iter();
        all.find(|space| space.name().eq_ignore_ascii_case(text))
    }

    /// The space from which a core fetches instructions. If its exception level is unknown, the space
    /// follows from its security state.
    pub const fn of(level: Option<ExceptionLevel>, security: Security) -> Self {
        match (security, level) {
            (Security::Root, _) => Self::Root,
            (Security::Secure | Security::NonSecure, Some(ExceptionLevel(3))) => Self::El3,
            (Security::Secure, Some(ExceptionLevel(2))) => Self::El2S,
            (Security::Secure, Some(_)) => Self::El1S,
            (Security::Secure, None) => Self::S,
            (Security::NonSecure, Some(ExceptionLevel(2))) => Self::El2N,
            (Security::NonSecure, Some(_)) => Self::El1N,
            (Security::NonSecure, None) => Self::N,
            (Security::Realm, Some(ExceptionLevel(3))) => Self::Root,
            (Security::Realm, Some(ExceptionLevel(2))) => Self::El2R,
            (Security::Realm, Some(_)) => Self::El1R,
            (Security::Realm, None) => Self::R,
        }
    }

    /// The translation regimes of the space, one bit each: EL1S, EL2S, EL3, EL1N, EL2N, EL1R, EL2R, root,
    /// secure physical, non-secure physical.
    const fn regimes(self) -> u16 {
        match self {
            Self::Any => 0x3FF,
            Self::El1S => 1,
            Self::El2S => 1 << 1,
            Self::El3 => 1 << 2,
            Self::S => 0b111,
            Self::El1N => 1 << 3,
            Self::H | Self::El2 | Self::El2N => 1 << 4,
            Self::N => 0b11 << 3,
            Self::El1R => 1 << 5,
            Self::El2R => 1 << 6,
            Self::R => 0b11 << 5,
            Self::Root => 1 << 7,
            Self::Sp => 1 << 8,
            Self::Np => 1 << 9,
            Self::P => 0b11 << 8,
        }
    }

    /// Returns whether `self` includes a translation regime that `other` does not.
    pub const fn sees_beyond(self, other: Self) -> bool {
        self.regimes() & !other.regimes() != 0
    }

    /// Returns whether memory dumped for `self` can be read in `wanted`.
    pub const fn serves(self, wanted: Self) -> bool {
        self.regimes() & wanted.regimes() != 0
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
