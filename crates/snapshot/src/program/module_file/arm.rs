//! Relocations of AArch32 (ELF for the Arm Architecture, ARM IHI 0044, 5.6), as Linux applies them
//! (arch/arm/kernel/module.c).

use object::elf::*;

/// Applies a relocation with the symbol S to the bytes at `place`; without an explicit addend, the
/// addend is in the bytes. `None` if the value does not fit, or the relocation does not occur in
/// modules.
pub(super) fn apply(
    kind: RelocationType,
    symbol: u32,
    addend: Option<i32>,
    place: u32,
    bytes: &mut [u8],
) -> Option<()> {
    let field = bytes.first_chunk_mut::<4>()?;
    let word = u32::from_le_bytes(*field);
    let changed = match kind {
        R_ARM_THM_PC22 | R_ARM_THM_JUMP24 | R_ARM_THM_MOVW_ABS_NC | R_ARM_THM_MOVT_ABS => {
            // The first halfword is the upper one of the instruction.
            let word = word.rotate_left(16);
            thumb(kind, word, symbol, addend, place)?.rotate_left(16)
        }
        _ => arm(kind, word, symbol, addend, place)?,
    };
    *field = changed.to_le_bytes();
    Some(())
}

/// Returns the 16 bits of an A32 MOVW or MOVT.
const fn parts(value: u32) -> u32 {
    (value & 0xf000) << 4 | value & 0xfff
}

const fn immediate(word: u32) -> i32 {
    ((word >> 4 & 0xf000 | word & 0xfff) as u16).cast_signed() as i32
}

fn arm(
    kind: RelocationType,
    word: u32,
    symbol: u32,
    addend: Option<i32>,
    place: u32,
) -> Option<u32> {
    let value = |implicit: i32| symbol.wrapping_add_signed(addend.unwrap_or(implicit));
    let relative = |implicit: i32| value(implicit).wrapping_sub(place);
    Some(match kind {
        R_ARM_NONE => word,
        R_ARM_ABS32 | R_ARM_TARGET1 => value(word.cast_signed()),
        R_ARM_REL32 => relative(word.cast_signed()),
        R_ARM_PREL31 => {
            let offset = relative((word << 1).cast_signed() >> 1);
            let fits = (offset << 1).cast_signed() >> 1 == offset.cast_signed();
            fits.then_some(word & 1 << 31 | offset & 0x7fff_ffff)?
        }
        R_ARM_PC24 | R_ARM_CALL | R_ARM_JUMP24 => {
            let offset = relative((word << 8).cast_signed() >> 6).cast_signed();
            // Linux rejects a call that changes the instruction set.
            let fits = offset % 4 == 0 && (-(1 << 25)..1 << 25).contains(&offset);
            fits.then_some(word & 0xff00_0000 | (offset >> 2) as u32 & 0x00ff_ffff)?
        }
        R_ARM_V4BX => word & 0xf000_000f | 0x01a0_f000,
        R_ARM_MOVW_ABS_NC => word & 0xfff0_f000 | parts(value(immediate(word))),
        R_ARM_MOVT_ABS => word & 0xfff0_f000 | parts(value(immediate(word)) >> 16),
        R_ARM_MOVW_PREL_NC => word & 0xfff0_f000 | parts(relative(immediate(word))),
        R_ARM_MOVT_PREL => word & 0xfff0_f000 | parts(relative(immediate(word)) >> 16),
        _ => return None,
    })
}

/// Relocates a T32 instruction whose first halfword is the upper one in `word`.
fn thumb(
    kind: RelocationType,
    word: u32,
    symbol: u32,
    addend: Option<i32>,
    place: u32,
) -> Option<u32> {
    if matches!(kind, R_ARM_THM_MOVW_ABS_NC | R_ARM_THM_MOVT_ABS) {
        // imm4:i:imm3:imm8 (Arm ARM DDI 0487, F5.1.128).
        let own = word >> 4 & 0xf000 | word >> 15 & 0x800 | word >> 4 & 0x700 | word & 0xff;
        let own = i32::from((own as u16).cast_signed());
        let value = symbol.wrapping_add_signed(addend.unwrap_or(own));
        let value = match kind {
            R_ARM_THM_MOVT_ABS => value >> 16,
            _ => value & 0xffff,
        };
        let new = (value & 0xf000) << 4 | (value & 0x800) << 15 | (value & 0x700) << 4;
        return Some(word & 0xfbf0_8f00 | new | value & 0xff);
    }
    // S:I1:I2:imm10:imm11, with I = NOT(J XOR S) (F5.1.25).
    let sign = word >> 26 & 1;
    let own = |at: u32| !(word >> at ^ sign) & 1;
    let offset = sign << 24 | own(13) << 23 | own(11) << 22;
    let offset = offset | (word >> 16 & 0x3ff) << 12 | (word & 0x7ff) << 1;
    let offset = (offset << 7).cast_signed() >> 7;
    let target = symbol.wrapping_add_signed(addend.unwrap_or(offset));
    let offset = (target & !1).wrapping_sub(place).cast_signed();
    // Linux rejects a call of an A32 function.
    let fits = target & 1 == 1 && (-(1 << 24)..1 << 24).contains(&offset);
    let value = fits.then_some(offset.cast_unsigned())?;
    let sign = value >> 24 & 1;
    let new = |at: u32| !(value >> at ^ sign) & 1;
    let upper = word >> 16 & 0xf800 | sign << 10 | value >> 12 & 0x3ff;
    let lower = word & 0xd000 | new(23) << 13 | new(22) << 11 | value >> 1 & 0x7ff;
    Some(upper << 16 | lower)
}
