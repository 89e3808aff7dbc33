//! What a relation reveals of its result and operands: known bits passed both ways.

use crate::recover::bits::{Bits, Conflict, low};
use armsnap_arch::semantics::{LaneOperation, Lanes, Operation, Width};

/// The result and the operands of a relation: `d = operation(a, b, c)`.
#[derive(Clone, Copy, Debug)]
pub(in crate::recover) struct Values {
    pub d: Bits,
    pub a: Bits,
    pub b: Bits,
    pub c: Bits,
}

impl Values {
    fn result(&mut self, bits: Bits) -> Result<(), Conflict> {
        self.d = self.d.join(bits)?;
        Ok(())
    }

    fn a(&mut self, bits: Bits) -> Result<(), Conflict> {
        self.a = self.a.join(bits)?;
        Ok(())
    }

    fn b(&mut self, bits: Bits) -> Result<(), Conflict> {
        self.b = self.b.join(bits)?;
        Ok(())
    }

    fn c(&mut self, bits: Bits) -> Result<(), Conflict> {
        self.c = self.c.join(bits)?;
        Ok(())
    }
}

const fn width(width: Width) -> u32 {
    match width {
        Width::W32 => 32,
        Width::W64 => 64,
    }
}

const ZERO: Bits = Bits::known(0);
const ONE: Bits = Bits::known(1);

/// A flag: bits above the lowest are zero.
const fn flag(bits: Bits) -> Bits {
    bits.extend(1)
}

const fn truth(value: bool) -> Bits {
    Bits::known(value as u64)
}

/// Whether a value is not zero, where that is known.
pub(in crate::recover) const fn is_set(bits: Bits) -> Option<bool> {
    if bits.value != 0 {
        Some(true)
    } else if bits.mask == !0 {
        Some(false)
    } else {
        None
    }
}

