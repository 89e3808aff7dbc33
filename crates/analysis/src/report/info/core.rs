//! A summary of a core's registers: their number, and where it is halted.

use std::collections::BTreeSet;

use super::{Hex, RegisterCount, StatusInfo};
use crate::report::psr;
use armsnap_arch::arch::{Architecture, RegisterFile, views};
use armsnap_snapshot::snapshot::model::Device;

/// The number of registers as written, and with the views of one register counted once.
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

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_snapshot::snapshot::model::{Register, RegisterValue};

    fn device(registers: &[(&str, u64)]) -> Device {
        let registers = registers.iter().map(|&(name, value)| Register {
            name: name.into(),
            value: RegisterValue(value.to_le_bytes().into()),
            ..Register::default()
        });
        Device {
            registers: registers.collect(),
            ..Device::default()
        }
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
        let count = count(&device(&written), Architecture::AArch64);
        assert_eq!((count.written, count.distinct), (8, 5));
    }

    #[test]
    fn cpsr_is_combined_from_its_parts() {
        let parts = [
            ("CurrentEL", 8),
            ("DAIF", 0x3C0),
            ("NZCV", 0x2000_0000),
            ("SPSel", 1),
        ];
        let device = device(&parts);
        let file = RegisterFile::read(&device, Architecture::AArch64);
        let status = status(&device, &file).unwrap();
        assert!(status.assembled);
        assert_eq!(status.value.to_string(), "0x200003c9");
        assert_eq!(status.meaning, "EL2h, AArch64, NZCV=0010, DAIF=1111");
    }

    #[test]
    fn cpsr_as_written_is_not_assembled() {
        let device = device(&[("CPSR", 0x1D3)]);
        let file = RegisterFile::read(&device, Architecture::AArch32);
        assert!(!status(&device, &file).unwrap().assembled);
    }
}
