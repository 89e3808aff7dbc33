//! 16-bit instructions.

use crate::semantics::aarch32::alu::{Alu, data, data_to_pc};
use crate::semantics::aarch32::core::{Arm, CARRY, LR, PC, constant};
use crate::semantics::aarch32::transfer::{self, Access, AddressingMode};
use crate::semantics::aarch32::{media, multiply, shift};
use crate::semantics::operation::Operation;
use crate::semantics::{Control, Location, Operand};

const SP: u8 = 13;

const fn field(word: u16, low: u32, count: u32) -> u32 {
    (word as u32 >> low) & (u32::MAX >> (32 - count))
}

/// One of r0 to r7.
const fn r(word: u16, low: u32) -> u8 {
    field(word, low, 3) as u8
}

/// Decodes an instruction. `flags`: outside IT blocks, data processing sets the flags.
pub(super) fn decode(arm: &mut Arm, word: u16, flags: bool) -> Option<()> {
    match field(word, 11, 5) {
        0b00000..=0b00010 => {
            let value = arm.r(r(word, 3));
            let (kind, amount) = (field(word, 11, 2), field(word, 6, 5));
            let (value, carry) = shift::by_immediate(arm, kind, value, amount, flags);
            data(
                arm,
                Alu::Move,
                flags,
                Some(r(word, 0)),
                [Operand::ZERO, value],
                carry,
            );
        }
        0b00011 => {
            let operand = if word & 0x400 == 0 {
                arm.r(r(word, 6))
            } else {
                constant(field(word, 6, 3))
            };
            let operation = if word & 0x200 == 0 {
                Alu::Add
            } else {
                Alu::Subtract
            };
            let operands = [arm.r(r(word, 3)), operand];
            data(arm, operation, flags, Some(r(word, 0)), operands, CARRY);
        }
        op @ 0b00100..=0b00111 => {
            let operation = [Alu::Move, Alu::Subtract, Alu::Add, Alu::Subtract][op as usize & 3];
            let to = r(word, 8);
            let operands = [arm.r(to), constant(field(word, 0, 8))];
            if op == 0b00101 {
                data(arm, operation, true, None, operands, CARRY);
            } else {
                data(arm, operation, flags, Some(to), operands, CARRY);
            }
        }
        0b01000 if word & 0x400 == 0 => registers(arm, word, flags),
        0b01000 => return high_registers(arm, word),
        0b01001 => {
            let mode = offset(PC, constant(4 * field(word, 0, 8)));
            return transfer::single(arm, LOAD, r(word, 8), mode);
        }
        0b01010 | 0b01011 => {
            let (size, load, signed) = [
                (4, false, false),
                (2, false, false),
                (1, false, false),
                (1, true, true),
                (4, true, false),
                (2, true, false),
                (1, true, false),
                (2, true, true),
            ][field(word, 9, 3) as usize];
            let by = arm.r(r(word, 6));
            let access = Access { load, size, signed };
            return transfer::single(arm, access, r(word, 0), offset(r(word, 3), by));
        }
        op @ 0b01100..=0b10001 => {
            let size = [4, 1, 2][(op as usize - 0b01100) / 2];
            let by = constant(field(word, 6, 5) * u32::from(size));
            let access = Access {
                load: op & 1 == 1,
                size,
                signed: false,
            };
            return transfer::single(arm, access, r(word, 0), offset(r(word, 3), by));
        }
        op @ (0b10010 | 0b10011) => {
            let access = Access {
                load: op & 1 == 1,
                ..LOAD
            };
            let mode = offset(SP, constant(4 * field(word, 0, 8)));
            return transfer::single(arm, access, r(word, 8), mode);
        }
        op @ (0b10100 | 0b10101) => {
            let base = if op & 1 == 0 {
                constant(arm.pc & !3)
            } else {
                arm.r(SP)
            };
            let sum = arm.add(base, 4 * field(word, 0, 8));
            arm.write(r(word, 8), sum);
        }
        0b10110 | 0b10111 => return miscellaneous(arm, word),
        op @ (0b11000 | 0b11001) => {
            let (base, list, load) = (r(word, 8), word & 0xff, op & 1 == 1);
            let write_back = !load || list >> base & 1 == 0;
            return transfer::multiple(arm, load, base, list, [false, true, write_back]);
        }
        0b11010 | 0b11011 => return conditional_branch(arm, word),
        // B
        _ if word & 0xf800 == 0xe000 => {
            let distance = ((u32::from(word) << 21).cast_signed() >> 20).cast_unsigned();
            arm.jump(arm.pc.wrapping_add(distance));
        }
        _ => return None,
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

/// Data processing of two registers.
fn registers(arm: &mut Arm, word: u16, flags: bool) {
    let (to, from) = (r(word, 0), r(word, 3));
    let operands = [arm.r(to), arm.r(from)];
    let operation = match field(word, 6, 4) {
        0 | 8 => Alu::And,
        1 => Alu::Xor,
        opcode @ (2..=4 | 7) => {
            let kind = if opcode == 7 { 3 } else { opcode - 2 };
            let (value, carry) = shift::by_register(arm, kind, operands[0], operands[1], flags);
            return data(
                arm,
                Alu::Move,
                flags,
                Some(to),
                [Operand::ZERO, value],
                carry,
            );
        }
        5 => Alu::AddCarry,
        6 => Alu::SubtractCarry,
        // RSB: subtracts from 0.
        9 => {
            return data(
                arm,
                Alu::Subtract,
                flags,
                Some(to),
                [Operand::ZERO, operands[1]],
                CARRY,
            );
        }
        10 => Alu::Subtract,
        11 => Alu::Add,
        12 => Alu::Or,
        13 => return multiply::single(arm, flags, to, [from, to], None),
        14 => Alu::Clear,
        _ => Alu::MoveNot,
    };
    if matches!(field(word, 6, 4), 8 | 10 | 11) {
        data(arm, operation, true, None, operands, CARRY);
    } else {
        data(arm, operation, flags, Some(to), operands, CARRY);
    }
}

/// ADD, CMP and MOV of all registers, BX, BLX.
fn high_registers(arm: &mut Arm, word: u16) -> Option<()> {
    let (to, from) = (
        (field(word, 7, 1) << 3 | field(word, 0, 3)) as u8,
        field(word, 3, 4) as u8,
    );
    let operands = [arm.r(to), arm.r(from)];
    match field(word, 8, 2) {
        1 if to != PC && from != PC => data(arm, Alu::Subtract, true, None, operands, CARRY),
        1 => return None,
        3 => {
            let mut target = arm.r(from);
            if word & 0x80 != 0 {
                if from == PC {
                    return None;
                }
                if from == LR {
                    target = arm.b.kept(target);
                }
                let link = arm.address.wrapping_add(2) | 1;
                arm.write(LR, constant(link));
            }
            arm.branch(target, true);
        }
        op => {
            let operation = if op == 0 { Alu::Add } else { Alu::Move };
            if to == PC {
                data_to_pc(arm, operation, false, operands, false);
            } else {
                data(arm, operation, false, Some(to), operands, CARRY);
            }
        }
    }
    Some(())
}

fn miscellaneous(arm: &mut Arm, word: u16) -> Option<()> {
    match field(word, 8, 4) {
        0b0000 => {
            let bytes = 4 * field(word, 0, 7);
            let moved = if word & 0x80 == 0 {
                bytes
            } else {
                bytes.wrapping_neg()
            };
            let sum = arm.add(arm.r(SP), moved);
            arm.write(SP, sum);
        }
        // CBZ, CBNZ: not allowed in IT blocks.
        0b0001 | 0b0011 | 0b1001 | 0b1011 => {
            if !arm.always() {
                return None;
            }
            let distance = field(word, 9, 1) << 6 | field(word, 3, 5) << 1;
            let tested = arm.r(r(word, 0));
            let zero = arm.b.op2(Operation::Equal, tested, Operand::ZERO);
            let condition = if word & 0x800 == 0 {
                zero
            } else {
                arm.b.inverted(zero)
            };
            let target = u64::from(arm.pc.wrapping_add(distance));
            arm.b.control = Control::Conditional { condition, target };
        }
        0b0010 => {
            let kind = field(word, 6, 2);
            let (count, signed) = (if kind & 1 == 0 { 16 } else { 8 }, kind < 2);
            media::extend(arm, r(word, 0), None, r(word, 3), 0, count, signed);
        }
        0b0100 | 0b0101 => {
            let list = word & 0xff | (word & 0x100) << 6;
            return transfer::multiple(arm, false, SP, list, [true, false, true]);
        }
        0b1100 | 0b1101 => {
            let list = word & 0xff | (word & 0x100) << 7;
            return transfer::multiple(arm, true, SP, list, [false, true, true]);
        }
        // The 16-bit CPS does not change the mode; PRIMASK and FAULTMASK are not modelled.
        0b0110 if word & 0xffe0 == 0xb660 => {}
        0b1010 if field(word, 6, 2) != 2 => {
            let kind = field(word, 6, 2);
            media::reverse(arm, kind, r(word, 0), r(word, 3));
        }
        // HLT: semihosting.
        0b1010 => semihosting(arm),
        // BKPT 0xab is semihosting on M-profile cores.
        0b1110 if word & 0xff == 0xab => semihosting(arm),
        0b1110 => {}
        // IT and hints.
        0b1111 => {}
        _ => return None,
    }
    Some(())
}

fn semihosting(arm: &mut Arm) {
    arm.unknown(Location::general(0));
    arm.b.may_store_anywhere = true;
}

/// B with a condition, SVC.
fn conditional_branch(arm: &mut Arm, word: u16) -> Option<()> {
    match field(word, 8, 4) {
        14 => return None,
        15 if arm.always() => arm.b.control = Control::SystemCall,
        15 => return None,
        condition if arm.always() => {
            let distance = ((u32::from(word) << 24).cast_signed() >> 23).cast_unsigned();
            arm.when = arm.b.holds(condition as u8);
            arm.jump(arm.pc.wrapping_add(distance));
        }
        _ => return None,
    }
    Some(())
}
