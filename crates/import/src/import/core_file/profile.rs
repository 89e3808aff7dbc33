//! The profile of a 32-bit core file: that of Linux programs, or the M-profile, which has xPSR
//! instead of CPSR. Debuggers and systems for microcontrollers write such files (GDB, NuttX).

use super::notes::{Notes, Thread};
use crate::import::{ImportError, NamedProgram};
use armsnap_snapshot::program::elf::Elf;

/// CPSR.M[4], which is set in every mode of AArch32 (DDI 0487, G1.9.1).
const MODE: u64 = 1 << 4;
/// xPSR.T, without which the M-profile cannot execute; in CPSR it is the J bit of old cores (DDI
/// 0403, B1.4.2).
const THUMB: u64 = 1 << 24;
/// Reserved in xPSR.
const RESERVED: u64 = 0xf << 20;
/// The lowest exception return code.
const RETURN: u64 = 0xffff_ff80;

/// Whether the threads are of the M-profile, according to the register description that GDB writes,
/// the registers, or else the build attributes of the programs that the user names.
///
/// # Errors
///
/// If such a program cannot be read.
pub fn is_m_profile(notes: &Notes, programs: &[NamedProgram]) -> Result<bool, ImportError> {
    if let Some(described) = notes.m_profile {
        return Ok(described);
    }
    let found: Vec<bool> = notes.threads.iter().filter_map(of_registers).collect();
    match (found.contains(&true), found.contains(&false)) {
        (true, false) => return Ok(true),
        (false, true) => return Ok(false),
        _ => {}
    }
    for program in programs {
        if let Some(of_program) = Elf::open(&program.path)?.m_profile {
            return Ok(of_program);
        }
    }
    Ok(false)
}

/// What the registers of a thread imply.
fn of_registers(thread: &Thread) -> Option<bool> {
    let value = |name: &str| {
        let mut registers = thread.registers.iter();
        registers.find(|r| r.name == name)?.value.as_u64()
    };
    if value("LR").is_some_and(|lr| lr >= RETURN) {
        return Some(true);
    }
    match value("CPSR")? {
        // Not known.
        0 => None,
        status if status & THUMB != 0 => (status & RESERVED == 0).then_some(true),
        status => Some(status & MODE == 0),
    }
}

/// Renames the registers of a thread for the M-profile, which has no D16 to D31.
pub fn rename(thread: &mut Thread) {
    thread.registers.retain(|register| {
        let number = register.name.strip_prefix('D').map(str::parse::<u8>);
        !matches!(number, Some(Ok(16..)))
    });
    for register in &mut thread.registers {
        if register.name == "CPSR" {
            "xPSR".clone_into(&mut register.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_snapshot::snapshot::model::{Register, RegisterValue};

    fn notes(threads: &[(u32, u32)]) -> Notes {
        let register = |name: &str, value: u32| Register {
            name: name.to_owned(),
            size: Some(32),
            value: RegisterValue(value.to_le_bytes().to_vec()),
            ..Register::default()
        };
        let threads = threads.iter().map(|&(lr, status)| Thread {
            registers: vec![register("LR", lr), register("CPSR", status)],
            ..Thread::default()
        });
        let mut notes = Notes::default();
        notes.threads = threads.collect();
        notes
    }

    #[test]
    fn registers_tell_the_profile() {
        for (threads, wanted) in [
            // Thread mode, handler mode, and an interrupt whose number looks like a mode.
            (&[(0x0800_0001, 0x6100_0000)][..], true),
            (&[(0xffff_fff9, 0x0100_0003)], true),
            (&[(0x0800_0001, 0x2100_0013)], true),
            // A fault because the T bit is clear.
            (&[(0x0800_0001, 0x0000_0003)], true),
            (&[(0xffff_ffbc, 0)], true),
            // Linux programs in A32 and T32, and one with a thread whose registers are unknown.
            (&[(0x1_0000, 0x6000_0010)], false),
            (&[(0x1_0000, 0x2000_0030), (0, 0)], false),
            (&[(0x1_0000, 0x6080_0010)], false),
            (&[(0, 0)], false),
            // Contradictory threads.
            (&[(0, 0x6000_0010), (0, 0x0100_0000)], false),
        ] {
            let found = is_m_profile(&notes(threads), &[]).unwrap();
            assert_eq!(found, wanted, "{threads:x?}");
        }
        let mut described = notes(&[(0, 0)]);
        described.m_profile = Some(true);
        assert!(is_m_profile(&described, &[]).unwrap());
    }

    #[test]
    fn registers_have_the_names_of_the_profile() {
        let mut thread = notes(&[(0, 1)]).threads.remove(0);
        for name in ["D15", "D16", "D31"] {
            thread.registers.push(Register {
                name: name.to_owned(),
                ..Register::default()
            });
        }
        rename(&mut thread);
        let names: Vec<&str> = thread.registers.iter().map(|r| &*r.name).collect();
        assert_eq!(names, ["LR", "xPSR", "D15"]);
    }
}
