//! Operations on the lanes of a 64-bit value.

use super::operation::{LaneOperation, Lanes};

impl Lanes {
    /// Bits of a lane.
    pub(super) const fn bits(self) -> u32 {
        match self {
            Self::B8 => 8,
            Self::H16 => 16,
            Self::S32 => 32,
            Self::D64 => 64,
        }
    }

    const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// The nearest number that fits in a signed lane.
    fn limited(self, value: i128) -> u64 {
        let end = 1i128 << (self.bits() - 1);
        value.clamp(-end, end - 1) as u64
    }

    const fn signed(self, lane: u64) -> i64 {
        let unused = 64 - self.bits();
        (lane << unused).cast_signed() >> unused
    }
}

/// Applies the operation to each pair of lanes.
pub(super) fn each(operation: LaneOperation, lanes: Lanes, a: u64, b: u64) -> u64 {
    let mut result = 0;
    for low in (0..64).step_by(lanes.bits() as usize) {
        let (a, b) = ((a >> low) & lanes.mask(), (b >> low) & lanes.mask());
        result |= (one(operation, lanes, a, b) & lanes.mask()) << low;
    }
    result
}

/// The bytes of `b:a` selected by the nibbles of `c`.
pub(super) fn shuffle(a: u64, b: u64, c: u64) -> u64 {
    let bytes = (u128::from(b) << 64 | u128::from(a)).to_le_bytes();
    u64::from_le_bytes(std::array::from_fn(|index| {
        bytes[(c >> (4 * index) & 15) as usize]
    }))
}

/// The bytes of `b:a` selected by the bytes of `c`.
pub(super) fn look_up(a: u64, b: u64, c: u64) -> u64 {
    let bytes = (u128::from(b) << 64 | u128::from(a)).to_le_bytes();
    u64::from_le_bytes(
        c.to_le_bytes()
            .map(|number| bytes.get(usize::from(number)).copied().unwrap_or(0)),
    )
}

fn one(operation: LaneOperation, lanes: Lanes, a: u64, b: u64) -> u64 {
    let (signed_a, signed_b) = (lanes.signed(a), lanes.signed(b));
    let all_if = |holds: bool| if holds { u64::MAX } else { 0 };
    match operation {
        LaneOperation::Add => a.wrapping_add(b),
        LaneOperation::Subtract => a.wrapping_sub(b),
        LaneOperation::Multiply => a.wrapping_mul(b),
        LaneOperation::Equal => all_if(a == b),
        LaneOperation::GreaterSigned => all_if(signed_a > signed_b),
        LaneOperation::GreaterEqualSigned => all_if(signed_a >= signed_b),
        LaneOperation::GreaterUnsigned => all_if(a > b),
        LaneOperation::GreaterEqualUnsigned => all_if(a >= b),
        LaneOperation::Test => all_if(a & b != 0),
        LaneOperation::MinSigned => {
            if signed_a < signed_b {
                a
            } else {
                b
            }
        }
        LaneOperation::MaxSigned => {
            if signed_a > signed_b {
                a
            } else {
                b
            }
        }
        LaneOperation::MinUnsigned => a.min(b),
        LaneOperation::MaxUnsigned => a.max(b),
        LaneOperation::DistanceSigned => signed_a.abs_diff(signed_b),
        LaneOperation::DistanceUnsigned => a.abs_diff(b),
        LaneOperation::AddSaturatingSigned => {
            lanes.limited(i128::from(signed_a) + i128::from(signed_b))
        }
        LaneOperation::SubtractSaturatingSigned => {
            lanes.limited(i128::from(signed_a) - i128::from(signed_b))
        }
        LaneOperation::AddSaturatingUnsigned => a.saturating_add(b).min(lanes.mask()),
        LaneOperation::SubtractSaturatingUnsigned => a.saturating_sub(b),
        LaneOperation::Shift | LaneOperation::ShiftSigned => {
            let amount = b as i8;
            let distance = u32::from(amount.unsigned_abs());
            if amount >= 0 {
                a.checked_shl(distance).unwrap_or(0)
            } else if operation == LaneOperation::Shift {
                a.checked_shr(distance).unwrap_or(0)
            } else {
                (signed_a >> distance.min(63)).cast_unsigned()
            }
        }
        LaneOperation::CountOnes => u64::from(a.count_ones()),
        LaneOperation::CountLeadingZeros => u64::from(a.leading_zeros() - (64 - lanes.bits())),
        LaneOperation::ReverseBits => a.reverse_bits() >> (64 - lanes.bits()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_do_not_carry_into_each_other() {
        assert_eq!(
            each(LaneOperation::Add, Lanes::B8, 0x00ff_00ff, 0x0001_0001),
            0
        );
        assert_eq!(each(LaneOperation::Subtract, Lanes::H16, 0, 1), 0xffff);
        assert_eq!(each(LaneOperation::Equal, Lanes::S32, 7, 7), u64::MAX);
        assert_eq!(
            each(LaneOperation::GreaterSigned, Lanes::B8, 0x80_01, 0),
            0xff
        );
        assert_eq!(
            each(LaneOperation::GreaterUnsigned, Lanes::B8, 0x80_01, 0),
            0xffff
        );
        assert_eq!(
            each(LaneOperation::CountLeadingZeros, Lanes::H16, 1, 0),
            0x0010_0010_0010_000f
        );
    }

    #[test]
    fn lanes_are_shifted_by_signed_amounts() {
        assert_eq!(
            each(LaneOperation::Shift, Lanes::B8, 0x8181, 0x01ff),
            0x0240
        );
        assert_eq!(
            each(LaneOperation::ShiftSigned, Lanes::B8, 0x8181, 0xff80),
            0xc0ff
        );
        assert_eq!(each(LaneOperation::Shift, Lanes::D64, 1, 64), 0);
    }

    #[test]
    fn saturation_ends_at_what_a_lane_holds() {
        let add = LaneOperation::AddSaturatingSigned;
        assert_eq!(each(add, Lanes::B8, 0x7f80, 0x0180), 0x7f80);
        let subtract = LaneOperation::SubtractSaturatingUnsigned;
        assert_eq!(each(subtract, Lanes::B8, 0x0502, 0x0304), 0x0200);
    }

    #[test]
    fn bytes_are_found_by_their_numbers() {
        let (a, b) = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        assert_eq!(shuffle(a, b, 0x0123_89ab), 0x0001_0203_0809_0a0b);
        assert_eq!(look_up(a, b, 0x10ff_0f08), 0x0f08);
    }
}
