//! 16-bit instructions.

use crate::encoding::signed;
use crate::encoding::t32::Narrow;
use crate::semantics::aarch32::alu::{Alu, data, data_to_pc};
use crate::semantics::aarch32::core::{Arm, CARRY, LR, PC, constant};
use crate::semantics::aarch32::transfer::{self, Access, AddressingMode};
use crate::semantics::aarch32::{media, multiply, shift};
use crate::semantics::operation::Operation;
use crate::semantics::{Control, Location, Operand};

const SP: u8 = 13;

/// Decodes an instruction. `flags`: outside IT blocks, data processing sets the flags.
pub(super) fn decode(arm: &mut Arm, word: u16, flags: bool) -> Option<()> {
    match Narrow::decode(word.into())? {
        Narrow::Shift {
            shift,
            amount,
            rm,
            rd,
        } => {
            let value = arm.r(rm);
            let (value, carry) =
                shift::by_immediate(arm, shift.into(), value, amount.into(), flags);
            let operands = [Operand::ZERO, value];
            data(arm, Alu::Move, flags, Some(rd), operands, carry);
        }
        Narrow::AddSubtract {
            immediate,
            subtract,
            rm,
            rn,
            rd,
        } => {
            let operand = if immediate {
                constant(rm.into())
            } else {
                arm.r(rm)
            };
            let operation = if subtract { Alu::Subtract } else { Alu::Add };
            let operands = [arm.r(rn), operand];
            data(arm, operation, flags, Some(rd), operands, CARRY);
        }
        Narrow::Immediate { op, rd, imm } => {
            let operation = [Alu::Move, Alu::Subtract, Alu::Add, Alu::Subtract][usize::from(op)];
            let operands = [arm.r(rd), constant(imm.into())];
            if op == 1 {
                data(arm, operation, true, None, operands, CARRY);
            } else {
                data(arm, operation, flags, Some(rd), operands, CARRY);
            }
        }
        Narrow::Registers { opcode, rm, rd } => registers(arm, opcode, rd, rm, flags),
        Narrow::HighRegisters { op, high, rm, low } => {
            let to = u8::from(high) << 3 | low;
            let operands = [arm.r(to), arm.r(rm)];
            match op {
                1 if to != PC && rm != PC => {
                    data(arm, Alu::Subtract, true, None, operands, CARRY);
                }
                1 => return None,
                op => {
                    let operation = if op == 0 { Alu::Add } else { Alu::Move };
                    if to == PC {
                        data_to_pc(arm, operation, false, operands, false);
                    } else {
                        data(arm, operation, false, Some(to), operands, CARRY);
                    }
                }
            }
        }
        Narrow::BranchExchange { link, rm } => {
            let mut target = arm.r(rm);
            if link {
                if rm == PC {
                    return None;
                }
                if rm == LR {
                    target = arm.b.kept(target);
                }
                let link = arm.address.wrapping_add(2) | 1;
                arm.write(LR, constant(link));
            }
            arm.branch(target, true);
        }
        Narrow::Literal { rt, imm } => {
            return transfer::single(arm, LOAD, rt, offset(PC, words(imm)));
        }
        Narrow::RegisterOffset { op, rm, rn, rt } => {
            let (size, load, signed) = [
                (4, false, false),
                (2, false, false),
                (1, false, false),
                (1, true, true),
                (4, true, false),
                (2, true, false),
                (1, true, false),
                (2, true, true),
            ][usize::from(op)];
            let access = Access { load, size, signed };
            let by = arm.r(rm);
            return transfer::single(arm, access, rt, offset(rn, by));
        }
        Narrow::Offset {
            byte,
            load,
            imm,
            rn,
            rt,
        } => return unsigned(arm, load, if byte { 1 } else { 4 }, imm, [rn, rt]),
        Narrow::HalfOffset { load, imm, rn, rt } => {
            return unsigned(arm, load, 2, imm, [rn, rt]);
        }
        Narrow::StackOffset { load, rt, imm } => {
            let access = Access { load, ..LOAD };
            return transfer::single(arm, access, rt, offset(SP, words(imm)));
        }
        Narrow::Address { sp, rd, imm } => {
            let base = if sp { arm.r(SP) } else { constant(arm.pc & !3) };
            let sum = arm.add(base, 4 * u32::from(imm));
            arm.write(rd, sum);
        }
        Narrow::AdjustStack { subtract, imm } => {
            let bytes = 4 * u32::from(imm);
            let moved = if subtract {
                bytes.wrapping_neg()
            } else {
                bytes
            };
            let sum = arm.add(arm.r(SP), moved);
            arm.write(SP, sum);
        }
        // Not allowed in IT blocks, like other branches with a condition.
        Narrow::CompareZero {
            nonzero,
            high,
            imm,
            rn,
        } if arm.always() => {
            let distance = u32::from(high) << 6 | u32::from(imm) << 1;
            let tested = arm.r(rn);
            let zero = arm.b.op2(Operation::Equal, tested, Operand::ZERO);
            let condition = if nonzero { arm.b.inverted(zero) } else { zero };
            let target = u64::from(arm.pc.wrapping_add(distance));
            arm.b.control = Control::Conditional { condition, target };
        }
        Narrow::Extend {
            unsigned,
            byte,
            rm,
            rd,
        } => {
            let count = if byte { 8 } else { 16 };
            media::extend(arm, rd, None, rm, 0, count, !unsigned);
        }
        Narrow::Push { lr, list } => {
            let list = u16::from(list) | u16::from(lr) << LR;
            return transfer::multiple(arm, false, SP, list, [true, false, true]);
        }
        Narrow::Pop { pc, list } => {
            let list = u16::from(list) | u16::from(pc) << PC;
            return transfer::multiple(arm, true, SP, list, [false, true, true]);
        }
        Narrow::Multiple { load, rn, list } => {
            let write_back = !load || list >> rn & 1 == 0;
            return transfer::multiple(arm, load, rn, list.into(), [false, true, write_back]);
        }
        // The mode stays the same; PRIMASK and FAULTMASK are not modelled.
        Narrow::ChangeState {} => {}
        Narrow::Reverse { op, rm, rd } => media::reverse(arm, op.into(), rd, rm),
        // BKPT 0xab is semihosting on M-profile cores.
        Narrow::Halt { .. } | Narrow::Breakpoint { imm: 0xab } => semihosting(arm),
        Narrow::Breakpoint { .. } | Narrow::Hint { .. } | Narrow::IfThen { .. } => {}
        Narrow::SystemCall { .. } if arm.always() => arm.b.control = Control::SystemCall,
        Narrow::BranchConditional { cond, imm } if arm.always() => {
            arm.when = arm.b.holds(cond);
            jump(arm, signed(imm.into(), 8) << 1);
        }
        Narrow::Branch { imm } => jump(arm, signed(imm, 11) << 1),
        Narrow::CompareZero { .. }
        | Narrow::SystemCall { .. }
        | Narrow::BranchConditional { .. }
        | Narrow::Undefined { .. } => return None,
    }
    Some(())
}

