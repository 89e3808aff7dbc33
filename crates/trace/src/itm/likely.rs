//! The likelihood of packets as a cost in bits, which depends on the headers of the packets around
//! them.
//!
//! Nearly every byte can be a header, so bytes that are read from a wrong position also parse as
//! packets. But a trace repeats a few kinds of packets, and no DWT writes certain payloads.

use super::packet::Packet;

/// The cost in bits of a byte about which nothing is known.
pub(super) const BYTE: u32 = 8;
/// The cost in bits of a byte that occurred before.
pub(super) const REPEATED: u32 = 5;
/// The cost in bits of a header that occurred before in the trace.
pub(super) const KNOWN: u32 = 2;
/// The cost in bits of a header that no trace unit is known to write, or not with this payload.
pub(super) const UNLIKELY: u32 = 14;

/// Returns the cost in bits of a header that has not occurred before; [`UNLIKELY`] applies each
/// time it occurs. `None` if it is not a packet.
pub(super) const fn novelty(packet: &Packet) -> Option<u32> {
    Some(match *packet {
        Packet::NotSync | Packet::Reserved | Packet::BadSequence => return None,
        Packet::Sync | Packet::Incomplete => KNOWN,
        // Text is full of these bytes.
        Packet::LocalTimestamp2 { .. } => 12,
        Packet::Overflow => 6,
        Packet::LocalTimestamp1 { .. } => 4,
        Packet::GlobalTimestamp1 { .. } | Packet::GlobalTimestamp2 { .. } => 6,
        Packet::StimulusPage(_) | Packet::Extension { .. } => UNLIKELY,
        Packet::Instrumentation { port: 0, bytes, .. } => match bytes {
            1 => 3,
            2 => 6,
            _ => 4,
        },
        Packet::Instrumentation { .. } => 6,
        Packet::Hardware {
            discriminator,
            bytes,
            value,
        } => hardware(discriminator, bytes, value),
    })
}

/// The packets that a DWT writes (ARM DDI 0403E, D4.3; ARM DDI 0553, "DWT packet formats").
const fn hardware(discriminator: u8, bytes: u8, value: u32) -> u32 {
    match (discriminator, bytes) {
        // Event counters: at least one, bits 7:6 are reserved.
        (0, 1) if value & 0xc0 == 0 && value != 0 => 5,
        // Exceptions: a number of 9 bits, and the event, which is not 0.
        (1, 2) if value & 0xce00 == 0 && value >> 12 != 0 => 3,
        // PC samples: asleep, sampling not allowed, a T32 address.
        (2, 1) if value == 0 || value == 0xff => 5,
        (2, 4) if value & 1 == 0 || value == u32::MAX => 5,
        // Counters of the PMU that overflowed.
        (3, 1) if value != 0 => 8,
        // Data trace: the PC, or only a match; the address; the value.
        (8 | 10 | 12 | 14, 4) if value & 1 == 0 => 6,
        (8 | 10 | 12 | 14, 1) if value == 1 => 6,
        (9 | 11 | 13 | 15, 2 | 4) => 6,
        (16..=23, _) => 6,
        _ => UNLIKELY,
    }
}
