//! Data processing.

use super::word::Word;
use super::{memory, miscellaneous};
use crate::semantics::aarch32::alu::{Alu, data, data_to_pc};
use crate::semantics::aarch32::core::{Arm, CARRY, PC, constant};
use crate::semantics::aarch32::shift;
use crate::semantics::operation::Operation;

pub(super) fn decode(arm: &mut Arm, word: Word) -> Option<()> {
    let immediate = word.bit(25);
    let compares = word.field(23, 2) == 0b10;
    if !immediate && word.bit(4) && word.bit(7) {
        return match word.field(5, 2) {
            0 if !word.bit(24) => miscellaneous::multiply(arm, word),
            0 => memory::exclusive(arm, word),
            _ => memory::halves(arm, word),
        };
    }
    if compares && !word.bit(20) {
        return if immediate {
            wide_immediate(arm, word)
        } else {
            miscellaneous::decode(arm, word)
        };
    }
    let opcode = word.field(21, 4);
    let flags = word.bit(20);
    let logic = matches!(opcode, 0 | 1 | 8 | 9 | 12..=15);
    let (operand, carry) = if immediate {
        let value = word.field(0, 8).rotate_right(2 * word.field(8, 4));
        let carry = if word.field(8, 4) == 0 {
            CARRY
        } else {
            constant(value >> 31)
        };
        (constant(value), carry)
    } else {
        let wanted = flags && logic;
        let (kind, value) = (word.field(5, 2), arm.r(word.r(0)));
        if word.bit(4) {
            if [0, 8, 12, 16]
                .iter()
                .any(|low| word.r(*low) == PC && !(compares && *low == 12))
            {
                return None;
            }
            let by = arm.r(word.r(8));
            shift::by_register(arm, kind, value, by, wanted)
        } else {
            shift::by_immediate(arm, kind, value, word.field(7, 5), wanted)
        }
    };
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
    let operands = [arm.r(word.r(16)), operand];
    match word.r(12) {
        _ if compares => data(arm, operation, true, None, operands, carry),
        PC => data_to_pc(arm, operation, flags, operands, true),
        to => data(arm, operation, flags, Some(to), operands, carry),
    }
    Some(())
}

/// MOVW, MOVT, MSR of immediates, hints.
fn wide_immediate(arm: &mut Arm, word: Word) -> Option<()> {
    let value = word.field(16, 4) << 12 | word.field(0, 12);
    let to = word.r(12);
    match word.field(21, 2) {
        0b00 if to != PC => arm.write(to, constant(value)),
        0b10 if to != PC => {
            let old = arm.r(to);
            let insert = Operation::Insert { low: 16, count: 16 };
            let result = arm.b.op2(insert, old, constant(value));
            arm.write(to, result);
        }
        // Hints, if the mask is 0.
        0b01 if word.field(16, 4) == 0 => {}
        0b01 => {
            let value = word.field(0, 8).rotate_right(2 * word.field(8, 4));
            miscellaneous::set_state(arm, word.field(16, 4), constant(value));
        }
        // MSR to SPSR.
        0b11 => {}
        _ => return None,
    }
    Some(())
}
