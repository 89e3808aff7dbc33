//! What the architecture says about the addresses of an M-profile core.

use std::ops::Range;

/// Where devices may be: nothing that is read there is known (DDI 0403, B3.1).
const DEVICES: [Range<u64>; 2] = [0x4000_0000..0x6000_0000, 0xa000_0000..0x1_0000_0000];
/// Where each word may be a bit of SRAM (bit-banding, in Cortex-M3 and Cortex-M4).
const BITS: Range<u64> = 0x2200_0000..0x2400_0000;

/// The number of bytes from an address on that may be memory.
pub(super) fn length_at(address: u64) -> u64 {
    let next = DEVICES.iter().find(|devices| address < devices.end);
    next.map_or(0, |devices| devices.start.saturating_sub(address))
}

/// The end of the devices at an address, if devices may be there.
pub(super) fn devices_at(address: u64) -> Option<u64> {
    let found = DEVICES.iter().find(|devices| devices.contains(&address));
    found.map(|devices| devices.end)
}

/// Whether a store to an address may change memory at another one.
pub(super) fn is_alias(address: u64) -> bool {
    BITS.contains(&address)
}
