//! A core's registers, summed up: how many, where it stands, and whether they are machine state
//! at all.

use std::collections::BTreeSet;

use super::{Hex, RegisterCount, StatusInfo};
use crate::arch::{Architecture, RegisterFile, views};
use crate::report::psr;
use crate::snapshot::model::Device;

/// The registers as written, and with views of one register counted once.
pub(super) fn count(device: &Device, architecture: Architecture) -> RegisterCount {
    let mut distinct = BTreeSet::new();
    for register in &device.registers {
        let name = register.name.to_ascii_lowercase();
        if let Some(view) = views::view_of(architecture, &name) {
            distinct.insert(view.register);
        } else if let Some(halves) = views::halves_of_quad(architecture, &name) {
            distinct.extend(halves.map(|view| view.register));
        } else {
            distinct.insert(name);
        }
    }
    RegisterCount {
        written: device.registers.len(),
        distinct: distinct.len().min(device.registers.len()),
    }
}

/// A register of the core's own set.
pub(super) fn value(file: &RegisterFile, name: &str) -> Option<Hex> {
    let bits = views::core_register_bits(file.architecture(), name)?;
    Some(Hex::register(file.value(name)?, bits))
}

/// CPSR or xPSR in words.
pub(super) fn status(device: &Device, file: &RegisterFile) -> Option<StatusInfo> {
    let (name, words): (_, fn(u64) -> String) = match file.architecture() {
        Architecture::AArch64 | Architecture::AArch32 => ("CPSR", psr::cpsr),
        Architecture::MProfile => ("xPSR", psr::xpsr),
    };
    let register = name.to_ascii_lowercase();
    let value = value(file, &register)?;
    let written = device.registers.iter().any(|written| {
        views::view_of(file.architecture(), &written.name).is_some_and(|v| v.register == register)
    });
    Some(StatusInfo {
        name,
        value,
        meaning: words(value.value),
        assembled: !written,
    })
}

/// Why the registers are placeholders and no machine state, if they are.
///
/// Folklore: capture libraries that know no registers write `PC`, the begin of the code image or
/// 0, `SP=0` and a constant `CPSR`, the same for every core, and no general register.
pub(crate) fn placeholder(device: &Device, file: &RegisterFile) -> Option<String> {
    let general = device.registers.iter().any(|register| {
        let view = views::view_of(file.architecture(), &register.name);
        view.is_some_and(|view| is_general(&view.register))
    });
    let pc = file.pc()?;
    if general || file.value("sp") != Some(0) {
        return None;
    }
    let dump = device.dumps.iter().find(|dump| dump.address == pc);
    let pc = match (pc, dump) {
        (_, Some(dump)) => format!("PC is where {} begins", dump.file),
        (0, None) => "PC is 0".to_owned(),
        _ if device.registers.len() <= 4 => "PC is all that is given".to_owned(),
        _ => return None,
    };
    Some(format!("{pc}, SP is 0, there is no general register"))
}

/// Whether a register of the core's own set is `x0`…`x30` or `r0`…`r12`.
fn is_general(register: &str) -> bool {
    let digits = register.strip_prefix(['x', 'r']);
    digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::model::{Dump, Register, RegisterValue};

    fn device(registers: &[(&str, u64)], dump: Option<u64>) -> Device {
        let registers = registers.iter().map(|&(name, value)| Register {
            name: name.into(),
            value: RegisterValue(value.to_le_bytes().into()),
            ..Register::default()
        });
        let dump = dump.map(|address| Dump {
            file: "kernel.bin".into(),
            address,
            ..Dump::default()
        });
        Device {
            registers: registers.collect(),
            dumps: dump.into_iter().collect(),
            ..Device::default()
        }
    }

    fn why(architecture: Architecture, device: &Device) -> Option<String> {
        placeholder(device, &RegisterFile::read(device, architecture))
    }

    #[test]
    fn placeholders_are_told_from_machine_state() {
        use Architecture::{AArch32, AArch64};
        let written = [("R15", 0xC000_8000), ("R13", 0), ("CPSR", 0x1D3)];
        let why_a32 = why(AArch32, &device(&written, Some(0xC000_8000)));
        assert!(
            why_a32
                .unwrap()
                .starts_with("PC is where kernel.bin begins")
        );

        let written = [("PC", 0), ("SP", 0), ("SCTLR_EL1", 0), ("CPSR", 0)];
        assert!(why(AArch64, &device(&written, Some(0x1000))).is_some());

        let written = [("PC", 0x1000), ("SP", 0), ("X0", 0), ("CPSR", 0)];
        assert_eq!(why(AArch64, &device(&written, Some(0x1000))), None);
        let written = [("PC", 0x1000), ("SP", 0x8000), ("CPSR", 0)];
        assert_eq!(why(AArch64, &device(&written, Some(0x1000))), None);
        assert_eq!(why(AArch64, &device(&[], None)), None);
    }

    #[test]
    fn views_count_once() {
        let written = [
            ("X0", 0),
            ("W0", 0),
            ("x1", 0),
            ("B0", 0),
            ("D0", 0),
            ("V0", 0),
            ("SP", 0),
            ("ESR_EL1", 0),
        ];
        let count = count(&device(&written, None), Architecture::AArch64);
        assert_eq!((count.written, count.distinct), (8, 5));
    }

    #[test]
    fn cpsr_is_put_together_from_its_parts() {
        let parts = [
            ("CurrentEL", 8),
            ("DAIF", 0x3C0),
            ("NZCV", 0x2000_0000),
            ("SPSel", 1),
        ];
        let device = device(&parts, None);
        let file = RegisterFile::read(&device, Architecture::AArch64);
        let status = status(&device, &file).unwrap();
        assert!(status.assembled);
        assert_eq!(status.value.to_string(), "0x200003c9");
        assert_eq!(status.meaning, "EL2h, AArch64, NZCV=0010, DAIF=1111");
    }

    #[test]
    fn cpsr_as_written_is_not_assembled() {
        let device = device(&[("CPSR", 0x1D3)], None);
        let file = RegisterFile::read(&device, Architecture::AArch32);
        assert!(!status(&device, &file).unwrap().assembled);
    }
}
