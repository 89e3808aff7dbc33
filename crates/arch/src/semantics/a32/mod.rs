//! A32.

mod data;
mod media;
mod memory;
mod miscellaneous;
mod multiply;
mod word;

use super::Semantics;
use super::aarch32::alu::return_from_exception;
use super::aarch32::core::{Arm, LR, PC, constant};
use super::aarch32::{float, neon};
use super::{Control, Location};
use crate::encoding::a32::{Conditional, Unconditional};
use crate::encoding::signed;
use word::Word;

/// Returns what the instruction at `address` does. After an encoding that is not modelled,
/// everything is unknown.
#[must_use]
pub fn decode(word: u32, address: u64) -> Semantics {
    let condition = (word >> 28) as u8;
    let mut arm = Arm::new(address, 4, 8, condition);
    let decoded = if condition == 15 {
        unconditional(&mut arm, word)
    } else {
        conditional(&mut arm, word)
    };
    if decoded.is_none() {
        arm.b.everything_unknown();
    }
    arm.finish()
}

fn conditional(arm: &mut Arm, word: u32) -> Option<()> {
    let instruction = Conditional::decode(word)?;
    match instruction {
        Conditional::DataImmediate { .. }
        | Conditional::DataRegister { .. }
        | Conditional::DataShifted { .. }
        | Conditional::MoveWide { .. }
        | Conditional::MoveTop { .. } => data::decode(arm, instruction),
        Conditional::Multiply { .. }
        | Conditional::MultiplyAddBoth { .. }
        | Conditional::MultiplySubtract { .. }
        | Conditional::MultiplyLong { .. }
        | Conditional::MultiplyHalves { .. } => multiply::decode(arm, instruction),
        Conditional::Offset { .. }
        | Conditional::RegisterOffset { .. }
        | Conditional::Half { .. }
        | Conditional::SignedOrDual { .. }
        | Conditional::Multiple { .. }
        | Conditional::Exclusive { .. } => memory::decode(arm, instruction),
        Conditional::ReadState { .. }
        | Conditional::WriteState { .. }
        | Conditional::WriteStateImmediate { .. }
        | Conditional::Hint { .. }
        | Conditional::LeadingZeros { .. }
        | Conditional::Crc32 { .. }
        | Conditional::AddSaturating { .. }
        | Conditional::Exception { .. } => miscellaneous::decode(arm, instruction),
        Conditional::Media { .. } => media::decode(arm, Word(word)),
        Conditional::CoprocessorTransfer { .. } => float::transfer(arm, word),
        Conditional::OldIsb { .. }
        | Conditional::OldBarrier { .. }
        | Conditional::Coprocessor { .. } => float::decode(arm, word),
        Conditional::Unallocated { .. } => None,
        Conditional::Branch { .. }
        | Conditional::BranchExchange { .. }
        | Conditional::BranchJazelle { .. }
        | Conditional::BranchLinkExchange { .. }
        | Conditional::ExceptionReturn { .. }
        | Conditional::SystemCall { .. } => branch(arm, instruction),
    }
}

fn branch(arm: &mut Arm, instruction: Conditional) -> Option<()> {
    match instruction {
        Conditional::Branch { link, imm, .. } => {
            if link {
                self::link(arm);
            }
            arm.jump(arm.pc.wrapping_add(distance(imm)));
        }
        Conditional::BranchExchange { rm, .. } | Conditional::BranchJazelle { rm, .. } => {
            let target = arm.r(rm);
            arm.branch(target, true);
        }
        Conditional::BranchLinkExchange { rm, .. } if rm != PC => {
            let mut target = arm.r(rm);
            if rm == LR {
                target = arm.b.kept(target);
            }
            link(arm);
            arm.branch(target, true);
        }
        Conditional::ExceptionReturn { .. } => return_from_exception(arm),
        Conditional::SystemCall { .. } if arm.always() => arm.b.control = Control::SystemCall,
        _ => return None,
    }
    Some(())
}

fn distance(imm: u32) -> u32 {
    (signed(imm, 24) << 2) as u32
}

fn link(arm: &mut Arm) {
    let link = arm.address.wrapping_add(4);
    arm.write(LR, constant(link));
}

fn unconditional(arm: &mut Arm, word: u32) -> Option<()> {
    match Unconditional::decode(word)? {
        // To T32.
        Unconditional::BranchLinkExchange { half, imm } => {
            let target = arm.pc.wrapping_add(distance(imm)) | u32::from(half) << 1;
            link(arm);
            arm.jump(target);
            Some(())
        }
        Unconditional::Vectors {} => neon::data(arm, word),
        Unconditional::Float {} => float::unconditional(arm, word),
        Unconditional::Elements {} => neon::elements(arm, word),
        Unconditional::Prefetch {} | Unconditional::Barrier { .. } => Some(()),
        // The mode may change, and with it the banked registers.
        Unconditional::ChangeState { mode, endian } => {
            if mode {
                arm.unknown(Location::general(13));
                arm.unknown(Location::general(LR));
            }
            (!endian).then_some(())
        }
        Unconditional::ReturnFromException {} => None,
    }
}
