//! Hints, fields of PSTATE, system registers and operations.

use super::arithmetic::with_unknown_code;
use super::word::{to_x, x};
use crate::semantics::builder::Builder;
use crate::semantics::{Location, Operand, Operation};

/// N, Z, C, V from bit 31 down.
const FLAGS: [(Location, u8); 4] = [
    (Location::N, 31),
    (Location::Z, 30),
    (Location::C, 29),
    (Location::V, 28),
];

pub(super) fn hint(builder: &mut Builder, crm: u8, op2: u8) {
    let number = match (crm, op2) {
        // XPACLRI; PACIAZ to AUTIBSP.
        (0, 7) | (3, _) => 30,
        // PACIA1716, PACIB1716, AUTIA1716, AUTIB1716.
        (1, 0 | 2 | 4 | 6) => 17,
        // CHKFEAT
        (5, 0) => {
            builder.unknown(Location::general(16));
            return;
        }
        _ => return,
    };
    let location = Location::general(number);
    let changed = with_unknown_code(builder, Operand::Location(location));
    builder.copy(location, changed);
}

/// MSR to fields of PSTATE; CFINV, XAFLAG, AXFLAG.
pub(super) fn write_state(builder: &mut Builder, op1: u8, op2: u8) {
    let flag = Operand::Location;
    let (z, c, v) = (flag(Location::Z), flag(Location::C), flag(Location::V));
    match (op1, op2) {
        (0, 0) => {
            let inverted = builder.inverted(c);
            builder.copy(Location::C, inverted);
        }
        // XAFLAG: from the flags of an x86 comparison to those of FCMP; AXFLAG: the reverse (C6.2).
        (0, 1) => {
            let not_c = builder.inverted(c);
            let not_z = builder.inverted(z);
            let new_n = builder.op2(Operation::And, not_c, not_z);
            let new_z = builder.op2(Operation::And, z, c);
            let new_c = builder.op2(Operation::Or, c, z);
            let new_v = builder.op2(Operation::And, not_c, z);
            for (flag, value) in [
                (Location::N, new_n),
                (Location::Z, new_z),
                (Location::C, new_c),
                (Location::V, new_v),
            ] {
                builder.copy(flag, value);
            }
        }
        (0, 2) => {
            let not_v = builder.inverted(v);
            builder.set2(Location::Z, Operation::Or, z, v);
            builder.set2(Location::C, Operation::And, c, not_v);
            builder.copy(Location::N, Operand::ZERO);
            builder.copy(Location::V, Operand::ZERO);
        }
        // SPSel
        (0, 5) => builder.unknown(Location::SP),
        // SMSTART and SMSTOP.
        (3, 3) => vectors_unknown(builder),
        _ => {}
    }
}

fn vectors_unknown(builder: &mut Builder) {
    for number in 0..32 {
        builder.unknown(Location::vector(number, 0));
        builder.unknown(Location::vector(number, 1));
    }
}

/// SYS: DC, IC, AT, TLBI and others.
pub(super) fn operation(builder: &mut Builder, number: u8, (op1, crn, crm, op2): (u8, u8, u8, u8)) {
    builder.may_store_anywhere = match (crn, crm) {
        // DC ZVA, GZVA. With register 31 the address is zero.
        (7, 4) if op1 == 3 && (op2 == 1 || op2 == 4) => {
            builder.clears_block = Some(Location::general(number)).filter(|_| number != 31);
            number == 31
        }
        // DC IVAC, ISW: cached writes are lost. GCSPUSHM and others write.
        (7, 6 | 7) => true,
        // IC, cleaning of caches, AT, restriction of speculation.
        (7, _) => false,
        // TLBI: addresses may be mapped to other memory. The rest is implementation defined.
        _ => true,
    };
}

type Register = (u8, u8, u8, u8, u8);

pub(super) fn read_register(builder: &mut Builder, number: u8, register: Register) {
    let to = to_x(number);
    match register {
        // RNDR, RNDRRS: NZCV shows whether there was a random number.
        (3, 3, 2, 4, 0 | 1) => {
            builder.unknown(to);
            builder.unknown_flags();
        }
        _ if to == Location::NOWHERE => {}
        // NZCV
        (3, 3, 4, 2, 0) => {
            let mut flags = Operand::ZERO;
            for (flag, low) in FLAGS {
                let insert = Operation::Insert { low, count: 1 };
                flags = builder.op2(insert, flags, Operand::Location(flag));
            }
            builder.copy(to, flags);
        }
        // FPCR
        (3, 3, 4, 4, 0) => builder.copy(to, Operand::Location(Location::FPCR)),
        // TPIDR_EL0
        (3, 3, 13, 0, 2) => builder.copy(to, Operand::Location(Location::THREAD_POINTER)),
        // DCZID_EL0
        (3, 3, 0, 0, 7) => builder.copy(to, Operand::Location(Location::ZERO_BLOCK)),
        _ => builder.unknown(to),
    }
}

pub(super) fn write_register(builder: &mut Builder, number: u8, register: Register) {
    let value = x(number);
    match register {
        // NZCV
        (3, 3, 4, 2, 0) => {
            for (flag, low) in FLAGS {
                builder.set1(flag, Operation::Extract { low, count: 1 }, value);
            }
        }
        // FPCR: every core has AHP, DN, FZ and RMode (26:22); other bits may read as zero.
        (3, 3, 4, 4, 0) => {
            let others = builder.op1(Operation::Unknown, Operand::ZERO);
            let there = builder.op2(Operation::Or, others, Operand::Constant(0x07c0_0000));
            builder.set2(Location::FPCR, Operation::And, value, there);
        }
        // TPIDR_EL0
        (3, 3, 13, 0, 2) => builder.copy(Location::THREAD_POINTER, value),
        // SPSel
        (3, 0, 4, 2, 0) => builder.unknown(Location::SP),
        // SVCR
        (3, 3, 4, 2, 2) => vectors_unknown(builder),
        // SCTLR, HCR, TTBR, TCR, VTTBR, MAIR and the like, CONTEXTIDR: addresses may be mapped to
        // other memory (DDI 0487, D24.2).
        (3, 0 | 4..=6, 1 | 2 | 10, _, _) | (3, 0 | 4 | 5, 13, 0, 1) => {
            builder.may_store_anywhere = true;
            builder.changes_space = true;
        }
        // Implementation defined.
        (3, _, 11 | 15, _, _) => builder.may_store_anywhere = true,
        _ => {}
    }
}
