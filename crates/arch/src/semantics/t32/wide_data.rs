//! 32-bit data processing.

use crate::semantics::aarch32::alu::{Alu, data};
use crate::semantics::aarch32::bits::{bit, field, r};
use crate::semantics::aarch32::core::{Arm, CARRY, PC, constant};
use crate::semantics::aarch32::{media, multiply, shift};
use crate::semantics::operation::{Operation, Width};
use crate::semantics::{Location, Operand};

/// With a shifted register.
pub(super) fn shifted(arm: &mut Arm, word: u32) -> Option<()> {
    let (kind, amount) = (
        field(word, 4, 2),
        field(word, 12, 3) << 2 | field(word, 6, 2),
    );
    let (n, d, m) = (r(word, 16), r(word, 8), r(word, 0));
    if field(word, 21, 4) == 0b0110 {
        // PKHBT, PKHTB.
        if bit(word, 20) || bit(word, 4) || n == PC || d == PC || m == PC {
            return None;
        }
        let (value, other) = (arm.r(m), arm.r(n));
        let (value, _) = shift::by_immediate(arm, kind, value, amount, false);
        if bit(word, 5) {
            media::pack(arm, d, value, other);
        } else {
            media::pack(arm, d, other, value);
        }
        return Some(());
    }
    if m == PC {
        return None;
    }
    let value = arm.r(m);
    let (value, carry) = shift::by_immediate(arm, kind, value, amount, bit(word, 20));
    process(arm, word, value, carry)
}

/// With a modified immediate: a byte that is repeated, or rotated.
pub(super) fn modified_immediate(arm: &mut Arm, word: u32) -> Option<()> {
    let byte = field(word, 0, 8);
    let pattern = field(word, 26, 1) << 4 | field(word, 12, 3) << 1 | field(word, 7, 1);
    let (value, carry) = match pattern >> 1 {
        0 => (byte, CARRY),
        1 => (byte << 16 | byte, CARRY),
        2 => (byte << 24 | byte << 8, CARRY),
        3 => (byte.wrapping_mul(0x0101_0101), CARRY),
        _ => {
            let value = (0x80 | byte).rotate_right(pattern);
            (value, constant(value >> 31))
        }
    };
    process(arm, word, constant(value), carry)
}

fn process(arm: &mut Arm, word: u32, operand: Operand, carry: Operand) -> Option<()> {
    let (n, d, flags) = (r(word, 16), r(word, 8), bit(word, 20));
    let (operation, compares) = match field(word, 21, 4) {
        0 => (Alu::And, true),
        1 => (Alu::Clear, false),
        2 if n == PC => (Alu::Move, false),
        2 => (Alu::Or, false),
        3 if n == PC => (Alu::MoveNot, false),
        3 => (Alu::OrNot, false),
        4 => (Alu::Xor, true),
        8 => (Alu::Add, true),
        10 => (Alu::AddCarry, false),
        11 => (Alu::SubtractCarry, false),
        13 => (Alu::Subtract, true),
        14 => (Alu::ReverseSubtract, false),
        _ => return None,
    };
    let moves = matches!(operation, Alu::Move | Alu::MoveNot);
    if n == PC && !moves || d == PC && !(compares && flags) {
        return None;
    }
    let operands = [arm.r(n), operand];
    let to = (d != PC).then_some(d);
    data(arm, operation, flags, to, operands, carry);
    Some(())
}

/// ADDW, SUBW, MOVW, MOVT, saturation, bit fields.
pub(super) fn plain_immediate(arm: &mut Arm, word: u32) -> Option<()> {
    let (n, d) = (r(word, 16), r(word, 8));
    let imm12 = field(word, 26, 1) << 11 | field(word, 12, 3) << 8 | field(word, 0, 8);
    let low = field(word, 12, 3) << 2 | field(word, 6, 2);
    let count = field(word, 0, 5);
    if d == PC {
        return None;
    }
    match field(word, 20, 5) {
        op @ (0b00000 | 0b01010) => {
            let base = if n == PC {
                constant(arm.pc & !3)
            } else {
                arm.r(n)
            };
            let moved = if op == 0 { imm12 } else { imm12.wrapping_neg() };
            let sum = arm.add(base, moved);
            arm.write(d, sum);
        }
        0b00100 => arm.write(d, constant(u32::from(n) << 12 | imm12)),
        0b01100 => {
            let (old, value) = (arm.r(d), constant(u32::from(n) << 12 | imm12));
            let result = arm
                .b
                .op2(Operation::Insert { low: 16, count: 16 }, old, value);
            arm.write(d, result);
        }
        // SSAT16, USAT16.
        0b10010 | 0b11010 if low == 0 => {
            arm.unknown(Location::general(d));
            arm.unknown(Location::Q);
        }
        op @ (0b10000 | 0b10010 | 0b11000 | 0b11010) if n != PC => {
            let signed = op & 0b01000 == 0;
            let value = arm.r(n);
            let (value, _) = shift::by_immediate(arm, op & 2, value, low, false);
            media::saturate(arm, d, value, count + u32::from(signed), signed);
        }
        op @ (0b10100 | 0b11100) if n != PC => {
            return media::extract(arm, d, n, low, count + 1, op == 0b10100);
        }
        0b10110 => {
            let from = if n == PC { Operand::ZERO } else { arm.r(n) };
            return media::insert(arm, d, from, low, count);
        }
        _ => return None,
    }
    Some(())
}

