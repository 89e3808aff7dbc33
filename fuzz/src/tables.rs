//! The registers that translation uses.

/// Their names.
pub const NAMES: [&str; 24] = [
    "SCTLR_EL1",
    "TCR_EL1",
    "TTBR0_EL1",
    "TTBR1_EL1",
    "SCTLR_EL2",
    "TCR_EL2",
    "TTBR0_EL2",
    "TTBR1_EL2",
    "HCR_EL2",
    "VTCR_EL2",
    "VTTBR_EL2",
    "VSTCR_EL2",
    "VSTTBR_EL2",
    "SCR_EL3",
    "SCTLR_EL3",
    "TCR_EL3",
    "TTBR0_EL3",
    "SCTLR",
    "TTBCR",
    "TTBR0",
    "TTBR1",
    "HCR",
    "VTCR",
    "VTTBR",
];
