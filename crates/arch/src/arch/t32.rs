//! T32: which instructions branch.

use super::branch::{Instruction, Kind};
use crate::encoding::signed;
use crate::encoding::t32::{Narrow, Wide, far, is_wide, near};
use crate::quantity::{Address, Isa};

const SP: u8 = 13;
const LR: u8 = 14;
const PC: u8 = 15;

/// Decodes the instruction at `address`; the low half of `word` is its first halfword.
#[must_use]
pub(super) fn decode(address: Address, word: u32) -> Instruction {
    if is_wide(word as u16) {
        wide(address, word.rotate_left(16))
    } else {
        narrow(address, word & 0xffff)
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
    let Some(instruction) = Narrow::decode(half) else {
        return other;
    };
    match instruction {
        // ADD PC, Rm
        Narrow::HighRegisters {
            op: 0,
            high: true,
            low: 7,
            ..
        } => indirect,
        // MOV PC, Rm
        Narrow::HighRegisters {
            op: 2,
            high: true,
            rm,
            low: 7,
        } => indirect.returns_if(rm == LR),
        Narrow::BranchExchange { link, rm } => indirect.link_if(link).returns_if(!link && rm == LR),
        Narrow::CompareZero { high, imm, .. } => {
            let offset = i64::from(high) << 6 | i64::from(imm) << 1;
            relative(2, address, offset).conditional_if(true)
        }
        Narrow::Pop { pc: true, .. } => indirect.returns_if(true),
        // WFE, WFI
        Narrow::Hint { hint: 2 | 3 } => Instruction::new(2, Kind::Wait),
        Narrow::IfThen { mask, .. } => Instruction {
            it_block: 4 - mask.trailing_zeros() as u8,
            ..other
        },
        Narrow::BranchConditional { imm, .. } => {
            relative(2, address, signed(imm.into(), 8) << 1).conditional_if(true)
        }
        Narrow::Branch { imm } => relative(2, address, signed(imm, 11) << 1),
        _ => other,
    }
}

fn wide(address: Address, word: u32) -> Instruction {
    let other = Instruction::other(4);
    let indirect = Instruction::indirect(4);
    let Some(instruction) = Wide::decode(word) else {
        return other;
    };
    match instruction {
        // RFE
        Wide::Multiple {
            p, u, load: true, ..
        } if p == u => indirect.exception_return_if(true),
        // LDM of the PC is CLRM; POP {..., PC} is LDM SP!
        Wide::Multiple {
            u,
            w,
            load: true,
            rn,
            list,
            ..
        } if list >> PC == 1 && (rn != PC || !u || w) => indirect.returns_if(u && w && rn == SP),
        Wide::TableBranch { .. } => indirect,
        Wide::Single {
            signed: false,
            u,
            size: 2,
            load: true,
            rn,
            rt: PC,
            imm,
        } => match imm >> 6 {
            _ if u || rn == PC => indirect,
            // Pre-index and post-index; POP {PC} is LDR PC, [SP], #4
            0b10_0000.. => indirect.returns_if(rn == SP && imm >> 8 == 0b1011),
            0 => indirect,
            _ => other,
        },
        Wide::BranchAuthenticated { rn, .. } => indirect.returns_if(rn == LR),
        Wide::OldIsb { .. } => Instruction::new(4, Kind::Isb),
        Wide::OldBarrier { .. } => Instruction::new(4, Kind::Barrier),
        Wide::Hint { hint: 2 | 3 } => Instruction::new(4, Kind::Wait),
        Wide::Barrier { op: 4 | 5 } => Instruction::new(4, Kind::Barrier),
        Wide::Barrier { op: 6 } => Instruction::new(4, Kind::Isb),
        Wide::BranchJazelle {} => indirect,
        Wide::ExceptionReturn {} => indirect.exception_return_if(true),
        Wide::BranchConditional {
            s,
            cond: ..14,
            high,
            j1,
            j2,
            low,
        } => relative(4, address, near(s, j1, j2, high, low)).conditional_if(true),
        Wide::Branch {
            s,
            high,
            j1,
            j2,
            low,
        } => relative(4, address, far(s, j1, j2, high, low)),
        Wide::BranchLink {
            s,
            high,
            j1,
            j2,
            low,
        } => relative(4, address, far(s, j1, j2, high, low)).link_if(true),
        Wide::BranchLinkExchange {
            s,
            high,
            j1,
            j2,
            low,
        } => {
            // From the aligned PC.
            let from = (address.0 & !3).wrapping_add(4);
            let target = from.wrapping_add_signed(far(s, j1, j2, high, low << 1));
            Instruction::branch(4, target & 0xffff_ffff, Isa::A32).link_if(true)
        }
        // LE LR and LETP LR fall through after the last iteration.
        Wide::LoopEnd { low, imm } => {
            relative(4, address, -loop_distance(low, imm)).conditional_if(true)
        }
        Wide::LoopEndAlways { low, imm } => relative(4, address, -loop_distance(low, imm)),
        Wide::LoopStart { low, imm } | Wide::LoopStartTail { low, imm } => {
            relative(4, address, loop_distance(low, imm)).conditional_if(true)
        }
        _ => other,
    }
}

fn loop_distance(low: bool, imm: u32) -> i64 {
    i64::from(imm << 2 | u32::from(low) << 1)
}
