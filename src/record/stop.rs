//! Why a recording ended, and the registers at its end.

use super::stream::{CoreState, StoppedCore};
use armsnap_arch::arch::Architecture;
use armsnap_arch::quantity::{Address, Isa};
use armsnap_snapshot::snapshot::model::{Register, RegisterValue};
use armsnap_snapshot::snapshot::signals;
use armsnap_trace::encode::CodeAddress;
use std::fmt;

/// Why a recording ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The program was about to exit with this status.
    Exit(u64),
    /// It reached the location named by `--until`.
    Until(String),
    /// A signal (Linux number) was about to end it.
    Signal(u32),
    /// The machine shut down, or was about to be reset.
    ShutDown,
    /// It executed the requested number of instructions.
    Instructions(u64),
    /// The user stopped it.
    Interrupted,
    /// The emulator failed: what it had executed before is recorded.
    Lost,
}

impl Reason {
    /// Returns the exit status that a shell would show for the program: its own, or 128 plus the signal's
    /// number; 0 if the recording ended before the program did.
    pub fn status(&self) -> u8 {
        /// What a shell adds to a signal's number.
        const BY_SIGNAL: u32 = 128;
        match self {
            // Linux keeps eight bits of a status.
            Self::Exit(status) => *status as u8,
            Self::Signal(number) => u8::try_from(BY_SIGNAL + number).unwrap_or(u8::MAX),
            Self::Until(_)
            | Self::ShutDown
            | Self::Instructions(_)
            | Self::Interrupted
            | Self::Lost => 0,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(status) => write!(f, "about to exit with status {}", status & 0xff),
            Self::Until(place) => write!(f, "at {place}"),
            Self::Signal(number) => write!(f, "{}", signals::name(*number)),
            Self::ShutDown => write!(f, "shut down"),
            Self::Instructions(count) => write!(f, "after {count} instructions"),
            Self::Interrupted => write!(f, "interrupted"),
            Self::Lost => write!(f, "where the emulator failed"),
        }
    }
}

/// Returns the address at which a core is frozen, which the emulator's GDB server does not report.
pub(super) fn frozen_pc(core: &StoppedCore) -> Option<u64> {
    match core.state {
        CoreState::Frozen(pc) | CoreState::Cut(pc) => Some(pc),
        CoreState::Running | CoreState::SystemCall => None,
    }
}

/// Sets the program counter.
pub(super) fn set_pc(registers: &mut [Register], pc: u64) {
    if let Some(register) = registers.iter_mut().find(|register| register.name == "PC") {
        let bytes = pc.to_le_bytes().to_vec();
        register.value = RegisterValue(bytes).canonical(Some(register.size.unwrap_or(32)));
    }
}

/// Returns the program counter of a core whose other registers are not known.
pub(super) fn pc_alone(place: CodeAddress) -> Register {
    let bits = if place.isa == Isa::A64 { 64 } else { 32 };
    Register {
        name: "PC".to_owned(),
        size: (bits != 32).then_some(bits),
        value: RegisterValue(place.address.0.to_le_bytes().to_vec()).canonical(Some(bits)),
        ..Register::default()
    }
}

/// Returns the address and instruction set at which a core is stopped.
pub(super) fn place(registers: &[Register], architecture: Architecture) -> Option<CodeAddress> {
    let value = |name: &str| {
        let register = registers.iter().find(|register| register.name == name)?;
        register.value.as_u64()
    };
    Some(CodeAddress {
        address: Address(value("PC")?),
        isa: isa(architecture, value("CPSR"))?,
    })
}

/// Returns the instruction set selected by CPSR (bit 5 in AArch32 state: T).
pub(super) fn isa(architecture: Architecture, cpsr: Option<u64>) -> Option<Isa> {
    match architecture {
        Architecture::AArch64 => Some(Isa::A64),
        Architecture::MProfile => Some(Isa::T32),
        Architecture::AArch32 if cpsr? >> 5 & 1 == 1 => Some(Isa::T32),
        Architecture::AArch32 => Some(Isa::A32),
    }
}
