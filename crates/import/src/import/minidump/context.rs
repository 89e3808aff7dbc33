//! The registers of a thread: CONTEXT of Windows (winnt.h), which Breakpad shares for ARM64, and
//! Breakpad's layouts (minidump_cpu_arm.h, minidump_cpu_arm64.h).

use super::streams::Architecture;
use crate::import::core_file::register;
use crate::import::fields::Fields;
use armsnap_snapshot::snapshot::model::Register;

/// Bits of the flags: which registers are valid.
const CONTROL: u32 = 1;
const INTEGER: u32 = 2;
const FLOATING_POINT: u32 = 4;
/// The bits that tell the architecture, in the layouts of Windows and of Breakpad.
const ARM_OF_WINDOWS: u32 = 0x0020_0000;
const ARM64: u32 = 0x0040_0000;
const ARM_OF_BREAKPAD: u32 = 0x4000_0000;
const OLD_ARM64: u32 = 0x8000_0000;

/// Reads the registers that are valid; `None` if the context is of another layout, or cut short.
pub fn registers(architecture: Architecture, context: &[u8]) -> Option<Vec<Register>> {
    let mut fields = Fields::new(context, false);
    let flags = fields.u32()?;
    let is = |bits: u32| flags & bits == bits;
    let found = match architecture {
        Architecture::Arm64 if is(ARM64) => arm64(&mut fields, flags)?,
        Architecture::OldArm64 if is(OLD_ARM64) => old_arm64(&mut fields, flags)?,
        // Breakpad has no bit for the PC and the SP.
        Architecture::Arm if is(ARM_OF_BREAKPAD) => arm(&mut fields, flags, true)?,
        Architecture::Arm if is(ARM_OF_WINDOWS) => arm(&mut fields, flags, false)?,
        _ => return None,
    };
    Some(found)
}

/// Reads registers of `size` bytes each, and keeps them if they are valid.
fn take(
    fields: &mut Fields<'_>,
    names: impl IntoIterator<Item = String>,
    size: usize,
    valid: bool,
    out: &mut Vec<Register>,
) -> Option<()> {
    for name in names {
        let value = fields.bytes(size)?;
        if valid {
            out.push(register(&name, value, fields));
        }
    }
    Some(())
}

fn numbered(letter: char, range: std::ops::Range<u32>) -> impl Iterator<Item = String> {
    range.map(move |number| format!("{letter}{number}"))
}

fn named<const N: usize>(names: [&str; N]) -> [String; N] {
    names.map(str::to_owned)
}

fn arm64(fields: &mut Fields<'_>, flags: u32) -> Option<Vec<Register>> {
    let (control, integer) = (flags & CONTROL != 0, flags & INTEGER != 0);
    let floating = flags & FLOATING_POINT != 0;
    let (mut status, mut out) = (Vec::new(), Vec::new());
    take(fields, named(["CPSR"]), 4, control, &mut status)?;
    take(fields, numbered('X', 0..29), 8, integer, &mut out)?;
    take(
        fields,
        named(["X29", "X30", "SP", "PC"]),
        8,
        control,
        &mut out,
    )?;
    out.append(&mut status);
    if floating {
        take(fields, numbered('V', 0..32), 16, true, &mut out)?;
        take(fields, named(["FPCR", "FPSR"]), 4, true, &mut out)?;
    }
    Some(out)
}

fn old_arm64(fields: &mut Fields<'_>, flags: u32) -> Option<Vec<Register>> {
    let integer = flags & INTEGER != 0;
    let mut out = Vec::new();
    // The flags have 64 bits.
    fields.bytes(4)?;
    take(fields, numbered('X', 0..31), 8, integer, &mut out)?;
    take(fields, named(["SP", "PC"]), 8, integer, &mut out)?;
    take(fields, named(["CPSR"]), 4, integer, &mut out)?;
    if flags & FLOATING_POINT != 0 {
        take(fields, named(["FPSR", "FPCR"]), 4, true, &mut out)?;
        take(fields, numbered('V', 0..32), 16, true, &mut out)?;
    }
    Some(out)
}

