//! Multiplications, and the miscellaneous instructions, which are encoded as comparisons that do
//! not set flags.

use super::word::Word;
use crate::semantics::aarch32::alu::return_from_exception;
use crate::semantics::aarch32::core::{Arm, LR, PC, constant};
use crate::semantics::aarch32::{media, multiply};
use crate::semantics::operation::{Operation, Width};
use crate::semantics::{Location, Operand};

pub(super) fn multiply(arm: &mut Arm, word: Word) -> Option<()> {
    let (to, third) = (word.r(16), word.r(12));
    let factors = [word.r(0), word.r(8)];
    let (flags, pair) = (word.bit(20), [third, to]);
    if to == PC || factors.contains(&PC) {
        return None;
    }
    match word.field(21, 3) {
        0 => multiply::single(arm, flags, to, factors, None),
        _ if third == PC => return None,
        1 => multiply::single(arm, flags, to, factors, Some((third, false))),
        3 if !flags => multiply::single(arm, flags, to, factors, Some((third, true))),
        _ if third == to => return None,
        2 if !flags => multiply::add_both(arm, pair, factors),
        4 => multiply::long(arm, flags, pair, factors, false, false),
        5 => multiply::long(arm, flags, pair, factors, false, true),
        6 => multiply::long(arm, flags, pair, factors, true, false),
        7 => multiply::long(arm, flags, pair, factors, true, true),
        _ => return None,
    }
    Some(())
}

pub(super) fn decode(arm: &mut Arm, word: Word) -> Option<()> {
    let (op, to, from) = (word.field(21, 2), word.r(12), word.r(0));
    if word.bit(7) {
        return halves(arm, word);
    }
    match (word.field(4, 3), op) {
        // MRS; banked registers are not modelled.
        (0, 0 | 2) if to != PC => {
            if op == 0 && !word.bit(9) {
                read_state(arm, to);
            } else {
                arm.unknown(Location::general(to));
            }
        }
        (0, 1) if !word.bit(9) => {
            let value = arm.r(from);
            set_state(arm, word.field(16, 4), value);
        }
        // MSR to SPSR and to banked registers, one of which may be a register of the current mode.
        (0, 3) if !word.bit(9) => {}
        (0, _) => return None,
        (1 | 2, 1) => {
            let target = arm.r(from);
            arm.branch(target, true);
        }
        (1, 3) if to != PC && from != PC => {
            let value = arm.r(from);
            let count = arm.b.op1(Operation::CountLeadingZeros(Width::W32), value);
            arm.write(to, count);
        }
        (3, 1) if from != PC => {
            let mut target = arm.r(from);
            if from == LR {
                target = arm.b.kept(target);
            }
            let link = arm.address.wrapping_add(4);
            arm.write(LR, constant(link));
            arm.branch(target, true);
        }
        (4, size) if size < 3 && [to, from, word.r(16)].iter().all(|number| *number != PC) => {
            let operation = Operation::Crc32 {
                bytes: 1 << size,
                castagnoli: word.bit(9),
            };
            let (checksum, value) = (arm.r(word.r(16)), arm.r(from));
            let result = arm.b.op2(operation, checksum, value);
            arm.write(to, result);
        }
        (5, _) if [to, from, word.r(16)].iter().all(|number| *number != PC) => {
            media::add_saturating(arm, to, [from, word.r(16)], op & 2 != 0, op & 1 != 0);
        }
        (6, 3) => return_from_exception(arm),
        // BKPT traps.
        (7, 1) => {}
        // HLT: semihosting. HVC, SMC: the SMC Calling Convention preserves r4 to r14.
        (7, 0 | 2 | 3) => {
            for number in 0..4 {
                arm.unknown(Location::general(number));
            }
            arm.b.may_store_anywhere = true;
        }
        _ => return None,
    }
    Some(())
}

/// SMLAxy, SMULxy, SMLAWy, SMULWy, SMLALxy.
fn halves(arm: &mut Arm, word: Word) -> Option<()> {
    let (to, third) = (word.r(16), word.r(12));
    let factors = [word.r(0), word.r(8)];
    if to == PC || factors.contains(&PC) {
        return None;
    }
    let upper = [word.bit(5), word.bit(6)];
    match word.field(21, 2) {
        0 if third != PC => multiply::halves(arm, to, factors, upper, Some(third)),
        1 if word.bit(5) => multiply::by_half(arm, to, factors, word.bit(6), None),
        1 if third != PC => multiply::by_half(arm, to, factors, word.bit(6), Some(third)),
        2 if third != PC && third != to => {
            multiply::halves_long(arm, [third, to], factors, upper);
        }
        3 => multiply::halves(arm, to, factors, upper, None),
        _ => return None,
    }
    Some(())
}

/// MRS of CPSR: mode and masks are not modelled.
pub(super) fn read_state(arm: &mut Arm, to: u8) {
    let mut value = arm.b.op1(Operation::Unknown, Operand::ZERO);
    for (flag, low, count) in [
        (Location::N, 31, 1),
        (Location::Z, 30, 1),
        (Location::C, 29, 1),
        (Location::V, 28, 1),
        (Location::Q, 27, 1),
        (Location::GE, 16, 4),
    ] {
        value = arm.b.op2(
            Operation::Insert { low, count },
            value,
            Operand::Location(flag),
        );
    }
    let value = arm.low(value);
    arm.write(to, value);
}

/// MSR to CPSR. `mask` selects the flags (8), GE (4), and the control bits with the mode (1).
pub(super) fn set_state(arm: &mut Arm, mask: u32, value: Operand) {
    arm.keep_condition();
    let flags = [
        (Location::N, 31, 1, 8),
        (Location::Z, 30, 1, 8),
        (Location::C, 29, 1, 8),
        (Location::V, 28, 1, 8),
        (Location::Q, 27, 1, 8),
        (Location::GE, 16, 4, 4),
    ];
    for (flag, low, count, field) in flags {
        if mask & field != 0 {
            let bits = arm.b.op1(Operation::Extract { low, count }, value);
            arm.put(flag, bits);
        }
    }
    if mask & 1 != 0 {
        // At EL0 the mode bits are not written; elsewhere registers may be switched to other banks.
        for number in 8..PC {
            arm.unknown(Location::general(number));
        }
    }
}
