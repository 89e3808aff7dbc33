//! 32-bit instructions: the groups, branches and system instructions.

use super::{wide_data, wide_memory};
use crate::encoding::t32::{Wide, far, near};
use crate::semantics::aarch32::alu::return_from_exception;
use crate::semantics::aarch32::bits::field;
use crate::semantics::aarch32::core::{Arm, LR, PC, constant};
use crate::semantics::aarch32::{float, neon};
use crate::semantics::operation::Operation;
use crate::semantics::{Control, Location};

pub(super) fn decode(arm: &mut Arm, word: u32) -> Option<()> {
    match Wide::decode(word)? {
        Wide::Multiple {
            p,
            u,
            w,
            load,
            rn,
            list,
        } => return wide_memory::multiple(arm, load, rn, list as u16, [p, u, w]),
        Wide::TableBranch { rn, half, rm } => return wide_memory::table_branch(arm, half, rn, rm),
        Wide::DualOrExclusive {} => return wide_memory::dual(arm, word),
        Wide::DataShifted {} => return wide_data::shifted(arm, word),
        Wide::DataImmediate {} => return wide_data::modified_immediate(arm, word),
        Wide::PlainImmediate {} => return wide_data::plain_immediate(arm, word),
        Wide::Elements {} => return neon::elements(arm, word),
        Wide::Single { .. } => return wide_memory::single(arm, word),
        Wide::DataRegisters {} => return wide_data::registers(arm, word),
        Wide::Products {} => return wide_data::products(arm, word),
        Wide::LongProducts {} => return wide_data::long_products(arm, word),
        Wide::OldIsb { .. } | Wide::OldBarrier { .. } | Wide::Coprocessor {} => {
            return coprocessor(arm, word);
        }
        Wide::BranchConditional {
            s,
            cond: cond @ ..14,
            high,
            j1,
            j2,
            low,
        } if arm.always() => {
            arm.when = arm.b.holds(cond);
            jump(arm, arm.pc, near(s, j1, j2, high, low));
        }
        Wide::Branch {
            s,
            high,
            j1,
            j2,
            low,
        } => jump(arm, arm.pc, far(s, j1, j2, high, low)),
        Wide::BranchLink {
            s,
            high,
            j1,
            j2,
            low,
        } => {
            link(arm);
            jump(arm, arm.pc, far(s, j1, j2, high, low));
        }
        Wide::BranchLinkExchange {
            s,
            high,
            j1,
            j2,
            low,
        } => {
            link(arm);
            jump(arm, arm.pc & !3, far(s, j1, j2, high, low << 1));
        }
        Wide::WriteState {
            spsr,
            rn,
            mask,
            low,
        } => write_state(arm, spsr, rn, mask, low),
        // The mode may change.
        Wide::ChangeState { mode: 1.. } => {
            arm.unknown(Location::general(13));
            arm.unknown(Location::general(LR));
        }
        Wide::Hint { .. } | Wide::ChangeState { .. } | Wide::Barrier { .. } => {}
        Wide::ReadState { rd } if rd != PC && rd != 13 => arm.unknown(Location::general(rd)),
        Wide::ExceptionReturn {} => return_from_exception(arm),
        Wide::HypervisorOrMonitorCall {} => {
            for number in 0..4 {
                arm.unknown(Location::general(number));
            }
            arm.b.may_store_anywhere = true;
        }
        Wide::BranchConditional { .. }
        | Wide::BranchJazelle {}
        | Wide::BranchAuthenticated { .. }
        | Wide::ReadState { .. }
        | Wide::LoopEnd { .. }
        | Wide::LoopEndAlways { .. }
        | Wide::LoopStart { .. }
        | Wide::LoopStartTail { .. } => return None,
    }
    Some(())
}

fn coprocessor(arm: &mut Arm, word: u32) -> Option<()> {
    let second = word >> 28 & 1 == 1;
    match (field(word, 24, 2), second) {
        (0b11, _) => neon::data(arm, word),
        (0b00 | 0b01, false) => float::transfer(arm, word),
        (0b10, false) => float::decode(arm, word),
        (0b10, true) => float::unconditional(arm, word),
        _ => None,
    }
}

fn link(arm: &mut Arm) {
    let link = arm.address.wrapping_add(4) | 1;
    arm.write(LR, constant(link));
}

fn jump(arm: &mut Arm, from: u32, distance: i64) {
    arm.jump(from.wrapping_add(distance as u32));
}

/// MSR: on A-profile cores CPSR and SPSR by masks, on M-profile cores registers by numbers. The
/// profiles are not distinguished here.
fn write_state(arm: &mut Arm, spsr: bool, rn: u8, mask: u8, low: u8) {
    let value = arm.r(rn);
    arm.keep_condition();
    // APSR_nzcvq in both profiles; on A-profile cores the low byte is 0.
    if !spsr && low == 0 && mask & 11 == 8 {
        for (flag, low) in [
            (Location::N, 31),
            (Location::Z, 30),
            (Location::C, 29),
            (Location::V, 28),
            (Location::Q, 27),
        ] {
            let bit = arm.b.op1(Operation::Extract { low, count: 1 }, value);
            arm.put(flag, bit);
        }
        if mask & 4 != 0 {
            let bits = arm.b.op1(Operation::Extract { low: 16, count: 4 }, value);
            arm.put(Location::GE, bits);
        }
        return;
    }
    // PRIMASK, BASEPRI and FAULTMASK.
    if (16..20).contains(&low) {
        return;
    }
    return_from_exception(arm);
    arm.b.control = Control::Next;
}
