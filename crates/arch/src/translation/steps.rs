//! The steps of a translation, and the reasons for faults.

use super::World;
use std::fmt;

/// A step of a translation: a descriptor that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The stage of translation.
    pub stage: u8,
    /// The level of its table.
    pub level: i8,
    /// Its address: physical, or intermediate physical if stage 2 follows this stage 1.
    pub address: u64,
    /// The physical address space of its table.
    pub world: World,
    /// Its value.
    pub value: u64,
    /// The address in it, if it is valid.
    pub output: Option<u64>,
    /// The number of address bits within the block or page, if it is one.
    pub shift: Option<u32>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stage,
            level,
            address,
            world,
            value,
            output,
            shift,
        } = self;
        let secure = match world {
            World::Secure => " (secure)",
            World::NonSecure => "",
        };
        write!(
            f,
            "stage {stage} level {level}: {address:#x}{secure} holds {value:#x}: "
        )?;
        match (output, shift) {
            (Some(output), Some(shift)) => {
                write!(f, "{} at {output:#x}", size(1_u128 << shift))
            }
            (Some(output), None) => write!(f, "table at {output:#x}"),
            (None, _) => f.write_str("not valid"),
        }
    }
}

/// Formats a size in the largest binary unit that divides it.
pub fn size(bytes: u128) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = units
        .iter()
        .find(|(shift, _)| bytes >> shift != 0 && bytes.is_multiple_of(1 << shift));
    match fits {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

/// Why an address has no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The stage of translation.
    pub stage: u8,
    /// All addresses that differ only in this number of low bits have the same fault.
    pub shift: u32,
    /// The reason.
    pub reason: FaultReason,
}

/// The reason why an address has no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultReason {
    /// The upper bits of the address belong to no range of tables.
    Range {
        /// The number of bits that are translated.
        bits: u32,
    },
    /// Walks of the tables of this range are disabled (EPD0, EPD1, PD0, PD1).
    Disabled,
    /// The table of this range is not known, or its registers contradict the architecture.
    Unknown,
    /// A descriptor is not valid.
    Invalid {
        /// The level of its table.
        level: i8,
        /// Its address.
        address: u64,
        /// Its value.
        value: u64,
    },
    /// A descriptor is outside the memory in the snapshot.
    Missing {
        /// Its address.
        address: u64,
        /// The physical address space.
        world: World,
    },
    /// An address has more bits than a physical address.
    Size {
        /// That address.
        address: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no translation: ")?;
        let stage = self.stage;
        match self.reason {
            FaultReason::Range { bits } => {
                write!(
                    f,
                    "the upper bits select no table: {bits} bits are translated"
                )
            }
            FaultReason::Disabled => f.write_str("walks of this table are disabled"),
            FaultReason::Unknown => f.write_str("the table of this range is not known"),
            FaultReason::Invalid { level, address, .. } => write!(
                f,
                "the descriptor of stage {stage}, level {level} at {address:#x} is not valid"
            ),
            FaultReason::Missing { address, world } => write!(
                f,
                "the descriptor of stage {stage} at {address:#x} ({world}) is not in the memory \
                 of the snapshot"
            ),
            FaultReason::Size { address } => write!(
                f,
                "stage {stage}: {address:#x} has more bits than the output addresses"
            ),
        }
    }
}
