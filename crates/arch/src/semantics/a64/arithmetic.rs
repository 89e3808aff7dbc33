//! Helpers shared by the groups of integer instructions.

use crate::semantics::builder::{Builder, Flags};
use crate::semantics::{Location, Operand, Operation, Width};

pub(super) const LOW_32: Operation = Operation::Extract { low: 0, count: 32 };

/// The sign bit of a result.
const fn sign(width: Width) -> Operation {
    let low = match width {
        Width::W32 => 31,
        Width::W64 => 63,
    };
    Operation::Extract { low, count: 1 }
}

/// Writes the result of a 64-bit operation, truncated to the width.
pub(super) fn set_cut(
    builder: &mut Builder,
    width: Width,
    to: Location,
    operation: Operation,
    [a, b, c]: [Operand; 3],
) {
    match width {
        _ if to == Location::NOWHERE => {}
        Width::W64 => builder.set(to, operation, a, b, c),
        Width::W32 => {
            let whole = builder.op(operation, a, b, c);
            builder.set1(to, LOW_32, whole);
        }
    }
}

/// Writes a value, truncated to the width.
pub(super) fn copy_cut(builder: &mut Builder, width: Width, to: Location, a: Operand) {
    match (width, a) {
        (Width::W64, _) => builder.copy(to, a),
        (Width::W32, Operand::Constant(a)) => {
            builder.copy(to, Operand::Constant(a & 0xffff_ffff));
        }
        (Width::W32, _) => builder.set1(to, LOW_32, a),
    }
}

/// Sets N and Z from a result that is truncated to the width.
fn set_sign_and_zero(builder: &mut Builder, width: Width, result: Operand) {
    builder.set1(Location::N, sign(width), result);
    builder.set2(Location::Z, Operation::Equal, result, Operand::ZERO);
}

/// `to = a + b` or `a - b`.
pub(super) fn add_or_subtract(
    builder: &mut Builder,
    width: Width,
    subtract: bool,
    flags: bool,
    to: Location,
    [a, b]: [Operand; 2],
) {
    let operation = if subtract {
        Operation::Subtract(width)
    } else {
        Operation::Add(width)
    };
    if !flags {
        if b == Operand::ZERO {
            copy_cut(builder, width, to, a);
        } else {
            builder.set2(to, operation, a, b);
        }
        return;
    }
    // Computed before the result, which may overwrite an operand.
    let (carry, overflow) = carry_and_overflow(width, subtract);
    builder.set2(Location::C, carry, a, b);
    builder.set2(Location::V, overflow, a, b);
    let result = if to == Location::NOWHERE {
        builder.op2(operation, a, b)
    } else {
        builder.set2(to, operation, a, b);
        Operand::Location(to)
    };
    set_sign_and_zero(builder, width, result);
}

const fn carry_and_overflow(width: Width, subtract: bool) -> (Operation, Operation) {
    if subtract {
        (
            Operation::CarryOfDifference(width),
            Operation::OverflowOfDifference(width),
        )
    } else {
        (Operation::CarryOf(width), Operation::OverflowOf(width))
    }
}

/// The flags of a comparison, which are not written yet.
pub(super) fn compared(
    builder: &mut Builder,
    width: Width,
    subtract: bool,
    [a, b]: [Operand; 2],
) -> Flags {
    let (carry, overflow) = carry_and_overflow(width, subtract);
    let (c, v) = (builder.op2(carry, a, b), builder.op2(overflow, a, b));
    let result = if subtract {
        builder.op2(Operation::Subtract(width), a, b)
    } else {
        builder.op2(Operation::Add(width), a, b)
    };
    Flags {
        n: builder.op1(sign(width), result),
        z: builder.op2(Operation::Equal, result, Operand::ZERO),
        c,
        v,
    }
}

/// `to = a + b + carry`; also sets the flags if `flags`.
pub(super) fn add_with_carry(
    builder: &mut Builder,
    width: Width,
    flags: bool,
    to: Location,
    [a, b]: [Operand; 2],
) {
    let carry = Operand::Location(Location::C);
    if !flags {
        builder.set(to, Operation::AddWithCarry(width), a, b, carry);
        return;
    }
    let v = builder.op(Operation::OverflowOf(width), a, b, carry);
    let c = builder.op(Operation::CarryOf(width), a, b, carry);
    let result = builder.op(Operation::AddWithCarry(width), a, b, carry);
    builder.copy(to, result);
    builder.copy(Location::C, c);
    builder.copy(Location::V, v);
    set_sign_and_zero(builder, width, result);
}

/// AND, ORR, EOR, ANDS, selected by `opc`. `cut` is whether `b` has no bits beyond the width.
pub(super) fn logic(
    builder: &mut Builder,
    width: Width,
    opc: u8,
    to: Location,
    [a, b]: [Operand; 2],
    cut: bool,
) {
    let operation = match opc {
        0b00 | 0b11 => Operation::And,
        0b01 => Operation::Or,
        _ => Operation::Xor,
    };
    let fits = cut && operation == Operation::And;
    let width_of_result = if fits { Width::W64 } else { width };
    if opc == 0b11 {
        let to = if to == Location::NOWHERE {
            builder.temporary()
        } else {
            to
        };
        set_cut(
            builder,
            width_of_result,
            to,
            operation,
            [a, b, Operand::ZERO],
        );
        set_sign_and_zero(builder, width, Operand::Location(to));
        builder.copy(Location::C, Operand::ZERO);
        builder.copy(Location::V, Operand::ZERO);
    } else if operation == Operation::Or && a == Operand::ZERO {
        copy_cut(builder, width, to, b);
    } else {
        set_cut(
            builder,
            width_of_result,
            to,
            operation,
            [a, b, Operand::ZERO],
        );
    }
}

/// A shifted value; `kind` is 0 for LSL, 1 for LSR, 2 for ASR, 3 for ROR.
pub(super) fn shifted(
    builder: &mut Builder,
    width: Width,
    kind: u8,
    a: Operand,
    amount: u8,
) -> Operand {
    let operation = match kind {
        _ if amount == 0 => return a,
        0 => Operation::ShiftLeft(width),
        1 => Operation::ShiftRight(width),
        2 => Operation::ShiftRightSigned(width),
        _ => Operation::RotateRight(width),
    };
    builder.op2(operation, a, Operand::Constant(u64::from(amount)))
}

/// A value extended according to `option` (UXTB to SXTX) and shifted left, to 64 bits.
pub(super) fn extended(builder: &mut Builder, option: u8, a: Operand, amount: u8) -> Operand {
    let count = 8 << (option & 3);
    let extended = match option {
        0b011 | 0b111 => a,
        0..=2 => builder.op1(Operation::Extract { low: 0, count }, a),
        _ => builder.op1(Operation::ExtractSigned { low: 0, count }, a),
    };
    shifted(builder, Width::W64, 0, extended, amount)
}

/// A pointer with an unknown authentication code in its upper bits. Their number depends on the size of
/// the address space, which is assumed to have at least 32 bits.
pub(super) fn with_unknown_code(builder: &mut Builder, a: Operand) -> Operand {
    let code = builder.op1(Operation::Unknown, Operand::ZERO);
    builder.op2(Operation::Insert { low: 32, count: 32 }, a, code)
}
