//! The code of a Linux kernel that takes exceptions and saves the interrupted registers on the
//! stack.
//!
//! The saved registers are in the order of `struct user_pt_regs` (include/uapi/asm/ptrace.h), an
//! interface of the kernel: x0 to x30, sp, pc, pstate. x29 points to the frame record of the
//! exception, which follows at a distance that depends on the version.

use super::effects::{Effect, FP, LR, SP, Transfer, effect};

/// The offset of the interrupted pc in the saved registers.
pub(super) const PC: i32 = 8 * 32;

/// Where the saved registers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    /// The first instruction at which all registers are saved and x29 points to the frame record.
    pub from: usize,
    /// The distance of the frame record from the saved registers.
    pub record: i32,
}

/// Returns where a function saves the registers of an exception, if it does.
pub(super) fn saved(code: &[u32]) -> Option<Saved> {
    // The registers that contain the interrupted pc (ELR_EL1).
    let mut has_pc = 0_u32;
    // One bit for each register that is saved at its offset, and one for the pc.
    let mut saved = 0_u64;
    const ALL: u64 = ((1 << 31) - 1) | (1 << 32);
    let mut record = None;
    for (index, &word) in code.iter().enumerate() {
        if let Some(record) = record.filter(|_| saved == ALL) {
            return Some(Saved {
                from: index,
                record,
            });
        }
        // MRS Xn, ELR_EL1
        if word & !0x1f == 0xd538_4020 {
            has_pc |= 1 << (word & 0x1f);
            continue;
        }
        match effect(word) {
            Effect::Sum {
                to: FP,
                from: SP,
                add,
            } => {
                record = i32::try_from(add)
                    .ok()
                    .filter(|add| *add > PC && add % 8 == 0)
            }
            Effect::Sum { to: SP, .. } => (saved, record) = (0, None),
            Effect::Sum { to, .. } => has_pc &= !(1 << to),
            Effect::Writes(registers) => {
                has_pc &= !registers;
                if registers >> SP & 1 == 1 {
                    (saved, record) = (0, None);
                }
            }
            Effect::Transfer(Transfer {
                load: false,
                base: SP,
                offset,
                whole,
                writeback: 0,
                ..
            }) => {
                for (register, place) in whole.into_iter().zip([offset, offset + 8]) {
                    let Some(register) = register else { continue };
                    let wanted = 8 * i64::from(register);
                    if register <= LR && place == wanted {
                        saved |= 1 << register;
                    }
                    if place == i64::from(PC) && register < SP && has_pc >> register & 1 == 1 {
                        saved |= 1 << 32;
                    }
                }
            }
            Effect::Transfer(_) => {}
        }
    }
    None
}

/// Returns whether code returns from exceptions (ERET), so that it has no caller.
pub(super) fn returns(code: &[u32]) -> bool {
    code.contains(&0xd69f_03e0)
}
