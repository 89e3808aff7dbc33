//! 32-bit instructions: the groups, branches and system instructions.

use super::{wide_data, wide_memory};
use crate::semantics::aarch32::alu::return_from_exception;
use crate::semantics::aarch32::bits::{bit, field, r};
use crate::semantics::aarch32::core::{Arm, LR, PC, constant};
use crate::semantics::aarch32::{float, neon};
use crate::semantics::operation::Operation;
use crate::semantics::{Control, Location};

pub(super) fn decode(arm: &mut Arm, word: u32) -> Option<()> {
    match (field(word, 27, 2), field(word, 20, 7)) {
        (0b01, op) if op & 0b110_0100 == 0 => wide_memory::multiple(arm, word),
        (0b01, op) if op & 0b110_0100 == 0b000_0100 => wide_memory::dual(arm, word),
        (0b01, op) if op & 0b110_0000 == 0b010_0000 => wide_data::shifted(arm, word),
        (0b10, _) if bit(word, 15) => branch(arm, word),
        (0b10, op) if op & 0b010_0000 == 0 => wide_data::modified_immediate(arm, word),
        (0b10, _) => wide_data::plain_immediate(arm, word),
        (0b11, op) if op & 0b111_0001 == 0b001_0000 => neon::elements(arm, word),
        (0b11, op) if op & 0b110_0000 == 0 => wide_memory::single(arm, word),
        (0b11, op) if op & 0b111_0000 == 0b010_0000 => wide_data::registers(arm, word),
        (0b11, op) if op & 0b111_1000 == 0b011_0000 => wide_data::products(arm, word),
        (0b11, op) if op & 0b111_1000 == 0b011_1000 => wide_data::long_products(arm, word),
        (0b01 | 0b11, op) if op & 0b100_0000 != 0 => coprocessor(arm, word),
        _ => None,
    }
}

fn coprocessor(arm: &mut Arm, word: u32) -> Option<()> {
    let second = bit(word, 28);
    match (field(word, 24, 2), second) {
        (0b11, _) => neon::data(arm, word),
        (0b00 | 0b01, false) => float::transfer(arm, word),
        (0b10, false) => float::decode(arm, word),
        (0b10, true) => float::unconditional(arm, word),
        _ => None,
    }
}

/// The branch distance S:I1:I2:imm10:imm11:0 or, for conditional branches, S:J2:J1:imm6:imm11:0.
fn distance(word: u32, conditional: bool) -> u32 {
    let (s, j1, j2) = (field(word, 26, 1), field(word, 13, 1), field(word, 11, 1));
    let low = field(word, 0, 11) << 1;
    if conditional {
        let whole = s << 20 | j2 << 19 | j1 << 18 | field(word, 16, 6) << 12 | low;
        ((whole << 11).cast_signed() >> 11).cast_unsigned()
    } else {
        let (i1, i2) = (j1 ^ s ^ 1, j2 ^ s ^ 1);
        let whole = s << 24 | i1 << 23 | i2 << 22 | field(word, 16, 10) << 12 | low;
        ((whole << 7).cast_signed() >> 7).cast_unsigned()
    }
}

fn branch(arm: &mut Arm, word: u32) -> Option<()> {
    match (bit(word, 14), bit(word, 12)) {
        (false, false) if field(word, 23, 3) != 0b111 => {
            if !arm.always() {
                return None;
            }
            arm.when = arm.b.holds(field(word, 22, 4) as u8);
            arm.jump(arm.pc.wrapping_add(distance(word, true)));
        }
        (false, true) => arm.jump(arm.pc.wrapping_add(distance(word, false))),
        // BL, BLX.
        (true, t32) => {
            if !t32 && bit(word, 0) {
                return None;
            }
            let link = arm.address.wrapping_add(4) | 1;
            arm.write(LR, constant(link));
            let from = if t32 { arm.pc } else { arm.pc & !3 };
            arm.jump(from.wrapping_add(distance(word, false)));
        }
        _ => return system(arm, word),
    }
    Some(())
}

fn system(arm: &mut Arm, word: u32) -> Option<()> {
    let to = r(word, 8);
    match field(word, 20, 7) {
        // MSR: on A-profile cores CPSR and SPSR by masks, on M-profile cores registers by numbers.
        // The profiles are not distinguished here.
        0b011_1000 | 0b011_1001 => {
            let from = r(word, 16);
            let value = arm.r(from);
            arm.keep_condition();
            let low = field(word, 0, 8);
            // APSR_nzcvq in both profiles; on A-profile cores the low byte is 0.
            if !bit(word, 20) && low == 0 && field(word, 8, 4) & 11 == 8 {
                for (flag, low) in [
                    (Location::N, 31),
                    (Location::Z, 30),
                    (Location::C, 29),
                    (Location::V, 28),
                    (Location::Q, 27),
                ] {
                    let bit = arm.b.op1(Operation::Extract { low, count: 1 }, value);
                    arm.put(flag, bit);
                }
                if bit(word, 10) {
                    let bits = arm.b.op1(Operation::Extract { low: 16, count: 4 }, value);
                    arm.put(Location::GE, bits);
                }
                return Some(());
            }
            // PRIMASK, BASEPRI and FAULTMASK.
            if (16..20).contains(&low) {
                return Some(());
            }
            return_from_exception(arm);
            arm.b.control = Control::Next;
        }
        // Hints; CPS may change the mode.
        0b011_1010 => {
            if field(word, 8, 3) != 0 {
                arm.unknown(Location::general(13));
                arm.unknown(Location::general(LR));
            }
        }
        // Barriers, CLREX.
        0b011_1011 => {}
        0b011_1110 | 0b011_1111 if to != PC && to != 13 => arm.unknown(Location::general(to)),
        // SUBS PC, LR and ERET.
        0b011_1101 => return_from_exception(arm),
        // HVC, SMC.
        0b111_1110 | 0b111_1111 if !bit(word, 13) => {
            for number in 0..4 {
                arm.unknown(Location::general(number));
            }
            arm.b.may_store_anywhere = true;
        }
        _ => return None,
    }
    Some(())
}
