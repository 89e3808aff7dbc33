//! Data processing with immediates.

use super::arithmetic::{add_or_subtract, copy_cut, logic, set_cut};
use super::word::{to_x, to_x_or_sp, width, x, x_or_sp};
use crate::encoding::{a64::Immediate, signed};
use crate::semantics::builder::Builder;
use crate::semantics::{Location, Operand, Operation, Width};

pub(super) fn decode(builder: &mut Builder, word: u32, address: u64) -> Option<()> {
    match Immediate::decode(word)? {
        Immediate::Address { page, low, imm, rd } => {
            let offset = signed(imm, 19) << 2 | i64::from(low);
            let value = if page {
                (address & !0xfff).wrapping_add_signed(offset << 12)
            } else {
                address.wrapping_add_signed(offset)
            };
            builder.copy(to_x(rd), Operand::Constant(value));
        }
        Immediate::AddSubtract {
            sf,
            op,
            s,
            shift,
            imm,
            rn,
            rd,
        } => {
            let shift = if shift { 12 } else { 0 };
            let value = Operand::Constant(u64::from(imm) << shift);
            let to = if s { to_x(rd) } else { to_x_or_sp(rd) };
            add_or_subtract(builder, width(sf), op, s, to, [x_or_sp(rn), value]);
        }
        // The new tag is unknown because it depends on the excluded tags.
        Immediate::AddTag {
            op, imm, rn, rd, ..
        } => {
            let offset = Operand::Constant(u64::from(imm) << 4);
            let operation = if op {
                Operation::Subtract(Width::W64)
            } else {
                Operation::Add(Width::W64)
            };
            let sum = builder.op2(operation, x_or_sp(rn), offset);
            let tag = builder.op1(Operation::Unknown, Operand::ZERO);
            let insert = Operation::Insert { low: 56, count: 4 };
            builder.set2(to_x_or_sp(rd), insert, sum, tag);
        }
        // Not modelled.
        Immediate::MinMax { rd, .. } => builder.unknown(to_x(rd)),
        Immediate::Logical {
            sf,
            opc,
            n,
            immr,
            imms,
            rn,
            rd,
        } => {
            let mask = mask(n, immr.into(), imms.into(), width(sf))?;
            let to = if opc == 0b11 {
                to_x(rd)
            } else {
                to_x_or_sp(rd)
            };
            let operands = [x(rn), Operand::Constant(mask)];
            logic(builder, width(sf), opc, to, operands, true);
        }
        Immediate::MoveWide {
            sf,
            opc,
            hw,
            imm,
            rd,
        } => move_wide(builder, width(sf), opc, (imm, 16 * hw), rd)?,
        Immediate::BitField {
            sf,
            opc,
            n,
            immr,
            imms,
            rn,
            rd,
        } => {
            if n != sf {
                return None;
            }
            bit_field(builder, width(sf), opc, [immr, imms], [rn, rd])?;
        }
        Immediate::Extract {
            sf,
            n,
            rm,
            imms,
            rn,
            rd,
        } => {
            if n != sf {
                return None;
            }
            extract(builder, width(sf), imms, [rn, rm], to_x(rd))?;
        }
    }
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

fn move_wide(
    builder: &mut Builder,
    width: Width,
    opc: u8,
    (value, low): (u32, u8),
    number: u8,
) -> Option<()> {
    if width == Width::W32 && low >= 32 {
        return None;
    }
    let (to, value) = (to_x(number), u64::from(value));
    let constant = match opc {
        0b00 if width == Width::W32 => !(value << low) & 0xffff_ffff,
        0b00 => !(value << low),
        0b10 => value << low,
        0b11 => {
            let insert = Operation::Insert { low, count: 16 };
            let operands = [x(number), Operand::Constant(value), Operand::ZERO];
            set_cut(builder, width, to, insert, operands);
            return Some(());
        }
        _ => return None,
    };
    builder.copy(to, Operand::Constant(constant));
    Some(())
}

/// SBFM, BFM, UBFM.
fn bit_field(
    builder: &mut Builder,
    width: Width,
    opc: u8,
    [immr, imms]: [u8; 2],
    [rn, rd]: [u8; 2],
) -> Option<()> {
    let (to, from) = (to_x(rd), x(rn));
    let bits = if width == Width::W64 { 64 } else { 32 };
    if immr >= bits || imms >= bits {
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
    match opc {
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
            let operands = [x(rd), field, Operand::ZERO];
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
fn extract(
    builder: &mut Builder,
    width: Width,
    low: u8,
    [rn, rm]: [u8; 2],
    to: Location,
) -> Option<()> {
    let bits = if width == Width::W64 { 64 } else { 32 };
    if low >= bits {
        return None;
    }
    let (high_part, low_part) = (x(rn), x(rm));
    let amount = Operand::Constant(u64::from(low));
    if low == 0 {
        copy_cut(builder, width, to, low_part);
    } else if rn == rm {
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
