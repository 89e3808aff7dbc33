//! Loads and stores of general registers.

use super::core::{Arm, PC};
use crate::semantics::operation::{Operation, Width};
use crate::semantics::{Location, Operand};

/// The access of one register: direction, size in bytes, sign extension.
#[derive(Clone, Copy)]
pub(in crate::semantics) struct Access {
    pub(in crate::semantics) load: bool,
    pub(in crate::semantics) size: u8,
    pub(in crate::semantics) signed: bool,
}

/// An addressing mode: the base register and the offset; whether the offset is added or subtracted,
/// and before or after the access; and whether the base register is written.
#[derive(Clone, Copy)]
pub(in crate::semantics) struct AddressingMode {
    pub(in crate::semantics) base: u8,
    pub(in crate::semantics) offset: Operand,
    pub(in crate::semantics) add: bool,
    pub(in crate::semantics) before: bool,
    pub(in crate::semantics) write_back: bool,
}

impl AddressingMode {
    /// Returns the address of the access, and the base register's new value.
    fn resolve(self, arm: &mut Arm) -> (Operand, Operand) {
        let base = if self.base == PC {
            Operand::Constant(u64::from(arm.pc & !3))
        } else {
            arm.r(self.base)
        };
        let moved = match (base, self.offset) {
            (_, Operand::Constant(offset)) => {
                let offset = offset as u32;
                arm.add(
                    base,
                    if self.add {
                        offset
                    } else {
                        offset.wrapping_neg()
                    },
                )
            }
            _ if self.add => arm.b.op2(Operation::Add(Width::W32), base, self.offset),
            _ => arm
                .b
                .op2(Operation::Subtract(Width::W32), base, self.offset),
        };
        (if self.before { moved } else { base }, moved)
    }

    /// Returns whether the base register is both written and transferred, which is unpredictable.
    fn clashes(self, register: u8) -> bool {
        self.write_back && (self.base == PC || self.base == register)
    }
}

pub(in crate::semantics) fn single(
    arm: &mut Arm,
    access: Access,
    register: u8,
    mode: AddressingMode,
) -> Option<()> {
    let byte = access.size < 4;
    if mode.clashes(register) || register == PC && byte {
        return None;
    }
    let (at, moved) = mode.resolve(arm);
    if !access.load {
        let value = arm.r(register);
        arm.store(access.size, at, value);
        arm.write_if(mode.write_back, mode.base, moved);
        return Some(());
    }
    let mut value = arm.load(access.size, at);
    arm.write_if(mode.write_back, mode.base, moved);
    if register == PC {
        arm.branch(value, true);
        return Some(());
    }
    if access.signed {
        value = arm.signed(access.size * 8, value);
    }
    arm.write(register, value);
    Some(())
}

/// LDRD, STRD.
pub(in crate::semantics) fn dual(
    arm: &mut Arm,
    load: bool,
    [first, second]: [u8; 2],
    mode: AddressingMode,
) -> Option<()> {
    if mode.clashes(first) || mode.clashes(second) || first == PC || second == PC {
        return None;
    }
    if load && first == second {
        return None;
    }
    let (at, moved) = mode.resolve(arm);
    let above = arm.add(at, 4);
    if load {
        let (low, high) = (arm.load(4, at), arm.load(4, above));
        arm.write_if(mode.write_back, mode.base, moved);
        arm.write(first, low);
        arm.write(second, high);
    } else {
        let (low, high) = (arm.r(first), arm.r(second));
        arm.store(4, at, low);
        arm.store(4, above, high);
        arm.write_if(mode.write_back, mode.base, moved);
    }
    Some(())
}

impl Arm {
    fn write_if(&mut self, writes: bool, register: u8, value: Operand) {
        if writes {
            self.write(register, value);
        }
    }
}

/// LDM, STM: the registers of `list` in ascending order at ascending addresses.
pub(in crate::semantics) fn multiple(
    arm: &mut Arm,
    load: bool,
    base: u8,
    list: u16,
    [before, up, write_back]: [bool; 3],
) -> Option<()> {
    let bytes = 4 * list.count_ones();
    if base == PC || list == 0 || load && write_back && list >> base & 1 == 1 {
        return None;
    }
    // If the base is stored and written, and is not the first register, its stored value is unknown.
    let lowest = list.trailing_zeros() as u8;
    let base_is_unknown = !load && write_back && list >> base & 1 == 1 && lowest != base;
    let from = arm.r(base);
    let first = match (up, before) {
        (true, false) => 0,
        (true, true) => 4,
        (false, false) => 4u32.wrapping_sub(bytes),
        (false, true) => bytes.wrapping_neg(),
    };
    let moved = if up { bytes } else { bytes.wrapping_neg() };
    let numbers = (0..16u8).filter(|number| list >> number & 1 == 1);
    let mut loaded = [Operand::ZERO; 16];
    for (index, number) in (0..).zip(numbers.clone()) {
        let at = arm.add(from, first.wrapping_add(4 * index));
        if load {
            loaded[usize::from(number)] = arm.load(4, at);
        } else {
            let value = if base_is_unknown && number == base {
                arm.b.op1(Operation::Unknown, Operand::ZERO)
            } else {
                arm.r(number)
            };
            arm.store(4, at, value);
        }
    }
    if write_back {
        let moved = arm.add(from, moved);
        arm.write(base, moved);
    }
    if load {
        for number in numbers {
            match number {
                PC => arm.branch(loaded[usize::from(PC)], true),
                _ => arm.write(number, loaded[usize::from(number)]),
            }
        }
    }
    Some(())
}

/// STREX and the like: it is unknown whether the store happens; `status` becomes 0 if it does.
pub(in crate::semantics) fn exclusive_store(
    arm: &mut Arm,
    size: u8,
    status: u8,
    registers: &[u8],
    at: Operand,
) -> Option<()> {
    if status == PC
        || registers.contains(&status)
        || Operand::Location(Location::general(status)) == at
    {
        return None;
    }
    let anything = arm.b.op1(Operation::Unknown, Operand::ZERO);
    let failed = arm.b.op1(Operation::Extract { low: 0, count: 1 }, anything);
    let mut stored = arm.b.inverted(failed);
    if !arm.always() {
        stored = arm.b.op(Operation::Select, stored, Operand::ZERO, arm.when);
    }
    for (index, &register) in (0..).zip(registers) {
        let at = arm.add(at, index * u32::from(size));
        let value = arm.r(register);
        arm.b.store_where(size, at, value, stored);
    }
    arm.write(status, failed);
    Some(())
}