/// Adds to each value what follows from the others.
pub(in crate::recover) fn refine(operation: Operation, v: &mut Values) -> Result<(), Conflict> {
    match operation {
        Operation::Copy => {
            v.result(v.a)?;
            v.a(v.d)
        }
        Operation::Add(w) => sum(
            v,
            width(w),
            Sum {
                invert: false,
                carry: ZERO,
            },
        )
        .map(|_| ()),
        Operation::Subtract(w) => sum(
            v,
            width(w),
            Sum {
                invert: true,
                carry: ONE,
            },
        )
        .map(|_| ()),
        Operation::AddWithCarry(w) => {
            let carry = sum(
                v,
                width(w),
                Sum {
                    invert: false,
                    carry: flag(v.c),
                },
            )?;
            v.c(carry)
        }
        Operation::CarryOf(w) => carry_of(v, width(w), v.b, v.c),
        Operation::OverflowOf(w) => overflow_of(v, width(w), v.b, v.c),
        Operation::CarryOfDifference(w) => carry_of(v, width(w), v.b.not(), ONE),
        Operation::OverflowOfDifference(w) => overflow_of(v, width(w), v.b.not(), ONE),
        Operation::And => {
            v.result(v.a.and(v.b))?;
            // A one needs two ones; a zero is a zero of one operand if the other has a one.
            v.a(Bits::new(v.d.ones() | v.d.zeros() & v.b.ones(), v.d.value))?;
            v.b(Bits::new(v.d.ones() | v.d.zeros() & v.a.ones(), v.d.value))
        }
        Operation::Or => {
            v.result(v.a.or(v.b))?;
            v.a(Bits::new(v.d.zeros() | v.d.ones() & v.b.zeros(), v.d.value))?;
            v.b(Bits::new(v.d.zeros() | v.d.ones() & v.a.zeros(), v.d.value))
        }
        Operation::Xor => {
            v.result(v.a.xor(v.b))?;
            v.a(v.d.xor(v.b))?;
            v.b(v.d.xor(v.a))
        }
        Operation::Not(w) => {
            let bits = width(w);
            v.result(v.a.not().extend(bits))?;
            v.a(v.d.not().only(low(bits)))
        }
        Operation::ShiftLeft(_)
        | Operation::ShiftRight(_)
        | Operation::ShiftRightSigned(_)
        | Operation::RotateRight(_) => shift(operation, v),
        Operation::Extract { low: from, count } => {
            let (from, count) = (u32::from(from), u32::from(count));
            v.result(v.a.shift_right(from).extend(count))?;
            let back = v.d.only(low(count));
            v.a(Bits::new(back.mask << from, back.value << from))
        }
        Operation::ExtractSigned { low: from, count } => {
            let (from, count) = (u32::from(from), u32::from(count));
            v.result(signed(v.a.shift_right(from), count))?;
            let mut back = v.d.only(low(count));
            let copies = v.d.only(!low(count - 1));
            if let Some(sign) = any_copy(copies) {
                back = back.join(Bits::new(1 << (count - 1), sign))?;
                v.result(signed(back, count))?;
            }
            v.a(Bits::new(back.mask << from, back.value << from))
        }
        Operation::Insert { low: from, count } => {
            let (from, count) = (u32::from(from), u32::from(count));
            let field = low(count) << from;
            let inserted = Bits::new(v.b.mask << from, v.b.value << from).only(field);
            v.result(v.a.only(!field).join(inserted)?)?;
            v.a(v.d.only(!field))?;
            v.b(v.d.shift_right(from).only(low(count)))
        }
        Operation::Multiply(w) => multiply(v, width(w)),
        Operation::Select => match is_set(v.c) {
            Some(true) => {
                v.result(v.a)?;
                v.a(v.d)
            }
            Some(false) => {
                v.result(v.b)?;
                v.b(v.d)
            }
            None => {
                let (a, b) = (v.d.join(v.a), v.d.join(v.b));
                match (a, b) {
                    (Ok(_), Ok(_)) => v.result(v.a.either(v.b)),
                    // It was `b`: the condition is zero.
                    (Err(_), Ok(_)) => {
                        v.c(ZERO)?;
                        v.result(v.b)?;
                        v.b(v.d)
                    }
                    (Ok(_), Err(_)) => {
                        if v.c.mask | 1 == !0 {
                            v.c(ONE)?;
                        }
                        v.result(v.a)?;
                        v.a(v.d)
                    }
                    (Err(_), Err(_)) => Err(Conflict),
                }
            }
        },
        Operation::Equal => {
            v.result(flag(v.d))?;
            if v.a.join(v.b).is_err() {
                v.result(ZERO)?;
            } else if let (Some(a), Some(b)) = (v.a.whole(), v.b.whole()) {
                v.result(truth(a == b))?;
            }
            match v.d.whole() {
                Some(1) => {
                    v.a(v.b)?;
                    v.b(v.a)
                }
                Some(_) => {
                    let (a, b) = (v.a, v.b);
                    v.a(differs(a, b))?;
                    v.b(differs(b, a))
                }
                None => Ok(()),
            }
        }
        Operation::LessUnsigned => {
            v.result(flag(v.d))?;
            if v.a.max() < v.b.min() {
                v.result(ONE)
            } else if v.a.min() >= v.b.max() {
                v.result(ZERO)
            } else {
                match v.d.whole() {
                    // Leading zeros of the bound are leading zeros of what is below it.
                    Some(1) => v.a(below(v.b.max())),
                    Some(_) => v.b(below(v.a.max())),
                    None => Ok(()),
                }
            }
        }
        Operation::LessSigned => {
            const SIGN: u64 = 1 << 63;
            v.result(flag(v.d))?;
            let flip = |bits: Bits| Bits::new(bits.mask, bits.value ^ SIGN);
            let (a, b) = (flip(v.a), flip(v.b));
            if a.max() < b.min() {
                v.result(ONE)?;
            } else if a.min() >= b.max() {
                v.result(ZERO)?;
            }
            Ok(())
        }
        Operation::ReverseBits(w) => {
            let bits = width(w);
            let turn = |x: Bits| {
                let by = 64 - bits;
                Bits::new(x.mask.reverse_bits() >> by, x.value.reverse_bits() >> by)
            };
            v.result(turn(v.a.only(low(bits))).extend(bits))?;
            v.a(turn(v.d.only(low(bits))))
        }
        Operation::ReverseBytes { group } => {
            let turn = |x: Bits| {
                Bits::new(
                    bytes_reversed(x.mask, group),
                    bytes_reversed(x.value, group),
                )
            };
            v.result(turn(v.a))?;
            v.a(turn(v.d))
        }
        Operation::Lane(operation, lanes) => lane_by_lane(v, operation, lanes),
        Operation::Load { size } => v.result(v.d.extend(8 * u32::from(size))),
        Operation::Store { .. } | Operation::Unknown => Ok(()),
        // Only forward.
        _ => match (v.a.whole(), v.b.whole(), v.c.whole()) {
            (Some(a), Some(b), Some(c)) => match operation.eval(a, b, c) {
                Some(value) => v.result(Bits::known(value)),
                None => Ok(()),
            },
            _ => Ok(()),
        },
    }
}

/// The second operand inverted or not, and the carry in.
struct Sum {
    invert: bool,
    carry: Bits,
}

