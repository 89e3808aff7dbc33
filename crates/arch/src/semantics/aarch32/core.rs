//! Builds the semantics of one AArch32 instruction.

use crate::semantics::builder::{Builder, ONE};
use crate::semantics::operation::{Operation, Width};
use crate::semantics::{Control, Location, Operand, Semantics};

pub(in crate::semantics) const LR: u8 = 14;
pub(in crate::semantics) const PC: u8 = 15;

/// A constant.
pub(in crate::semantics) const fn constant(value: u32) -> Operand {
    Operand::Constant(value as u64)
}

/// The carry flag.
pub(in crate::semantics) const CARRY: Operand = Operand::Location(Location::C);

/// The instruction being decoded: what it computes, and under which condition.
pub(in crate::semantics) struct Arm {
    pub(in crate::semantics) b: Builder,
    /// Non-zero if the instruction passes its condition.
    pub(in crate::semantics) when: Operand,
    /// Its address.
    pub(in crate::semantics) address: u32,
    /// The value that it reads as the pc.
    pub(in crate::semantics) pc: u32,
    /// Its size in bytes, 2 or 4.
    pub(in crate::semantics) size: u8,
}

impl Arm {
    pub(in crate::semantics) fn new(address: u64, size: u8, ahead: u32, condition: u8) -> Self {
        let mut b = Builder::new();
        let when = b.holds(condition);
        let address = address as u32;
        Self {
            b,
            when,
            address,
            pc: address.wrapping_add(ahead),
            size,
        }
    }

    pub(in crate::semantics) fn finish(self) -> Semantics {
        self.b.finish(self.size)
    }

    /// Returns whether it is executed unconditionally.
    pub(in crate::semantics) fn always(&self) -> bool {
        self.when == ONE
    }

    /// Evaluates the condition now, before the instruction writes flags.
    pub(in crate::semantics) fn keep_condition(&mut self) {
        self.when = self.b.kept(self.when);
    }

    /// The value of a register.
    pub(in crate::semantics) fn r(&self, number: u8) -> Operand {
        match number {
            PC => constant(self.pc),
            _ => Operand::Location(Location::general(number)),
        }
    }

    /// Writes a location if the condition passes.
    pub(in crate::semantics) fn put(&mut self, to: Location, value: Operand) {
        if self.always() {
            self.b.move_to(to, value);
        } else {
            self.b.set(
                to,
                Operation::Select,
                value,
                Operand::Location(to),
                self.when,
            );
        }
    }

    /// Writes a register other than the pc.
    pub(in crate::semantics) fn write(&mut self, number: u8, value: Operand) {
        if number < PC {
            self.put(Location::general(number), value);
        }
    }

    pub(in crate::semantics) fn unknown(&mut self, to: Location) {
        let value = self.b.op1(Operation::Unknown, Operand::ZERO);
        self.put(to, value);
    }

    /// Branches to an address in an operand. If `interworking`, its bit 0 selects the instruction set.
    pub(in crate::semantics) fn branch(&mut self, target: Operand, interworking: bool) {
        let target = if interworking {
            target
        } else {
            self.b.op2(Operation::And, target, constant(0xffff_fffe))
        };
        let condition = self.when;
        self.b.control = Control::Indirect {
            target,
            condition,
            interworking,
        };
    }

    /// Branches to a constant address.
    pub(in crate::semantics) fn jump(&mut self, target: u32) {
        let target = u64::from(target);
        self.b.control = if self.always() {
            Control::Jump(target)
        } else {
            Control::Conditional {
                condition: self.when,
                target,
            }
        };
    }

    pub(in crate::semantics) fn add(&mut self, a: Operand, offset: u32) -> Operand {
        match (a, offset) {
            (_, 0) => a,
            (Operand::Constant(a), _) => constant((a as u32).wrapping_add(offset)),
            _ => self.b.op2(Operation::Add(Width::W32), a, constant(offset)),
        }
    }

    pub(in crate::semantics) fn load(&mut self, size: u8, at: Operand) -> Operand {
        self.b
            .op(Operation::Load { size }, at, Operand::ZERO, self.when)
    }

    pub(in crate::semantics) fn store(&mut self, size: u8, at: Operand, value: Operand) {
        self.b.store_where(size, at, value, self.when);
    }

    /// Sets N and Z from a result.
    pub(in crate::semantics) fn sign_and_zero(&mut self, result: Operand) {
        let n = self.b.op1(Operation::Extract { low: 31, count: 1 }, result);
        self.put(Location::N, n);
        let z = self.b.op2(Operation::Equal, result, Operand::ZERO);
        self.put(Location::Z, z);
    }

    /// The lowest bits, sign-extended to 32.
    pub(in crate::semantics) fn signed(&mut self, count: u8, a: Operand) -> Operand {
        let wide = self.b.op1(Operation::ExtractSigned { low: 0, count }, a);
        self.low(wide)
    }

    /// Bits 31:0.
    pub(in crate::semantics) fn low(&mut self, a: Operand) -> Operand {
        self.b.op1(Operation::Extract { low: 0, count: 32 }, a)
    }

    /// Bits 63:32.
    pub(in crate::semantics) fn high(&mut self, a: Operand) -> Operand {
        self.b.op1(Operation::Extract { low: 32, count: 32 }, a)
    }

    /// The value sign-extended to 64 bits.
    pub(in crate::semantics) fn wide(&mut self, a: Operand) -> Operand {
        self.b
            .op1(Operation::ExtractSigned { low: 0, count: 32 }, a)
    }
}
