//! Floating point and coprocessor instructions, of A32 and, with the same bits 27:0, of T32.

use super::bits::{field, r};
use super::core::{Arm, PC, constant};
use super::neon::d;
use crate::semantics::floating::{immediate_double, immediate_single};
use crate::semantics::operation::{FloatOperation, FloatShape, Operation, Rounding, Width};
use crate::semantics::{Location, Operand};

const FPCR: Operand = Operand::Location(Location::FPCR);

/// A register of either precision. One bit of its number is encoded apart from the other four.
#[derive(Clone, Copy)]
struct Register {
    number: u8,
    double: bool,
}

impl Register {
    const fn of(word: u32, low: u32, apart: u32, double: bool) -> Self {
        let (four, one) = (field(word, low, 4), field(word, apart, 1));
        let number = if double {
            one << 4 | four
        } else {
            four << 1 | one
        };
        Self {
            number: number as u8,
            double,
        }
    }

    /// The 64-bit register that it is, or that it is half of.
    const fn location(self) -> Location {
        d(if self.double {
            self.number
        } else {
            self.number / 2
        })
    }

    const fn low(self) -> u8 {
        self.number % 2 * 32
    }

    fn read(self, arm: &mut Arm) -> Operand {
        let whole = Operand::Location(self.location());
        if self.double {
            return whole;
        }
        arm.b.op1(
            Operation::Extract {
                low: self.low(),
                count: 32,
            },
            whole,
        )
    }

    fn write(self, arm: &mut Arm, value: Operand) {
        let mut value = value;
        if !self.double {
            let insert = Operation::Insert {
                low: self.low(),
                count: 32,
            };
            value = arm.b.op2(insert, Operand::Location(self.location()), value);
        }
        arm.put(self.location(), value);
    }
}

const fn shape(double: bool) -> FloatShape {
    if double {
        FloatShape::Double
    } else {
        FloatShape::Single
    }
}

/// Whether the coprocessor number is 10 or 11.
const fn is_float(word: u32) -> bool {
    field(word, 9, 3) == 0b101
}

/// VLDR, VSTR, VLDM, VSTM, VPUSH, VPOP, moves of 64 bits.
pub(in crate::semantics) fn transfer(arm: &mut Arm, word: u32) -> Option<()> {
    let (base, load, double) = (r(word, 16), field(word, 20, 1) == 1, field(word, 8, 1) == 1);
    let (before, up, write_back) = (
        field(word, 24, 1) == 1,
        field(word, 23, 1) == 1,
        field(word, 21, 1) == 1,
    );
    if !before && !up && !write_back {
        return move_pair(arm, word);
    }
    if !is_float(word) {
        return None;
    }
    let first = Register::of(word, 12, 22, double);
    let bytes = 4 * field(word, 0, 8);
    let from = if base == PC {
        constant(arm.pc & !3)
    } else {
        arm.r(base)
    };
    if before && !write_back {
        let at = arm.add(from, if up { bytes } else { bytes.wrapping_neg() });
        one(arm, load, first, at);
        return Some(());
    }
    if before == up || base == PC && write_back {
        return None;
    }
    let (size, count) = if double {
        (8, bytes / 8)
    } else {
        (4, bytes / 4)
    };
    if count == 0 || count > 16 && double || u32::from(first.number) + count > 32 {
        return None;
    }
    let start = if up { 0 } else { bytes.wrapping_neg() };
    for index in 0..count {
        let at = arm.add(from, start.wrapping_add(size * index));
        one(
            arm,
            load,
            Register {
                number: first.number + index as u8,
                double,
            },
            at,
        );
    }
    if write_back {
        let moved = arm.add(from, if up { bytes } else { bytes.wrapping_neg() });
        arm.write(base, moved);
    }
    Some(())
}

fn one(arm: &mut Arm, load: bool, register: Register, at: Operand) {
    let size = if register.double { 8 } else { 4 };
    if load {
        let value = arm.load(size, at);
        register.write(arm, value);
    } else {
        let value = register.read(arm);
        arm.store(size, at, value);
    }
}

