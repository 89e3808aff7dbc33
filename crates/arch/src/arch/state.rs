//! The state of a core that determines its address space: exception level and security.

use super::{Architecture, RegisterFile, Space};
use crate::quantity::{ExceptionLevel, Security};

/// The address space in which a core currently sees memory (Debug and Trace Snapshot File Format
/// 0.2, section 4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentSpace {
    /// The space; [`Space::Any`] where the architecture has only one.
    pub space: Space,
    /// The name that the architecture gives it, `None` where there is only one space: `EL1N` of
    /// AArch64 is `N` in AArch32.
    pub name: Option<&'static str>,
    /// The reason, for the user.
    pub reason: String,
}

/// Returns the space in which a core currently sees memory, from CPSR and SCR.
///
/// If SCR is missing, non-secure is assumed (section 4.1).
pub fn current_space(registers: &RegisterFile) -> CurrentSpace {
    let (space, reason) = match registers.architecture() {
        Architecture::AArch64 => aarch64(registers),
        Architecture::AArch32 => aarch32(registers),
        Architecture::MProfile => (
            Space::Any,
            "M-profile cores have one address space".to_owned(),
        ),
    };
    let name = match (registers.architecture(), space) {
        (_, Space::Any) => None,
        (Architecture::AArch32, Space::El1N) => Some(Space::N.name()),
        (_, space) => Some(space.name()),
    };
    CurrentSpace {
        space,
        name,
        reason,
    }
}

/// Returns the part of the state that the address space does not show: `EL0`, which shares the
/// address space of EL1, and the mode of an M-profile core (Arm ARM DDI 0487, C5.2.19; DDI 0406,
/// B1.3.1; DDI 0553, B3.2). `None` in other states, and if the state is unknown.
pub fn mode(registers: &RegisterFile) -> Option<&'static str> {
    match registers.architecture() {
        Architecture::AArch64 => {
            let cpsr = registers.value("cpsr");
            let level = cpsr.or_else(|| registers.value("CurrentEL"))?;
            (level >> 2 & 3 == 0).then(|| match security(registers).0 {
                Security::Secure => "EL0S",
                _ => "EL0",
            })
        }
        Architecture::AArch32 => {
            (registers.value("cpsr")? & 0x1f == 0x10).then(|| match security(registers).0 {
                Security::Secure => "EL0S",
                _ => "EL0",
            })
        }
        // IPSR, the exception number: bits 8 to 0 of xPSR.
        Architecture::MProfile => Some(match registers.value("xpsr")? & 0x1ff {
            0 => "Thread mode",
            _ => "Handler mode",
        }),
    }
}

fn security(registers: &RegisterFile) -> (Security, String) {
    // SCR_EL3.NS, SCR.NS: bit 0; with RME, SCR_EL3.NSE: bit 62 (Arm ARM DDI 0487, D19.2;
    // DDI 0406, B4.1.129).
    for name in ["SCR_EL3", "SCR"] {
        if let Some(scr) = registers.value(name) {
            return match (scr >> 62 & 1, scr & 1) {
                (0, 0) => (Security::Secure, format!("{name}.NS = 0")),
                (0, _) => (Security::NonSecure, format!("{name}.NS = 1")),
                (_, 0) => (Security::Root, format!("{name}.NSE = 1, NS = 0")),
                (_, _) => (Security::Realm, format!("{name}.NSE = 1, NS = 1")),
            };
        }
    }
    (Security::NonSecure, "no SCR: non-secure assumed".to_owned())
}

fn aarch64(registers: &RegisterFile) -> (Space, String) {
    let (level, why) = match (registers.value("cpsr"), registers.value("CurrentEL")) {
        (Some(cpsr), _) => ((cpsr >> 2) as u8 & 3, "CPSR"),
        (None, Some(level)) => ((level >> 2) as u8 & 3, "CurrentEL"),
        (None, None) => (1, "no CPSR: EL1 assumed"),
    };
    let (security, reason) = security(registers);
    match level {
        // ID_AA64PFR0_EL1.RME: bits 55 to 52. With it, EL3 is in the root security state.
        3 => match registers.value("ID_AA64PFR0_EL1") {
            Some(features) if features >> 52 & 15 != 0 => {
                (Space::Root, format!("EL3 ({why}) of a core with RME"))
            }
            _ => (Space::El3, format!("EL3 ({why})")),
        },
        // EL2 is non-secure, unless SCR_EL3.EEL2 (bit 18) enables secure EL2.
        2 if security != Security::Realm => {
            let enabled = registers
                .value("SCR_EL3")
                .is_some_and(|scr| scr >> 18 & 1 != 0);
            let space = match security {
                Security::Secure if enabled => Space::El2S,
                _ => Space::El2,
            };
            (space, format!("EL2 ({why})"))
        }
        level => (
            Space::of(Some(ExceptionLevel(level)), security),
            format!("EL{level} ({why}), {reason}"),
        ),
    }
}