/// The layouts of Windows and Breakpad differ after the registers.
fn arm(fields: &mut Fields<'_>, flags: u32, breakpad: bool) -> Option<Vec<Register>> {
    let integer = flags & INTEGER != 0;
    let control = if breakpad {
        integer
    } else {
        flags & CONTROL != 0
    };
    let mut out = Vec::new();
    take(fields, numbered('R', 0..13), 4, integer, &mut out)?;
    take(
        fields,
        named(["SP", "LR", "PC", "CPSR"]),
        4,
        control,
        &mut out,
    )?;
    if flags & FLOATING_POINT != 0 {
        take(fields, named(["FPSCR"]), 4, true, &mut out)?;
        // Breakpad's FPSCR has 64 bits; padding in Windows' layout.
        fields.bytes(4)?;
        take(fields, numbered('D', 0..32), 8, true, &mut out)?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of registers in a context whose words count up.
    fn found(architecture: Architecture, flags: u32, size: usize) -> Option<Vec<(String, u64)>> {
        let mut context: Vec<u8> = (0..size as u32 / 4).flat_map(u32::to_le_bytes).collect();
        context[..4].copy_from_slice(&flags.to_le_bytes());
        let registers = registers(architecture, &context)?.into_iter();
        let low = |value: &[u8]| u32::from_le_bytes(value[..4].try_into().unwrap()).into();
        Some(
            registers
                .map(|found| (found.name, low(&found.value.0)))
                .collect(),
        )
    }

    #[track_caller]
    fn holds(found: &Option<Vec<(String, u64)>>, count: usize, wanted: &[(&str, u64)]) {
        let found = found.as_ref().unwrap();
        assert_eq!(found.len(), count, "{found:?}");
        for (name, word) in wanted {
            let value = found.iter().find(|known| known.0 == *name);
            assert_eq!(value.map(|known| known.1), Some(*word), "{name}");
        }
    }

    #[test]
    fn only_valid_registers_are_read() {
        use Architecture::{Arm, Arm64, OldArm64};
        let all = found(Arm64, ARM64 | 7, 912);
        let wanted = [
            ("CPSR", 1),
            ("X0", 2),
            ("X30", 62),
            ("SP", 64),
            ("PC", 66),
            ("V0", 68),
        ];
        holds(&all, 34 + 34, &wanted);
        holds(&all, 68, &[("V31", 192), ("FPCR", 196), ("FPSR", 197)]);
        holds(
            &found(Arm64, ARM64 | CONTROL, 912),
            5,
            &[("X29", 60), ("PC", 66)],
        );
        holds(&found(Arm64, ARM64 | INTEGER, 912), 29, &[("X28", 58)]);
        let old = found(OldArm64, OLD_ARM64 | 6, 796);
        holds(&old, 68, &[("X0", 2), ("SP", 64), ("PC", 66), ("CPSR", 68)]);
        holds(
            &old,
            68,
            &[("FPSR", 69), ("FPCR", 70), ("V0", 71), ("V31", 195)],
        );
        let arm = found(Arm, ARM_OF_BREAKPAD | 6, 368);
        holds(&arm, 50, &[("R0", 1), ("SP", 14), ("PC", 16), ("CPSR", 17)]);
        holds(&arm, 50, &[("FPSCR", 18), ("D0", 20), ("D31", 82)]);
        holds(&found(Arm, ARM_OF_WINDOWS | CONTROL, 416), 4, &[("LR", 15)]);
        assert_eq!(found(Arm, ARM64 | 7, 912), None);
        assert_eq!(found(Arm64, ARM64 | 7, 784), None);
        assert_eq!(found(Arm64, ARM64, 912), Some(Vec::new()));
    }
}
