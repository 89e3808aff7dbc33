//! The locations of the caller's registers at each instruction of a function.

use super::effects::{Effect, FP, LR, SP, Transfer, effect};

/// The first of the registers that functions preserve, x19 to x30 (AAPCS64 6.1.1).
pub(super) const FIRST: u8 = 19;
const PRESERVED: usize = (LR - FIRST) as usize + 1;

/// The location of the caller's value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// In the register.
    Same,
    /// In memory, at this distance in bytes from the caller's stack pointer.
    At(i32),
    /// Not known.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Register {
    /// Whether it has the caller's value.
    intact: bool,
    /// Where the caller's value is in memory, if it was saved.
    saved: Option<i32>,
}

/// The state before an instruction. All offsets are relative to the caller's stack pointer, which
/// is the stack pointer at the function's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    stack: Option<i32>,
    frame: Option<i32>,
    registers: [Register; PRESERVED],
}

impl State {
    /// The state at the entry of a function.
    pub(super) const ENTRY: Self = Self {
        stack: Some(0),
        frame: None,
        registers: [Register {
            intact: true,
            saved: None,
        }; PRESERVED],
    };

    /// Returns a register and an offset whose sum is the caller's stack pointer.
    pub(super) fn caller_stack(&self) -> Option<(u8, i32)> {
        let of = |register: u8, offset: Option<i32>| {
            let offset = offset?.checked_neg()?;
            (offset >= 0).then_some((register, offset))
        };
        of(FP, self.frame).or_else(|| of(SP, self.stack))
    }

    /// Returns the location of the caller's value of one of x19 to x30.
    pub(super) fn rule(&self, register: u8) -> Rule {
        match self.registers[usize::from(register - FIRST)] {
            Register {
                saved: Some(at), ..
            } => Rule::At(at),
            Register { intact: true, .. } => Rule::Same,
            _ => Rule::Unknown,
        }
    }

    /// Returns whether two states differ in the location of the caller's frame.
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        let frame = |state: &Self| (state.stack, state.frame, state.rule(FP), state.rule(LR));
        frame(self) != frame(other)
    }

    /// Returns what both states have in common.
    pub(super) fn merge(&self, other: &Self) -> Self {
        let both = |a: Option<i32>, b| if a == b { a } else { None };
        let mut out = *self;
        out.stack = both(self.stack, other.stack);
        out.frame = both(self.frame, other.frame);
        for (register, other) in out.registers.iter_mut().zip(&other.registers) {
            register.intact &= other.intact;
            register.saved = both(register.saved, other.saved);
        }
        out
    }

    /// Executes an instruction.
    pub(super) fn execute(&mut self, word: u32) {
        match effect(word) {
            Effect::Sum { to, from, add } => {
                let value = self.moved(from, add);
                self.set(to, value);
            }
            Effect::Writes(mut registers) => {
                while registers != 0 {
                    self.set(registers.trailing_zeros() as u8, None);
                    registers &= registers - 1;
                }
            }
            Effect::Transfer(transfer) => self.transfer(&transfer),
        }
    }

    /// Applies a call that returned: the link register belongs to the callee.
    pub(super) fn called(&mut self) {
        self.set(LR, None);
    }

    fn moved(&self, register: u8, add: i64) -> Option<i32> {
        let value = match register {
            SP => self.stack,
            FP => self.frame,
            _ => None,
        };
        i32::try_from(i64::from(value?) + add).ok()
    }

    fn set(&mut self, register: u8, value: Option<i32>) {
        match register {
            SP => {
                self.stack = value;
                // Memory below the stack pointer is overwritten by exceptions.
                let Some(stack) = value else { return };
                for register in &mut self.registers {
                    register.saved = register.saved.filter(|at| *at >= stack);
                }
            }
            FIRST..=LR => {
                self.registers[usize::from(register - FIRST)].intact = false;
                if register == FP {
                    self.frame = value;
                }
            }
            _ => {}
        }
    }

    fn transfer(&mut self, transfer: &Transfer) {
        let at = self.moved(transfer.base, transfer.offset);
        if !transfer.load
            && let Some(at) = at
        {
            let end = at.saturating_add(transfer.size as i32);
            for register in &mut self.registers {
                let kept = |slot: &i32| *slot >= end || slot.saturating_add(8) <= at;
                register.saved = register.saved.filter(kept);
            }
        }
        for (index, register) in (0..).zip(transfer.whole) {
            let Some(register @ FIRST..=LR) = register else {
                continue;
            };
            let slot = at.and_then(|at| at.checked_add(8 * index));
            let known = &mut self.registers[usize::from(register - FIRST)];
            if !transfer.load {
                if known.intact && slot.is_some() {
                    known.saved = slot;
                }
            } else if slot.is_some() && known.saved == slot {
                known.intact = true;
                if register == FP {
                    self.frame = None;
                }
            } else {
                self.set(register, None);
            }
        }
        if transfer.load {
            self.execute_writes(transfer.writes);
        }
        if transfer.writeback != 0 {
            let value = self.moved(transfer.base, transfer.writeback);
            self.set(transfer.base, value);
        }
    }

    fn execute_writes(&mut self, registers: u32) {
        for register in FIRST..=LR {
            if registers >> register & 1 == 1 {
                self.set(register, None);
            }
        }
    }
}
