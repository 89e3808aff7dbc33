//! Copies of elements, and immediates.

use super::super::arithmetic::set_cut;
use super::super::word::{Word, to_x, v, x};
use super::form::{Form, d, in_lanes, lanes, n, shuffled_lanes};
use crate::semantics::builder::Builder;
use crate::semantics::floating::{immediate_double, immediate_single};
use crate::semantics::{Location, Operand, Operation, Width};

/// Returns whether the instruction is SMOV or UMOV, which write a general register.
pub(super) fn is_to_general(word: Word) -> bool {
    word.field(28, 4) & 0b1011 == 0
        && word.field(21, 4) == 0
        && !word.bit(15)
        && word.bit(10)
        && matches!(word.field(11, 4), 0b0101 | 0b0111)
}

pub(super) fn decode(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    let (imm5, imm4) = (word.field(16, 5), word.field(11, 4));
    let size = imm5.trailing_zeros();
    if size > 3 {
        return None;
    }
    let (bits, index) = (8u8 << size, imm5 >> (size + 1));
    let part = |index: u32| ((index << size >> 3) as u8, (index as u8 * bits) % 64);
    let (half, low) = part(index);
    let field = Operation::Extract { low, count: bits };
    match (word.bit(29), imm4) {
        (false, 0b0000) if form.scalar => {
            let element = builder.op1(field, v(word.n(), half));
            builder.move_to(Location::vector(word.d(), 0), element);
            builder.copy(Location::vector(word.d(), 1), Operand::ZERO);
        }
        _ if form.scalar => return None,
        (false, 0b0000 | 0b0001) => {
            if size == 3 && !form.full {
                return None;
            }
            let from = if imm4 == 0 {
                v(word.n(), half)
            } else {
                x(word.n())
            };
            let number = if imm4 == 0 { low / bits } else { 0 };
            let to = Location::vector(word.d(), 0);
            if size == 3 {
                builder.copy(to, from);
            } else {
                let all = shuffled_lanes(builder, lanes(size), from, Operand::ZERO, |_| number);
                builder.move_to(to, all);
            }
            let high = if form.full {
                Operand::Location(to)
            } else {
                Operand::ZERO
            };
            builder.copy(Location::vector(word.d(), 1), high);
        }
        (false, 0b0011) if form.full => {
            let to = Location::vector(word.d(), half);
            let insert = Operation::Insert { low, count: bits };
            builder.set2(to, insert, Operand::Location(to), x(word.n()));
        }
        (false, 0b0101) if size < 2 || size == 2 && form.full => {
            let width = if form.full { Width::W64 } else { Width::W32 };
            let signed = Operation::ExtractSigned { low, count: bits };
            let operands = [v(word.n(), half), Operand::ZERO, Operand::ZERO];
            set_cut(builder, width, to_x(word.d()), signed, operands);
        }
        (false, 0b0111) if (size == 3) == form.full => {
            builder.set1(to_x(word.d()), field, v(word.n(), half));
        }
        (true, _) if form.full => {
            let (from_half, from_low) = part(imm4 >> size);
            let mut from = n(word, from_half);
            if from_low != 0 {
                from = builder.op1(
                    Operation::Extract {
                        low: from_low,
                        count: bits,
                    },
                    from,
                );
            }
            let to = Location::vector(word.d(), half);
            let insert = Operation::Insert { low, count: bits };
            builder.set2(to, insert, Operand::Location(to), from);
        }
        _ => return None,
    }
    Some(())
}

/// MOVI, MVNI, ORR, BIC, FMOV of immediates.
pub(super) fn immediate(builder: &mut Builder, word: Word, form: Form) -> Option<()> {
    let (op, cmode) = (word.bit(29), word.field(12, 4));
    let byte = u64::from(word.field(16, 3) << 5 | word.field(5, 5));
    // Bit 11 is set only for FMOV of half precision.
    if word.bit(11) {
        return None;
    }
    let pattern = expanded(op, cmode, byte, form.full)?;
    let combines = cmode < 0b1100 && cmode & 1 == 1;
    form.by_halves(builder, word, |builder, half| match (combines, op) {
        (false, _) => Operand::Constant(pattern),
        (true, false) => builder.op2(Operation::Or, d(word, half), Operand::Constant(pattern)),
        (true, true) => builder.op2(Operation::And, d(word, half), Operand::Constant(!pattern)),
    });
    Some(())
}

/// `AdvSIMDExpandImm` (J1), inverted for MVNI.
fn expanded(op: bool, cmode: u32, byte: u64, full: bool) -> Option<u64> {
    let repeated = |size, number: u64| match in_lanes(lanes(size), number.cast_signed()) {
        Operand::Constant(value) => value,
        Operand::Location(_) => 0,
    };
    let shift = 8 * u64::from(cmode >> 1 & 3);
    let value = match cmode {
        0b0000..=0b0111 => repeated(2, byte << shift),
        0b1000..=0b1011 => repeated(1, byte << (shift & 8)),
        0b1100 => repeated(2, byte << 8 | 0xff),
        0b1101 => repeated(2, byte << 16 | 0xffff),
        0b1110 if !op => return Some(repeated(0, byte)),
        0b1110 => {
            // A byte of ones for each bit.
            let bytes = std::array::from_fn(|bit| if byte >> bit & 1 == 1 { 0xff } else { 0 });
            return Some(u64::from_le_bytes(bytes));
        }
        _ if !op => return Some(repeated(2, u64::from(immediate_single(byte)))),
        _ if full => return Some(immediate_double(byte)),
        _ => return None,
    };
    let inverts = op && (cmode & 1 == 0 || cmode >= 0b1100);
    Some(if inverts { !value } else { value })
}
