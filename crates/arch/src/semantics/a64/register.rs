//! Data processing of registers (C4.1, "Data Processing -- Register").

use super::arithmetic::{
    LOW_32, add_or_subtract, add_with_carry, compared, extended, logic, set_cut, shifted,
    with_unknown_code,
};
use super::word::{Word, to_x, to_x_or_sp, x, x_or_sp};
use crate::semantics::builder::{Builder, ONE};
use crate::semantics::operation::{LaneOperation, Lanes};
use crate::semantics::{Location, Operand, Operation, Width};

pub(super) fn decode(builder: &mut Builder, word: Word) -> Option<()> {
    let width = word.width();
    match (word.bit(28), word.field(21, 4)) {
        (false, 0b0000..=0b0111) => {
            if width == Width::W32 && word.bit(15) {
                return None;
            }
            let (kind, amount) = (word.field(22, 2), word.field(10, 6));
            let mut b = shifted(builder, width, kind, x(word.m()), amount);
            let mut cut = amount != 0;
            if word.bit(21) {
                b = builder.op1(Operation::Not(width), b);
                cut = true;
            }
            let operands = [x(word.n()), b];
            logic(
                builder,
                width,
                word.field(29, 2),
                to_x(word.d()),
                operands,
                cut,
            );
        }
        (false, op) if op & 1 == 0 => {
            let kind = word.field(22, 2);
            if kind == 3 || width == Width::W32 && word.bit(15) {
                return None;
            }
            let b = shifted(builder, width, kind, x(word.m()), word.field(10, 6));
            let (subtract, flags) = (word.bit(30), word.bit(29));
            let operands = [x(word.n()), b];
            add_or_subtract(builder, width, subtract, flags, to_x(word.d()), operands);
        }
        (false, _) => {
            let amount = word.field(10, 3);
            if word.field(22, 2) != 0 || amount > 4 {
                return None;
            }
            let b = extended(builder, word.field(13, 3), x(word.m()), amount);
            let (subtract, flags) = (word.bit(30), word.bit(29));
            let to = if flags {
                to_x(word.d())
            } else {
                to_x_or_sp(word.d())
            };
            add_or_subtract(builder, width, subtract, flags, to, [x_or_sp(word.n()), b]);
        }
        (true, 0b0000) => carry_or_flags(builder, word)?,
        (true, 0b0010) => conditional_compare(builder, word)?,
        (true, 0b0100) => conditional_select(builder, word)?,
        (true, 0b0110) if word.bit(30) => one_source(builder, word)?,
        (true, 0b0110) => two_sources(builder, word)?,
        (true, 0b1000..=0b1111) => three_sources(builder, word)?,
        _ => return None,
    }
    Some(())
}

/// ADC, SBC, RMIF, SETF8, SETF16.
fn carry_or_flags(builder: &mut Builder, word: Word) -> Option<()> {
    let (width, from) = (word.width(), x(word.n()));
    match (word.field(10, 6), word.field(29, 3)) {
        (0, _) => {
            let mut b = x(word.m());
            if word.bit(30) {
                b = builder.op1(Operation::Not(width), b);
            }
            add_with_carry(builder, width, word.bit(29), to_x(word.d()), [from, b]);
        }
        (op, 0b101) if op & 0x1f == 1 && !word.bit(4) => {
            let rotation = Operand::Constant(u64::from(word.field(15, 6)));
            let rotated = builder.op2(Operation::RotateRight(Width::W64), from, rotation);
            let flags = [Location::V, Location::C, Location::Z, Location::N];
            for (bit, flag) in (0..).zip(flags) {
                if word.bit(bit) {
                    let low = bit as u8;
                    builder.set1(flag, Operation::Extract { low, count: 1 }, rotated);
                }
            }
        }
        (op, 0b001) if op & 0xf == 2 && word.field(15, 6) == 0 && word.field(0, 5) == 0b01101 => {
            let bits = if word.bit(14) { 16 } else { 8 };
            let value = builder.op1(
                Operation::Extract {
                    low: 0,
                    count: bits,
                },
                from,
            );
            let sign = Operation::Extract {
                low: bits - 1,
                count: 1,
            };
            let above = builder.op1(
                Operation::Extract {
                    low: bits,
                    count: 1,
                },
                from,
            );
            builder.set1(Location::N, sign, value);
            builder.set2(Location::Z, Operation::Equal, value, Operand::ZERO);
            builder.set2(
                Location::V,
                Operation::Xor,
                above,
                Operand::Location(Location::N),
            );
        }
        _ => return None,
    }
    Some(())
}