fn aarch32(registers: &RegisterFile) -> (Space, String) {
    // Modes (DDI 0406, B1.3.1): 0x1a Hyp, 0x16 Monitor, which is always secure.
    match registers.value("cpsr").map(|cpsr| cpsr & 0x1f) {
        Some(0x1a) => (Space::H, "Hyp mode (CPSR)".to_owned()),
        Some(0x16) => (Space::S, "Monitor mode (CPSR)".to_owned()),
        _ => match security(registers) {
            (Security::Secure, reason) => (Space::S, reason),
            // Not [`Space::N`], which would see the dumps of Hyp mode too.
            (_, reason) => (Space::El1N, reason),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::saved_device::{Device, Register, RegisterValue};

    fn space(architecture: Architecture, registers: &[(&str, u32)]) -> Space {
        current_space(&file(architecture, registers)).space
    }

    fn file(architecture: Architecture, registers: &[(&str, u32)]) -> RegisterFile {
        let device = Device {
            registers: registers
                .iter()
                .map(|&(name, value)| Register {
                    name: name.to_owned(),
                    value: RegisterValue(value.to_le_bytes().to_vec()),
                    ..Register::default()
                })
                .collect(),
            ..Device::default()
        };
        RegisterFile::read(&device, architecture)
    }

    #[test]
    fn unprivileged_programs_and_modes() {
        use Architecture::{AArch32, AArch64, MProfile};
        for (architecture, registers, wanted) in [
            (AArch64, &[("CPSR", 0x6000_0000)][..], Some("EL0")),
            (AArch64, &[("CPSR", 0), ("SCR_EL3", 0x530)], Some("EL0S")),
            (AArch64, &[("CurrentEL", 0)], Some("EL0")),
            (AArch64, &[("CPSR", 0x3c5)], None),
            (AArch64, &[], None),
            (AArch32, &[("CPSR", 0x6000_0030)], Some("EL0")),
            (AArch32, &[("CPSR", 0x1d3)], None),
            (MProfile, &[("xPSR", 0x0100_0000)], Some("Thread mode")),
            (MProfile, &[("xPSR", 0x0100_000b)], Some("Handler mode")),
            (MProfile, &[], None),
        ] {
            let found = mode(&file(architecture, registers));
            assert_eq!(found, wanted, "{registers:?}");
        }
    }

    #[test]
    fn spaces_follow_mode_and_security() {
        use Architecture::{AArch32, AArch64, MProfile};
        assert_eq!(space(AArch32, &[("CPSR", 0x1d3), ("SCR", 0)]), Space::S);
        assert_eq!(space(AArch32, &[("CPSR", 0x1d3), ("SCR", 1)]), Space::El1N);
        assert_eq!(space(AArch32, &[("CPSR", 0x1d3)]), Space::El1N);
        assert_eq!(space(AArch32, &[("CPSR", 0x1da), ("SCR", 1)]), Space::H);
        assert_eq!(space(AArch32, &[("CPSR", 0x1d6), ("SCR", 1)]), Space::S);
        assert_eq!(space(AArch64, &[("CPSR", 0x3c9)]), Space::El2);
        assert_eq!(space(AArch64, &[("CPSR", 0x3cd)]), Space::El3);
        assert_eq!(space(AArch64, &[("CPSR", 0x3c5)]), Space::El1N);
        assert_eq!(
            space(AArch64, &[("CPSR", 0), ("SCR_EL3", 0x530)]),
            Space::El1S
        );
        assert_eq!(space(AArch64, &[("CurrentEL", 8)]), Space::El2);
        assert_eq!(space(MProfile, &[]), Space::Any);
    }
}
