//! Architectures on the command line.

use armsnap::arch::Architecture;
use clap::ValueEnum;

/// The architecture, which determines the register set of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arch {
    /// ARMv8-A and later in AArch64 state
    Aarch64,
    /// A- and R-profile in AArch32 state
    Arm,
    /// Cortex-M
    MProfile,
}

impl Arch {
    /// Converts to the library's type.
    pub const fn architecture(self) -> Architecture {
        match self {
            Self::Aarch64 => Architecture::AArch64,
            Self::Arm => Architecture::AArch32,
            Self::MProfile => Architecture::MProfile,
        }
    }

    /// Returns the value on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aarch64 => "aarch64",
            Self::Arm => "arm",
            Self::MProfile => "m-profile",
        }
    }
}
