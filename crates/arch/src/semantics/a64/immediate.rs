//! Data processing with immediates (C4.1, "Data Processing -- Immediate").

use super::arithmetic::{add_or_subtract, logic, set_cut};
use super::word::{Word, to_x, to_x_or_sp, x, x_or_sp};
use crate::semantics::builder::Builder;
use crate::semantics::{Location, Operand, Operation, Width};

pub(super) fn decode(builder: &mut Builder, word: Word, address: u64) -> Option<()> {
    match word.field(23, 3) {
        0b000 | 0b001 => address_of(builder, word, address),
        0b010 => {
            let shift = if word.bit(22) { 12 } else { 0 };
            let value = Operand::Constant(u64::from(word.field(10, 12)) << shift);
            let (subtract, flags) = (word.bit(30), word.bit(29));
            let to = if flags {
                to_x(word.d())
            } else {
                to_x_or_sp(word.d())
            };
            let operands = [x_or_sp(word.n()), value];
            add_or_subtract(builder, word.width(), subtract, flags, to, operands);
        }
        0b011 => tagged_or_limited(builder, word)?,
        0b100 => {
            let mask = mask(
                word.bit(22),
                word.field(16, 6),
                word.field(10, 6),
                word.width(),
            )?;
            let opc = word.field(29, 2);
            let to = if opc == 0b11 {
                to_x(word.d())
            } else {
                to_x_or_sp(word.d())
            };
            let operands = [x(word.n()), Operand::Constant(mask)];
            logic(builder, word.width(), opc, to, operands, true);
        }
        0b101 => move_wide(builder, word)?,
        0b110 => bit_field(builder, word)?,
        _ => extract(builder, word)?,
    }
    Some(())
}

/// ADR, ADRP.
fn address_of(builder: &mut Builder, word: Word, address: u64) {
    let offset = word.signed(5, 19) << 2 | i64::from(word.field(29, 2));
    let value = if word.bit(31) {
        (address & !0xfff).wrapping_add_signed(offset << 12)
    } else {
        address.wrapping_add_signed(offset)
    };
    builder.copy(to_x(word.d()), Operand::Constant(value));
}

/// ADDG and SUBG, whose tag is unknown because it depends on the excluded tags; SMAX, UMAX, SMIN, UMIN
/// (FEAT_CSSC), which are not modelled.
fn tagged_or_limited(builder: &mut Builder, word: Word) -> Option<()> {
    if word.bit(22) {
        if word.field(29, 2) != 0 || word.field(20, 2) != 0 {
            return None;
        }
        builder.unknown(to_x(word.d()));
        return Some(());
    }
    if !word.bit(31) || word.bit(29) || word.field(14, 2) != 0 {
        return None;
    }
    let offset = Operand::Constant(u64::from(word.field(16, 6)) << 4);
    let operation = if word.bit(30) {
        Operation::Subtract(Width::W64)
    } else {
        Operation::Add(Width::W64)
    };
    let sum = builder.op2(operation, x_or_sp(word.n()), offset);
    let tag = builder.op1(Operation::Unknown, Operand::ZERO);
    builder.set2(
        to_x_or_sp(word.d()),
        Operation::Insert { low: 56, count: 4 },
        sum,
        tag,
    );
    Some(())
}

/// The mask of a logical immediate (J1, `DecodeBitMasks`).
fn mask(n: bool, immr: u32, imms: u32, width: Width) -> Option<u64> {
    if n && width == Width::W32 {
        return None;
    }
    let length = (u32::from(n) << 6 | (!imms & 0x3f)).checked_ilog2()?;
    let levels = (1 << length) - 1;
    if length == 0 || imms & levels == levels {
        return None;
    }
    let (ones, rotation, size) = (imms & levels, immr & levels, 1 << length);
    let element = u64::MAX >> (63 - ones);
    let whole = u64::MAX >> (64 - size);
    let mut mask = element;
    if rotation != 0 {
        mask = (element >> rotation | element << (size - rotation)) & whole;
    }
    let mut copied = size;
    while copied < 64 {
        mask |= mask << copied;
        copied *= 2;
    }
    Some(match width {
        Width::W32 => mask & 0xffff_ffff,
        Width::W64 => mask,
    })
}