/// VMOV between two general registers and 64 bits; MRRC, MCRR.
fn move_pair(arm: &mut Arm, word: u32) -> Option<()> {
    let (low, high, to_general) = (r(word, 12), r(word, 16), field(word, 20, 1) == 1);
    if field(word, 22, 1) == 0 || low == PC || high == PC {
        return None;
    }
    if !is_float(word) {
        if to_general {
            arm.unknown(Location::general(low));
            arm.unknown(Location::general(high));
        } else {
            arm.b.may_store_anywhere = true;
        }
        return Some(());
    }
    if field(word, 6, 2) != 0 || field(word, 4, 1) == 0 || to_general && low == high {
        return None;
    }
    if field(word, 8, 1) == 1 {
        let register = Register::of(word, 0, 5, true);
        if to_general {
            let from = register.read(arm);
            let part = arm.low(from);
            arm.write(low, part);
            let part = arm.high(from);
            arm.write(high, part);
        } else {
            let (low, high) = (arm.r(low), arm.r(high));
            let both = arm
                .b
                .op2(Operation::Insert { low: 32, count: 32 }, low, high);
            register.write(arm, both);
        }
        return Some(());
    }
    let first = Register::of(word, 0, 5, false);
    if first.number == 31 {
        return None;
    }
    let second = Register {
        number: first.number + 1,
        double: false,
    };
    for (general, register) in [(low, first), (high, second)] {
        if to_general {
            let value = register.read(arm);
            arm.write(general, value);
        } else {
            let value = arm.r(general);
            register.write(arm, value);
        }
    }
    Some(())
}

/// Data processing, and moves of 32 bits.
pub(in crate::semantics) fn decode(arm: &mut Arm, word: u32) -> Option<()> {
    match (is_float(word), field(word, 4, 1) == 1) {
        (true, true) => move_one(arm, word),
        (true, false) => data(arm, word),
        (false, true) => coprocessor(arm, word),
        (false, false) => None,
    }
}

/// VSEL, VMAXNM, VMINNM, VRINTA, VCVTA and the like: one register.
pub(in crate::semantics) fn unconditional(arm: &mut Arm, word: u32) -> Option<()> {
    if !is_float(word) || field(word, 4, 1) == 1 || field(word, 24, 4) != 0b1110 {
        return None;
    }
    // VCVTA and the like write integers of 32 bits.
    let converts = field(word, 18, 6) & 0b101111 == 0b101111;
    let to = Register::of(word, 12, 22, field(word, 8, 1) == 1 && !converts);
    arm.unknown(to.location());
    Some(())
}

/// MRC, MCR.
fn coprocessor(arm: &mut Arm, word: u32) -> Option<()> {
    let (register, read) = (r(word, 12), field(word, 20, 1) == 1);
    let name = (
        field(word, 8, 4),
        field(word, 21, 3),
        field(word, 16, 4),
        field(word, 0, 4),
        field(word, 5, 3),
    );
    match (read, register, name) {
        (true, PC, _) => {
            arm.keep_condition();
            for flag in [Location::N, Location::Z, Location::C, Location::V] {
                arm.unknown(flag);
            }
        }
        // TPIDRURO
        (true, _, (15, 0, 13, 0, 3)) => {
            arm.write(register, Operand::Location(Location::THREAD_POINTER));
        }
        (true, ..) => arm.unknown(Location::general(register)),
        (false, PC, _) => return None,
        (false, _, (15, 0, 13, 0, 3)) => {
            let value = arm.r(register);
            arm.put(Location::THREAD_POINTER, value);
        }
        // Barriers, cleaning of caches, thread registers, debug.
        (false, _, (15, 0, 7, 5 | 10 | 11, _) | (15, 0, 13, ..) | (14, ..)) => {}
        // Address translation, invalidation and the rest.
        (false, ..) => arm.b.may_store_anywhere = true,
    }
    Some(())
}

/// VMOV of 32 bits or of elements, VDUP, VMRS, VMSR.
fn move_one(arm: &mut Arm, word: u32) -> Option<()> {
    let (general, opc1, read) = (r(word, 12), field(word, 21, 3), field(word, 20, 1) == 1);
    if field(word, 8, 1) == 0 {
        return match opc1 {
            0 if general != PC => {
                let register = Register::of(word, 16, 7, false);
                if read {
                    let value = register.read(arm);
                    arm.write(general, value);
                } else {
                    let value = arm.r(general);
                    register.write(arm, value);
                }
                Some(())
            }
            7 => control(arm, word, read, general),
            _ => None,
        };
    }
    if general == PC {
        return None;
    }
    let register = Register::of(word, 16, 7, true);
    let opc2 = field(word, 5, 2);
    if !read && opc1 & 4 == 4 {
        return duplicate(arm, word, register.number, general);
    }
    let (bits, index) = match (opc1 & 2 != 0, opc2) {
        (true, _) => (8, (opc1 & 1) << 2 | opc2),
        (false, 1 | 3) => (16, (opc1 & 1) << 1 | opc2 >> 1),
        (false, 0) if opc1 & 4 == 0 => (32, opc1 & 1),
        _ => return None,
    };
    let low = (bits * index) as u8;
    let count = bits as u8;
    let whole = Operand::Location(register.location());
    if !read {
        let value = arm.r(general);
        let value = arm.b.op2(Operation::Insert { low, count }, whole, value);
        arm.put(register.location(), value);
    } else if opc1 & 4 == 4 || bits == 32 {
        let value = arm.b.op1(Operation::Extract { low, count }, whole);
        arm.write(general, value);
    } else {
        let wide = arm.b.op1(Operation::ExtractSigned { low, count }, whole);
        let value = arm.low(wide);
        arm.write(general, value);
    }
    Some(())
}

