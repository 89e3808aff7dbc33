//! The state of a core that decides what an address means: exception level and security.

use super::{Architecture, RegisterFile};

/// An address space of the snapshot format (Debug and Trace Snapshot File Format 0.2, section
/// 4.1): the one in which a core sees memory now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentSpace {
    /// `N`, `S`, `H`, `EL1N`, `EL1S`, `EL2`, `EL3`; `None` where the architecture has none.
    pub name: Option<&'static str>,
    /// Why, for the user.
    pub reason: String,
}

/// The space in which a core sees memory now, from CPSR and SCR.
///
/// Non-secure is assumed where SCR is missing, as section 4.1 says.
pub fn current_space(registers: &RegisterFile) -> CurrentSpace {
    match registers.architecture() {
        Architecture::AArch64 => aarch64(registers),
        Architecture::AArch32 => aarch32(registers),
        Architecture::MProfile => CurrentSpace {
            name: None,
            reason: "M-profile cores have one address space".to_owned(),
        },
    }
}

fn non_secure(registers: &RegisterFile) -> (bool, String) {
    // SCR_EL3.NS, SCR.NS: bit 0 (Arm ARM DDI 0487, D19.2; DDI 0406, B4.1.129).
    for name in ["SCR_EL3", "SCR"] {
        if let Some(scr) = registers.value(name) {
            return (scr & 1 != 0, format!("{name}.NS = {}", scr & 1));
        }
    }
    (true, "no SCR: non-secure assumed".to_owned())
}

fn aarch64(registers: &RegisterFile) -> CurrentSpace {
    let (level, why) = match (registers.value("cpsr"), registers.value("CurrentEL")) {
        (Some(cpsr), _) => ((cpsr >> 2) & 3, "CPSR"),
        (None, Some(level)) => ((level >> 2) & 3, "CurrentEL"),
        (None, None) => (1, "no CPSR: EL1 assumed"),
    };
    let (name, security) = match level {
        3 => ("EL3", None),
        2 => ("EL2", None),
        _ => match non_secure(registers) {
            (true, reason) => ("EL1N", Some(reason)),
            (false, reason) => ("EL1S", Some(reason)),
        },
    };
    let reason = match security {
        Some(security) => format!("EL{level} ({why}), {security}"),
        None => format!("EL{level} ({why})"),
    };
    CurrentSpace {
        name: Some(name),
        reason,
    }
}

fn aarch32(registers: &RegisterFile) -> CurrentSpace {
    // Modes (DDI 0406, B1.3.1): 0x1a Hyp, 0x16 Monitor, which is always secure.
    let mode = registers.value("cpsr").map(|cpsr| cpsr & 0x1f);
    let (name, reason) = match mode {
        Some(0x1a) => ("H", "Hyp mode (CPSR)".to_owned()),
        Some(0x16) => ("S", "Monitor mode (CPSR)".to_owned()),
        _ => match non_secure(registers) {
            (true, reason) => ("N", reason),
            (false, reason) => ("S", reason),
        },
    };
    CurrentSpace {
        name: Some(name),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::model::{Device, Register, RegisterValue};

    fn space(architecture: Architecture, registers: &[(&str, u32)]) -> Option<&'static str> {
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
        current_space(&RegisterFile::read(&device, architecture)).name
    }

    #[test]
    fn spaces_follow_mode_and_security() {
        use Architecture::{AArch32, AArch64, MProfile};
        assert_eq!(space(AArch32, &[("CPSR", 0x1d3), ("SCR", 0)]), Some("S"));
        assert_eq!(space(AArch32, &[("CPSR", 0x1d3), ("SCR", 1)]), Some("N"));
        assert_eq!(space(AArch32, &[("CPSR", 0x1d3)]), Some("N"));
        assert_eq!(space(AArch32, &[("CPSR", 0x1da), ("SCR", 1)]), Some("H"));
        assert_eq!(space(AArch32, &[("CPSR", 0x1d6), ("SCR", 1)]), Some("S"));
        assert_eq!(space(AArch64, &[("CPSR", 0x3c9)]), Some("EL2"));
        assert_eq!(space(AArch64, &[("CPSR", 0x3cd)]), Some("EL3"));
        assert_eq!(space(AArch64, &[("CPSR", 0x3c5)]), Some("EL1N"));
        assert_eq!(
            space(AArch64, &[("CPSR", 0), ("SCR_EL3", 0x530)]),
            Some("EL1S")
        );
        assert_eq!(space(AArch64, &[("CurrentEL", 8)]), Some("EL2"));
        assert_eq!(space(MProfile, &[]), None);
    }
}
