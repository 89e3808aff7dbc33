//! A64: which instructions branch (Arm ARM DDI 0487, C4.1 "A64 instruction set encoding").
//!
//! Later extensions (pointer authentication, FEAT_CMPBR, FEAT_HBC, TME) are always recognised:
//! their encodings were unallocated before.

use super::branch::{Instruction, Kind, sign_extend};
use crate::quantity::{Address, Isa};

/// Decodes the instruction `word` at `address`.
#[must_use]
pub fn decode(address: Address, word: u32) -> Instruction {
    let relative = |field: u32, bits: u32| {
        let offset = sign_extend(field, bits) << 2;
        Instruction::branch(4, address.0.wrapping_add_signed(offset), Isa::A64)
    };
    match word >> 24 {
        // B, BL (C6.2)
        0x14..=0x17 | 0x94..=0x97 => relative(word, 26).link_if(word >> 31 == 1),
        // CBZ, CBNZ
        0x34 | 0x35 | 0xb4 | 0xb5 => relative(word >> 5, 19).conditional_if(true),
        // TBZ, TBNZ
        0x36 | 0x37 | 0xb6 | 0xb7 => relative(word >> 5, 14).conditional_if(true),
        // B.cond, BC.cond; conditions AL and NV always hold
        0x54 => relative(word >> 5, 19).conditional_if(word & 0xe != 0xe),
        // FEAT_CMPBR: CB<cc> (register), CBB<cc>, CBH<cc>; only CB has a 64-bit form
        0x74 if word & 0xc000 != 0x4000 => relative(word >> 5, 9).conditional_if(true),
        0xf4 if word & 0xc000 == 0 => relative(word >> 5, 9).conditional_if(true),
        // FEAT_CMPBR: CB<cc> (immediate)
        0x75 | 0xf5 if word & 0x4000 == 0 => relative(word >> 5, 9).conditional_if(true),
        // RETAASPPC, RETABSPPC with a label (FEAT_PAuth_LR)
        0x55 if word & 0xffc0_001f == 0x5500_001f => Instruction::indirect(4).returns_if(true),
        0xd6 | 0xd7 => branch_register(word),
        0xd5 => system(word),
        _ => Instruction::other(4),
    }
}

/// Unconditional branch (register).
fn branch_register(word: u32) -> Instruction {
    let operation = (word >> 21) & 0xf;
    let op2 = (word >> 16) & 0x1f;
    let op3 = (word >> 10) & 0x3f;
    let operand = word & 0x1f;
    let indirect = Instruction::indirect(4);
    if op2 != 0x1f {
        return Instruction::other(4);
    }
    match (operation, op3) {
        // BR, BLR
        (0 | 1, 0) if operand == 0 => indirect.link_if(operation == 1),
        // BRAAZ, BRABZ, BLRAAZ, BLRABZ
        (0 | 1, 2 | 3) if operand == 0x1f => indirect.link_if(operation == 1),
        // BRAA, BRAB, BLRAA, BLRAB
        (8 | 9, 2 | 3) => indirect.link_if(operation == 9),
        // RET
        (2, 0) if operand == 0 => indirect.returns_if(true),
        // RETAA, RETAB, and RETAASPPCR, RETABSPPCR with a register
        (2, 2 | 3) if word & 0x3e0 == 0x3e0 => indirect.returns_if(true),
        // ERET
        (4, 0) if word & 0x3ff == 0x3e0 => indirect.exception_return_if(true),
        // ERETAA, ERETAB
        (4, 2 | 3) if word & 0x3ff == 0x3ff => indirect.exception_return_if(true),
        // TEXIT returns from an exception. (DRPS, 5, is executed in Debug state only, without trace.)
        (7, 0 | 1) if word & 0x3ff == 0x3e0 => indirect.exception_return_if(true),
        _ => Instruction::other(4),
    }
}

/// System instructions: barriers, waits, TSTART.
fn system(word: u32) -> Instruction {
    let kind = if word & 0xffff_f01f == 0xd503_301f {
        match (word >> 5) & 7 {
            4 | 5 => Kind::Barrier,
            6 => Kind::Isb,
            // DSB with the nXS qualifier: CRm is xx10
            1 if word & 0x300 == 0x200 => Kind::Barrier,
            _ => Kind::Other,
        }
    } else if word & 0xffff_ffdf == 0xd503_205f || word & 0xffff_ffc0 == 0xd503_1000 {
        // WFE, WFI; WFET, WFIT
        Kind::Wait
    } else if word & 0xffff_ffe0 == 0xd523_3060 {
        Kind::Transaction
    } else {
        Kind::Other
    };
    Instruction::new(4, kind)
}
