//! The architecture chosen by the user for a trace file that may not name one.

use crate::tfile::ByteOrder;
use armsnap_arch::arch::Architecture;
use armsnap_arch::arch::target::NamedArchitecture;
use armsnap_snapshot::program::elf::{Elf, Machine};
use std::path::PathBuf;

/// The architecture chosen by the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenArchitecture {
    /// The architecture.
    pub named: NamedArchitecture,
    /// The byte order, if it was chosen too.
    pub order: Option<ByteOrder>,
}

/// An error that prevents the choice.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// A program is not for Arm.
    #[error("{}: expected a program for Arm", .0.display())]
    NotArm(PathBuf),
    /// A program is for another architecture than the one chosen before.
    #[error("{} says {}, and {} is for {}", .chosen.from, .chosen.architecture.name(),
        .program.display(), .found.name())]
    Contradiction {
        /// The architecture chosen before.
        chosen: NamedArchitecture,
        /// The program.
        program: PathBuf,
        /// Its architecture.
        found: Architecture,
    },
}

impl ChosenArchitecture {
    /// Chooses by the name of an architecture, or else from the programs.
    ///
    /// # Errors
    ///
    /// Returns an error if programs disagree with each other or with the name, or are not for Arm.
    pub fn of(named: Option<Architecture>, elfs: &[Elf]) -> Result<Option<Self>, ChoiceError> {
        let mut chosen = named.map(|architecture| Self {
            named: NamedArchitecture {
                architecture,
                from: "--arch",
            },
            order: None,
        });
        for elf in elfs {
            let architecture = match elf.machine {
                Machine::AArch64 => Architecture::AArch64,
                Machine::Arm if elf.m_profile == Some(true) => Architecture::MProfile,
                Machine::Arm => Architecture::AArch32,
                Machine::Other => return Err(ChoiceError::NotArm(elf.path.clone())),
            };
            let order = match elf.little_endian {
                true => ByteOrder::Little,
                false => ByteOrder::Big,
            };
            let machine = architecture.machine();
            match &mut chosen {
                None => {
                    chosen = Some(Self {
                        named: NamedArchitecture {
                            architecture,
                            from: "the program",
                        },
                        order: Some(order),
                    });
                }
                Some(chosen) if chosen.named.architecture.machine() == machine => {
                    chosen.order.get_or_insert(order);
                }
                Some(chosen) => {
                    return Err(ChoiceError::Contradiction {
                        chosen: chosen.named,
                        program: elf.path.clone(),
                        found: architecture,
                    });
                }
            }
        }
        Ok(chosen)
    }
}
