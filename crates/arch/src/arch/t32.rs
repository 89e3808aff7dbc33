//! T32: which instructions branch (Arm ARM DDI 0487, F3.1 "T32 instruction set encoding";
//! Armv8-M ARM DDI 0553, C2.3).

use super::a32::cp15_barrier;
use super::branch::{Instruction, Kind, sign_extend};
use crate::quantity::{Address, Isa};

/// Returns whether an instruction that starts with `halfword` has a second one: its top bits are
/// 0b11101, 0b11110 or 0b11111 (Arm ARM DDI 0487, F3.1).
#[must_use]
pub const fn is_wide(halfword: u16) -> bool {
    halfword >= 0xe800
}

/// Decodes the instruction at `address`; the low half of `word` is its first halfword.
#[must_use]
pub fn decode(address: Address, word: u32) -> Instruction {
    let first = word & 0xffff;
    if is_wide(first as u16) {
        wide(address, first, word >> 16)
    } else {
        narrow(address, first)
    }
}

/// A branch relative to the PC, which reads as the address plus 4.
fn relative(bytes: u8, address: Address, offset: i64) -> Instruction {
    let target = address.0.wrapping_add(4).wrapping_add_signed(offset) & 0xffff_ffff;
    Instruction::branch(bytes, target, Isa::T32)
}

fn narrow(address: Address, half: u32) -> Instruction {
    let other = Instruction::other(2);
    let indirect = Instruction::indirect(2);
    match half >> 8 {
        // ADD PC, Rm
        0x44 if half & 0x87 == 0x87 => indirect,
        // MOV PC, Rm
        0x46 if half & 0x87 == 0x87 => indirect.returns_if(half == 0x46f7),
        // BX, BLX, BXNS, BLXNS
        0x47 => {
            let link = half & 0x80 != 0;
            indirect
                .link_if(link)
                .returns_if(!link && half & 0x78 == 0x70)
        }
        // CBZ, CBNZ: forward only
        0xb1 | 0xb3 | 0xb9 | 0xbb => {
            let offset = (half >> 3 & 0x40) | (half >> 2 & 0x3e);
            relative(2, address, i64::from(offset)).conditional_if(true)
        }
        // POP {..., PC}
        0xbd => indirect.returns_if(true),
        // IT and hints
        0xbf => match half & 0xf {
            0 if half & 0xe0 == 0x20 => Instruction::new(2, Kind::Wait),
            0 => other,
            mask => Instruction {
                it_block: 4 - mask.trailing_zeros() as u8,
                ..other
            },
        },
        // B<c>; conditions 14 and 15 are UDF and SVC
        0xd0..=0xdd => relative(2, address, sign_extend(half, 8) << 1).conditional_if(true),
        // B
        0xe0..=0xe7 => relative(2, address, sign_extend(half, 11) << 1),
        _ => other,
    }
}

fn wide(address: Address, first: u32, second: u32) -> Instruction {
    let other = Instruction::other(4);
    let indirect = Instruction::indirect(4);
    let loads_pc = second >> 12 == 0xf;
    match first >> 4 {
        // RFEDB, RFEIA
        0xe81 | 0xe83 | 0xe99 | 0xe9b => indirect.exception_return_if(true),
        // LDM, LDMDB; POP is LDM SP!; LDM of the PC is CLRM (Armv8.1-M)
        0xe89 | 0xe8b | 0xe91 | 0xe93 if second & 0x8000 != 0 && first != 0xe89f => {
            indirect.returns_if(first == 0xe8bd)
        }
        // TBB, TBH
        0xe8d if second & 0xffe0 == 0xf000 => indirect,
        // LDR with a 12-bit offset, or literal
        0xf8d if loads_pc => indirect,
        // LDR literal; LDR with pre- or post-index (POP {PC} is LDR PC, [SP], #4); LDR by register
        0xf85 if loads_pc => match first & 0xf {
            0xf => indirect,
            base if second & 0x800 != 0 => {
                indirect.returns_if(base == 13 && second & 0xf00 == 0xb00)
            }
            _ if second & 0xfc0 == 0 => indirect,
            _ => other,
        },
        // BXAUT (Armv8.1-M PACBTI)
        0xfb5 if second & 0x0ff0 == 0x0f10 => indirect.returns_if(first & 0xf == 14),
        0xee0 => cp15_barrier(first << 16 | second).map_or(other, |kind| Instruction::new(4, kind)),
        0xf00..=0xf7f if second & 0x8000 != 0 => branch_or_control(address, first, second),
        _ => other,
    }
}

