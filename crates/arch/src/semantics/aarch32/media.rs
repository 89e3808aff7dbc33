//! Extension, saturation, parallel and packed operations.

use super::core::{Arm, constant};
use super::multiply::set_saturated;
use crate::semantics::operation::{LaneOperation, Lanes, Operation, Width};
use crate::semantics::{Location, Operand};

const W: Width = Width::W32;

/// SXTB to UXTH, and SXTAB to UXTAH with `addend`: extends the lowest `count` bits of a rotated
/// register.
pub(in crate::semantics) fn extend(
    arm: &mut Arm,
    to: u8,
    addend: Option<u8>,
    from: u8,
    rotation: u32,
    count: u8,
    signed: bool,
) {
    let mut value = arm.r(from);
    let low = rotation as u8;
    value = if low + count > 32 {
        let rotated = arm
            .b
            .op2(Operation::RotateRight(W), value, constant(rotation));
        if signed {
            arm.signed(count, rotated)
        } else {
            arm.b.op1(Operation::Extract { low: 0, count }, rotated)
        }
    } else if signed {
        let wide = arm.b.op1(Operation::ExtractSigned { low, count }, value);
        arm.low(wide)
    } else {
        arm.b.op1(Operation::Extract { low, count }, value)
    };
    if let Some(addend) = addend {
        let addend = arm.r(addend);
        value = arm.b.op2(Operation::Add(W), addend, value);
    }
    arm.write(to, value);
}

/// SXTB16, UXTB16, and SXTAB16, UXTAB16 with `addend`: extends bytes 0 and 2 of a rotated register.
pub(in crate::semantics) fn extend_pair(
    arm: &mut Arm,
    to: u8,
    addend: Option<u8>,
    from: u8,
    rotation: u32,
    signed: bool,
) {
    let from = arm.r(from);
    let rotated = arm
        .b
        .op2(Operation::RotateRight(W), from, constant(rotation));
    let mut value = arm.b.op2(Operation::And, rotated, constant(0x00ff_00ff));
    if signed {
        let lanes = |operation| Operation::Lane(operation, Lanes::H16);
        let up = arm
            .b
            .op2(lanes(LaneOperation::Shift), value, constant(0x0008_0008));
        value = arm
            .b
            .op2(lanes(LaneOperation::ShiftSigned), up, constant(0x00f8_00f8));
    }
    if let Some(addend) = addend {
        let addend = arm.r(addend);
        value = arm.b.op2(
            Operation::Lane(LaneOperation::Add, Lanes::H16),
            addend,
            value,
        );
    }
    arm.write(to, value);
}

/// SSAT, USAT: saturates to `bits` bits.
pub(in crate::semantics) fn saturate(
    arm: &mut Arm,
    to: u8,
    value: Operand,
    bits: u32,
    signed: bool,
) {
    let (least, most) = if signed {
        let end = 1i64 << (bits - 1);
        (-end, end - 1)
    } else {
        (0, (1i64 << bits) - 1)
    };
    let lanes = |operation| Operation::Lane(operation, Lanes::D64);
    let number = arm.wide(value);
    let limit = |number: i64| Operand::Constant(number.cast_unsigned());
    let raised = arm
        .b
        .op2(lanes(LaneOperation::MaxSigned), number, limit(least));
    let limited = arm
        .b
        .op2(lanes(LaneOperation::MinSigned), raised, limit(most));
    let same = arm.b.op2(Operation::Equal, limited, number);
    let saturated = arm.b.inverted(same);
    set_saturated(arm, saturated);
    let result = arm.low(limited);
    arm.write(to, result);
}

/// QADD, QSUB, QDADD, QDSUB.
pub(in crate::semantics) fn add_saturating(
    arm: &mut Arm,
    to: u8,
    [a, b]: [u8; 2],
    doubles: bool,
    subtract: bool,
) {
    let (a, b) = (arm.r(a), arm.r(b));
    let lanes = |operation| Operation::Lane(operation, Lanes::S32);
    let mut number = b;
    if doubles {
        let plain = arm.b.op2(Operation::Add(W), b, b);
        number = arm.b.op2(lanes(LaneOperation::AddSaturatingSigned), b, b);
        let same = arm.b.op2(Operation::Equal, plain, number);
        let saturated = arm.b.inverted(same);
        set_saturated(arm, saturated);
    }
    let (plain, limited) = if subtract {
        (
            Operation::Subtract(W),
            LaneOperation::SubtractSaturatingSigned,
        )
    } else {
        (Operation::Add(W), LaneOperation::AddSaturatingSigned)
    };
    let plain = arm.b.op2(plain, a, number);
    let result = arm.b.op2(lanes(limited), a, number);
    let same = arm.b.op2(Operation::Equal, plain, result);
    let saturated = arm.b.inverted(same);
    set_saturated(arm, saturated);
    arm.write(to, result);
}

