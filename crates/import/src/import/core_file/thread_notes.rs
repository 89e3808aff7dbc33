//! Notes with thread state that only some systems have (Linux, include/uapi/linux/elf.h and
//! arch/arm64/include/uapi/asm/ptrace.h).

use super::notes::register;
use crate::import::fields::Fields;
use armsnap_arch::arch::pointer_auth;
use armsnap_snapshot::snapshot::model::Register;
use object::elf;

const ARM_TLS: u32 = elf::NT_ARM_TLS.0;
const ARM_HW_BREAK: u32 = elf::NT_ARM_HW_BREAK.0;
const ARM_HW_WATCH: u32 = elf::NT_ARM_HW_WATCH.0;
const ARM_SYSTEM_CALL: u32 = elf::NT_ARM_SYSTEM_CALL.0;
const ARM_PAC_MASK: u32 = 0x406;
const ARM_PACA_KEYS: u32 = 0x407;
const ARM_PACG_KEYS: u32 = 0x408;
const ARM_TAGGED_ADDR_CTRL: u32 = 0x409;
const ARM_PAC_ENABLED_KEYS: u32 = 0x40a;
const ARM_SSVE: u32 = 0x40b;
const ARM_ZA: u32 = 0x40c;
const ARM_ZT: u32 = 0x40d;
const ARM_FPMR: u32 = 0x40e;
const ARM_POE: u32 = 0x40f;
const ARM_GCS: u32 = 0x410;
/// The size of `struct user_sve_header` and `user_za_header`.
const SME_HEADER: usize = 16;
/// The size of the header of `struct user_hwdebug_state`, with the number of breakpoints or
/// watchpoints.
const DEBUG_HEADER: usize = 8;

/// The contents of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteContents {
    /// Registers.
    Registers(Vec<Register>),
    /// State of SME.
    Sme,
    /// No state.
    Empty,
    /// State that is not read.
    Unread,
}

/// Reads a note; `None` if it is cut short.
pub fn read(kind: u32, mut fields: Fields<'_>, is_64bit: bool) -> Option<NoteContents> {
    let size = fields.rest().len();
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let word = if is_64bit { 8 } else { 4 };
    // Names from the architecture, or those that GDB uses.
    let (names, width): (&[&str], usize) = match kind {
        ARM_TLS if !is_64bit => (&["TPIDRURO"], word),
        // On a system with SME.
        ARM_TLS if size >= 16 => (&["TPIDR_EL0", "TPIDR2_EL0"], word),
        ARM_TLS => (&["TPIDR_EL0"], word),
        ARM_FPMR => (&["FPMR"], 8),
        ARM_PAC_MASK => (&pointer_auth::MASKS, 8),
        ARM_POE => (&["POR_EL0"], 8),
        ARM_TAGGED_ADDR_CTRL => (&["tag_ctl"], word),
        ARM_GCS => (
            &["gcs_features_enabled", "gcs_features_locked", "GCSPR_EL0"],
            8,
        ),
        // -1 outside a system call.
        ARM_SYSTEM_CALL => match fields.rest().get(..4)? == [0xff; 4] {
            true => return Some(NoteContents::Empty),
            false => (&["syscall_number"], 4),
        },
        // Only the header, if the thread does not use this state.
        ARM_SSVE | ARM_ZA if size > SME_HEADER => return Some(NoteContents::Sme),
        ARM_ZT if !is_zero(fields.rest()) => return Some(NoteContents::Sme),
        ARM_SSVE | ARM_ZA | ARM_ZT => return Some(NoteContents::Empty),
        ARM_HW_BREAK | ARM_HW_WATCH => {
            let registers = fields.rest().get(DEBUG_HEADER..).unwrap_or(&[]);
            return Some(match is_zero(registers) {
                true => NoteContents::Empty,
                false => NoteContents::Unread,
            });
        }
        // The keys only sign pointers; they reveal nothing about the state.
        ARM_PACA_KEYS | ARM_PACG_KEYS | ARM_PAC_ENABLED_KEYS => {
            return Some(NoteContents::Empty);
        }
        _ => return Some(NoteContents::Unread),
    };
    let mut registers = Vec::new();
    for name in names {
        let value = fields.bytes(width)?;
        registers.push(register(name, value, &fields));
    }
    Some(NoteContents::Registers(registers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: u32, contents: &[u8], is_64bit: bool) -> Option<Vec<(String, u64)>> {
        match read(kind, Fields::new(contents, false), is_64bit)? {
            NoteContents::Registers(registers) => Some(
                registers
                    .into_iter()
                    .map(|register| (register.name, register.value.as_u64().unwrap()))
                    .collect(),
            ),
            _ => Some(Vec::new()),
        }
    }

    #[test]
    fn registers_of_each_kind() {
        let values: Vec<u8> = [1_u64, 2, 3].iter().flat_map(|n| n.to_le_bytes()).collect();
        for (kind, length, is_64bit, wanted) in [
            (ARM_TLS, 8, true, &[("TPIDR_EL0", 1)][..]),
            (ARM_TLS, 16, true, &[("TPIDR_EL0", 1), ("TPIDR2_EL0", 2)]),
            (ARM_TLS, 4, false, &[("TPIDRURO", 1)]),
            (ARM_FPMR, 8, true, &[("FPMR", 1)]),
            (
                ARM_PAC_MASK,
                16,
                true,
                &[("pauth_dmask", 1), ("pauth_cmask", 2)],
            ),
            (ARM_POE, 8, true, &[("POR_EL0", 1)]),
            (ARM_TAGGED_ADDR_CTRL, 8, true, &[("tag_ctl", 1)]),
            (ARM_SYSTEM_CALL, 4, true, &[("syscall_number", 1)]),
            (
                ARM_GCS,
                24,
                true,
                &[
                    ("gcs_features_enabled", 1),
                    ("gcs_features_locked", 2),
                    ("GCSPR_EL0", 3),
                ],
            ),
        ] {
            let found = of(kind, &values[..length], is_64bit).unwrap();
            let found: Vec<(&str, u64)> = found.iter().map(|(n, v)| (&**n, *v)).collect();
            assert_eq!(found, wanted);
            let cut = of(kind, &values[..3], is_64bit);
            assert_eq!(cut, None, "{kind:#x}");
        }
    }

    #[test]
    fn state_that_is_not_read_is_told_from_none() {
        let read = |kind, contents: &[u8]| read(kind, Fields::new(contents, false), true);
        for (kind, contents, wanted) in [
            (ARM_ZA, &[0; 16][..], NoteContents::Empty),
            (ARM_ZA, &[0; 17], NoteContents::Sme),
            (ARM_ZT, &[0; 64], NoteContents::Empty),
            (ARM_ZT, &[1; 64], NoteContents::Sme),
            (ARM_SYSTEM_CALL, &[0xff; 4], NoteContents::Empty),
            (
                ARM_HW_BREAK,
                &[6, 8, 0, 0, 0, 0, 0, 0, 0, 0],
                NoteContents::Empty,
            ),
            (
                ARM_HW_WATCH,
                &[6, 8, 0, 0, 0, 0, 0, 0, 0, 1],
                NoteContents::Unread,
            ),
            (0x4fe, &[0; 4], NoteContents::Unread),
        ] {
            assert_eq!(read(kind, contents), Some(wanted), "{kind:#x}");
        }
    }
}
