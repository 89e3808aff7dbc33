//! Data processing.

use crate::encoding::a32::Conditional;
use crate::semantics::Operand;
use crate::semantics::aarch32::alu::{Alu, data, data_to_pc};
use crate::semantics::aarch32::core::{Arm, CARRY, PC, constant};
use crate::semantics::aarch32::shift;
use crate::semantics::operation::Operation;

pub(super) fn decode(arm: &mut Arm, instruction: Conditional) -> Option<()> {
    match instruction {
        Conditional::DataImmediate {
            opcode,
            s,
            rn,
            rd,
            rotation,
            imm,
            ..
        } => {
            let value = u32::from(imm).rotate_right(2 * u32::from(rotation));
            let carry = if rotation == 0 {
                CARRY
            } else {
                constant(value >> 31)
            };
            process(arm, opcode, s, [rn, rd], (constant(value), carry));
        }
        Conditional::DataRegister {
            opcode,
            s,
            rn,
            rd,
            amount,
            shift,
            rm,
            ..
        } => {
            let (value, wanted) = (arm.r(rm), s && is_logic(opcode));
            let operand = shift::by_immediate(arm, shift.into(), value, amount.into(), wanted);
            process(arm, opcode, s, [rn, rd], operand);
        }
        Conditional::DataShifted {
            opcode,
            s,
            rn,
            rd,
            rs,
            shift,
            rm,
            ..
        } => {
            if [rm, rs, rn].contains(&PC) || rd == PC && !compares(opcode) {
                return None;
            }
            let (value, wanted) = (arm.r(rm), s && is_logic(opcode));
            let by = arm.r(rs);
            let operand = shift::by_register(arm, shift.into(), value, by, wanted);
            process(arm, opcode, s, [rn, rd], operand);
        }
        Conditional::MoveWide { high, rd, imm, .. } if rd != PC => {
            arm.write(rd, constant(u32::from(high) << 12 | imm));
        }
        Conditional::MoveTop { high, rd, imm, .. } if rd != PC => {
            let old = arm.r(rd);
            let insert = Operation::Insert { low: 16, count: 16 };
            let value = constant(u32::from(high) << 12 | imm);
            let result = arm.b.op2(insert, old, value);
            arm.write(rd, result);
        }
        _ => return None,
    }
    Some(())
}

/// TST, TEQ, CMP, CMN.
const fn compares(opcode: u8) -> bool {
    opcode >> 2 == 0b10
}

/// Returns whether the carry flag comes from the shifter.
const fn is_logic(opcode: u8) -> bool {
    matches!(opcode, 0 | 1 | 8 | 9 | 12..=15)
}

fn process(
    arm: &mut Arm,
    opcode: u8,
    s: bool,
    [rn, rd]: [u8; 2],
    (operand, carry): (Operand, Operand),
) {
    let operation = match opcode {
        0 | 8 => Alu::And,
        1 | 9 => Alu::Xor,
        2 | 10 => Alu::Subtract,
        3 => Alu::ReverseSubtract,
        4 | 11 => Alu::Add,
        5 => Alu::AddCarry,
        6 => Alu::SubtractCarry,
        7 => Alu::ReverseSubtractCarry,
        12 => Alu::Or,
        13 => Alu::Move,
        14 => Alu::Clear,
        _ => Alu::MoveNot,
    };
    let operands = [arm.r(rn), operand];
    match rd {
        _ if compares(opcode) => data(arm, operation, true, None, operands, carry),
        PC => data_to_pc(arm, operation, s, operands, true),
        to => data(arm, operation, s, Some(to), operands, carry),
    }
}