fn conditional_compare(builder: &mut Builder, word: Word) -> Option<()> {
    if !word.bit(29) || word.bit(10) || word.bit(4) {
        return None;
    }
    let b = if word.bit(11) {
        Operand::Constant(u64::from(word.m()))
    } else {
        x(word.m())
    };
    // Evaluated first: the condition may depend on a flag written here.
    let condition = builder.holds(word.field(12, 4) as u8);
    let condition = builder.kept(condition);
    let flags = compared(builder, word.width(), word.bit(30), [x(word.n()), b]);
    let otherwise = |bit| Operand::Constant(u64::from(word.field(bit, 1)));
    for (flag, value, bit) in [
        (Location::N, flags.n, 3),
        (Location::Z, flags.z, 2),
        (Location::C, flags.c, 1),
        (Location::V, flags.v, 0),
    ] {
        // An unconditional comparison never happens in practice, but the encoding is allowed.
        builder.set(flag, Operation::Select, value, otherwise(bit), condition);
    }
    Some(())
}

/// CSEL, CSINC, CSINV, CSNEG.
fn conditional_select(builder: &mut Builder, word: Word) -> Option<()> {
    if word.bit(29) || word.bit(11) {
        return None;
    }
    let (width, to, code) = (word.width(), to_x(word.d()), word.field(12, 4) as u8);
    let (first, second) = (x(word.n()), x(word.m()));
    let operation = (word.bit(30), word.bit(10));
    if operation == (false, true) && word.n() == 31 && word.m() == 31 && code < 14 {
        // CSET
        let holds = builder.holds(code ^ 1);
        builder.copy(to, holds);
        return Some(());
    }
    let otherwise = match operation {
        (false, false) => second,
        (false, true) if word.m() == 31 => ONE,
        (false, true) => builder.op2(Operation::Add(width), second, ONE),
        (true, false) if word.m() == 31 => Operand::Constant(u64::MAX),
        (true, false) => builder.op1(Operation::Not(width), second),
        (true, true) => builder.op2(Operation::Subtract(width), Operand::ZERO, second),
    };
    let condition = builder.holds(code);
    set_cut(
        builder,
        width,
        to,
        Operation::Select,
        [first, otherwise, condition],
    );
    Some(())
}

fn one_source(builder: &mut Builder, word: Word) -> Option<()> {
    let (width, to, from) = (word.width(), to_x(word.d()), x(word.n()));
    let long = width == Width::W64;
    if word.bit(29) {
        return None;
    }
    let none = Operand::ZERO;
    match (word.field(16, 5), word.field(10, 6)) {
        (0, 0) => builder.set1(to, Operation::ReverseBits(width), from),
        (0, 1) => {
            let operation = Operation::ReverseBytes { group: 2 };
            set_cut(builder, width, to, operation, [from, none, none]);
        }
        (0, 2) => {
            let operation = Operation::ReverseBytes { group: 4 };
            set_cut(builder, width, to, operation, [from, none, none]);
        }
        (0, 3) if long => builder.set1(to, Operation::ReverseBytes { group: 8 }, from),
        (0, 4) => builder.set1(to, Operation::CountLeadingZeros(width), from),
        (0, 5) => {
            // CLS: the bits that differ from the next higher bit.
            let half = builder.op2(Operation::ShiftRightSigned(width), from, ONE);
            let changes = builder.op2(Operation::Xor, from, half);
            let count = builder.op1(Operation::CountLeadingZeros(width), changes);
            builder.set2(to, Operation::Subtract(width), count, ONE);
        }
        // CTZ, CNT, ABS (FEAT_CSSC).
        (0, 6) => {
            let reversed = builder.op1(Operation::ReverseBits(width), from);
            builder.set1(to, Operation::CountLeadingZeros(width), reversed);
        }
        (0, 7 | 8) => builder.unknown(to),
        // PACIA to AUTDB.
        (1, 0..=7) if long => {
            let changed = with_unknown_code(builder, x(word.d()));
            builder.copy(to, changed);
        }
        // PACIZA to XPACD.
        (1, 8..=17) if long && word.n() == 31 => {
            let changed = with_unknown_code(builder, x(word.d()));
            builder.copy(to, changed);
        }
        _ => return None,
    }
    Some(())
}

