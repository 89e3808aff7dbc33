//! Quantities that all modules share, each with its own type.
//!
//! Independent of files, protocols and debuggers.

use std::fmt;

/// A virtual address of the traced core.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Address(pub u64);

impl Address {
    /// Returns the address `bytes` after this one. In AArch32, addresses wrap at 32 bits.
    #[inline]
    #[must_use]
    pub const fn after(self, bytes: u64, isa: Isa) -> Self {
        let address = self.0.wrapping_add(bytes);
        Self(match isa {
            Isa::A64 => address,
            Isa::A32 | Isa::T32 | Isa::ThumbEe | Isa::Jazelle => address & 0xffff_ffff,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The offset of a byte in a trace buffer, counted from the first byte of its first file.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct BufferOffset(pub u64);

/// A CoreSight trace ID: 7 bits (Arm CoreSight Architecture Specification, ATB).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct TraceId(pub u8);

/// An exception level, 0 to 3.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct ExceptionLevel(pub u8);

/// A profile of the Arm architecture.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Profile {
    /// Application.
    #[default]
    A,
    /// Real-time.
    R,
    /// Microcontroller.
    M,
}

/// An instruction set.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Isa {
    /// AArch64.
    A64,
    /// AArch32, Arm.
    #[default]
    A32,
    /// AArch32, Thumb.
    T32,
    /// ThumbEE: recognised, not followed.
    ThumbEe,
    /// Jazelle: recognised, not followed.
    Jazelle,
}

impl Isa {
    /// Returns the name used in listings. ThumbEE and Jazelle have the names that OpenCSD uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::A64 => "A64",
            Self::A32 => "A32",
            Self::T32 => "T32",
            Self::ThumbEe => "TEE",
            Self::Jazelle => "Jaz",
        }
    }
}

/// A security state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Security {
    /// Secure.
    Secure,
    /// Non-secure.
    NonSecure,
    /// Root (Realm Management Extension).
    Root,
    /// Realm (Realm Management Extension).
    Realm,
}

impl Security {
    /// Returns the name used in listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Secure => "secure",
            Self::NonSecure => "non-secure",
            Self::Root => "root",
            Self::Realm => "realm",
        }
    }
}
