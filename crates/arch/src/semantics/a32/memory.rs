//! Loads and stores.

use super::word::Word;
use crate::semantics::Operand;
use crate::semantics::aarch32::alu::return_from_exception;
use crate::semantics::aarch32::core::{Arm, PC, constant};
use crate::semantics::aarch32::shift;
use crate::semantics::aarch32::transfer::{self, Access, AddressingMode};

/// The addressing mode in bits P, U and W, which all loads and stores have.
fn addressing_mode(word: Word, offset: Operand) -> AddressingMode {
    let before = word.bit(24);
    AddressingMode {
        base: word.r(16),
        offset,
        add: word.bit(23),
        before,
        write_back: !before || word.bit(21),
    }
}

/// LDR, STR, LDRB, STRB and their unprivileged forms.
pub(super) fn word_or_byte(arm: &mut Arm, word: Word) -> Option<()> {
    let offset = if word.bit(25) {
        if word.r(0) == PC {
            return None;
        }
        let value = arm.r(word.r(0));
        shift::by_immediate(arm, word.field(5, 2), value, word.field(7, 5), false).0
    } else {
        constant(word.field(0, 12))
    };
    let size = if word.bit(22) { 1 } else { 4 };
    let access = Access {
        load: word.bit(20),
        size,
        signed: false,
    };
    transfer::single(arm, access, word.r(12), addressing_mode(word, offset))
}

/// LDRH, LDRSB, LDRSH, LDRD, STRH, STRD.
pub(super) fn halves(arm: &mut Arm, word: Word) -> Option<()> {
    let immediate = word.bit(22);
    if !immediate && word.r(0) == PC {
        return None;
    }
    let offset = if immediate {
        constant(word.field(8, 4) << 4 | word.field(0, 4))
    } else {
        arm.r(word.r(0))
    };
    let (load, kind, register) = (word.bit(20), word.field(5, 2), word.r(12));
    let mode = addressing_mode(word, offset);
    match (load, kind) {
        (false, 2 | 3) => {
            // Two registers, the first even; there is no unprivileged form.
            if register & 1 == 1 || !word.bit(24) && word.bit(21) {
                return None;
            }
            transfer::dual(arm, kind == 2, [register, register + 1], mode)
        }
        _ => {
            let size = if kind == 2 { 1 } else { 2 };
            let access = Access {
                load,
                size,
                signed: kind != 1,
            };
            transfer::single(arm, access, register, mode)
        }
    }
}

pub(super) fn multiple(arm: &mut Arm, word: Word) -> Option<()> {
    let (load, list) = (word.bit(20), word.field(0, 16) as u16);
    if word.bit(22) {
        // Registers of another mode, or a return from an exception.
        if !load || list >> PC & 1 == 0 {
            return None;
        }
        return_from_exception(arm);
        for number in 0..8 {
            if list >> number & 1 == 1 || word.r(16) == number {
                arm.unknown(crate::semantics::Location::general(number));
            }
        }
        return Some(());
    }
    let mode = [word.bit(24), word.bit(23), word.bit(21)];
    transfer::multiple(arm, load, word.r(16), list, mode)
}

/// SWP, LDREX and STREX, LDA and STL.
pub(super) fn exclusive(arm: &mut Arm, word: Word) -> Option<()> {
    let (base, at) = (word.r(16), arm.r(word.r(16)));
    if base == PC || !word.bit(23) {
        return None;
    }
    let (load, kind) = (word.bit(20), word.field(21, 2));
    let size = [4, 8, 1, 2][kind as usize];
    let access = |size| Access {
        load,
        size,
        signed: false,
    };
    let plain = AddressingMode {
        base,
        offset: Operand::ZERO,
        add: true,
        before: true,
        write_back: false,
    };
    match word.field(8, 2) {
        // LDA, STL.
        0 if size != 8 => {
            let register = if load { word.r(12) } else { word.r(0) };
            if register == PC {
                return None;
            }
            transfer::single(arm, access(size), register, plain)
        }
        2 | 3 if load && size == 8 => {
            let register = word.r(12);
            if register & 1 == 1 {
                return None;
            }
            transfer::dual(arm, true, [register, register + 1], plain)
        }
        2 | 3 if load && word.r(12) != PC => transfer::single(arm, access(size), word.r(12), plain),
        2 | 3 if !load => {
            let register = word.r(0);
            if register == PC || size == 8 && (register & 1 == 1 || register == 14) {
                return None;
            }
            if size == 8 {
                let registers = [register, register + 1];
                return transfer::exclusive_store(arm, 4, word.r(12), &registers, at);
            }
            transfer::exclusive_store(arm, size, word.r(12), &[register], at)
        }
        _ => None,
    }
}