fn two_sources(builder: &mut Builder, word: Word) -> Option<()> {
    let (width, to) = (word.width(), to_x(word.d()));
    let (a, b) = (x(word.n()), x(word.m()));
    let long = width == Width::W64;
    let opcode = word.field(10, 6);
    if word.bit(29) && !(opcode == 0 && long) {
        return None;
    }
    let limited = |operation| {
        let lanes = if long { Lanes::D64 } else { Lanes::S32 };
        Operation::Lane(operation, lanes)
    };
    let simple = match opcode {
        0 if long => {
            // SUBP, SUBPS: the difference of pointers without their tags.
            let address = Operation::ExtractSigned { low: 0, count: 56 };
            let a = builder.op1(address, x_or_sp(word.n()));
            let b = builder.op1(address, x_or_sp(word.m()));
            add_or_subtract(builder, width, true, word.bit(29), to, [a, b]);
            return Some(());
        }
        2 => Operation::DivideUnsigned(width),
        3 => Operation::DivideSigned(width),
        4 if long => {
            // IRG: a random tag.
            let tag = builder.op1(Operation::Unknown, Operand::ZERO);
            let insert = Operation::Insert { low: 56, count: 4 };
            builder.set2(to_x_or_sp(word.d()), insert, x_or_sp(word.n()), tag);
            return Some(());
        }
        5 if long => {
            // GMI: the tag mask with one more tag.
            builder.unknown(to);
            return Some(());
        }
        8 => Operation::ShiftLeft(width),
        9 => Operation::ShiftRight(width),
        10 => Operation::ShiftRightSigned(width),
        11 => Operation::RotateRight(width),
        12 if long => {
            // PACGA: an authentication code in the upper half.
            let code = builder.op1(Operation::Unknown, Operand::ZERO);
            let shift = Operand::Constant(32);
            builder.set2(to, Operation::ShiftLeft(Width::W64), code, shift);
            return Some(());
        }
        16..=23 if (opcode & 3 == 3) == long => {
            let bytes = 1 << (opcode & 3);
            let castagnoli = opcode & 4 != 0;
            Operation::Crc32 { bytes, castagnoli }
        }
        24 => limited(LaneOperation::MaxSigned),
        25 => limited(LaneOperation::MaxUnsigned),
        26 => limited(LaneOperation::MinSigned),
        27 => limited(LaneOperation::MinUnsigned),
        _ => return None,
    };
    if matches!(simple, Operation::Lane(..)) {
        set_cut(builder, width, to, simple, [a, b, Operand::ZERO]);
    } else {
        builder.set2(to, simple, a, b);
    }
    Some(())
}

fn three_sources(builder: &mut Builder, word: Word) -> Option<()> {
    let (width, to) = (word.width(), to_x(word.d()));
    let long = width == Width::W64;
    let (mut a, mut b, addend) = (x(word.n()), x(word.m()), x(word.a()));
    if word.field(29, 2) != 0 {
        return None;
    }
    match (word.field(21, 3), word.bit(15)) {
        (0b000, _) => {}
        (0b001, _) if long => {
            let part = Operation::ExtractSigned { low: 0, count: 32 };
            (a, b) = (builder.op1(part, a), builder.op1(part, b));
        }
        (0b101, _) if long => (a, b) = (builder.op1(LOW_32, a), builder.op1(LOW_32, b)),
        (0b010, false) if long => {
            builder.set2(to, Operation::MultiplyHighSigned, a, b);
            return Some(());
        }
        (0b110, false) if long => {
            builder.set2(to, Operation::MultiplyHighUnsigned, a, b);
            return Some(());
        }
        _ => return None,
    }
    let subtract = word.bit(15);
    if word.a() == 31 && !subtract {
        builder.set2(to, Operation::Multiply(width), a, b);
    } else {
        let product = builder.op2(Operation::Multiply(width), a, b);
        add_or_subtract(builder, width, subtract, false, to, [addend, product]);
    }
    Some(())
}
