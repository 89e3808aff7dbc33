//! Notes on translation regimes.

/// What the registers say about a regime, or what was assumed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegimeNote {
    /// The core has an MPU.
    #[error("the core has an MPU: every address is physical")]
    Mpu,
    /// Stage 2 is an MPU.
    #[error("stage 2 is an MPU, which changes no address")]
    Stage2Mpu,
    /// The table of high addresses is known from the kernel, not from a register.
    #[error("the table of high addresses comes from the kernel, not from a register")]
    KernelTable,
    /// A table was chosen by the user.
    #[error(
        "the table of {} addresses was chosen: {base:#x}",
        if *.of_high { "high" } else { "low" }
    )]
    ChosenTable {
        /// Whether it is the table of high addresses.
        of_high: bool,
        /// The value of the register that would hold it.
        base: u64,
    },
    /// A field switches stage 2 on.
    #[error("{register}.{field} = 1: stage 2 is on")]
    Stage2On {
        /// The register.
        register: &'static str,
        /// The field, which is 1.
        field: &'static str,
    },
    /// The field M of a system control register is 0.
    #[error("{register}.M = 0: stage 1 is off")]
    Stage1Off {
        /// The register.
        register: &'static str,
    },
    /// A field of a register of the hypervisor switches stage 1 off.
    #[error("{register}.{field} = 1: stage 1 is off")]
    Stage1Replaced {
        /// The register.
        register: &'static str,
        /// The field, which is 1.
        field: &'static str,
    },
    /// A register is not known.
    #[error("{register} is not in the snapshot: translation is assumed to be on")]
    AssumedOn {
        /// The register.
        register: &'static str,
    },
    /// HCR_EL2 is not known.
    #[error("HCR_EL2 is not in the snapshot: no stage 2 is assumed")]
    NoStage2,
    /// The kind of descriptors that TTBCR selects.
    #[error("TTBCR is {ttbcr:#x}: {} descriptors", if *.long { "long" } else { "short" })]
    Descriptors {
        /// The value of TTBCR.
        ttbcr: u64,
        /// Whether they are long.
        long: bool,
    },
    /// The value of a register with a table.
    #[error("{register} is {value:#x}")]
    Table {
        /// The register.
        register: &'static str,
        /// Its value.
        value: u64,
    },
    /// The registers of Hyp mode.
    #[error("HTTBR is {httbr:#x}, HTCR is {htcr:#x}")]
    Hyp {
        /// The value of HTTBR.
        httbr: u64,
        /// The value of HTCR.
        htcr: u64,
    },
    /// A range of addresses of an AArch64 regime.
    #[error(
        "{register} is {}: {bits} bits, {}{}",
        known(*.value),
        pages(*.page),
        if *.disabled { ", walks are disabled" } else { "" }
    )]
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

/// The value of a register, if it is known.
fn known(value: Option<u64>) -> String {
    match value {
        Some(value) => format!("{value:#x}"),
        None => "not in the snapshot".to_owned(),
    }
}

/// The size of pages in bytes; `None` is a reserved one.
fn pages(size: Option<u64>) -> String {
    match size {
        Some(size) => format!("{} KiB pages", size >> 10),
        None => "a reserved size of pages".to_owned(),
    }
}
