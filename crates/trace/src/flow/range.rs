//! Straight lines, and their last instructions.

use armsnap_arch::quantity::{Address, Isa};

/// The kind of an instruction at the end of a range. Anything but [`Self::Other`] is a waypoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum InstructionKind {
    /// A direct branch.
    Branch,
    /// An indirect branch.
    Indirect,
    /// ISB.
    Isb,
    /// DSB or DMB, where they are waypoints.
    Barrier,
    /// WFI or WFE, where they are waypoints.
    Wfi,
    /// TSTART.
    Transaction,
    /// Any other instruction.
    #[default]
    Other,
}

impl InstructionKind {
    /// Returns the name used in the JSON Lines listing.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::Indirect => "indirect",
            Self::Isb => "isb",
            Self::Barrier => "barrier",
            Self::Wfi => "wfi",
            Self::Transaction => "transaction",
            Self::Other => "other",
        }
    }
}

/// The last instruction of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LastInstruction {
    /// Its kind.
    pub kind: InstructionKind,
    /// It has an E atom: a branch was taken, or another instruction passed its condition.
    pub taken: bool,
    /// It is a branch with link.
    pub link: bool,
    /// It is a function return by convention, or an exception return.
    pub returns: bool,
    /// It is conditional, by its encoding or through an IT block.
    pub conditional: bool,
}

/// Instructions executed in a straight line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Range {
    /// Address of the first instruction.
    pub start: Address,
    /// Address after the last instruction.
    pub end: Address,
    /// Instruction set.
    pub isa: Isa,
    /// Number of instructions.
    pub instructions: u32,
    /// The last instruction.
    pub last: LastInstruction,
}

impl LastInstruction {
    /// BL.
    pub const CALL: Self = Self {
        kind: InstructionKind::Branch,
        taken: true,
        link: true,
        returns: false,
        conditional: false,
    };
    /// RET.
    pub const RETURN: Self = Self {
        kind: InstructionKind::Indirect,
        link: false,
        returns: true,
        ..Self::CALL
    };
    /// B.
    pub const JUMP: Self = Self {
        link: false,
        ..Self::CALL
    };
}

impl Range {
    /// A64 instructions.
    pub fn a64(start: u64, end: u64, last: LastInstruction) -> Self {
        Self {
            start: Address(start),
            end: Address(end),
            isa: Isa::A64,
            instructions: ((end - start) / 4) as u32,
            last,
        }
    }
}
