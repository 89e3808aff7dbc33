//! Core file notes with state of a thread that only some systems have, as Linux writes them
//! (include/uapi/linux/elf.h, arch/arm64/include/uapi/asm/ptrace.h).

use super::note;
use armsnap_arch::arch::pointer_auth::{MASKS, Masks};
use armsnap_arch::arch::{Architecture, RegisterFile, pointer_auth};
use object::elf;
use std::collections::BTreeSet;

const NT_ARM_TLS: u32 = elf::NT_ARM_TLS.0;
const NT_ARM_SYSTEM_CALL: u32 = elf::NT_ARM_SYSTEM_CALL.0;
const NT_ARM_SVE: u32 = elf::NT_ARM_SVE.0;
const NT_ARM_PAC_MASK: u32 = 0x406;
const NT_ARM_TAGGED_ADDR_CTRL: u32 = 0x409;
const NT_ARM_FPMR: u32 = 0x40e;
const NT_ARM_POE: u32 = 0x40f;
const NT_ARM_GCS: u32 = 0x410;
/// Note type, and registers with their sizes in bytes.
const KINDS: [(u32, &[(&str, usize)]); 8] = [
    // With SME, and without.
    (NT_ARM_TLS, &[("TPIDR_EL0", 8), ("TPIDR2_EL0", 8)]),
    (NT_ARM_TLS, &[("TPIDR_EL0", 8)]),
    (NT_ARM_PAC_MASK, &[(MASKS[0], 8), (MASKS[1], 8)]),
    (NT_ARM_SYSTEM_CALL, &[("syscall_number", 4)]),
    (NT_ARM_TAGGED_ADDR_CTRL, &[("tag_ctl", 8)]),
    (NT_ARM_FPMR, &[("FPMR", 8)]),
    (NT_ARM_POE, &[("POR_EL0", 8)]),
    (
        NT_ARM_GCS,
        &[
            ("gcs_features_enabled", 8),
            ("gcs_features_locked", 8),
            ("GCSPR_EL0", 8),
        ],
    ),
];
/// SVE_PT_REGS_SVE: the registers are in SVE format.
const SVE: u16 = 1;
/// The unit of lengths and offsets in the SVE note.
const QUAD: usize = 16;

/// Appends the notes of a thread. Returns the registers outside the core's own set that a core file
/// cannot contain, or that are not completely known.
pub fn write(registers: &RegisterFile, out: &mut Vec<u8>) -> Vec<String> {
    let mut written = BTreeSet::new();
    if registers.architecture() == Architecture::AArch64 {
        let mut kinds = BTreeSet::new();
        for (kind, names) in KINDS {
            let masks = Masks::of(registers);
            let values = names.iter().map(|(name, _)| match kind {
                NT_ARM_PAC_MASK => masks.map(|masks| masks.named(name)),
                _ => registers.value(name),
            });
            let values: Option<Vec<u64>> = values.collect();
            let Some(values) = values.filter(|_| kinds.insert(kind)) else {
                continue;
            };
            let mut contents = Vec::new();
            for ((name, size), value) in names.iter().zip(values) {
                contents.extend(&value.to_le_bytes()[..*size]);
                written.insert(name.to_ascii_lowercase());
            }
            note(b"LINUX", kind, &contents, out);
        }
        if let Some((names, contents)) = scalable(registers) {
            note(b"LINUX", NT_ARM_SVE, &contents, out);
            written.extend(names);
        }
    }
    let others = registers.others().map(|(name, _)| name);
    // The masks of pointer authentication have a separate note.
    let is_mask = |name: &&str| pointer_auth::MASKS.contains(&name.to_ascii_lowercase().as_str());
    let has_masks = pointer_auth::Masks::of(registers).is_some();
    let others = others.filter(|name| !(has_masks && is_mask(name)));
    let left = others.filter(|name| !written.contains(&name.to_ascii_lowercase()));
    left.map(str::to_owned).collect()
}

/// The names of the SVE registers, and `struct user_sve_header` followed by their values; `None` if
/// not all are known.
fn scalable(registers: &RegisterFile) -> Option<(Vec<String>, Vec<u8>)> {
    let length = usize::try_from(registers.value("vg")?)
        .ok()?
        .checked_mul(8)?;
    if !(QUAD..=256).contains(&length) || !length.is_multiple_of(QUAD) {
        return None;
    }
    let predicates = (0..16).map(|number| format!("p{number}"));
    let names: Vec<String> = (0..32)
        .map(|number| format!("z{number}"))
        .chain(predicates)
        .chain(["ffr".to_owned()])
        .collect();
    let mut contents = Vec::new();
    for name in &names {
        let size = match name.starts_with('z') {
            true => length,
            false => length / 8,
        };
        let bytes = registers.other(name).filter(|bytes| bytes.len() == size)?;
        contents.extend(bytes.iter().copied().collect::<Option<Vec<u8>>>()?);
    }
    const HEADER: usize = 16;
    contents.resize((HEADER + contents.len()).next_multiple_of(QUAD) - HEADER, 0);
    for name in ["fpsr", "fpcr"] {
        let value = registers.value(name)?;
        contents.extend((value as u32).to_le_bytes());
    }
    contents.resize(contents.len().next_multiple_of(QUAD), 0);
    let size = (HEADER + contents.len()) as u32;
    let mut out = [size, size].map(u32::to_le_bytes).concat();
    let halves = [length as u16, length as u16, SVE, 0];
    out.extend(halves.map(u16::to_le_bytes).concat());
    out.extend(contents);
    let known = names.into_iter().chain(["vg".to_owned()]);
    Some((known.collect(), out))
}
