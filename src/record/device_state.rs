//! Registers of a program in an emulator, in the form used for a snapshot's devices.
//!
//! Maps QEMU's register names to the architecture's.

use super::remote::{Error, Remote};
use armsnap_arch::arch::Architecture;
use armsnap_snapshot::snapshot::model::{Register, RegisterValue};

/// Reads the registers of the selected thread, under the architecture's names.
pub fn registers(remote: &mut Remote) -> Result<Vec<Register>, Error> {
    let values = remote.registers()?;
    Ok(named(remote, values))
}

/// Same as [`registers`], without system registers that programs cannot write.
pub fn changing(remote: &mut Remote) -> Result<Vec<Register>, Error> {
    // QEMU names system registers in capital letters.
    let system = |name: &str| name.starts_with(|first: char| first.is_ascii_uppercase());
    let values = remote.registers_if(|name| !system(name) || name.starts_with("TPIDR"))?;
    Ok(named(remote, values))
}

fn named(remote: &Remote, values: Vec<Option<Vec<u8>>>) -> Vec<Register> {
    let target = remote.target();
    let mut registers: Vec<Register> = Vec::new();
    for ((name, size), value) in target.registers.iter().zip(values) {
        let (Some(value), Some(name)) = (value, name_of(target.architecture, name)) else {
            continue;
        };
        if registers.iter().any(|there| there.name == name) {
            continue;
        }
        let bits = *size as u32 * 8;
        registers.push(Register {
            name,
            // A snapshot's registers have 32 bits unless a size is given.
            size: (bits != 32).then_some(bits),
            value: RegisterValue(value).canonical(Some(bits)),
            ..Register::default()
        });
    }
    registers
}

/// Returns the architecture's name of a register, or `None` if QEMU's register is not saved.
fn name_of(architecture: Architecture, name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let odd = name.is_empty() || !name.chars().all(plain);
    // Encodings that the architecture reserves.
    let reserved = name.ends_with("RESERVED") || name.starts_with("RES_");
    if odd || reserved {
        return None;
    }
    Some(match (architecture, name) {
        (Architecture::MProfile, "xpsr") => "xPSR".to_owned(),
        // QEMU updates it only when the exception level changes.
        (Architecture::AArch64, "SP_EL1") => return None,
        // GDB's names of the thread pointers.
        (Architecture::AArch64, "tpidr" | "tpidr2") => format!("{}_EL0", name.to_ascii_uppercase()),
        (Architecture::AArch64, "AMAIR0") => "AMAIR_EL1".to_owned(),
        (Architecture::AArch64, _) if has_aarch32_name(name) => format!("{name}_EL1"),
        // Views of D registers.
        (Architecture::AArch32, _) if is_quad(name) => return None,
        _ => name.to_ascii_uppercase(),
    })
}

/// Returns whether QEMU names an AArch64 register as in AArch32, without the exception level.
fn has_aarch32_name(name: &str) -> bool {
    const NAMES: [&str; 8] = [
        "SCTLR", "CPACR", "VBAR", "CLIDR", "CSSELR", "AIDR", "CNTKCTL", "L2ACTLR",
    ];
    let identification = name.starts_with("ID_") || name.starts_with("MVFR");
    let level = name.rsplit_once("_EL").map(|(_, level)| level);
    let complete = level.is_some_and(|level| level.bytes().all(|digit| digit.is_ascii_digit()));
    NAMES.contains(&name) || identification && !complete
}

fn is_quad(name: &str) -> bool {
    let number = name.strip_prefix('q').map(str::parse::<u8>);
    matches!(number, Some(Ok(0..=15)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        use Architecture::{AArch32, AArch64, MProfile};
        for (architecture, name, wanted) in [
            (AArch64, "x0", Some("X0")),
            (AArch64, "cpsr", Some("CPSR")),
            (AArch64, "ID_PFR0", Some("ID_PFR0_EL1")),
            (AArch64, "ID_AA64PFR0_EL1", Some("ID_AA64PFR0_EL1")),
            (AArch64, "MVFR0", Some("MVFR0_EL1")),
            (AArch64, "VBAR", Some("VBAR_EL1")),
            (AArch64, "VBAR_EL3", Some("VBAR_EL3")),
            (AArch64, "SP_EL1", None),
            (AArch64, "SP_EL0", Some("SP_EL0")),
            (AArch64, "ID_AA64PFR5_EL1_RESERVED", None),
            (AArch64, "no name", None),
            (AArch32, "q3", None),
            (AArch32, "d3", Some("D3")),
            (AArch32, "VBAR", Some("VBAR")),
            (MProfile, "xpsr", Some("xPSR")),
            (MProfile, "q3", Some("Q3")),
        ] {
            assert_eq!(name_of(architecture, name).as_deref(), wanted, "{name}");
        }
    }
}