/// SADD8 and the like. `kind`: 1 signed, 2 saturating, 3 halving, 5 to 7 the same but unsigned;
/// `operation`: 0 ADD16, 1 ASX, 2 SAX, 3 SUB16, 4 ADD8, 7 SUB8.
pub(in crate::semantics) fn parallel(
    arm: &mut Arm,
    kind: u32,
    operation: u32,
    to: u8,
    [a, b]: [u8; 2],
) -> Option<()> {
    let (lanes, subtract) = match operation {
        0 => (Lanes::H16, false),
        3 => (Lanes::H16, true),
        4 => (Lanes::B8, false),
        7 => (Lanes::B8, true),
        1 | 2 => return unmodelled(arm, kind, to),
        _ => return None,
    };
    let pick = |sum, difference| if subtract { difference } else { sum };
    let (a, b) = (arm.r(a), arm.r(b));
    let lane_operation = match kind {
        1 | 5 => pick(LaneOperation::Add, LaneOperation::Subtract),
        2 => pick(
            LaneOperation::AddSaturatingSigned,
            LaneOperation::SubtractSaturatingSigned,
        ),
        6 => pick(
            LaneOperation::AddSaturatingUnsigned,
            LaneOperation::SubtractSaturatingUnsigned,
        ),
        3 | 7 => return unmodelled(arm, kind, to),
        _ => return None,
    };
    let result = arm.b.op2(Operation::Lane(lane_operation, lanes), a, b);
    if kind == 6 {
        // The unused lanes are limited too, and stay 0.
        arm.write(to, result);
        return Some(());
    }
    if kind == 5 {
        // GE: the carry of a sum, or no borrow in a difference.
        let (x, y, compare) = if subtract {
            (a, b, LaneOperation::GreaterEqualUnsigned)
        } else {
            (a, result, LaneOperation::GreaterUnsigned)
        };
        let mask = arm.b.op2(Operation::Lane(compare, lanes), x, y);
        let ge = gathered(arm, mask);
        arm.put(Location::GE, ge);
    } else if kind == 1 {
        arm.unknown(Location::GE);
    }
    arm.write(to, result);
    Some(())
}

/// The variants of [`parallel`] that are not modelled: the destination and GE become unknown.
fn unmodelled(arm: &mut Arm, kind: u32, to: u8) -> Option<()> {
    if kind & 3 == 0 {
        return None;
    }
    if kind & 3 == 1 {
        arm.unknown(Location::GE);
    }
    arm.unknown(Location::general(to));
    Some(())
}

/// Gathers one bit of each of the lower four bytes of a mask.
fn gathered(arm: &mut Arm, mask: Operand) -> Operand {
    let bits = arm.b.op2(Operation::And, mask, constant(0x0804_0201));
    let summed = arm
        .b
        .op2(Operation::Multiply(W), bits, constant(0x0101_0101));
    arm.b.op1(Operation::Extract { low: 24, count: 4 }, summed)
}

/// SEL: bytes of `a` where GE is set, else of `b`.
pub(in crate::semantics) fn select(arm: &mut Arm, to: u8, [a, b]: [u8; 2]) {
    let (a, b) = (arm.r(a), arm.r(b));
    // Moves each bit to the bottom of its byte, then spreads it over the whole byte.
    let spread = Operand::Location(Location::GE);
    let spread = arm
        .b
        .op2(Operation::Multiply(W), spread, constant(0x0020_4081));
    let spread = arm.b.op2(Operation::And, spread, constant(0x0101_0101));
    let mask = arm.b.op2(Operation::Multiply(W), spread, constant(0xff));
    let result = arm.b.op(Operation::SelectBits, a, b, mask);
    arm.write(to, result);
}

/// REV, REV16, RBIT, REVSH, selected by their numbers in T32: 0, 1, 2, 3.
pub(in crate::semantics) fn reverse(arm: &mut Arm, kind: u32, to: u8, from: u8) {
    let from = arm.r(from);
    let result = match kind {
        0 => arm.b.op1(Operation::ReverseBytes { group: 4 }, from),
        1 => arm.b.op1(Operation::ReverseBytes { group: 2 }, from),
        2 => arm.b.op1(Operation::ReverseBits(W), from),
        _ => {
            let reversed = arm.b.op1(Operation::ReverseBytes { group: 2 }, from);
            arm.signed(16, reversed)
        }
    };
    arm.write(to, result);
}

/// PKHBT, PKHTB: combines the lower half of one register with the upper half of another.
pub(in crate::semantics) fn pack(arm: &mut Arm, to: u8, low: Operand, high: Operand) {
    let high = arm.b.op1(Operation::Extract { low: 16, count: 16 }, high);
    let low = arm.b.op1(Operation::Extract { low: 0, count: 16 }, low);
    let result = arm
        .b
        .op2(Operation::Insert { low: 16, count: 16 }, low, high);
    arm.write(to, result);
}

/// BFI, BFC: bits `low` to `high` of a register.
pub(in crate::semantics) fn insert(
    arm: &mut Arm,
    to: u8,
    from: Operand,
    low: u32,
    high: u32,
) -> Option<()> {
    let count = (high + 1).checked_sub(low).filter(|count| *count > 0)?;
    let old = arm.r(to);
    let field = Operation::Insert {
        low: low as u8,
        count: count as u8,
    };
    let result = arm.b.op2(field, old, from);
    arm.write(to, result);
    Some(())
}

/// SBFX, UBFX.
pub(in crate::semantics) fn extract(
    arm: &mut Arm,
    to: u8,
    from: u8,
    low: u32,
    count: u32,
    signed: bool,
) -> Option<()> {
    if low + count > 32 {
        return None;
    }
    let (low, count) = (low as u8, count as u8);
    let from = arm.r(from);
    let mut result = if signed {
        arm.b.op1(Operation::ExtractSigned { low, count }, from)
    } else {
        arm.b.op1(Operation::Extract { low, count }, from)
    };
    if signed {
        result = arm.low(result);
    }
    arm.write(to, result);
    Some(())
}
