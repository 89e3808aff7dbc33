//! A32: which instructions branch (Arm ARM DDI 0487, F4.1 "A32 instruction set encoding").

use super::branch::{Instruction, Kind, sign_extend};
use crate::quantity::{Address, Isa};

/// Decodes the instruction `word` at `address`.
#[must_use]
pub fn decode(address: Address, word: u32) -> Instruction {
    if word >> 28 == 0xf {
        return unconditional(address, word);
    }
    let pc_is_target = (word >> 12) & 0xf == 0xf;
    let indirect = Instruction::indirect(4);
    let other = Instruction::other(4);
    let found = match (word >> 25) & 7 {
        0 => data_processing_register(word),
        1 => match (word >> 20) & 0x1f {
            // hints; MOVW, MOVT and MSR cannot write the PC
            0x12 => match word & 0x000f_ffff {
                0xf002 | 0xf003 => Instruction::new(4, Kind::Wait),
                _ => other,
            },
            0x10..=0x17 => other,
            opcode if pc_is_target => indirect.exception_return_if(opcode & 1 == 1),
            _ => other,
        },
        // LDR, of words only; POP {PC} is LDR PC, [SP], #4
        2 if pc_is_target && word & 0x0050_0000 == 0x0010_0000 => {
            indirect.returns_if(word & 0x01ff_0000 == 0x009d_0000)
        }
        3 if pc_is_target && word & 0x0050_0010 == 0x0010_0000 => indirect,
        // LDM with the PC; with ^ it returns from an exception
        4 if word & 0x0010_8000 == 0x0010_8000 => indirect
            .returns_if(word & 0x0fff_a000 == 0x08bd_8000)
            .exception_return_if(word & 0x0040_0000 != 0),
        5 => Instruction::branch(4, target(address, word), Isa::A32).link_if(word >> 24 & 1 == 1),
        7 => cp15_barrier(word).map_or(other, |kind| Instruction::new(4, kind)),
        _ => other,
    };
    found.conditional_if(word >> 28 != 0xe)
}

fn target(address: Address, word: u32) -> u64 {
    let offset = sign_extend(word, 24) << 2;
    address.0.wrapping_add(8).wrapping_add_signed(offset) & 0xffff_ffff
}

/// F4.1.1 with cond = 1111.
fn unconditional(address: Address, word: u32) -> Instruction {
    match (word >> 24) & 0xf {
        // BLX (immediate); bit 24 is a halfword's offset
        0xa | 0xb => {
            let target = target(address, word) | u64::from(word >> 23 & 2);
            Instruction::branch(4, target, Isa::T32).link_if(true)
        }
        // RFE
        0x8 | 0x9 if word & 0x0050_0000 == 0x0010_0000 => {
            Instruction::indirect(4).exception_return_if(true)
        }
        5 if word & 0x00f0_0000 == 0x0070_0000 => Instruction::new(
            4,
            match (word >> 4) & 0xf {
                4 | 5 => Kind::Barrier,
                6 => Kind::Isb,
                _ => Kind::Other,
            },
        ),
        _ => Instruction::other(4),
    }
}

/// F4.1.2 with op0 = 00, bit 25 clear: data processing on registers and miscellaneous.
fn data_processing_register(word: u32) -> Instruction {
    let opcode = (word >> 20) & 0x1f;
    let pc_is_target = (word >> 12) & 0xf == 0xf;
    let indirect = Instruction::indirect(4);
    // multiplies, synchronisation, extra loads and stores
    if word & 0x90 == 0x90 {
        return Instruction::other(4);
    }
    match opcode {
        // F4.1.2.3 "Miscellaneous"; halfword multiplies have bit 7 set
        0x10 | 0x12 | 0x14 | 0x16 => match (opcode, (word >> 4) & 0xf) {
            // BX, BXJ, BLX (register), ERET
            (0x12, 1) => indirect.returns_if(word & 0xf == 14),
            (0x12, 2) => indirect,
            (0x12, 3) => indirect.link_if(true),
            (0x16, 6) if word & 0x000f_ffff == 0x6e => indirect.exception_return_if(true),
            _ => Instruction::other(4),
        },
        // TST, TEQ, CMP, CMN
        0x11 | 0x13 | 0x15 | 0x17 => Instruction::other(4),
        // MOV PC, LR returns; with S set it returns from an exception
        _ if pc_is_target => indirect
            .returns_if(word & 0x0fff_0fff == 0x01a0_000e)
            .exception_return_if(opcode & 1 == 1),
        _ => Instruction::other(4),
    }
}

/// The barriers of Armv6: MCR p15, 0, Rt, c7, c10, 4 (DSB), c7, c10, 5 (DMB), c7, c5, 4 (ISB).
/// T32 has the same encodings with its first halfword on top.
pub(crate) fn cp15_barrier(word: u32) -> Option<Kind> {
    match word & 0x0fff_0fff {
        0x0e07_0f9a | 0x0e07_0fba => Some(Kind::Barrier),
        0x0e07_0f95 => Some(Kind::Isb),
        _ => None,
    }
}