fn move_wide(builder: &mut Builder, word: Word) -> Option<()> {
    let (width, low) = (word.width(), 16 * word.field(21, 2));
    if width == Width::W32 && low >= 32 {
        return None;
    }
    let (to, value) = (to_x(word.d()), u64::from(word.field(5, 16)));
    let constant = match word.field(29, 2) {
        0b00 if width == Width::W32 => !(value << low) & 0xffff_ffff,
        0b00 => !(value << low),
        0b10 => value << low,
        0b11 => {
            let insert = Operation::Insert {
                low: low as u8,
                count: 16,
            };
            let operands = [x(word.d()), Operand::Constant(value), Operand::ZERO];
            set_cut(builder, width, to, insert, operands);
            return Some(());
        }
        _ => return None,
    };
    builder.copy(to, Operand::Constant(constant));
    Some(())
}

/// SBFM, BFM, UBFM.
fn bit_field(builder: &mut Builder, word: Word) -> Option<()> {
    let (width, to, from) = (word.width(), to_x(word.d()), x(word.n()));
    let (immr, imms) = (word.field(16, 6) as u8, word.field(10, 6) as u8);
    let bits = if width == Width::W64 { 64 } else { 32 };
    if word.bit(22) != word.bit(31) || immr >= bits || imms >= bits {
        return None;
    }
    let shift = Operand::Constant(u64::from(bits - immr));
    // A field is moved down to bit 0, or up from bit 0.
    let out = imms >= immr;
    let (low, count) = if out {
        (immr, imms - immr + 1)
    } else {
        (0, imms + 1)
    };
    match word.field(29, 2) {
        0b00 if out => {
            let operation = Operation::ExtractSigned { low, count };
            set_cut(
                builder,
                width,
                to,
                operation,
                [from, Operand::ZERO, Operand::ZERO],
            );
        }
        0b00 => {
            let field = builder.op1(Operation::ExtractSigned { low, count }, from);
            builder.set2(to, Operation::ShiftLeft(width), field, shift);
        }
        0b01 => {
            let field = if low == 0 {
                from
            } else {
                builder.op1(Operation::Extract { low, count }, from)
            };
            let low = if out { 0 } else { bits - immr };
            let operands = [x(word.d()), field, Operand::ZERO];
            set_cut(
                builder,
                width,
                to,
                Operation::Insert { low, count },
                operands,
            );
        }
        0b10 if out => builder.set1(to, Operation::Extract { low, count }, from),
        // LSL
        0b10 if imms + 1 == immr => builder.set2(to, Operation::ShiftLeft(width), from, shift),
        0b10 => {
            let field = builder.op1(Operation::Extract { low, count }, from);
            builder.set2(to, Operation::ShiftLeft(width), field, shift);
        }
        _ => return None,
    }
    Some(())
}

/// EXTR: bits from a pair of registers; ROR where both are the same.
fn extract(builder: &mut Builder, word: Word) -> Option<()> {
    let (width, to, low) = (word.width(), to_x(word.d()), word.field(10, 6) as u8);
    let bits = if width == Width::W64 { 64 } else { 32 };
    if word.field(29, 2) != 0 || word.bit(21) || word.bit(22) != word.bit(31) || low >= bits {
        return None;
    }
    let (high_part, low_part) = (x(word.n()), x(word.m()));
    let amount = Operand::Constant(u64::from(low));
    if low == 0 {
        super::arithmetic::copy_cut(builder, width, to, low_part);
    } else if word.n() == word.m() {
        builder.set2(to, Operation::RotateRight(width), low_part, amount);
    } else if to != Location::NOWHERE {
        let rest = builder.op2(Operation::ShiftRight(width), low_part, amount);
        let insert = Operation::Insert {
            low: bits - low,
            count: low,
        };
        builder.set2(to, insert, rest, high_part);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_logical_immediates() {
        assert_eq!(mask(true, 0, 7, Width::W64), Some(0xff));
        assert_eq!(
            mask(false, 0, 0b111100, Width::W64),
            Some(0x5555_5555_5555_5555)
        );
        assert_eq!(mask(false, 1, 0b000000, Width::W32), Some(0x8000_0000));
        assert_eq!(mask(true, 63, 62, Width::W64), Some(0xffff_ffff_ffff_fffe));
        assert_eq!(mask(true, 0, 63, Width::W64), None, "all ones");
        assert_eq!(mask(false, 0, 0b111111, Width::W64), None, "reserved");
        assert_eq!(mask(true, 0, 7, Width::W32), None, "64 bits of 32");
    }
}