/// F3.1.3 "Branches and miscellaneous control".
fn branch_or_control(address: Address, first: u32, second: u32) -> Instruction {
    let sign = first >> 10 & 1;
    let (j1, j2) = (second >> 13 & 1, second >> 11 & 1);
    // B (T4), BL, BLX: I1 = NOT(J1 EOR S), I2 = NOT(J2 EOR S)
    let far = || {
        let (i1, i2) = (j1 ^ sign ^ 1, j2 ^ sign ^ 1);
        let field = sign << 23 | i1 << 22 | i2 << 21 | (first & 0x3ff) << 11 | (second & 0x7ff);
        sign_extend(field, 24) << 1
    };
    match (second >> 14 & 1, second >> 12 & 1) {
        (0, 0) if first & 0x380 != 0x380 => {
            let field = sign << 19 | j2 << 18 | j1 << 17 | (first & 0x3f) << 11 | (second & 0x7ff);
            relative(4, address, sign_extend(field, 20) << 1).conditional_if(true)
        }
        (0, 0) => control(first, second),
        (0, _) => relative(4, address, far()),
        (_, 0) if second & 1 == 0 => {
            // BLX: to A32, from the aligned PC
            let target = (address.0 & !3).wrapping_add(4).wrapping_add_signed(far());
            Instruction::branch(4, target & 0xffff_ffff, Isa::A32).link_if(true)
        }
        (_, 0) => low_overhead_loop(address, first, second),
        _ => relative(4, address, far()).link_if(true),
    }
}

/// F3.1.3: hints, barriers, BXJ, exception return.
fn control(first: u32, second: u32) -> Instruction {
    let kind = match first >> 4 {
        0xf3a if first == 0xf3af && second & 0xff00 == 0x8000 => match second & 0xff {
            2 | 3 => Kind::Wait,
            _ => Kind::Other,
        },
        0xf3b if first == 0xf3bf && second & 0xff00 == 0x8f00 => match second >> 4 & 0xf {
            4 | 5 => Kind::Barrier,
            6 => Kind::Isb,
            _ => Kind::Other,
        },
        // BXJ
        0xf3c => Kind::Indirect,
        // SUBS PC, LR, #imm8; ERET has 0
        0xf3d => return Instruction::indirect(4).exception_return_if(true),
        _ => Kind::Other,
    };
    Instruction::new(4, kind)
}

/// Armv8.1-M: LE, LETP, WLS, WLSTP branch (DDI 0553, C2.4); DLS, LCTP and branch futures do not.
fn low_overhead_loop(address: Address, first: u32, second: u32) -> Instruction {
    if second & 0xf001 != 0xc001 {
        return Instruction::other(4);
    }
    let offset = i64::from((second & 0x7fe) << 1 | (second >> 10 & 2));
    match first {
        // LE LR and LETP LR fall through after the last iteration; LE without LR always branches
        0xf00f | 0xf01f => relative(4, address, -offset).conditional_if(true),
        0xf02f => relative(4, address, -offset),
        _ if first & 0xfff0 == 0xf040 || first & 0xffc0 == 0xf000 => {
            relative(4, address, offset).conditional_if(true)
        }
        _ => Instruction::other(4),
    }
}
