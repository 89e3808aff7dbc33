//! Detects the architecture of a core from its `type`, or from its registers if that is unknown.

use super::{CoreType, SavedCore};

/// The architecture of a core, which determines its register set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Architecture {
    /// ARMv8-A, ARMv9-A or ARMv8-R in AArch64 state.
    AArch64,
    /// ARMv4 to ARMv7-A/R, and AArch32 state of ARMv8.
    AArch32,
    /// ARMv6-M, ARMv7-M, ARMv8-M.
    MProfile,
}

impl Architecture {
    /// All architectures.
    pub const ALL: [Self; 3] = [Self::AArch64, Self::AArch32, Self::MProfile];

    /// Returns the name for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AArch64 => "AArch64",
            Self::AArch32 => "AArch32",
            Self::MProfile => "M-profile",
        }
    }

    /// The machine that its programs are built for.
    pub const fn machine(self) -> Machine {
        match self {
            Self::AArch64 => Machine::AArch64,
            Self::AArch32 | Self::MProfile => Machine::Arm,
        }
    }

    /// The size of a general register in bits.
    pub const fn general_bits(self) -> u32 {
        match self {
            Self::AArch64 => 64,
            Self::AArch32 | Self::MProfile => 32,
        }
    }
}

/// The machine that an ELF file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// EM_AARCH64.
    AArch64,
    /// EM_ARM: AArch32 and M-profile.
    Arm,
    /// Any other.
    Other,
}

/// A detected architecture and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detected {
    /// The architecture.
    pub architecture: Architecture,
    /// The reason, for the user: `type Cortex-A57`.
    pub from: String,
    /// Whether nothing in the snapshot determines it, and the most likely one is assumed.
    pub assumed: bool,
}

impl Architecture {
    /// Detects the architecture of a core device.
    pub fn detect(device: &impl SavedCore) -> Detected {
        let kind = || format!("type {}", device.core_type().trim());
        let known = |architecture, from| Detected {
            architecture,
            from,
            assumed: false,
        };
        match CoreType::parse(device.core_type()) {
            Some(found) if !found.both_states => known(found.architecture, kind()),
            Some(found) => match execution_state(device) {
                Some((architecture, from)) => known(architecture, format!("{}, {from}", kind())),
                None => known(found.architecture, kind()),
            },
            None => match from_registers(device) {
                Some((architecture, from)) => known(architecture, from),
                None => Detected {
                    architecture: Self::AArch64,
                    from: "nothing in the snapshot determines it".to_owned(),
                    assumed: true,
                },
            },
        }
    }
}

/// The execution state of an ARMv8 core that has both.
fn execution_state(device: &impl SavedCore) -> Option<(Architecture, String)> {
    let has = |name: &str| {
        device
            .saved_registers()
            .any(|register| register.name.eq_ignore_ascii_case(name))
    };
    if ["X0", "X1", "X29", "W0", "CurrentEL", "SPSel", "NZCV"]
        .iter()
        .any(|name| has(name))
    {
        return Some((Architecture::AArch64, "AArch64 registers".to_owned()));
    }
    if let Some(wide) = wide_value(device) {
        return Some(wide);
    }
    let status = status(device);
    let (state, is_zero) = (status.map(state_of), status.is_none_or(is_zero));
    // AArch32 has no mode with M[4] = 0; a CPSR of 0 may be a placeholder.
    if let Some((Architecture::AArch64, _)) = state
        && !is_zero
    {
        return state;
    }
    if ["R0", "R1", "R13", "R15"].iter().any(|name| has(name)) {
        return Some((Architecture::AArch32, "AArch32 registers".to_owned()));
    }
    state
}

/// A PC or SP of more than 32 bits, which only AArch64 has.
fn wide_value(device: &impl SavedCore) -> Option<(Architecture, String)> {
    let mut registers = device.saved_registers();
    let wide = registers.find(|register| {
        let name = register.name;
        (name.eq_ignore_ascii_case("PC") || name.eq_ignore_ascii_case("SP"))
            && !is_zero(register.value.get(4..).unwrap_or(&[]))
    })?;
    let text = format!("{} of more than 32 bits", wide.name);
    Some((Architecture::AArch64, text))
}

/// The value of CPSR.
fn status(device: &impl SavedCore) -> Option<&[u8]> {
    let mut registers = device.saved_registers();
    let status = registers.find(|register| {
        ["CPSR", "PSTATE"]
            .iter()
            .any(|name| register.name.eq_ignore_ascii_case(name))
    })?;
    Some(status.value)
}

/// PSTATE.nRW, CPSR.M[4] (Arm ARM DDI 0487, C5.2.19): 0 is AArch64.
fn state_of(status: &[u8]) -> (Architecture, String) {
    if status.first().is_none_or(|low| low & 0x10 == 0) {
        (Architecture::AArch64, "CPSR.M[4] = 0".to_owned())
    } else {
        (Architecture::AArch32, "CPSR.M[4] = 1".to_owned())
    }
}

fn is_zero(value: &[u8]) -> bool {
    value.iter().all(|&byte| byte == 0)
}

