//! How likely packets are, in bits: what headers cost that are or are not known from packets around them.
//!
//! Nearly every byte may be a header, so that bytes which are read at the wrong place are packets as well. But a
//! trace has few kinds of packets, again and again; and some payloads no DWT writes.

use super::packet::Packet;

/// The bits of a byte of which nothing is known.
pub const BYTE: u32 = 8;
/// The bits of a byte that was there before.
pub const REPEATED: u32 = 5;
/// The bits of a header that a trace had before.
pub const KNOWN: u32 = 2;
/// The bits of a header that no trace unit is known to write, or not with this payload.
pub const UNLIKELY: u32 = 14;

/// Returns the cost in bits of a header not seen before; [`UNLIKELY`] means each time. `None` if it is no
/// packet.
pub const fn novelty(packet: &Packet) -> Option<u32> {
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
        // Exceptions: a number of 9 bits, and what happened, which is not 0.
        (1, 2) if value & 0xce00 == 0 && value >> 12 != 0 => 3,
        // PC samples: asleep, sampling not allowed, an address of T32.
        (2, 1) if value == 0 || value == 0xff => 5,
        (2, 4) if value & 1 == 0 || value == u32::MAX => 5,
        // Counters of the PMU that overflowed.
        (3, 1) if value != 0 => 8,
        // Data trace: the PC, or a match alone; the address; the value.
        (8 | 10 | 12 | 14, 4) if value & 1 == 0 => 6,
        (8 | 10 | 12 | 14, 1) if value == 1 => 6,
        (9 | 11 | 13 | 15, 2 | 4) => 6,
        (16..=23, _) => 6,
        _ => UNLIKELY,
    }
}