fn duplicate(arm: &mut Arm, word: u32, to: u8, from: u8) -> Option<()> {
    let quad = field(word, 21, 1) == 1;
    let (bits, ones) = match (field(word, 22, 1), field(word, 5, 1)) {
        (1, 0) => (8, 0x0101_0101_0101_0101),
        (0, 1) => (16, 0x0001_0001_0001_0001),
        (0, 0) => (32, 0x0000_0001_0000_0001),
        _ => return None,
    };
    if field(word, 6, 1) == 1 || quad && to & 1 == 1 {
        return None;
    }
    let from = arm.r(from);
    let element = arm.b.op1(
        Operation::Extract {
            low: 0,
            count: bits,
        },
        from,
    );
    for number in to..=to + u8::from(quad) {
        let all = arm.b.op2(
            Operation::Multiply(Width::W64),
            element,
            Operand::Constant(ones),
        );
        arm.put(d(number), all);
    }
    Some(())
}

/// VMRS, VMSR.
fn control(arm: &mut Arm, word: u32, read: bool, general: u8) -> Option<()> {
    let fpscr = field(word, 16, 4) == 1;
    let flags = Operand::Location(Location::FPSCR_FLAGS);
    match (read, general) {
        (true, PC) if fpscr => {
            arm.keep_condition();
            let all = [Location::V, Location::C, Location::Z, Location::N];
            for (low, flag) in (0..).zip(all) {
                let bit = arm.b.op1(Operation::Extract { low, count: 1 }, flags);
                arm.put(flag, bit);
            }
        }
        (_, PC) => return None,
        (true, _) if fpscr => {
            // The cumulative exception bits are not modelled.
            let others = arm.b.op1(Operation::Unknown, Operand::ZERO);
            let others = arm.b.op2(Operation::And, others, constant(0x0800_009f));
            let value = arm.b.op2(Operation::Or, others, FPCR);
            let value = arm
                .b
                .op2(Operation::Insert { low: 28, count: 4 }, value, flags);
            arm.write(general, value);
        }
        (true, _) => arm.unknown(Location::general(general)),
        (false, _) if fpscr => {
            let value = arm.r(general);
            let flags = arm.b.op1(Operation::Extract { low: 28, count: 4 }, value);
            arm.put(Location::FPSCR_FLAGS, flags);
            // Every core has AHP, DN, FZ and RMode; other bits may read as zero.
            let others = arm.b.op1(Operation::Unknown, Operand::ZERO);
            let others = arm.b.op2(Operation::And, others, constant(0x003f_9f00));
            let there = arm.b.op2(Operation::Or, others, constant(0x07c0_0000));
            let control = arm.b.op2(Operation::And, value, there);
            arm.put(Location::FPCR, control);
        }
        (false, _) => {}
    }
    Some(())
}

fn float(
    arm: &mut Arm,
    operation: FloatOperation,
    double: bool,
    a: Operand,
    b: Operand,
) -> Operand {
    arm.b
        .op(Operation::Float(operation, shape(double)), a, b, FPCR)
}

fn negated(arm: &mut Arm, double: bool, a: Operand) -> Operand {
    let sign = if double { 1 << 63 } else { 1 << 31 };
    arm.b.op2(Operation::Xor, a, Operand::Constant(sign))
}