fn from_registers(device: &impl SavedCore) -> Option<(Architecture, String)> {
    let mut a_profile = None;
    let mut wide_pc = false;
    for register in device.saved_registers() {
        let name = register.name.to_ascii_uppercase();
        match name.as_str() {
            "XPSR" | "MSP" | "PRIMASK" | "BASEPRI" | "FAULTMASK" | "EPSR" | "IPSR" => {
                return Some((
                    Architecture::MProfile,
                    format!("register {}", register.name),
                ));
            }
            "X0" | "X1" | "X29" | "X30" | "W0" | "CURRENTEL" | "SPSEL" => {
                return Some((Architecture::AArch64, format!("register {}", register.name)));
            }
            _ if name.ends_with("_EL1") || name.ends_with("_EL2") || name.ends_with("_EL3") => {
                return Some((Architecture::AArch64, format!("register {}", register.name)));
            }
            "R0" | "R1" | "R15" if a_profile.is_none() => {
                a_profile = Some(register.name.to_owned());
            }
            "PC" if register.size == Some(64) => wide_pc = true,
            _ => {}
        }
    }
    if wide_pc {
        return Some((Architecture::AArch64, "a PC of 64 bits".to_owned()));
    }
    wide_value(device)
        .or_else(|| a_profile.map(|name| (Architecture::AArch32, format!("register {name}"))))
        .or_else(|| status(device).map(state_of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::saved_device::{Device, Register, RegisterValue};

    fn core(kind: &str, registers: &[(&str, u32, u64)]) -> Device {
        Device {
            kind: kind.to_owned(),
            registers: registers
                .iter()
                .map(|&(name, size, value)| Register {
                    name: name.to_owned(),
                    size: Some(size),
                    value: RegisterValue(value.to_le_bytes().to_vec()),
                })
                .collect(),
        }
    }

    #[test]
    fn types_of_real_snapshots() {
        use Architecture::{AArch32, AArch64, MProfile};
        for (kind, wanted) in [
            ("Cortex-A57", AArch64),
            ("CORTEX-A53", AArch64),
            ("cortex-a710", AArch64),
            ("Cortex-X3", AArch64),
            ("Neoverse-N1", AArch64),
            ("ARM-AA64", AArch64),
            ("arm-aa64", AArch64),
            ("ARMv8-A", AArch64),
            ("ARMv8.2-A", AArch64),
            ("ARMv9-A", AArch64),
            ("ARM-AA32", AArch32),
            ("Cortex-A15", AArch32),
            ("ARM Cortex-A9", AArch32),
            ("Cortex-A32", AArch32),
            ("Cortex-R5", AArch32),
            ("Cortex-R82", AArch64),
            ("ARMv7-A", AArch32),
            ("ARMv7-R", AArch32),
            ("armv7a", AArch32),
            ("ARMv6", AArch32),
            ("ARMv5TE", AArch32),
            ("ARM1136JF-S", AArch32),
            ("ARM926EJ-S", AArch32),
            ("ARM7TDMI", AArch32),
            ("Cortex-M0+", MProfile),
            ("cortex-m33", MProfile),
            ("ARMv6-M", MProfile),
            ("ARMv7-M", MProfile),
            ("ARMv7E-M", MProfile),
            ("ARMv8-M", MProfile),
            ("ARMv8-M.mainline", MProfile),
            ("ARMv8.1-M", MProfile),
        ] {
            let found = Architecture::detect(&core(kind, &[]));
            assert_eq!(found.architecture, wanted, "{kind}");
            assert!(!found.assumed, "{kind}");
        }
    }

    #[test]
    fn registers_determine_the_architecture_without_a_known_type() {
        use Architecture::{AArch32, AArch64, MProfile};
        for (registers, wanted) in [
            (&[("R0", 32, 0), ("XPSR", 32, 0)][..], MProfile),
            (&[("R0", 32, 0), ("CPSR", 32, 0x1d3)][..], AArch32),
            (&[("SCTLR_EL1", 32, 0)][..], AArch64),
            (&[("PC", 64, 0), ("CPSR", 32, 0x1c5)][..], AArch64),
        ] {
            let found = Architecture::detect(&core("unknown", registers));
            assert_eq!(found.architecture, wanted, "{registers:?}");
        }
        assert!(Architecture::detect(&core("unknown", &[])).assumed);
    }

    #[test]
    fn execution_state_of_armv8() {
        use Architecture::{AArch32, AArch64};
        for (registers, wanted) in [
            (&[("R0", 32, 0), ("CPSR", 32, 0x1d3)][..], AArch32),
            (&[("PC", 64, 0), ("CPSR", 32, 0x1d3)][..], AArch32),
            (&[("PC", 64, 0), ("CPSR", 32, 0x1c5)][..], AArch64),
            (&[("X0", 64, 0)][..], AArch64),
        ] {
            let found = Architecture::detect(&core("Cortex-A53", registers));
            assert_eq!(found.architecture, wanted, "{registers:?}");
        }
    }

    #[test]
    fn values_that_aarch32_does_not_have_are_of_aarch64() {
        use Architecture::{AArch32, AArch64};
        for kind in ["unknown", "Cortex-A53"] {
            let by_type = if kind == "unknown" { AArch32 } else { AArch64 };
            for (registers, wanted) in [
                (&[("PC", 32, 0x1000), ("CPSR", 32, 0x3c5)][..], AArch64),
                (&[("R0", 32, 1), ("CPSR", 32, 0x3c5)][..], by_type),
                (
                    &[("R0", 32, 1), ("PC", 32, 0xFFFF_FF80_0808_1000)][..],
                    AArch64,
                ),
                (
                    &[("R0", 32, 1), ("SP", 32, 0xFFFF_FF80_0809_0000)][..],
                    AArch64,
                ),
                (&[("R0", 32, 1), ("PC", 64, 0x1000)][..], AArch32),
                (&[("CPSR", 32, 0x1d3)][..], AArch32),
                // A placeholder.
                (&[("R15", 32, 0), ("CPSR", 32, 0)][..], AArch32),
            ] {
                // A 64-bit PC decides if the type does not.
                if kind == "unknown" && registers.iter().any(|register| register.1 == 64) {
                    continue;
                }
                let found = Architecture::detect(&core(kind, registers));
                assert_eq!(found.architecture, wanted, "{kind} {registers:x?}");
            }
        }
    }
}
