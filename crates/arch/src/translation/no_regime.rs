//! Why a space has no regime.

use super::World;

/// Why addresses of a space are not translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRegime {
    /// The space is physical.
    #[error("addresses of this space are physical")]
    Physical,
    /// The space is a Realm space.
    #[error("snapshots have no names for the physical memory of realms")]
    Realm,
    /// The space is that of secure EL2, on a core in AArch32.
    #[error("AArch32 has no secure Hyp mode")]
    SecureHyp,
    /// The space is not one of the kernel's, and only the kernel's tables are known.
    #[error("only the tables of the kernel are known")]
    NotOfKernel,
    /// The tables of the kernel are impossible.
    #[error("the tables of the kernel contradict the architecture")]
    KernelTables,
    /// The regime cannot have the table that was chosen for it.
    #[error("the table cannot be of this regime")]
    Table,
    /// A register is not known.
    #[error("{0} is not in the snapshot")]
    Register(&'static str),
    /// A register of a stage that is on is not known.
    #[error("{register} is not in the snapshot, and stage {stage} is on")]
    RegisterOfStage {
        /// Its name.
        register: &'static str,
        /// The stage of translation.
        stage: u8,
    },
    /// TTBCR is not known.
    #[error("TTBCR of the {world} world is not in the snapshot{}", if *.on { ", and stage 1 is on" } else { "" })]
    Ttbcr {
        /// The world whose register it is.
        world: World,
        /// Whether stage 1 is known to be on.
        on: bool,
    },
    /// VTCR is impossible.
    #[error("VTCR contradicts the architecture")]
    Vtcr,
    /// The registers of a table of stage 2 are impossible.
    #[error("the registers of {0} contradict the architecture")]
    Stage2(&'static str),
}
