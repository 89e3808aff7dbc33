//! Address translation: virtual to physical addresses, by means of a core's translation tables.
//!
//! ARMv8-A stage 1 and stage 2 (Arm ARM DDI 0487, D8), ARMv7-A short and long descriptors (Arm ARM
//! DDI 0406, B3), and identity where translation is off or the core has an MPU. Whether an address
//! is mapped is checked; permissions and the access flag are not.
//!
//! Nothing in a table is trusted: a walk reads at most one descriptor for each level of its tables,
//! and ends at a table that is outside the known memory. Independent of files and debuggers.

mod aarch32;
mod aarch64;
mod attributes;
mod long;
mod maps;
mod no_regime;
mod note;
mod regime;
mod registers;
mod short;
mod steps;
#[cfg(test)]
mod tests;

pub use attributes::Attributes;
pub use maps::{MappedRange, Maps};
pub use no_regime::NoRegime;
pub use note::RegimeNote;
pub use regime::{KernelForm, KernelTables, Mapping, Regime};
pub use registers::Regimes;
pub use steps::{Fault, FaultReason, Step, size};

use std::fmt;

/// A physical address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum World {
    /// Non-secure.
    #[default]
    NonSecure,
    /// Secure.
    Secure,
}

impl World {
    const fn of(secure: bool) -> Self {
        if secure {
            Self::Secure
        } else {
            Self::NonSecure
        }
    }

    /// The world of an output address: a descriptor in the secure world may select non-secure
    /// memory.
    const fn leave(self, non_secure: bool) -> Self {
        if non_secure { Self::NonSecure } else { self }
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NonSecure => "non-secure",
            Self::Secure => "secure",
        })
    }
}

/// Physical memory, which contains the tables.
pub trait PhysicalMemory {
    /// Reads all of `out`; returns whether it is known.
    fn read(&self, address: u64, world: World, out: &mut [u8]) -> bool;
}

impl<M: PhysicalMemory + ?Sized> PhysicalMemory for &M {
    fn read(&self, address: u64, world: World, out: &mut [u8]) -> bool {
        (**self).read(address, world, out)
    }
}

/// The lowest `count` bits.
const fn low_bits(count: u32) -> u64 {
    if count >= 64 {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

/// A field of a register or a descriptor: `count` bits from `first`.
const fn field(value: u64, first: u32, count: u32) -> u64 {
    value >> first & low_bits(count)
}

/// A bit of a register or a descriptor.
const fn bit(value: u64, number: u32) -> bool {
    value >> number & 1 != 0
}