/// `d = a + b + carry` or `d = a + !b + carry`; returns what is known of the carry in.
fn sum(v: &mut Values, bits: u32, how: Sum) -> Result<Bits, Conflict> {
    let width = low(bits);
    let turn = |b: Bits| if how.invert { b.not() } else { b };
    let (a, b) = (v.a.only(width), turn(v.b).only(width));
    v.result(a.add(b, how.carry).extend(bits))?;
    let d = v.d.only(width);
    let parity = flag(d.xor(a).xor(b).only(1).join(Bits::new(!1, 0))?);
    let carry = if parity.mask == !0 {
        how.carry.join(parity)?
    } else {
        how.carry
    };
    // a = d - b - carry; !b is b - 1 less, and so on: all by the same subtraction.
    let minus = |x: Bits, y: Bits| {
        // x - y - carry = x + !y + (1 - carry)
        x.add(y.not(), flag(carry).xor(ONE)).only(width)
    };
    let back = minus(d, b);
    v.a(back)?;
    let a = v.a.only(width);
    let back = minus(d, a);
    v.b(turn(back).only(back.mask))?;
    Ok(carry)
}

fn carry_of(v: &mut Values, bits: u32, b: Bits, c: Bits) -> Result<(), Conflict> {
    v.result(flag(v.d))?;
    let width = u128::from(low(bits));
    let total = |a: u64, b: u64, c: u64| {
        (u128::from(a) & width) + (u128::from(b) & width) + u128::from(c & 1) > width
    };
    let c = flag(c);
    let (most, least) = (
        total(v.a.max(), b.max(), c.max()),
        total(v.a.min(), b.min(), c.min()),
    );
    if most == least {
        v.result(truth(most))?;
    }
    Ok(())
}

fn overflow_of(v: &mut Values, bits: u32, b: Bits, c: Bits) -> Result<(), Conflict> {
    v.result(flag(v.d))?;
    let sum = v.a.only(low(bits)).add(b.only(low(bits)), flag(c));
    // Operands of the same sign, and a sum of the other sign.
    let sign = 1 << (bits - 1);
    let overflow = sum.xor(v.a).and(sum.xor(b)).only(sign);
    if overflow.mask & sign != 0 {
        return v.result(truth(overflow.value & sign != 0));
    }
    // Operands of different signs never overflow.
    let different = v.a.xor(b).only(sign);
    if different.value & sign != 0 {
        v.result(ZERO)?;
    }
    Ok(())
}

/// `count` bits, sign-extended.
fn signed(bits: Bits, count: u32) -> Bits {
    let inside = bits.only(low(count));
    let sign = 1 << (count - 1);
    if inside.mask & sign == 0 {
        return inside;
    }
    let above = !low(count);
    let value = if inside.value & sign != 0 { above } else { 0 };
    Bits::new(inside.mask | above, inside.value | value)
}

/// The value of bits that are all the same, if one of them is known.
fn any_copy(bits: Bits) -> Option<u64> {
    (bits.mask != 0).then_some(if bits.value != 0 { !0 } else { 0 })
}

fn shift(operation: Operation, v: &mut Values) -> Result<(), Conflict> {
    let (Operation::ShiftLeft(w)
    | Operation::ShiftRight(w)
    | Operation::ShiftRightSigned(w)
    | Operation::RotateRight(w)) = operation
    else {
        return Ok(());
    };
    let bits = width(w);
    let wide = low(bits);
    v.result(v.d.extend(bits))?;
    let amount = v.b.only(u64::from(bits - 1));
    if amount.mask != u64::from(bits - 1) {
        return Ok(());
    }
    let by = amount.value as u32;
    let a = v.a.only(wide);
    let d = v.d.only(wide);
    match operation {
        Operation::ShiftLeft(_) => {
            v.result(a.shift_left(by).extend(bits))?;
            v.a(Bits::new(d.mask >> by, d.value >> by).only(wide))
        }
        Operation::ShiftRight(_) => {
            v.result(a.extend(bits).shift_right(by))?;
            v.a(Bits::new(d.mask << by, d.value << by).only(wide))
        }
        Operation::ShiftRightSigned(_) => {
            v.result(
                signed(
                    signed(a, bits).shift_right(by).only(low(64 - by)),
                    bits - by,
                )
                .extend(bits),
            )?;
            let d = v.d.only(wide);
            v.a(Bits::new(d.mask << by, d.value << by).only(wide))?;
            if let Some(sign) = any_copy(d.only(wide & !low(bits - by - 1))) {
                v.a(Bits::new(1 << (bits - 1), sign))?;
            }
            Ok(())
        }
        _ => {
            let turn = |x: Bits, by: u32| {
                let rotate = |word: u64| match bits {
                    32 => u64::from((word as u32).rotate_right(by)),
                    _ => word.rotate_right(by),
                };
                Bits::new(rotate(x.mask), rotate(x.value))
            };
            v.result(turn(a, by).extend(bits))?;
            let d = v.d.only(wide);
            v.a(turn(d, (bits - by) % bits))
        }
    }
}

