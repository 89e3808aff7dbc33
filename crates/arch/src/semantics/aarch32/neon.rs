//! Advanced SIMD: loads and stores of whole registers. The destinations of all other instructions
//! become unknown.

use super::core::Arm;
use crate::semantics::{Location, Operand};

/// Data processing, bits 23:0. Writes one register of 64 or 128 bits.
pub(in crate::semantics) fn data(arm: &mut Arm, word: u32) -> Option<()> {
    // VSWP, VTRN, VUZP, VZIP write both of their registers.
    let both = word >> 23 & 1 == 1 && word >> 20 & 3 == 3 && word >> 16 & 3 == 2;
    for low in [(22, 12), (5, 0)]
        .into_iter()
        .take(if both { 2 } else { 1 })
    {
        let number = (word >> low.0 & 1) << 4 | word >> low.1 & 15;
        let first = (number & !1) as u8;
        for number in [first, first + 1] {
            arm.unknown(d(number));
        }
    }
    Some(())
}

/// d0 to d31.
pub(in crate::semantics) const fn d(number: u8) -> Location {
    Location::vector(number / 2, number % 2)
}

/// VLD1 to VLD4, VST1 to VST4. Only accesses to whole consecutive registers are modelled.
pub(in crate::semantics) fn elements(arm: &mut Arm, word: u32) -> Option<()> {
    let load = word >> 21 & 1 == 1;
    let first = ((word >> 22 & 1) << 4 | word >> 12 & 15) as u8;
    let (base, index) = ((word >> 16 & 15) as u8, (word & 15) as u8);
    let kind = word >> 8 & 15;
    let single = word >> 23 & 1 == 1;
    let registers = match kind {
        7 => 1,
        10 => 2,
        6 => 3,
        2 => 4,
        _ => 0,
    };
    if base == 15 {
        return None;
    }
    let from = arm.r(base);
    if !single && registers > 0 {
        if first + registers > 32 {
            return None;
        }
        for register in 0..registers {
            let at = arm.add(from, 8 * u32::from(register));
            if load {
                let value = arm.load(8, at);
                arm.put(d(first + register), value);
            } else {
                arm.store(8, at, Operand::Location(d(first + register)));
            }
        }
        write_back(arm, base, index, 8 * u32::from(registers));
        return Some(());
    }
    if !load {
        // Elements of up to four registers.
        arm.b.may_store_anywhere = true;
    } else {
        for register in first..(first + 8).min(32) {
            arm.unknown(d(register));
        }
    }
    if index != 15 {
        arm.unknown(Location::general(base));
    }
    Some(())
}

fn write_back(arm: &mut Arm, base: u8, index: u8, bytes: u32) {
    let from = arm.r(base);
    let moved = match index {
        15 => return,
        13 => arm.add(from, bytes),
        _ => {
            let by = arm.r(index);
            let add = crate::semantics::Operation::Add(crate::semantics::Width::W32);
            arm.b.op2(add, from, by)
        }
    };
    arm.write(base, moved);
}
