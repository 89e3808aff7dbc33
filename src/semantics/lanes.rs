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

    const fn signed(self, lane: u64) -> i64 {
        let unused = 64 - self.bits();
        (lane << unused).cast_signed() >> unused
    }
}

/// The operation on each pair of lanes.
pub(super) fn each(operation: LaneOperation, lanes: Lanes, a: u64, b: u64) -> u64 {
    let mut result = 0;
    for low in (0..64).step_by(lanes.bits() as usize) {
        let (a, b) = ((a >> low) & lanes.mask(), (b >> low) & lanes.mask());
        result |= (one(operation, lanes, a, b) & lanes.mask()) << low;
    }
    result
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
        LaneOperation::CountOnes => u64::from(a.count_ones()),
    }
}
