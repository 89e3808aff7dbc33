//! The regimes of a core, by the address space in which memory is requested.

use super::no_regime::NoRegime;
use super::note::RegimeNote;
use super::regime::{KernelTables, Regime, Stage1};
use super::{World, aarch32, aarch64, bit};
use crate::arch::{Architecture, RegisterFile, Space, state};

/// The regimes of a core.
#[derive(Clone, Debug)]
pub struct Regimes {
    /// The regime of each space, or the reason why it has none.
    by_space: Vec<Result<Regime, NoRegime>>,
}

impl Regimes {
    /// The regimes that the registers of a core describe. A core with an MPU does not translate
    /// addresses, except at EL1 and EL0 of Armv8-R AArch64 if VTCR_EL2.MSA is set (DDI 0600, VTCR_EL2).
    pub fn of(registers: &RegisterFile, has_mpu: bool) -> Self {
        let current = state::current_space(registers).space;
        let has_tables = has_mpu
            && registers.architecture() == Architecture::AArch64
            && registers
                .value("VTCR_EL2")
                .is_some_and(|vtcr| bit(vtcr, 31));
        let of = |space: Space| match space {
            Space::P | Space::Sp | Space::Np => Err(NoRegime::Physical),
            Space::Root | Space::R | Space::El1R | Space::El2R => Err(NoRegime::Realm),
            Space::Any | Space::N | Space::El1N if has_tables => {
                aarch64::el1_before_mpu(registers, World::NonSecure)
            }
            Space::S | Space::El1S if has_tables => {
                aarch64::el1_before_mpu(registers, World::Secure)
            }
            _ if has_mpu || registers.architecture() == Architecture::MProfile => {
                Ok(identity(registers.architecture()))
            }
            Space::El2 | Space::El2N | Space::H => match registers.architecture() {
                Architecture::AArch64 => aarch64::el2(registers, World::NonSecure),
                _ => aarch32::hyp(registers),
            },
            Space::El2S => match registers.architecture() {
                Architecture::AArch64 => aarch64::el2(registers, World::Secure),
                _ => Err(NoRegime::SecureHyp),
            },
            Space::El3 if registers.architecture() == Architecture::AArch64 => {
                aarch64::el3(registers)
            }
            Space::Any | Space::N | Space::El1N => el1(registers, World::NonSecure),
            Space::S | Space::El1S | Space::El3 => el1(registers, World::Secure),
        };
        let of_any = |space: Space| match (space, current) {
            (Space::Any, Space::Any) => of(Space::El1N),
            (Space::Any, current) => of(current),
            (space, _) => of(space),
        };
        Self {
            by_space: Space::ALL.into_iter().map(of_any).collect(),
        }
    }

    /// The regimes of a core for which only the tables of its kernel are known.
    pub fn of_kernel(tables: &KernelTables) -> Self {
        let regime = tables.regime().ok_or(NoRegime::KernelTables);
        let of = |space: Space| match space {
            // With FEAT_VHE a kernel runs at EL2, where it has the same ranges.
            Space::Any | Space::N | Space::El1N | Space::El2 | Space::El2N | Space::H => {
                regime.clone()
            }
            _ => Err(NoRegime::NotOfKernel),
        };
        Self {
            by_space: Space::ALL.into_iter().map(of).collect(),
        }
    }

    /// The regime of a space.
    ///
    /// # Errors
    ///
    /// Returns the reason if its registers are not known, or addresses of the space are physical.
    pub fn get(&self, space: Space) -> Result<&Regime, NoRegime> {
        self.by_space[space as usize].as_ref().map_err(|why| *why)
    }

    /// Returns whether no space has a regime.
    pub fn is_empty(&self) -> bool {
        self.by_space.iter().all(Result::is_err)
    }

    /// Returns whether EL1 cannot run while the registers have their values.
    pub fn exclude_el1(&self) -> bool {
        let mut known = self.by_space.iter().flatten();
        known.any(|regime| regime.excludes_el1)
    }

    /// The regimes at a time when EL1 ran: those that exclude EL1 are left out.
    pub fn of_el1(&self) -> Self {
        self.with_changed(|regime| (!regime.excludes_el1).then(|| regime.clone()))
    }

    /// Returns the regimes, with `change` applied to those of EL1 and EL0. Leaves out the ones that
    /// `change` rejects.
    pub fn with_changed(&self, change: impl Fn(&Regime) -> Option<Regime>) -> Self {
        let changed = self.by_space.iter().map(|regime| {
            let regime = regime.as_ref().map_err(|why| *why)?;
            if !regime.user {
                return Ok(regime.clone());
            }
            change(regime).ok_or(NoRegime::Table)
        });
        Self {
            by_space: changed.collect(),
        }
    }
}

fn el1(registers: &RegisterFile, world: World) -> Result<Regime, NoRegime> {
    match registers.architecture() {
        Architecture::AArch64 => aarch64::el1(registers, world),
        _ => aarch32::el1(registers, world),
    }
}

fn identity(architecture: Architecture) -> Regime {
    Regime {
        name: "PMSA",
        world: World::NonSecure,
        // PMSAv8-64: physical addresses have at most 52 bits.
        address_bits: match architecture {
            Architecture::AArch64 => 52,
            _ => 32,
        },
        stage1: Stage1::Identity,
        stage2: None,
        user: true,
        excludes_el1: false,
        mair: None,
        notes: vec![RegimeNote::Mpu],
    }
}
