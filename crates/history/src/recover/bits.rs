//! Partly known values.

/// A 64-bit value; the bits in `mask` are known. The others are 0 in `value`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits {
    pub mask: u64,
    pub value: u64,
}

/// Two facts about a value contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conflict;

/// The lowest `count` bits.
pub(super) const fn low(count: u32) -> u64 {
    if count >= 64 { !0 } else { (1 << count) - 1 }
}

/// The address to which an access with a tag in its top byte goes: bit 55 copied (DDI 0487, D8.8:
/// tagged addresses).
pub(super) const fn untagged(address: u64) -> u64 {
    ((address << 8) as i64 >> 8) as u64
}

impl Bits {
    pub const UNKNOWN: Self = Self { mask: 0, value: 0 };

    pub const fn known(value: u64) -> Self {
        Self { mask: !0, value }
    }

    pub const fn new(mask: u64, value: u64) -> Self {
        Self {
            mask,
            value: value & mask,
        }
    }

    /// The value, if all its bits are known.
    pub const fn whole(self) -> Option<u64> {
        if self.mask == !0 {
            Some(self.value)
        } else {
            None
        }
    }

    pub const fn ones(self) -> u64 {
        self.value
    }

    pub const fn zeros(self) -> u64 {
        self.mask & !self.value
    }

    /// The smallest value that it may be, unsigned.
    pub const fn min(self) -> u64 {
        self.value
    }

    /// The largest value that it may be, unsigned.
    pub const fn max(self) -> u64 {
        self.value | !self.mask
    }

    /// Combines what is known from both.
    pub fn join(self, other: Self) -> Result<Self, Conflict> {
        if (self.value ^ other.value) & self.mask & other.mask != 0 {
            return Err(Conflict);
        }
        Ok(Self {
            mask: self.mask | other.mask,
            value: self.value | other.value,
        })
    }

    /// What is known of a value that equals one of the two.
    pub const fn either(self, other: Self) -> Self {
        let mask = self.mask & other.mask & !(self.value ^ other.value);
        Self::new(mask, self.value)
    }

    /// Only the bits in `mask`.
    pub const fn only(self, mask: u64) -> Self {
        Self::new(self.mask & mask, self.value)
    }

    /// The lowest `count` bits, zero-extended.
    pub const fn extend(self, count: u32) -> Self {
        let low = low(count);
        Self {
            mask: self.mask | !low,
            value: self.value & low,
        }
    }

    pub const fn shift_left(self, by: u32) -> Self {
        if by >= 64 {
            return Self::known(0);
        }
        Self {
            mask: self.mask << by | low(by),
            value: self.value << by,
        }
    }

    pub const fn shift_right(self, by: u32) -> Self {
        if by >= 64 {
            return Self::known(0);
        }
        Self {
            mask: self.mask >> by | !(!0 >> by),
            value: self.value >> by,
        }
    }

    pub const fn not(self) -> Self {
        Self::new(self.mask, !self.value)
    }

    pub const fn and(self, other: Self) -> Self {
        let ones = self.value & other.value;
        Self::new(ones | self.zeros() | other.zeros(), ones)
    }

    pub const fn or(self, other: Self) -> Self {
        let ones = self.value | other.value;
        Self::new(ones | self.zeros() & other.zeros(), ones)
    }

    pub const fn xor(self, other: Self) -> Self {
        Self::new(self.mask & other.mask, self.value ^ other.value)
    }

    /// `self + other + carry`: a bit is known where both and the carry into it are.
    pub const fn add(self, other: Self, carry: Self) -> Self {
        if self.mask == !0 && other.mask == !0 && carry.mask & 1 == 1 {
            let sum = self.value.wrapping_add(other.value);
            return Self::known(sum.wrapping_add(carry.value & 1));
        }
        // The largest and the smallest sum show which carries are certain.
        let carry_max = (carry.value | !carry.mask) & 1;
        let largest = self.max().wrapping_add(other.max()).wrapping_add(carry_max);
        let smallest = self.min().wrapping_add(other.min());
        let smallest = smallest.wrapping_add(carry.value & 1);
        let no_carry = !(largest ^ self.zeros() ^ other.zeros());
        let has_carry = smallest ^ self.ones() ^ other.ones();
        let known = self.mask & other.mask & (no_carry | has_carry);
        Self::new(known, smallest)
    }

    /// The number of consecutive known bits from bit 0.
    pub const fn known_low(self) -> u32 {
        self.mask.trailing_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each result holds for every value with these known bits.
        #[test]
        fn sums_and_logic_hold(a: u64, b: u64, ma: u64, mb: u64, carry in 0..2_u64, kc: bool) {
            let (pa, pb) = (Bits::new(ma, a), Bits::new(mb, b));
            let pc = Bits::new(u64::from(kc) | !1, carry);
            for (found, real) in [
                (pa.add(pb, pc), a.wrapping_add(b).wrapping_add(carry)),
                (pa.add(pb.not(), Bits::known(1)), a.wrapping_sub(b)),
                (pa.and(pb), a & b),
                (pa.or(pb), a | b),
                (pa.xor(pb), a ^ b),
                (pa.shift_left(7), a << 7),
                (pa.shift_right(9), a >> 9),
                (pa.extend(13), a & 0x1fff),
                (pa.either(pb), a),
                (pa.either(pb), b),
            ] {
                prop_assert_eq!(found.value, real & found.mask);
            }
        }
    }

    #[test]
    fn low_bits_of_sums_are_known() {
        let sum = Bits::new(0xff, 0x10).add(Bits::known(0x20), Bits::known(0));
        assert_eq!(sum.mask & 0xff, 0xff);
        assert_eq!(sum.value & 0xff, 0x30);
        assert_eq!(Bits::known(1).join(Bits::new(1, 0)), Err(Conflict));
    }

    #[test]
    fn addresses_lose_their_tags() {
        assert_eq!(untagged(0xab00_5500_0000_1000), 0x5500_0000_1000);
        assert_eq!(untagged(0x12ff_8000_0000_0000), 0xffff_8000_0000_0000);
    }
}
