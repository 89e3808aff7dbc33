//! Relocations of AArch64 (ELF for the Arm 64-bit Architecture, ARM IHI 0056, 5.7).

use object::elf::*;
use object::{Relocation, RelocationFlags};

/// Applies a relocation with the value S+A to the bytes at `place`; `None` if the value does not
/// fit, or the relocation does not occur in modules.
pub(super) fn apply(kind: RelocationType, value: u64, place: u64, bytes: &mut [u8]) -> Option<()> {
    let relative = value.wrapping_sub(place).cast_signed();
    let is_signed = |value: i64, bits: u32| (value << (64 - bits)) >> (64 - bits) == value;
    match kind {
        R_AARCH64_ABS64 => *bytes.first_chunk_mut()? = value.to_le_bytes(),
        R_AARCH64_PREL64 => *bytes.first_chunk_mut()? = relative.to_le_bytes(),
        R_AARCH64_ABS32 => {
            let fits = value >> 32 == 0 || is_signed(value.cast_signed(), 32);
            *bytes.first_chunk_mut()? = fits.then_some(value as u32)?.to_le_bytes();
        }
        R_AARCH64_PREL32 | R_AARCH64_PLT32 => {
            let fits = is_signed(relative, 32);
            *bytes.first_chunk_mut()? = fits.then_some(relative as u32)?.to_le_bytes();
        }
        R_AARCH64_ABS16 => {
            let fits = value >> 16 == 0 || is_signed(value.cast_signed(), 16);
            *bytes.first_chunk_mut()? = fits.then_some(value as u16)?.to_le_bytes();
        }
        R_AARCH64_PREL16 => {
            let fits = is_signed(relative, 16);
            *bytes.first_chunk_mut()? = fits.then_some(relative as u16)?.to_le_bytes();
        }
        _ => {
            let word = bytes.first_chunk_mut::<4>()?;
            let changed = instruction(kind, u32::from_le_bytes(*word), value, place)?;
            *word = changed.to_le_bytes();
        }
    }
    Some(())
}

/// Returns the instruction with its value.
fn instruction(kind: RelocationType, word: u32, value: u64, place: u64) -> Option<u32> {
    let relative = value.wrapping_sub(place).cast_signed();
    // `width` bits at `at` of the instruction hold a signed value in words.
    let words = |width: u32, at: u32| {
        let limit = 1_i64 << (width + 1);
        let fits = relative % 4 == 0 && (-limit..limit).contains(&relative);
        let mask = ((1_u32 << width) - 1) << at;
        fits.then_some(word & !mask | ((relative >> 2) as u32) << at & mask)
    };
    // 21 bits: two at bit 29, the others from bit 5 (ADR, ADRP).
    let address = |value: i64| {
        let fits = (-(1 << 20)..1 << 20).contains(&value);
        let (low, high) = (value as u32 & 3, (value >> 2) as u32 & 0x7_ffff);
        fits.then_some(word & !0x60ff_ffe0 | low << 29 | high << 5)
    };
    // The offset in a page, in units of the access size.
    let offset = |shift: u32| {
        let low = value as u32 & 0xfff;
        let aligned = low & ((1 << shift) - 1) == 0;
        aligned.then_some(word & !(0xfff << 10) | low >> shift << 10)
    };
    let part = |value: u64, index: u32| {
        word & !(0xffff << 5) | ((value >> (16 * index)) as u32 & 0xffff) << 5
    };
    // Checked: no bits are set above the part.
    let checked = |index: u32| {
        let rest = value.checked_shr(16 * (index + 1)).unwrap_or(0);
        (rest == 0).then_some(part(value, index))
    };
    // MOVN for negative values, MOVZ for all others.
    let signed = |value: i64, index: u32| {
        let rest = value >> (16 * (index + 1)).min(63);
        let word = match value < 0 {
            true => part((!value).cast_unsigned(), index) & !(1 << 30),
            false => part(value.cast_unsigned(), index) | 1 << 30,
        };
        matches!(rest, 0 | -1).then_some(word)
    };
    match kind {
        R_AARCH64_CALL26 | R_AARCH64_JUMP26 => words(26, 0),
        R_AARCH64_CONDBR19 | R_AARCH64_LD_PREL_LO19 => words(19, 5),
        R_AARCH64_TSTBR14 => words(14, 5),
        R_AARCH64_ADR_PREL_LO21 => address(relative),
        R_AARCH64_ADR_PREL_PG_HI21 | R_AARCH64_ADR_PREL_PG_HI21_NC => {
            let pages = (value & !0xfff).wrapping_sub(place & !0xfff).cast_signed() >> 12;
            (!on_edge(place)).then(|| address(pages))?
        }
        R_AARCH64_ADD_ABS_LO12_NC | R_AARCH64_LDST8_ABS_LO12_NC => offset(0),
        R_AARCH64_LDST16_ABS_LO12_NC => offset(1),
        R_AARCH64_LDST32_ABS_LO12_NC => offset(2),
        R_AARCH64_LDST64_ABS_LO12_NC => offset(3),
        R_AARCH64_LDST128_ABS_LO12_NC => offset(4),
        R_AARCH64_MOVW_UABS_G0 => checked(0),
        R_AARCH64_MOVW_UABS_G1 => checked(1),
        R_AARCH64_MOVW_UABS_G2 => checked(2),
        R_AARCH64_MOVW_UABS_G0_NC => Some(part(value, 0)),
        R_AARCH64_MOVW_UABS_G1_NC => Some(part(value, 1)),
        R_AARCH64_MOVW_UABS_G2_NC => Some(part(value, 2)),
        R_AARCH64_MOVW_UABS_G3 => Some(part(value, 3)),
        R_AARCH64_MOVW_SABS_G0 => signed(value.cast_signed(), 0),
        R_AARCH64_MOVW_SABS_G1 => signed(value.cast_signed(), 1),
        R_AARCH64_MOVW_SABS_G2 => signed(value.cast_signed(), 2),
        R_AARCH64_MOVW_PREL_G0 => signed(relative, 0),
        R_AARCH64_MOVW_PREL_G1 => signed(relative, 1),
        R_AARCH64_MOVW_PREL_G2 => signed(relative, 2),
        R_AARCH64_MOVW_PREL_G3 => signed(relative, 3),
        R_AARCH64_MOVW_PREL_G0_NC => Some(part(relative.cast_unsigned(), 0)),
        R_AARCH64_MOVW_PREL_G1_NC => Some(part(relative.cast_unsigned(), 1)),
        R_AARCH64_MOVW_PREL_G2_NC => Some(part(relative.cast_unsigned(), 2)),
        _ => None,
    }
}

/// Whether the kernel replaces an ADRP here with ADR or a branch, on processors with erratum 843419
/// (Linux, arch/arm64/kernel/module.c, `reloc_insn_adrp`).
const fn on_edge(place: u64) -> bool {
    place & 0xfff >= 0xff8
}

/// Whether the kernel may write a branch for an instruction with this relocation.
pub(super) fn may_be_replaced(place: u64, relocation: &Relocation) -> bool {
    let RelocationFlags::Elf { r_type } = relocation.flags() else {
        return true;
    };
    let pages = [R_AARCH64_ADR_PREL_PG_HI21, R_AARCH64_ADR_PREL_PG_HI21_NC];
    on_edge(place) && pages.contains(&r_type)
}
