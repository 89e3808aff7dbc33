//! A64: which instructions branch.

use super::branch::{Instruction, Kind};
use crate::encoding::{a64::Branch, signed};
use crate::quantity::{Address, Isa};

/// Decodes the instruction `word` at `address`.
#[must_use]
pub fn decode(address: Address, word: u32) -> Instruction {
    let other = Instruction::other(4);
    let indirect = Instruction::indirect(4);
    let Some(branch) = Branch::decode(word) else {
        return other;
    };
    let relative = |imm: u32, bits: u32| {
        let target = address.0.wrapping_add_signed(signed(imm, bits) << 2);
        Instruction::branch(4, target, Isa::A64)
    };
    match branch {
        Branch::Immediate { link, imm } => relative(imm, 26).link_if(link),
        Branch::CompareZero { imm, .. } => relative(imm, 19).conditional_if(true),
        Branch::TestBit { imm, .. } => relative(imm, 14).conditional_if(true),
        // Conditions AL and NV always hold.
        Branch::Conditional { imm, cond } => relative(imm, 19).conditional_if(cond < 14),
        Branch::CompareRegister { imm, .. }
        | Branch::ComparePart { imm, .. }
        | Branch::CompareImmediate { imm, .. } => relative(imm, 9).conditional_if(true),
        Branch::Register { link, .. }
        | Branch::RegisterAndZero { link, .. }
        | Branch::RegisterAndModifier { link, .. } => indirect.link_if(link),
        Branch::Return { .. }
        | Branch::ReturnAuthenticated { .. }
        | Branch::ReturnByLabel { .. } => indirect.returns_if(true),
        Branch::ExceptionReturn {}
        | Branch::ExceptionReturnAuthenticated {}
        | Branch::TransactionExit {} => indirect.exception_return_if(true),
        // WFE, WFI
        Branch::Hint { crm: 0, op2: 2 | 3 } | Branch::WaitWithTimeout { .. } => {
            Instruction::new(4, Kind::Wait)
        }
        Branch::Barrier { crm, op2, rt: 31 } => match op2 {
            4 | 5 => Instruction::new(4, Kind::Barrier),
            6 => Instruction::new(4, Kind::Isb),
            // DSB with the nXS qualifier
            1 if crm & 3 == 2 => Instruction::new(4, Kind::Barrier),
            _ => other,
        },
        // TSTART
        Branch::ReadTransaction {
            op1: 3,
            crn: 3,
            crm: 0,
            op2: 3,
            ..
        } => Instruction::new(4, Kind::Transaction),
        _ => other,
    }
}
