//! Data processing of registers.

use super::arithmetic::{
    LOW_32, add_or_subtract, add_with_carry, compared, extended, logic, set_cut, shifted,
    with_unknown_code,
};
use super::word::{to_x, to_x_or_sp, width, x, x_or_sp};
use crate::encoding::a64::Register;
use crate::semantics::builder::{Builder, ONE};
use crate::semantics::operation::{LaneOperation, Lanes};
use crate::semantics::{Location, Operand, Operation, Width};

pub(super) fn decode(builder: &mut Builder, word: u32) -> Option<()> {
    match Register::decode(word)? {
        Register::Logical {
            sf,
            opc,
            shift,
            n,
            rm,
            imm,
            rn,
            rd,
        } => {
            let width = width(sf);
            if !sf && imm >= 32 {
                return None;
            }
            let mut b = shifted(builder, width, shift, x(rm), imm);
            let mut cut = imm != 0;
            if n {
                b = builder.op1(Operation::Not(width), b);
                cut = true;
            }
            logic(builder, width, opc, to_x(rd), [x(rn), b], cut);
        }
        Register::AddSubtract {
            sf,
            op,
            s,
            shift,
            rm,
            imm,
            rn,
            rd,
        } => {
            if shift == 3 || !sf && imm >= 32 {
                return None;
            }
            let b = shifted(builder, width(sf), shift, x(rm), imm);
            add_or_subtract(builder, width(sf), op, s, to_x(rd), [x(rn), b]);
        }
        Register::AddSubtractExtended {
            sf,
            op,
            s,
            rm,
            option,
            imm,
            rn,
            rd,
        } => {
            if imm > 4 {
                return None;
            }
            let b = extended(builder, option, x(rm), imm);
            let to = if s { to_x(rd) } else { to_x_or_sp(rd) };
            add_or_subtract(builder, width(sf), op, s, to, [x_or_sp(rn), b]);
        }
        Register::AddCarry {
            sf,
            op,
            s,
            rm,
            rn,
            rd,
        } => {
            let mut b = x(rm);
            if op {
                b = builder.op1(Operation::Not(width(sf)), b);
            }
            add_with_carry(builder, width(sf), s, to_x(rd), [x(rn), b]);
        }
        Register::RotateToFlags { imm, rn, mask } => {
            let rotation = Operand::Constant(u64::from(imm));
            let rotated = builder.op2(Operation::RotateRight(Width::W64), x(rn), rotation);
            let flags = [Location::V, Location::C, Location::Z, Location::N];
            for (low, flag) in (0..).zip(flags) {
                if mask >> low & 1 == 1 {
                    builder.set1(flag, Operation::Extract { low, count: 1 }, rotated);
                }
            }
        }
        Register::SetFlags { size, rn } => {
            let bits = if size { 16 } else { 8 };
            let extract = |low, count| Operation::Extract { low, count };
            let value = builder.op1(extract(0, bits), x(rn));
            let above = builder.op1(extract(bits, 1), x(rn));
            let n = Operand::Location(Location::N);
            builder.set1(Location::N, extract(bits - 1, 1), value);
            builder.set2(Location::Z, Operation::Equal, value, Operand::ZERO);
            builder.set2(Location::V, Operation::Xor, above, n);
        }
        Register::ConditionalCompare {
            sf,
            op,
            rm,
            cond,
            immediate,
            rn,
            nzcv,
        } => {
            let b = if immediate {
                Operand::Constant(u64::from(rm))
            } else {
                x(rm)
            };
            // Evaluated first: the condition may depend on a flag written here.
            let condition = builder.holds(cond);
            let condition = builder.kept(condition);
            let flags = compared(builder, width(sf), op, [x(rn), b]);
            for (flag, value, bit) in [
                (Location::N, flags.n, 3),
                (Location::Z, flags.z, 2),
                (Location::C, flags.c, 1),
                (Location::V, flags.v, 0),
            ] {
                // An unconditional comparison never happens in practice, but the encoding is allowed.
                let otherwise = Operand::Constant(u64::from(nzcv >> bit & 1));
                builder.set(flag, Operation::Select, value, otherwise, condition);
            }
        }
        // CSET
        Register::ConditionalSelect {
            op: false,
            rm: 31,
            cond: cond @ ..14,
            op2: true,
            rn: 31,
            rd,
            ..
        } => {
            let holds = builder.holds(cond ^ 1);
            builder.copy(to_x(rd), holds);
        }
        Register::ConditionalSelect {
            sf,
            op,
            rm,
            cond,
            op2,
            rn,
            rd,
        } => {
            let otherwise = match (op, op2) {
                (false, false) => x(rm),
                (false, true) if rm == 31 => ONE,
                (false, true) => builder.op2(Operation::Add(width(sf)), x(rm), ONE),
                (true, false) if rm == 31 => Operand::Constant(u64::MAX),
                (true, false) => builder.op1(Operation::Not(width(sf)), x(rm)),
                (true, true) => builder.op2(Operation::Subtract(width(sf)), Operand::ZERO, x(rm)),
            };
            let condition = builder.holds(cond);
            let operands = [x(rn), otherwise, condition];
            set_cut(builder, width(sf), to_x(rd), Operation::Select, operands);
        }

        Register::ReverseBits { sf, rn, rd } => {
            builder.set1(to_x(rd), Operation::ReverseBits(width(sf)), x(rn));
        }
        Register::ReverseHalves { sf, rn, rd } => reverse(builder, width(sf), 2, rn, rd),
        Register::ReverseWords { sf, rn, rd } => reverse(builder, width(sf), 4, rn, rd),
        Register::Reverse { rn, rd } => reverse(builder, Width::W64, 8, rn, rd),
        Register::LeadingZeros { sf, rn, rd } => {
            builder.set1(to_x(rd), Operation::CountLeadingZeros(width(sf)), x(rn));
        }
        Register::LeadingSigns { sf, rn, rd } => {
            // The bits that differ from the next higher bit.
            let width = width(sf);
            let half = builder.op2(Operation::ShiftRightSigned(width), x(rn), ONE);
            let changes = builder.op2(Operation::Xor, x(rn), half);
            let count = builder.op1(Operation::CountLeadingZeros(width), changes);
            builder.set2(to_x(rd), Operation::Subtract(width), count, ONE);
        }
        Register::TrailingZeros { sf, rn, rd } => {
            let width = width(sf);
            let reversed = builder.op1(Operation::ReverseBits(width), x(rn));
            builder.set1(to_x(rd), Operation::CountLeadingZeros(width), reversed);
        }
        // GMI: the tag mask with one more tag. Not modelled.
        Register::CountBits { rd, .. }
        | Register::Absolute { rd, .. }
        | Register::TagMask { rd, .. } => builder.unknown(to_x(rd)),
        Register::Authenticate { rd, .. }
        | Register::AuthenticateZero { rd, .. }
        | Register::StripAuthentication { rd, .. } => {
            let changed = with_unknown_code(builder, x(rd));
            builder.copy(to_x(rd), changed);
        }

        Register::SubtractPointers { s, rm, rn, rd } => {
            // Without their tags.
            let address = Operation::ExtractSigned { low: 0, count: 56 };
            let a = builder.op1(address, x_or_sp(rn));
            let b = builder.op1(address, x_or_sp(rm));
            add_or_subtract(builder, Width::W64, true, s, to_x(rd), [a, b]);
        }
        Register::DivideUnsigned { sf, rm, rn, rd } => {
            builder.set2(to_x(rd), Operation::DivideUnsigned(width(sf)), x(rn), x(rm));
        }
        Register::DivideSigned { sf, rm, rn, rd } => {
            builder.set2(to_x(rd), Operation::DivideSigned(width(sf)), x(rn), x(rm));
        }
        Register::RandomTag { rn, rd, .. } => {
            let tag = builder.op1(Operation::Unknown, Operand::ZERO);
            let insert = Operation::Insert { low: 56, count: 4 };
            builder.set2(to_x_or_sp(rd), insert, x_or_sp(rn), tag);
        }
        Register::Shift {
            sf,
            rm,
            shift,
            rn,
            rd,
        } => {
            let operation = match shift {
                0 => Operation::ShiftLeft(width(sf)),
                1 => Operation::ShiftRight(width(sf)),
                2 => Operation::ShiftRightSigned(width(sf)),
                _ => Operation::RotateRight(width(sf)),
            };
            builder.set2(to_x(rd), operation, x(rn), x(rm));
        }
        Register::AuthenticationCode { rd, .. } => {
            // In the upper half.
            let code = builder.op1(Operation::Unknown, Operand::ZERO);
            let shift = Operand::Constant(32);
            builder.set2(to_x(rd), Operation::ShiftLeft(Width::W64), code, shift);
        }
        Register::Crc32 {
            sf,
            rm,
            castagnoli,
            size,
            rn,
            rd,
        } => {
            if (size == 3) != sf {
                return None;
            }
            let bytes = 1 << size;
            let operation = Operation::Crc32 { bytes, castagnoli };
            builder.set2(to_x(rd), operation, x(rn), x(rm));
        }
        Register::MinMax {
            sf,
            rm,
            opc,
            rn,
            rd,
        } => {
            let operation = match opc {
                0 => LaneOperation::MaxSigned,
                1 => LaneOperation::MaxUnsigned,
                2 => LaneOperation::MinSigned,
                _ => LaneOperation::MinUnsigned,
            };
            let lanes = if sf { Lanes::D64 } else { Lanes::S32 };
            let operation = Operation::Lane(operation, lanes);
            let operands = [x(rn), x(rm), Operand::ZERO];
            set_cut(builder, width(sf), to_x(rd), operation, operands);
        }

        Register::MultiplyAdd {
            sf,
            rm,
            o0,
            ra,
            rn,
            rd,
        } => multiply_add(builder, width(sf), o0, ra, [x(rn), x(rm)], to_x(rd)),
        Register::MultiplyAddLong {
            unsigned,
            rm,
            o0,
            ra,
            rn,
            rd,
        } => {
            let part = if unsigned {
                LOW_32
            } else {
                Operation::ExtractSigned { low: 0, count: 32 }
            };
            let factors = [builder.op1(part, x(rn)), builder.op1(part, x(rm))];
            multiply_add(builder, Width::W64, o0, ra, factors, to_x(rd));
        }
        Register::MultiplyHigh {
            unsigned,
            rm,
            rn,
            rd,
            ..
        } => {
            let operation = if unsigned {
                Operation::MultiplyHighUnsigned
            } else {
                Operation::MultiplyHighSigned
            };
            builder.set2(to_x(rd), operation, x(rn), x(rm));
        }
    }
    Some(())
}

/// REV and the like, of groups of bytes.
fn reverse(builder: &mut Builder, width: Width, group: u8, rn: u8, rd: u8) {
    let operands = [x(rn), Operand::ZERO, Operand::ZERO];
    set_cut(
        builder,
        width,
        to_x(rd),
        Operation::ReverseBytes { group },
        operands,
    );
}

/// `to = ra + a * b` or `ra - a * b`.
fn multiply_add(
    builder: &mut Builder,
    width: Width,
    subtract: bool,
    ra: u8,
    [a, b]: [Operand; 2],
    to: Location,
) {
    if ra == 31 && !subtract {
        builder.set2(to, Operation::Multiply(width), a, b);
    } else {
        let product = builder.op2(Operation::Multiply(width), a, b);
        add_or_subtract(builder, width, subtract, false, to, [x(ra), product]);
    }
}
