//! Data processing.

use super::core::{Arm, CARRY, PC};
use crate::semantics::builder::ONE;
use crate::semantics::operation::{Operation, Width};
use crate::semantics::{Control, Location, Operand};

/// The operations of data-processing instructions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::semantics) enum Alu {
    And,
    Xor,
    Subtract,
    ReverseSubtract,
    Add,
    AddCarry,
    SubtractCarry,
    ReverseSubtractCarry,
    Or,
    Move,
    Clear,
    MoveNot,
    OrNot,
}

/// `to = a operation b`. If `flags`, also sets the flags; logical operations set the carry flag to
/// `carry`, the carry out of the shifter. Without `to`, only the flags are written.
pub(in crate::semantics) fn data(
    arm: &mut Arm,
    operation: Alu,
    flags: bool,
    to: Option<u8>,
    operands: [Operand; 2],
    carry: Operand,
) {
    if flags {
        arm.keep_condition();
    }
    let (result, carry_and_overflow) = compute(arm, operation, flags, operands);
    // Unless the instruction is conditional, the flags are computed from the destination register,
    // which holds the result.
    let mut seen = result;
    if let Some(to) = to {
        arm.write(to, result);
        if arm.always() {
            seen = arm.r(to);
        }
    }
    if !flags {
        return;
    }
    match carry_and_overflow {
        Some((c, v)) => {
            arm.put(Location::C, c);
            arm.put(Location::V, v);
        }
        None if carry == CARRY => {}
        None => arm.put(Location::C, carry),
    }
    arm.sign_and_zero(seen);
}

/// Like [`data`] with the pc as destination: a branch, or with `flags` an exception return.
pub(in crate::semantics) fn data_to_pc(
    arm: &mut Arm,
    operation: Alu,
    flags: bool,
    operands: [Operand; 2],
    interworking: bool,
) {
    if flags {
        return_from_exception(arm);
        return;
    }
    let (result, _) = compute(arm, operation, false, operands);
    arm.branch(result, interworking);
}

/// Returns the result, and with `flags` the carry and overflow of a sum or difference.
fn compute(
    arm: &mut Arm,
    operation: Alu,
    flags: bool,
    [a, b]: [Operand; 2],
) -> (Operand, Option<(Operand, Operand)>) {
    const W: Width = Width::W32;
    let (a, b, difference) = match operation {
        Alu::ReverseSubtract | Alu::ReverseSubtractCarry => (b, a, true),
        Alu::Subtract | Alu::SubtractCarry => (a, b, true),
        _ => (a, b, false),
    };
    let mut carry_and_overflow = None;
    let result = match operation {
        Alu::And => arm.b.op2(Operation::And, a, b),
        Alu::Xor => arm.b.op2(Operation::Xor, a, b),
        Alu::Or => arm.b.op2(Operation::Or, a, b),
        Alu::Move => b,
        Alu::MoveNot => inverted(arm, b),
        Alu::Clear => {
            let b = inverted(arm, b);
            arm.b.op2(Operation::And, a, b)
        }
        Alu::OrNot => {
            let b = inverted(arm, b);
            arm.b.op2(Operation::Or, a, b)
        }
        Alu::Add | Alu::Subtract | Alu::ReverseSubtract => {
            let (sum, carry, overflow) = if difference {
                (
                    Operation::Subtract(W),
                    Operation::CarryOfDifference(W),
                    Operation::OverflowOfDifference(W),
                )
            } else {
                (
                    Operation::Add(W),
                    Operation::CarryOf(W),
                    Operation::OverflowOf(W),
                )
            };
            if flags {
                carry_and_overflow = Some((arm.b.op2(carry, a, b), arm.b.op2(overflow, a, b)));
            }
            arm.b.op2(sum, a, b)
        }
        Alu::AddCarry | Alu::SubtractCarry | Alu::ReverseSubtractCarry => {
            let b = if difference { inverted(arm, b) } else { b };
            if flags {
                let c = arm.b.op(Operation::CarryOf(W), a, b, CARRY);
                let v = arm.b.op(Operation::OverflowOf(W), a, b, CARRY);
                carry_and_overflow = Some((c, v));
            }
            arm.b.op(Operation::AddWithCarry(W), a, b, CARRY)
        }
    };
    (result, carry_and_overflow)
}

fn inverted(arm: &mut Arm, a: Operand) -> Operand {
    match a {
        Operand::Constant(a) => Operand::Constant(!a & 0xffff_ffff),
        Operand::Location(_) => arm.b.op1(Operation::Not(Width::W32), a),
    }
}

/// An exception return: flags and banked registers become unknown.
pub(in crate::semantics) fn return_from_exception(arm: &mut Arm) {
    arm.keep_condition();
    for number in 8..PC {
        arm.unknown(Location::general(number));
    }
    for flag in [
        Location::N,
        Location::Z,
        Location::C,
        Location::V,
        Location::Q,
        Location::GE,
    ] {
        arm.unknown(flag);
    }
    arm.b.control = if arm.when == ONE {
        Control::ExceptionReturn
    } else {
        let target = arm.b.op1(Operation::Unknown, Operand::ZERO);
        Control::Indirect {
            target,
            condition: arm.when,
            interworking: true,
        }
    };
}