/// Shifts by registers, extension, parallel and other operations of registers.
pub(super) fn registers(arm: &mut Arm, word: u32) -> Option<()> {
    let (n, d, m) = (r(word, 16), r(word, 8), r(word, 0));
    let (op1, op2) = (field(word, 20, 4), field(word, 4, 4));
    if d == PC || m == PC || field(word, 12, 4) != 15 {
        return None;
    }
    let addend = (n != PC).then_some(n);
    match (op1, op2) {
        (0..=7, 0) if n != PC => {
            let (value, by, flags) = (arm.r(n), arm.r(m), op1 & 1 == 1);
            let (value, carry) = shift::by_register(arm, op1 >> 1, value, by, flags);
            data(
                arm,
                Alu::Move,
                flags,
                Some(d),
                [Operand::ZERO, value],
                carry,
            );
        }
        (0..=5, 8..=15) if op2 & 4 == 0 => {
            let (signed, rotation) = (op1 & 1 == 0, 8 * field(word, 4, 2));
            match op1 >> 1 {
                0 => media::extend(arm, d, addend, m, rotation, 16, signed),
                1 => media::extend_pair(arm, d, addend, m, rotation, signed),
                _ => media::extend(arm, d, addend, m, rotation, 8, signed),
            }
        }
        (8..=15, 0..=7) if n != PC => {
            // ADD8, ADD16, ASX, -, SUB8, SUB16, SAX.
            let operation = [4, 0, 1, 8, 7, 3, 2, 8][op1 as usize & 7];
            let kind = (op2 & 3) + 1 + (op2 & 4);
            return media::parallel(arm, kind, operation, d, [n, m]);
        }
        (8, 8..=11) if n != PC => {
            media::add_saturating(arm, d, [m, n], op2 & 1 == 1, op2 & 2 == 2);
        }
        (9, 8..=11) if n == m => media::reverse(arm, op2 & 3, d, m),
        (10, 8) if n != PC => media::select(arm, d, [n, m]),
        (11, 8) if n == m => {
            let value = arm.r(m);
            let count = arm.b.op1(Operation::CountLeadingZeros(Width::W32), value);
            arm.write(d, count);
        }
        (12 | 13, 8..=10) if n != PC => {
            let operation = Operation::Crc32 {
                bytes: 1 << (op2 & 3),
                castagnoli: op1 == 13,
            };
            let (checksum, value) = (arm.r(n), arm.r(m));
            let result = arm.b.op2(operation, checksum, value);
            arm.write(d, result);
        }
        _ => return None,
    }
    Some(())
}

/// MUL, MLA and the like: 32-bit results.
pub(super) fn products(arm: &mut Arm, word: u32) -> Option<()> {
    let (factors, d, a) = ([r(word, 16), r(word, 0)], r(word, 8), r(word, 12));
    if factors.contains(&PC) || d == PC || field(word, 6, 2) != 0 {
        return None;
    }
    let addend = (a != PC).then_some(a);
    let upper = [bit(word, 5), bit(word, 4)];
    match (field(word, 20, 3), field(word, 4, 2)) {
        (0, 0) => multiply::single(arm, false, d, factors, addend.map(|a| (a, false))),
        (0, 1) => multiply::single(arm, false, d, factors, Some((addend?, true))),
        (1, _) => multiply::halves(arm, d, factors, upper, addend),
        // SMUAD, SMLAD, SMUSD, SMLSD.
        (2 | 4, 0 | 1) => {
            arm.unknown(Location::general(d));
            arm.unknown(Location::Q);
        }
        (3, 0 | 1) => multiply::by_half(arm, d, factors, bit(word, 4), addend),
        (5, 0 | 1) => multiply::upper(arm, d, factors, addend.map(|a| (a, false)), bit(word, 4)),
        (6, 0 | 1) => multiply::upper(arm, d, factors, Some((addend?, true)), bit(word, 4)),
        // USAD8, USADA8.
        (7, 0) => arm.unknown(Location::general(d)),
        _ => return None,
    }
    Some(())
}

/// SMULL and the like, SDIV, UDIV.
pub(super) fn long_products(arm: &mut Arm, word: u32) -> Option<()> {
    let (factors, low, high) = ([r(word, 16), r(word, 0)], r(word, 12), r(word, 8));
    let op2 = field(word, 4, 4);
    if factors.contains(&PC) || high == PC {
        return None;
    }
    let op1 = field(word, 20, 3);
    if op1 & 0b101 == 1 {
        if op2 != 15 || low != PC {
            return None;
        }
        multiply::divide(arm, op1 == 1, high, factors);
        return Some(());
    }
    if low == PC || low == high {
        return None;
    }
    let pair = [low, high];
    match (op1, op2) {
        (0, 0) => multiply::long(arm, false, pair, factors, true, false),
        (2, 0) => multiply::long(arm, false, pair, factors, false, false),
        (4, 0) => multiply::long(arm, false, pair, factors, true, true),
        (4, 8..=11) => {
            multiply::halves_long(arm, pair, factors, [bit(word, 5), bit(word, 4)]);
        }
        // SMLALD, SMLSLD.
        (4, 12 | 13) | (5, 12 | 13) => {
            arm.unknown(Location::general(low));
            arm.unknown(Location::general(high));
        }
        (6, 0) => multiply::long(arm, false, pair, factors, false, true),
        (6, 6) => multiply::add_both(arm, pair, factors),
        _ => return None,
    }
    Some(())
}
