//! Loads and stores.

use crate::encoding::a32::Conditional;
use crate::semantics::aarch32::alu::return_from_exception;
use crate::semantics::aarch32::core::{Arm, PC, constant};
use crate::semantics::aarch32::shift;
use crate::semantics::aarch32::transfer::{self, Access, AddressingMode};
use crate::semantics::{Location, Operand};

/// The addressing mode from the bits P, U and W.
const fn mode(base: u8, offset: Operand, [p, u, w]: [bool; 3]) -> AddressingMode {
    AddressingMode {
        base,
        offset,
        add: u,
        before: p,
        write_back: !p || w,
    }
}

pub(super) fn decode(arm: &mut Arm, instruction: Conditional) -> Option<()> {
    match instruction {
        Conditional::Offset {
            p,
            u,
            byte,
            w,
            load,
            rn,
            rt,
            imm,
            ..
        } => {
            let mode = mode(rn, constant(imm), [p, u, w]);
            transfer::single(arm, word_or_byte(load, byte), rt, mode)
        }
        Conditional::RegisterOffset {
            p,
            u,
            byte,
            w,
            load,
            rn,
            rt,
            amount,
            shift,
            rm,
            ..
        } => {
            if rm == PC {
                return None;
            }
            let value = arm.r(rm);
            let offset = shift::by_immediate(arm, shift.into(), value, amount.into(), false).0;
            let mode = mode(rn, offset, [p, u, w]);
            transfer::single(arm, word_or_byte(load, byte), rt, mode)
        }
        Conditional::Half {
            p,
            u,
            immediate,
            w,
            load,
            rn,
            rt,
            high,
            low,
            ..
        } => {
            let mode = mode(rn, offset(arm, immediate, high, low)?, [p, u, w]);
            let access = Access {
                load,
                size: 2,
                signed: false,
            };
            transfer::single(arm, access, rt, mode)
        }
        Conditional::SignedOrDual {
            p,
            u,
            immediate,
            w,
            load,
            rn,
            rt,
            high,
            half,
            low,
            ..
        } => {
            let offset = offset(arm, immediate, high, low)?;
            let mode = mode(rn, offset, [p, u, w]);
            if load {
                let access = Access {
                    load,
                    size: if half { 2 } else { 1 },
                    signed: true,
                };
                return transfer::single(arm, access, rt, mode);
            }
            // Two registers, the first even; there is no unprivileged form.
            if rt & 1 == 1 || !p && w {
                return None;
            }
            transfer::dual(arm, !half, [rt, rt + 1], mode)
        }
        Conditional::Multiple {
            p,
            u,
            user: false,
            w,
            load,
            rn,
            list,
            ..
        } => transfer::multiple(arm, load, rn, list as u16, [p, u, w]),
        // A return from an exception. Without the pc, registers of another mode.
        Conditional::Multiple {
            load: true,
            rn,
            list,
            ..
        } if list >> PC == 1 => {
            return_from_exception(arm);
            for number in 0..8 {
                if list >> number & 1 == 1 || rn == number {
                    arm.unknown(Location::general(number));
                }
            }
            Some(())
        }
        Conditional::Exclusive {
            kind,
            load,
            rn,
            rd,
            order,
            rt,
            ..
        } => exclusive(arm, (kind, order), load, rn, [rd, rt]),
        _ => None,
    }
}

const fn word_or_byte(load: bool, byte: bool) -> Access {
    Access {
        load,
        size: if byte { 1 } else { 4 },
        signed: false,
    }
}

/// An offset of 8 bits in two fields, or in the register `low`.
fn offset(arm: &Arm, immediate: bool, high: u8, low: u8) -> Option<Operand> {
    match immediate {
        true => Some(constant(u32::from(high << 4 | low))),
        false if low == PC => None,
        false => Some(arm.r(low)),
    }
}

/// LDREX and STREX, LDA and STL. Loads write `rd`; stores store `rt`, and the status in `rd`.
fn exclusive(
    arm: &mut Arm,
    (kind, order): (u8, u8),
    load: bool,
    base: u8,
    [rd, rt]: [u8; 2],
) -> Option<()> {
    if base == PC {
        return None;
    }
    let at = arm.r(base);
    let size = [4, 8, 1, 2][usize::from(kind)];
    let access = Access {
        load,
        size,
        signed: false,
    };
    let plain = mode(base, Operand::ZERO, [true, true, false]);
    match order {
        // LDA, STL.
        0 if size != 8 => {
            let register = if load { rd } else { rt };
            if register == PC {
                return None;
            }
            transfer::single(arm, access, register, plain)
        }
        2 | 3 if load && size == 8 => {
            if rd & 1 == 1 {
                return None;
            }
            transfer::dual(arm, true, [rd, rd + 1], plain)
        }
        2 | 3 if load && rd != PC => transfer::single(arm, access, rd, plain),
        2 | 3 if !load => {
            if rt == PC || size == 8 && (rt & 1 == 1 || rt == 14) {
                return None;
            }
            if size == 8 {
                return transfer::exclusive_store(arm, 4, rd, &[rt, rt + 1], at);
            }
            transfer::exclusive_store(arm, size, rd, &[rt], at)
        }
        _ => None,
    }
}
