//! Shifted operands, and the carry out of the shifter (Arm ARM, DDI 0487, F2.2 and `Shift_C`).

use super::core::{Arm, CARRY, constant};
use crate::semantics::builder::ONE;
use crate::semantics::operation::{Operation, Width};
use crate::semantics::{Operand, Operand::Constant};

/// A shift by an encoded immediate: LSL, LSR, ASR, ROR with a 5-bit field.
pub(in crate::semantics) fn by_immediate(
    arm: &mut Arm,
    kind: u32,
    a: Operand,
    field: u32,
    carry: bool,
) -> (Operand, Operand) {
    let (width, amount) = (Width::W32, constant(field));
    match (kind, field) {
        (0, 0) => (a, CARRY),
        (0, _) => {
            let c = bit(arm, a, 32 - field, carry);
            (arm.b.op2(Operation::ShiftLeft(width), a, amount), c)
        }
        (1, 0) => (Operand::ZERO, bit(arm, a, 31, carry)),
        (1, _) => {
            let c = bit(arm, a, field - 1, carry);
            (arm.b.op2(Operation::ShiftRight(width), a, amount), c)
        }
        (2, _) => {
            let amount = if field == 0 { 31 } else { field };
            let c = bit(arm, a, if field == 0 { 31 } else { field - 1 }, carry);
            (
                arm.b
                    .op2(Operation::ShiftRightSigned(width), a, constant(amount)),
                c,
            )
        }
        (_, 0) => {
            // RRX
            let c = bit(arm, a, 0, carry);
            let half = arm.b.op2(Operation::ShiftRight(width), a, ONE);
            (
                arm.b
                    .op2(Operation::Insert { low: 31, count: 1 }, half, CARRY),
                c,
            )
        }
        _ => {
            let c = bit(arm, a, field - 1, carry);
            (arm.b.op2(Operation::RotateRight(width), a, amount), c)
        }
    }
}

fn bit(arm: &mut Arm, a: Operand, low: u32, wanted: bool) -> Operand {
    if !wanted {
        return CARRY;
    }
    arm.b.op1(
        Operation::Extract {
            low: low as u8,
            count: 1,
        },
        a,
    )
}

/// A shift by the lowest byte of a register.
pub(in crate::semantics) fn by_register(
    arm: &mut Arm,
    kind: u32,
    a: Operand,
    by: Operand,
    carry: bool,
) -> (Operand, Operand) {
    let amount = arm.b.op1(Operation::Extract { low: 0, count: 8 }, by);
    let wide = Width::W64;
    let (result, shifted_out) = if kind == 3 {
        let result = arm.b.op2(Operation::RotateRight(Width::W32), a, amount);
        (result, bit(arm, result, 31, carry))
    } else {
        // The bits that are shifted out stay within 64 bits; amounts above 63 have the effect of
        // 63.
        let small = arm.b.op2(Operation::LessUnsigned, amount, Constant(64));
        let limited = arm.b.op(Operation::Select, amount, Constant(63), small);
        let from = if kind == 2 { arm.wide(a) } else { a };
        let operation = match kind {
            0 => Operation::ShiftLeft(wide),
            1 => Operation::ShiftRight(wide),
            _ => Operation::ShiftRightSigned(wide),
        };
        let shifted = arm.b.op2(operation, from, limited);
        let out = match (carry, kind) {
            (false, _) => CARRY,
            (true, 0) => bit(arm, shifted, 32, true),
            (true, _) => {
                let doubled = arm.b.op2(Operation::ShiftLeft(wide), from, ONE);
                let out = arm.b.op2(operation, doubled, limited);
                bit(arm, out, 0, true)
            }
        };
        (arm.low(shifted), out)
    };
    if !carry {
        return (result, CARRY);
    }
    (
        result,
        arm.b.op(Operation::Select, shifted_out, CARRY, amount),
    )
}