fn data(arm: &mut Arm, word: u32) -> Option<()> {
    use FloatOperation as F;
    let double = field(word, 8, 1) == 1;
    let (n, m) = (
        Register::of(word, 16, 7, double),
        Register::of(word, 0, 5, double),
    );
    let to = Register::of(word, 12, 22, double);
    let opcode = field(word, 23, 1) << 2 | field(word, 20, 2);
    let negates = field(word, 6, 1) == 1;
    if opcode == 7 {
        return other(arm, word, to, m);
    }
    let (a, b) = (n.read(arm), m.read(arm));
    let result = match opcode {
        // VMLA, VMLS, VNMLS, VNMLA: rounded twice.
        0 | 1 => {
            let mut product = float(arm, F::Multiply, double, a, b);
            if negates {
                product = negated(arm, double, product);
            }
            let mut addend = to.read(arm);
            if opcode == 1 {
                addend = negated(arm, double, addend);
            }
            float(arm, F::Add, double, addend, product)
        }
        2 => {
            let product = float(arm, F::Multiply, double, a, b);
            if negates {
                negated(arm, double, product)
            } else {
                product
            }
        }
        3 => {
            let operation = if negates { F::Subtract } else { F::Add };
            float(arm, operation, double, a, b)
        }
        4 if !negates => float(arm, F::Divide, double, a, b),
        // VFNMS, VFNMA, VFMA, VFMS.
        5 | 6 => {
            let a = if negates { negated(arm, double, a) } else { a };
            let mut addend = to.read(arm);
            if opcode == 5 {
                addend = negated(arm, double, addend);
            }
            let fused = Operation::Float(F::FusedMultiplyAdd, shape(double));
            let sum = arm.b.op(fused, a, b, addend);
            float(arm, F::Checked, double, sum, Operand::ZERO)
        }
        _ => return None,
    };
    to.write(arm, result);
    Some(())
}

/// Instructions with one source, conversions, comparisons, immediates.
fn other(arm: &mut Arm, word: u32, to: Register, m: Register) -> Option<()> {
    use FloatOperation as F;
    let (double, upper) = (to.double, field(word, 7, 1) == 1);
    if field(word, 6, 1) == 0 {
        let byte = u64::from(field(word, 16, 4) << 4 | field(word, 0, 4));
        let value = if double {
            immediate_double(byte)
        } else {
            immediate_single(byte).into()
        };
        to.write(arm, Operand::Constant(value));
        return Some(());
    }
    let result = match (field(word, 16, 4), upper) {
        (0, false) => m.read(arm),
        (0, true) => {
            let mask = if double {
                i64::MAX.cast_unsigned()
            } else {
                0x7fff_ffff
            };
            let a = m.read(arm);
            arm.b.op2(Operation::And, a, Operand::Constant(mask))
        }
        (1, false) => {
            let a = m.read(arm);
            negated(arm, double, a)
        }
        (1, true) => {
            let a = m.read(arm);
            float(arm, F::SquareRoot, double, a, Operand::ZERO)
        }
        (4 | 5, _) => {
            let a = to.read(arm);
            let b = if field(word, 16, 1) == 1 {
                Operand::ZERO
            } else {
                m.read(arm)
            };
            let flags = float(arm, F::Flags, double, a, b);
            arm.put(Location::FPSCR_FLAGS, flags);
            return Some(());
        }
        (6 | 7, false) | (6, true) => {
            let rounding = if upper {
                Rounding::Zero
            } else {
                Rounding::TiesToEven
            };
            let a = m.read(arm);
            float(arm, F::Round(rounding), double, a, Operand::ZERO)
        }
        (7, true) => {
            let a = m.read(arm);
            let to = Register::of(word, 12, 22, !double);
            let operation = if double { F::Narrow } else { F::Widen };
            let result = float(arm, operation, !double, a, Operand::ZERO);
            to.write(arm, result);
            return Some(());
        }
        (8, signed) => {
            let from = Register::of(word, 0, 5, false).read(arm);
            let (from, operation) = if signed {
                (arm.wide(from), F::FromSigned)
            } else {
                (from, F::FromUnsigned)
            };
            float(arm, operation, double, from, Operand::ZERO)
        }
        (12 | 13, to_zero) => {
            let rounding = if to_zero {
                Rounding::Zero
            } else {
                Rounding::TiesToEven
            };
            let operation = if field(word, 16, 1) == 1 {
                F::ToSigned(rounding, Width::W32)
            } else {
                F::ToUnsigned(rounding, Width::W32)
            };
            let a = m.read(arm);
            let result = float(arm, operation, double, a, Operand::ZERO);
            Register::of(word, 12, 22, false).write(arm, result);
            return Some(());
        }
        // VJCVT
        (9, true) => {
            arm.unknown(Register::of(word, 12, 22, false).location());
            arm.unknown(Location::FPSCR_FLAGS);
            return Some(());
        }
        // Half precision and fixed point: the destination may have either precision.
        _ => {
            arm.unknown(to.location());
            arm.unknown(Register::of(word, 12, 22, !double).location());
            return Some(());
        }
    };
    to.write(arm, result);
    Some(())
}
