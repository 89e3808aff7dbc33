//! Multiplications and divisions.

use super::core::Arm;
use crate::semantics::operation::{Operation, Width};
use crate::semantics::{Location, Operand};

const W: Width = Width::W32;

/// MUL, MLA, MLS: `to = a * b`, added to or subtracted from an addend.
pub(in crate::semantics) fn single(
    arm: &mut Arm,
    flags: bool,
    to: u8,
    [a, b]: [u8; 2],
    addend: Option<(u8, bool)>,
) {
    if flags {
        arm.keep_condition();
    }
    let (a, b) = (arm.r(a), arm.r(b));
    let mut result = arm.b.op2(Operation::Multiply(W), a, b);
    if let Some((addend, subtract)) = addend {
        let addend = arm.r(addend);
        let sum = if subtract {
            Operation::Subtract(W)
        } else {
            Operation::Add(W)
        };
        result = arm.b.op2(sum, addend, result);
    }
    if flags {
        // From the result itself: its register is not written if the condition fails.
        arm.sign_and_zero(result);
    }
    arm.write(to, result);
}

/// UMULL, SMULL, UMLAL, SMLAL.
pub(in crate::semantics) fn long(
    arm: &mut Arm,
    flags: bool,
    [low, high]: [u8; 2],
    [a, b]: [u8; 2],
    signed: bool,
    accumulates: bool,
) {
    if flags {
        arm.keep_condition();
    }
    let (mut a, mut b) = (arm.r(a), arm.r(b));
    if signed {
        (a, b) = (arm.wide(a), arm.wide(b));
    }
    let mut product = arm.b.op2(Operation::Multiply(Width::W64), a, b);
    if accumulates {
        product = add_pair(arm, [low, high], product);
    }
    write_pair(arm, [low, high], product);
    if flags {
        let n = arm.b.op1(Operation::Extract { low: 63, count: 1 }, product);
        arm.put(Location::N, n);
        let z = arm.b.op2(Operation::Equal, product, Operand::ZERO);
        arm.put(Location::Z, z);
    }
}

/// Adds another number to the number in a pair of registers.
pub(in crate::semantics) fn add_pair(
    arm: &mut Arm,
    [low, high]: [u8; 2],
    number: Operand,
) -> Operand {
    let (low, high) = (arm.r(low), arm.r(high));
    let pair = arm
        .b
        .op2(Operation::Insert { low: 32, count: 32 }, low, high);
    arm.b.op2(Operation::Add(Width::W64), pair, number)
}

pub(in crate::semantics) fn write_pair(arm: &mut Arm, [low, high]: [u8; 2], number: Operand) {
    let part = arm.low(number);
    arm.write(low, part);
    let part = arm.high(number);
    arm.write(high, part);
}

/// UMAAL
pub(in crate::semantics) fn add_both(arm: &mut Arm, [low, high]: [u8; 2], [a, b]: [u8; 2]) {
    let (a, b, low_part, high_part) = (arm.r(a), arm.r(b), arm.r(low), arm.r(high));
    let product = arm.b.op2(Operation::Multiply(Width::W64), a, b);
    let sum = arm.b.op2(Operation::Add(Width::W64), product, low_part);
    let sum = arm.b.op2(Operation::Add(Width::W64), sum, high_part);
    write_pair(arm, [low, high], sum);
}

/// SDIV, UDIV.
pub(in crate::semantics) fn divide(arm: &mut Arm, signed: bool, to: u8, [a, b]: [u8; 2]) {
    let operation = if signed {
        Operation::DivideSigned(W)
    } else {
        Operation::DivideUnsigned(W)
    };
    let (a, b) = (arm.r(a), arm.r(b));
    let quotient = arm.b.op2(operation, a, b);
    arm.write(to, quotient);
}

/// The lower or upper half of a register, sign-extended to 64 bits.
fn half(arm: &mut Arm, register: u8, upper: bool) -> Operand {
    let from = arm.r(register);
    let low = if upper { 16 } else { 0 };
    arm.b.op1(Operation::ExtractSigned { low, count: 16 }, from)
}

/// SMULxy, SMLAxy: products of halves; sets Q where the sum overflows.
pub(in crate::semantics) fn halves(
    arm: &mut Arm,
    to: u8,
    [a, b]: [u8; 2],
    [a_upper, b_upper]: [bool; 2],
    addend: Option<u8>,
) {
    let (a, b) = (half(arm, a, a_upper), half(arm, b, b_upper));
    let product = arm.b.op2(Operation::Multiply(W), a, b);
    accumulate(arm, to, product, addend);
}

/// SMLALxy
pub(in crate::semantics) fn halves_long(
    arm: &mut Arm,
    to: [u8; 2],
    [a, b]: [u8; 2],
    [a_upper, b_upper]: [bool; 2],
) {
    let (a, b) = (half(arm, a, a_upper), half(arm, b, b_upper));
    let product = arm.b.op2(Operation::Multiply(Width::W64), a, b);
    let sum = add_pair(arm, to, product);
    write_pair(arm, to, sum);
}

/// SMULWy, SMLAWy: the upper 32 of 48 bits.
pub(in crate::semantics) fn by_half(
    arm: &mut Arm,
    to: u8,
    [a, b]: [u8; 2],
    upper: bool,
    addend: Option<u8>,
) {
    let a = arm.r(a);
    let (a, b) = (arm.wide(a), half(arm, b, upper));
    let product = arm.b.op2(Operation::Multiply(Width::W64), a, b);
    let part = arm
        .b
        .op1(Operation::Extract { low: 16, count: 32 }, product);
    accumulate(arm, to, part, addend);
}

fn accumulate(arm: &mut Arm, to: u8, product: Operand, addend: Option<u8>) {
    let mut result = product;
    if let Some(addend) = addend {
        let addend = arm.r(addend);
        let overflow = arm.b.op2(Operation::OverflowOf(W), addend, product);
        result = arm.b.op2(Operation::Add(W), addend, product);
        set_saturated(arm, overflow);
    }
    arm.write(to, result);
}

/// Sets Q, which is sticky, if `saturated`.
pub(in crate::semantics) fn set_saturated(arm: &mut Arm, saturated: Operand) {
    let q = Operand::Location(Location::Q);
    let either = arm.b.op2(Operation::Or, q, saturated);
    arm.put(Location::Q, either);
}

/// SMMUL, SMMLA, SMMLS: the upper half of a product, rounded if `rounds`.
pub(in crate::semantics) fn upper(
    arm: &mut Arm,
    to: u8,
    [a, b]: [u8; 2],
    addend: Option<(u8, bool)>,
    rounds: bool,
) {
    let (a, b) = (arm.r(a), arm.r(b));
    let (a, b) = (arm.wide(a), arm.wide(b));
    let mut number = arm.b.op2(Operation::Multiply(Width::W64), a, b);
    if let Some((addend, subtract)) = addend {
        let addend = arm.r(addend);
        let addend = arm.b.op2(
            Operation::ShiftLeft(Width::W64),
            addend,
            Operand::Constant(32),
        );
        let sum = if subtract {
            Operation::Subtract(Width::W64)
        } else {
            Operation::Add(Width::W64)
        };
        number = arm.b.op2(sum, addend, number);
    }
    if rounds {
        let half = Operand::Constant(0x8000_0000);
        number = arm.b.op2(Operation::Add(Width::W64), number, half);
    }
    let result = arm.high(number);
    arm.write(to, result);
}
