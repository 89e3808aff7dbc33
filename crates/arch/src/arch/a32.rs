//! A32: which instructions branch.

use super::branch::{Instruction, Kind};
use crate::encoding::a32::{Conditional, Unconditional};
use crate::encoding::signed;
use crate::quantity::{Address, Isa};

const PC: u8 = 15;
const LR: u8 = 14;
const SP: u8 = 13;

/// Decodes the instruction `word` at `address`.
#[must_use]
pub(super) fn decode(address: Address, word: u32) -> Instruction {
    if word >> 28 == 0xf {
        unconditional(address, word)
    } else {
        conditional(address, word).conditional_if(word >> 28 != 0xe)
    }
}

fn target(address: Address, imm: u32) -> u64 {
    let offset = signed(imm, 24) << 2;
    address.0.wrapping_add(8).wrapping_add_signed(offset) & 0xffff_ffff
}

fn conditional(address: Address, word: u32) -> Instruction {
    let other = Instruction::other(4);
    let indirect = Instruction::indirect(4);
    let Some(instruction) = Conditional::decode(word) else {
        return other;
    };
    match instruction {
        Conditional::Branch { link, imm, .. } => {
            Instruction::branch(4, target(address, imm), Isa::A32).link_if(link)
        }
        Conditional::BranchExchange { rm, .. } => indirect.returns_if(rm == LR),
        Conditional::BranchJazelle { .. } => indirect,
        Conditional::BranchLinkExchange { .. } => indirect.link_if(true),
        Conditional::ExceptionReturn { .. } => indirect.exception_return_if(true),
        // MOV PC, LR
        Conditional::DataRegister {
            opcode: 13,
            s: false,
            rn: 0,
            rd: PC,
            amount: 0,
            shift: 0,
            rm: LR,
            ..
        } => indirect.returns_if(true),
        // Not TST, TEQ, CMP, CMN; with S they return from an exception.
        Conditional::DataRegister {
            opcode: ..8 | 12..,
            s,
            rd: PC,
            ..
        }
        | Conditional::DataShifted {
            opcode: ..8 | 12..,
            s,
            rd: PC,
            ..
        }
        | Conditional::DataImmediate {
            opcode: ..8 | 12..,
            s,
            rd: PC,
            ..
        } => indirect.exception_return_if(s),
        // POP {PC} is LDR PC, [SP], #4
        Conditional::Offset {
            p,
            u,
            byte: false,
            w,
            load: true,
            rn,
            rt: PC,
            ..
        } => indirect.returns_if(!p && u && !w && rn == SP),
        Conditional::RegisterOffset {
            byte: false,
            load: true,
            rt: PC,
            ..
        } => indirect,
        // POP {..., PC} is LDM SP!
        Conditional::Multiple {
            p,
            u,
            user,
            w,
            load: true,
            rn,
            list,
            ..
        } if list >> PC == 1 => indirect
            .returns_if(!p && u && w && rn == SP && list >> SP & 1 == 0)
            .exception_return_if(user),
        // WFE, WFI
        Conditional::Hint {
            sbo: 0xf,
            imm: 2 | 3,
            ..
        } => Instruction::new(4, Kind::Wait),
        Conditional::OldIsb { .. } => Instruction::new(4, Kind::Isb),
        Conditional::OldBarrier { .. } => Instruction::new(4, Kind::Barrier),
        _ => other,
    }
}

fn unconditional(address: Address, word: u32) -> Instruction {
    match Unconditional::decode(word) {
        Some(Unconditional::BranchLinkExchange { half, imm }) => {
            let target = target(address, imm) | u64::from(half) << 1;
            Instruction::branch(4, target, Isa::T32).link_if(true)
        }
        Some(Unconditional::ReturnFromException {}) => {
            Instruction::indirect(4).exception_return_if(true)
        }
        Some(Unconditional::Barrier { op: 4 | 5 }) => Instruction::new(4, Kind::Barrier),
        Some(Unconditional::Barrier { op: 6 }) => Instruction::new(4, Kind::Isb),
        _ => Instruction::other(4),
    }
}
