//! T32, with the instructions of the M profile.

mod block;
mod narrow;
mod wide;
mod wide_data;
mod wide_memory;

pub use crate::encoding::t32::is_wide;
pub use block::ItState;

use super::Semantics;
use super::aarch32::core::Arm;

/// Returns what the instruction at `address` does, given its first halfword, and the second one of
/// a 32-bit instruction ([`is_wide`]). `block` is the state of the IT block that it is in, or
/// [`ItState::OUTSIDE`]. After an encoding that is not modelled, everything is unknown.
#[must_use]
pub fn decode(first: u16, second: u16, address: u64, block: ItState) -> Semantics {
    let wide = is_wide(first);
    let mut arm = Arm::new(address, if wide { 4 } else { 2 }, 4, block.condition());
    let decoded = if wide {
        wide::decode(&mut arm, u32::from(first) << 16 | u32::from(second))
    } else {
        narrow::decode(&mut arm, first, !block.is_inside())
    };
    if decoded.is_none() {
        arm.b.everything_unknown();
    }
    arm.finish()
}
