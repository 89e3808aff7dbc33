//! The properties of the traced core that its trace depends on.

pub use armsnap_arch::quantity::Profile;

/// The profile and the version of the architecture of a traced core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Core {
    /// Its profile.
    pub profile: Profile,
    /// The version of its architecture: 7 for Armv7 and earlier, 8 for Armv8, 9 for Armv9.
    pub version: u8,
}

impl Core {
    /// An M-profile core with this version of its architecture.
    pub const fn microcontroller(version: u8) -> Self {
        Self {
            profile: Profile::M,
            version,
        }
    }

    /// Returns whether it has the M-profile.
    pub const fn is_microcontroller(self) -> bool {
        matches!(self.profile, Profile::M)
    }
}

impl Default for Core {
    /// An Armv8-A core.
    fn default() -> Self {
        Self {
            profile: Profile::A,
            version: 8,
        }
    }
}
