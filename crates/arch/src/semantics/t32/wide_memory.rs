//! 32-bit loads and stores.

use crate::semantics::Operand;
use crate::semantics::aarch32::bits::{bit, field, r};
use crate::semantics::aarch32::core::{Arm, PC, constant};
use crate::semantics::aarch32::shift;
use crate::semantics::aarch32::transfer::{self, Access, AddressingMode};
use crate::semantics::operation::{Operation, Width};

/// LDM, STM. RFE and SRS are not modelled.
pub(super) fn multiple(
    arm: &mut Arm,
    load: bool,
    rn: u8,
    list: u16,
    [before, up, write_back]: [bool; 3],
) -> Option<()> {
    if up == before || list >> 13 & 1 == 1 || !load && list >> PC == 1 {
        return None;
    }
    transfer::multiple(arm, load, rn, list, [before, up, write_back])
}

/// LDRD, STRD, exclusives.
pub(super) fn dual(arm: &mut Arm, word: u32) -> Option<()> {
    let (before, up, write_back) = (bit(word, 24), bit(word, 23), bit(word, 21));
    let (n, t, t2, load) = (r(word, 16), r(word, 12), r(word, 8), bit(word, 20));
    if before || write_back {
        let offset = constant(4 * field(word, 0, 8));
        if n == PC && (!load || write_back) {
            return None;
        }
        let mode = AddressingMode {
            base: n,
            offset,
            add: up,
            before,
            write_back,
        };
        return transfer::dual(arm, load, [t, t2], mode);
    }
    let at = arm.r(n);
    let plain = |offset| AddressingMode {
        base: n,
        offset,
        add: true,
        before: true,
        write_back: false,
    };
    if !up {
        if n == PC {
            return None;
        }
        let offset = 4 * field(word, 0, 8);
        if load {
            let access = Access {
                load,
                size: 4,
                signed: false,
            };
            return transfer::single(arm, access, t, plain(constant(offset)));
        }
        let at = arm.add(at, offset);
        return transfer::exclusive_store(arm, 4, t2, &[t], at);
    }
    let size = 1 << field(word, 4, 2);
    let access = Access {
        load,
        size,
        signed: false,
    };
    let status = r(word, 0);
    match field(word, 4, 4) {
        _ if n == PC || t == PC => None,
        4 | 5 if load => transfer::single(arm, access, t, plain(Operand::ZERO)),
        4 | 5 => transfer::exclusive_store(arm, size, status, &[t], at),
        7 | 15 if load => transfer::dual(arm, true, [t, t2], plain(Operand::ZERO)),
        7 | 15 => transfer::exclusive_store(arm, 4, status, &[t, t2], at),
        8..=10 => transfer::single(arm, access, t, plain(Operand::ZERO)),
        12..=14 if load => transfer::single(arm, access, t, plain(Operand::ZERO)),
        12..=14 => transfer::exclusive_store(arm, size, status, &[t], at),
        _ => None,
    }
}

/// TBB, TBH.
pub(super) fn table_branch(arm: &mut Arm, half: bool, rn: u8, rm: u8) -> Option<()> {
    if rm == PC {
        return None;
    }
    let base = arm.r(rn);
    let mut index = arm.r(rm);
    if half {
        index = arm
            .b
            .op2(Operation::ShiftLeft(Width::W32), index, constant(1));
    }
    let at = arm.b.op2(Operation::Add(Width::W32), base, index);
    let entry = arm.load(if half { 2 } else { 1 }, at);
    let distance = arm
        .b
        .op2(Operation::ShiftLeft(Width::W32), entry, constant(1));
    let pc = constant(arm.pc);
    let target = arm.b.op2(Operation::Add(Width::W32), pc, distance);
    arm.branch(target, false);
    Some(())
}

/// LDR and STR of words, halfwords and bytes; prefetches.
pub(super) fn single(arm: &mut Arm, word: u32) -> Option<()> {
    let (signed, size, load) = (bit(word, 24), field(word, 21, 2), bit(word, 20));
    let (n, t) = (r(word, 16), r(word, 12));
    if size == 3 || signed && (!load || size == 2) {
        return None;
    }
    if load && t == PC && size < 2 {
        // PLD, PLI and hints.
        return Some(());
    }
    let access = Access {
        load,
        size: 1 << size,
        signed,
    };
    let mut mode = AddressingMode {
        base: n,
        offset: Operand::ZERO,
        add: true,
        before: true,
        write_back: false,
    };
    if n == PC {
        if !load {
            return None;
        }
        mode.offset = constant(field(word, 0, 12));
        mode.add = bit(word, 23);
    } else if bit(word, 23) {
        mode.offset = constant(field(word, 0, 12));
    } else if bit(word, 11) {
        mode.offset = constant(field(word, 0, 8));
        (mode.before, mode.add, mode.write_back) = (bit(word, 10), bit(word, 9), bit(word, 8));
        // Without pre-index and write-back it is undefined. Unprivileged accesses are treated like
        // others.
        if !mode.before && !mode.write_back {
            return None;
        }
    } else {
        let m = r(word, 0);
        if field(word, 6, 5) != 0 || m == PC {
            return None;
        }
        let value = arm.r(m);
        mode.offset = shift::by_immediate(arm, 0, value, field(word, 4, 2), false).0;
    }
    transfer::single(arm, access, t, mode)
}
