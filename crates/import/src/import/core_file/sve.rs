//! The note of SVE registers: NT_ARM_SVE (Linux, Documentation/arch/arm64/sve.rst, section 8, and
//! arch/arm64/include/uapi/asm/ptrace.h).

use crate::import::fields::Fields;
use armsnap_snapshot::snapshot::model::Register;

use super::notes::register;

/// SVE_PT_REGS_SVE: the registers have the SVE format, otherwise that of NT_FPREGSET.
const SVE: u16 = 1;
/// The minimum and maximum length of a vector in bytes (Arm ARM DDI 0487, B1.2.2).
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;
/// The unit of lengths and offsets.
const QUAD: usize = 16;
/// The number of vector registers in `struct user_fpsimd_state`.
const VECTORS: usize = 32;

/// Reads the registers; `None` if the note is cut short. A note may contain no registers, for
/// example for a thread in streaming mode.
pub fn registers(mut fields: Fields<'_>) -> Option<Vec<Register>> {
    let whole = fields.rest().len();
    fields.bytes(8)?;
    let length = usize::from(fields.u16()?);
    fields.bytes(2)?;
    let flags = fields.u16()?;
    fields.bytes(2)?;
    if fields.rest().is_empty() {
        return Some(Vec::new());
    }
    let is_possible = LENGTHS.contains(&length) && length.is_multiple_of(QUAD);
    if flags & SVE == 0 {
        let mut out = fpsimd(fields.again(fields.rest()))?;
        if is_possible {
            extend(length, &mut out);
        }
        return Some(out);
    }
    if !is_possible {
        return None;
    }
    // These are the names that debuggers use. The bytes of vectors are least significant first in
    // both byte orders.
    let mut vectors = Fields::new(fields.rest(), false);
    let mut out = Vec::new();
    for number in 0..VECTORS {
        let value = vectors.bytes(length)?;
        out.push(register(&format!("V{number}"), &value[..QUAD], &vectors));
        out.push(register(&format!("z{number}"), value, &vectors));
    }
    for number in 0..16 {
        let value = vectors.bytes(length / 8)?;
        out.push(register(&format!("p{number}"), value, &vectors));
    }
    out.push(register("ffr", vectors.bytes(length / 8)?, &vectors));
    let read = whole - vectors.rest().len();
    vectors.bytes(read.next_multiple_of(QUAD) - read)?;
    let mut rest = fields.again(vectors.rest());
    status(&mut rest, &mut out)?;
    out.push(granules(length));
    Some(out)
}

/// The vector length in units of 64 bits.
fn granules(length: usize) -> Register {
    let granules = (length as u64 / 8).to_le_bytes();
    register("vg", &granules, &Fields::new(&[], false))
}

/// Adds the registers of a thread whose SVE state is not live: the kernel clears all but the lower
/// 128 bits of the vectors before the thread can read them.
fn extend(length: usize, out: &mut Vec<Register>) {
    let none = Fields::new(&[], false);
    for number in 0..VECTORS {
        let mut value = out[number].value.0.clone();
        value.resize(length, 0);
        out.push(register(&format!("z{number}"), &value, &none));
    }
    let zero = vec![0; length / 8];
    let predicates = (0..16).map(|number| format!("p{number}"));
    for name in predicates.chain(["ffr".to_owned()]) {
        out.push(register(&name, &zero, &none));
    }
    out.push(granules(length));
}

/// The registers of a thread without SVE, as in NT_FPREGSET.
pub fn fpsimd(mut fields: Fields<'_>) -> Option<Vec<Register>> {
    let mut out = Vec::new();
    for number in 0..VECTORS {
        let value = fields.bytes(QUAD)?;
        out.push(register(&format!("V{number}"), value, &fields));
    }
    status(&mut fields, &mut out)?;
    Some(out)
}

fn status(fields: &mut Fields<'_>, out: &mut Vec<Register>) -> Option<()> {
    for name in ["FPSR", "FPCR"] {
        let value = fields.bytes(4)?;
        out.push(register(name, value, fields));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A note with vectors of this length.
    fn note(length: usize, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut out = [(16 + payload.len()) as u32, 0x2000]
            .map(u32::to_le_bytes)
            .concat();
        out.extend(
            [length as u16, 256, flags, 0]
                .map(u16::to_le_bytes)
                .concat(),
        );
        out.extend(payload);
        out
    }

    fn value(registers: &[Register], name: &str) -> Option<Vec<u8>> {
        let mut found = registers.iter().filter(|register| register.name == name);
        let value = found.next().map(|register| register.value.0.clone());
        assert!(found.next().is_none());
        value
    }

    #[test]
    fn vectors_of_any_length() {
        for length in [16, 48, 256] {
            // Z registers, P registers and FFR, padding, status.
            let vectors: Vec<u8> = (0..32).flat_map(|n| vec![n; length]).collect();
            let predicates: Vec<u8> = (0..17).flat_map(|n| vec![0x80 + n; length / 8]).collect();
            let mut payload = [vectors, predicates].concat();
            payload.resize(payload.len().next_multiple_of(16), 0xee);
            payload.extend([1, 0, 0, 0, 2, 0, 0, 0]);
            let whole = note(length, 1, &payload);
            let found = registers(Fields::new(&whole, false)).unwrap();
            assert_eq!(value(&found, "z31"), Some(vec![31; length]));
            assert_eq!(value(&found, "V31"), Some(vec![31; 16]));
            assert_eq!(value(&found, "p15"), Some(vec![0x8f; length / 8]));
            assert_eq!(value(&found, "ffr"), Some(vec![0x90; length / 8]));
            assert_eq!(value(&found, "FPCR"), Some(vec![2, 0, 0, 0]));
            assert_eq!(value(&found, "vg").unwrap()[0], (length / 8) as u8);
            for end in 17..whole.len() {
                assert_eq!(registers(Fields::new(&whole[..end], false)), None, "{end}");
            }
        }
    }

    #[test]
    fn notes_in_the_other_format_and_without_registers() {
        let payload: Vec<u8> = (0..33).flat_map(|n| [n; 16]).collect();
        let found = note(32, 0, &payload);
        let found = registers(Fields::new(&found, false)).unwrap();
        assert_eq!(value(&found, "V7"), Some(vec![7; 16]));
        let mut extended = vec![7; 16];
        extended.resize(32, 0);
        assert_eq!(value(&found, "z7"), Some(extended));
        assert_eq!(value(&found, "p3"), Some(vec![0; 4]));
        assert_eq!(value(&found, "vg").unwrap()[0], 4);
        assert_eq!(
            registers(Fields::new(&note(32, 0, &[]), false)),
            Some(Vec::new())
        );
        for length in [0, 8, 24, 272] {
            let wrong = note(length, 1, &[0; 20000]);
            assert_eq!(registers(Fields::new(&wrong, false)), None, "{length}");
        }
    }
}