const LOAD: Access = Access {
    load: true,
    size: 4,
    signed: false,
};

const fn offset(base: u8, offset: Operand) -> AddressingMode {
    AddressingMode {
        base,
        offset,
        add: true,
        before: true,
        write_back: false,
    }
}

/// An offset in words.
const fn words(imm: u8) -> Operand {
    constant(4 * imm as u32)
}

/// A load or store at an offset that counts units of the size.
fn unsigned(arm: &mut Arm, load: bool, size: u8, imm: u8, [rn, rt]: [u8; 2]) -> Option<()> {
    let access = Access {
        load,
        size,
        signed: false,
    };
    let by = constant(u32::from(imm) * u32::from(size));
    transfer::single(arm, access, rt, offset(rn, by))
}

fn jump(arm: &mut Arm, distance: i64) {
    arm.jump(arm.pc.wrapping_add(distance as u32));
}

/// Data processing of two registers.
fn registers(arm: &mut Arm, opcode: u8, to: u8, from: u8, flags: bool) {
    let operands = [arm.r(to), arm.r(from)];
    let operation = match opcode {
        0 | 8 => Alu::And,
        1 => Alu::Xor,
        2..=4 | 7 => {
            let kind = if opcode == 7 { 3 } else { opcode - 2 };
            let [value, by] = operands;
            let (value, carry) = shift::by_register(arm, kind.into(), value, by, flags);
            let operands = [Operand::ZERO, value];
            return data(arm, Alu::Move, flags, Some(to), operands, carry);
        }
        5 => Alu::AddCarry,
        6 => Alu::SubtractCarry,
        // RSB: subtracts from 0.
        9 => {
            let operands = [Operand::ZERO, operands[1]];
            return data(arm, Alu::Subtract, flags, Some(to), operands, CARRY);
        }
        10 => Alu::Subtract,
        11 => Alu::Add,
        12 => Alu::Or,
        13 => return multiply::single(arm, flags, to, [from, to], None),
        14 => Alu::Clear,
        _ => Alu::MoveNot,
    };
    if matches!(opcode, 8 | 10 | 11) {
        data(arm, operation, true, None, operands, CARRY);
    } else {
        data(arm, operation, flags, Some(to), operands, CARRY);
    }
}

fn semihosting(arm: &mut Arm) {
    arm.unknown(Location::general(0));
    arm.b.may_store_anywhere = true;
}