fn multiply(v: &mut Values, bits: u32) -> Result<(), Conflict> {
    v.result(v.d.extend(bits))?;
    // Low bits of a product depend on as many low bits of its factors.
    let count = v.a.known_low().min(v.b.known_low()).min(bits);
    let product = v.a.value.wrapping_mul(v.b.value) & low(bits);
    let zeros = |x: Bits| (x.mask & !x.value).trailing_ones().min(bits);
    v.result(Bits::new(low(count), product))?;
    let trailing = (zeros(v.a) + zeros(v.b)).min(bits);
    v.result(Bits::new(low(trailing), 0))?;
    // A known factor is divided out, except for what its powers of two shifted out.
    let divided = |d: Bits, by: Bits| {
        let factor = by.whole().map_or(by.value & low(bits), |by| by & low(bits));
        let known = by.only(low(bits)).mask | !low(bits) == !0;
        if !known || factor == 0 {
            return Bits::UNKNOWN;
        }
        let twos = factor.trailing_zeros();
        let count = d.known_low().min(bits).saturating_sub(twos);
        let inverse = inverse(factor >> twos);
        Bits::new(low(count), (d.value >> twos).wrapping_mul(inverse))
    };
    v.a(divided(v.d, v.b))?;
    v.b(divided(v.d, v.a))
}

/// The inverse of an odd number modulo 2^64, by Newton's iteration.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut round = 0;
    while round < 6 {
        x = x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x)));
        round += 1;
    }
    x
}

/// The bit that makes two values differ, if all others are known to be the same.
fn differs(a: Bits, b: Bits) -> Bits {
    let open = !(a.mask & b.mask);
    if open.count_ones() == 1 && b.mask & open != 0 && (a.value ^ b.value) & !open == 0 {
        return Bits::new(open, !b.value);
    }
    Bits::UNKNOWN
}

/// A value that is at most (or below) a bound.
fn below(bound: u64) -> Bits {
    Bits::new(!low(64 - bound.leading_zeros()), 0)
}

fn bytes_reversed(word: u64, group: u8) -> u64 {
    match group {
        2 => (word & 0x00ff_00ff_00ff_00ff) << 8 | word >> 8 & 0x00ff_00ff_00ff_00ff,
        4 => word.swap_bytes().rotate_left(32),
        _ => word.swap_bytes(),
    }
}

fn lane_by_lane(v: &mut Values, operation: LaneOperation, lanes: Lanes) -> Result<(), Conflict> {
    let size = match lanes {
        Lanes::B8 => 8,
        Lanes::H16 => 16,
        Lanes::S32 => 32,
        Lanes::D64 => 64,
    };
    let all = Operation::Lane(operation, lanes).eval(v.a.value, v.b.value, 0);
    for at in (0..64).step_by(size as usize) {
        let field = low(size) << at;
        if v.a.mask & field == field
            && v.b.mask & field == field
            && let Some(all) = all
        {
            v.result(Bits::new(field, all))?;
            continue;
        }
        let lane = |x: Bits| {
            let inside = x.shift_right(at).only(low(size));
            (inside.mask == low(size)).then_some(inside.value)
        };
        let put = |value: u64| Bits::new(low(size) << at, value << at);
        let (a, b, d) = (lane(v.a), lane(v.b), lane(v.d));
        match (operation, a, b, d) {
            (LaneOperation::Add, Some(a), None, Some(d)) => v.b(put(d.wrapping_sub(a)))?,
            (LaneOperation::Add, None, Some(b), Some(d)) => v.a(put(d.wrapping_sub(b)))?,
            (LaneOperation::Subtract, None, Some(b), Some(d)) => v.a(put(d.wrapping_add(b)))?,
            (LaneOperation::Subtract, Some(a), None, Some(d)) => v.b(put(a.wrapping_sub(d)))?,
            (LaneOperation::Equal, Some(x), None, Some(d)) if d != 0 => v.b(put(x))?,
            (LaneOperation::Equal, None, Some(x), Some(d)) if d != 0 => v.a(put(x))?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
