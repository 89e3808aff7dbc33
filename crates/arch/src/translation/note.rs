//! Notes on translation regimes.

use std::fmt;

/// What the registers say about a regime, or what was assumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegimeNote {
    /// The core has an MPU: every address is physical.
    Mpu,
    /// Stage 2 is an MPU.
    Stage2Mpu,
    /// The table of high addresses is known from the kernel, not from a register.
    KernelTable,
    /// A table was chosen by the user.
    ChosenTable {
        /// Whether it is the table of high addresses.
        of_high: bool,
        /// The value of the register that would hold it.
        base: u64,
    },
    /// A field switches stage 2 on.
    Stage2On {
        /// The register.
        register: &'static str,
        /// The field, which is 1.
        field: &'static str,
    },
    /// The field M of a system control register is 0: stage 1 is off.
    Stage1Off {
        /// The register.
        register: &'static str,
    },
    /// A field of a register of the hypervisor switches stage 1 off.
    Stage1Replaced {
        /// The register.
        register: &'static str,
        /// The field, which is 1.
        field: &'static str,
    },
    /// A register is not known; translation is assumed to be on.
    AssumedOn {
        /// The register.
        register: &'static str,
    },
    /// HCR_EL2 is not known; no stage 2 is assumed.
    NoStage2,
    /// The kind of descriptors that TTBCR selects.
    Descriptors {
        /// The value of TTBCR.
        ttbcr: u64,
        /// Whether they are long.
        long: bool,
    },
    /// The value of a register with a table.
    Table {
        /// The register.
        register: &'static str,
        /// Its value.
        value: u64,
    },
    /// The registers of Hyp mode.
    Hyp {
        /// The value of HTTBR.
        httbr: u64,
        /// The value of HTCR.
        htcr: u64,
    },
    /// A range of addresses of an AArch64 regime.
    Range {
        /// The register with its table.
        register: &'static str,
        /// The register's value, if it is known.
        value: Option<u64>,
        /// The number of address bits that are translated.
        bits: u64,
        /// The page size in bytes; `None` for a reserved one.
        page: Option<u64>,
        /// Whether walks are disabled.
        disabled: bool,
    },
}

impl fmt::Display for RegimeNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Mpu => f.write_str("the core has an MPU: every address is physical"),
            Self::Stage2Mpu => f.write_str("stage 2 is an MPU, which changes no address"),
            Self::KernelTable => f.write_str(
                "the table of high addresses comes from the kernel, not from a register",
            ),
            Self::ChosenTable { of_high, base } => {
                let which = if of_high { "high" } else { "low" };
                write!(f, "the table of {which} addresses was chosen: {base:#x}")
            }
            Self::Stage2On { register, field } => {
                write!(f, "{register}.{field} = 1: stage 2 is on")
            }
            Self::Stage1Off { register } => write!(f, "{register}.M = 0: stage 1 is off"),
            Self::Stage1Replaced { register, field } => {
                write!(f, "{register}.{field} = 1: stage 1 is off")
            }
            Self::AssumedOn { register } => write!(
                f,
                "{register} is not in the snapshot: translation is assumed to be on"
            ),
            Self::NoStage2 => f.write_str("HCR_EL2 is not in the snapshot: no stage 2 is assumed"),
            Self::Descriptors { ttbcr, long } => {
                let form = if long { "long" } else { "short" };
                write!(f, "TTBCR is {ttbcr:#x}: {form} descriptors")
            }
            Self::Table { register, value } => write!(f, "{register} is {value:#x}"),
            Self::Hyp { httbr, htcr } => write!(f, "HTTBR is {httbr:#x}, HTCR is {htcr:#x}"),
            Self::Range {
                register,
                value,
                bits,
                page,
                disabled,
            } => {
                let value = match value {
                    Some(value) => format!("{value:#x}"),
                    None => "not in the snapshot".to_owned(),
                };
                let pages = match page {
                    Some(page) => format!("{} KiB pages", page >> 10),
                    None => "a reserved size of pages".to_owned(),
                };
                let disabled = if disabled { ", walks are disabled" } else { "" };
                write!(f, "{register} is {value}: {bits} bits, {pages}{disabled}")
            }
        }
    }
}
