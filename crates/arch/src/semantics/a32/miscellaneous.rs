//! The state registers, and the miscellaneous instructions.

use crate::encoding::a32::Conditional;
use crate::semantics::aarch32::core::{Arm, PC, constant};
use crate::semantics::aarch32::media;
use crate::semantics::operation::{Operation, Width};
use crate::semantics::{Location, Operand};

pub(super) fn decode(arm: &mut Arm, instruction: Conditional) -> Option<()> {
    match instruction {
        // Banked registers are not modelled.
        Conditional::ReadState {
            spsr, rd, banked, ..
        } if rd != PC => {
            if spsr || banked {
                arm.unknown(Location::general(rd));
            } else {
                read_state(arm, rd);
            }
        }
        Conditional::WriteState {
            spsr,
            mask,
            banked: false,
            rn,
            ..
        } => {
            if !spsr {
                let value = arm.r(rn);
                set_state(arm, mask, value);
            }
        }
        Conditional::WriteStateImmediate {
            spsr,
            mask,
            rotation,
            imm,
            ..
        } => {
            if !spsr {
                let value = u32::from(imm).rotate_right(2 * u32::from(rotation));
                set_state(arm, mask, constant(value));
            }
        }
        Conditional::Hint { .. } => {}
        Conditional::LeadingZeros { rd, rm, .. } if rd != PC && rm != PC => {
            let value = arm.r(rm);
            let count = arm.b.op1(Operation::CountLeadingZeros(Width::W32), value);
            arm.write(rd, count);
        }
        Conditional::Crc32 {
            size,
            rn,
            rd,
            castagnoli,
            rm,
            ..
        } if size < 3 && ![rn, rd, rm].contains(&PC) => {
            let bytes = 1 << size;
            let operation = Operation::Crc32 { bytes, castagnoli };
            let (checksum, value) = (arm.r(rn), arm.r(rm));
            let result = arm.b.op2(operation, checksum, value);
            arm.write(rd, result);
        }
        Conditional::AddSaturating {
            double,
            subtract,
            rn,
            rd,
            rm,
            ..
        } if ![rn, rd, rm].contains(&PC) => {
            media::add_saturating(arm, rd, [rm, rn], double, subtract);
        }
        // BKPT traps.
        Conditional::Exception { op: 1, .. } => {}
        // HLT: semihosting. HVC, SMC: the SMC Calling Convention preserves r4 to r14.
        Conditional::Exception { .. } => {
            for number in 0..4 {
                arm.unknown(Location::general(number));
            }
            arm.b.may_store_anywhere = true;
        }
        _ => return None,
    }
    Some(())
}

/// MRS of CPSR: mode and masks are not modelled.
fn read_state(arm: &mut Arm, to: u8) {
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
fn set_state(arm: &mut Arm, mask: u8, value: Operand) {
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
