//! Decodes single packets other than synchronization packets.

use super::packet::Packet;
use crate::element::TimestampRelation;

/// The number in the bytes after a header: 7 bits in each, the lowest first; bit 7 is set if another
/// byte follows.
enum Continued {
    /// The number, and its length in bytes.
    Number(u64, usize),
    /// It continues beyond its maximum length.
    Endless,
    /// The bytes end.
    Short,
}

#[inline]
fn continued(bytes: &[u8], most: usize) -> Continued {
    let mut value = 0;
    for (index, &byte) in bytes.iter().skip(1).take(most).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Continued::Number(value, index + 1);
        }
    }
    if bytes.len() > most {
        Continued::Endless
    } else {
        Continued::Short
    }
}

/// Decodes the packet at the start of `bytes`, other than a synchronization packet; `None` if they
/// end inside it.
#[inline]
pub(super) fn parse(bytes: &[u8]) -> Option<(Packet, usize)> {
    let header = *bytes.first()?;
    if header & 3 != 0 {
        return source(header, bytes);
    }
    match header {
        0x70 => Some((Packet::Overflow, 1)),
        0x10 | 0x20 | 0x30 | 0x40 | 0x50 | 0x60 => {
            Some((Packet::LocalTimestamp2 { delta: header >> 4 }, 1))
        }
        0xc0 | 0xd0 | 0xe0 | 0xf0 => number(bytes, 4, |value, _| Packet::LocalTimestamp1 {
            relation: match header >> 4 & 3 {
                0 => TimestampRelation::Sync,
                1 => TimestampRelation::TimestampDelayed,
                2 => TimestampRelation::DataDelayed,
                _ => TimestampRelation::BothDelayed,
            },
            delta: value as u32,
        }),
        0x94 => number(bytes, 4, |value, count| {
            // The fourth byte has flags above five bits of the time.
            let flags = if count == 4 { value >> 26 } else { 0 };
            Packet::GlobalTimestamp1 {
                bits: (7 * count as u8).min(26),
                value: (value & 0x03ff_ffff) as u32,
                wrapped: flags & 2 != 0,
                clock_changed: flags & 1 != 0,
            }
        }),
        0xb4 => number(bytes, 6, |value, _| Packet::GlobalTimestamp2 { value }),
        _ if header & 0x0b == 0x08 => extension(header, bytes),
        _ => Some((Packet::Reserved, 1)),
    }
}

/// Decodes a packet of a header and a number of 1 to `most` bytes.
#[inline]
fn number(
    bytes: &[u8],
    most: usize,
    packet: impl FnOnce(u64, usize) -> Packet,
) -> Option<(Packet, usize)> {
    match continued(bytes, most) {
        Continued::Number(value, count) => Some((packet(value, count), 1 + count)),
        Continued::Endless => Some((Packet::BadSequence, 1 + most)),
        Continued::Short => None,
    }
}

/// Decodes an instrumentation or hardware source packet.
#[inline]
fn source(header: u8, bytes: &[u8]) -> Option<(Packet, usize)> {
    let (size, value) = match header & 3 {
        1 => (1, u32::from(*bytes.get(1)?)),
        2 => {
            let payload = bytes.get(1..)?.first_chunk()?;
            (2, u32::from(u16::from_le_bytes(*payload)))
        }
        _ => (4, u32::from_le_bytes(*bytes.get(1..)?.first_chunk()?)),
    };
    let id = header >> 3;
    let packet = if header & 4 == 0 {
        Packet::Instrumentation {
            port: id,
            bytes: size,
            value,
        }
    } else {
        Packet::Hardware {
            discriminator: id,
            bytes: size,
            value,
        }
    };
    Some((packet, 1 + usize::from(size)))
}

/// Decodes an extension packet: bits 2:0 of the number are in the header, seven bits in each of up to
/// three bytes, and eight bits in a fourth one.
fn extension(header: u8, bytes: &[u8]) -> Option<(Packet, usize)> {
    let hardware = header & 4 != 0;
    let mut value = u32::from(header >> 4 & 7);
    let mut bits = 3;
    let mut length = 1;
    let mut more = header & 0x80 != 0;
    while more {
        let byte = *bytes.get(length)?;
        length += 1;
        if length == 5 {
            value |= u32::from(byte) << bits;
            bits += 8;
            more = false;
        } else {
            value |= u32::from(byte & 0x7f) << bits;
            bits += 7;
            more = byte & 0x80 != 0;
        }
    }
    let packet = if length == 1 && !hardware {
        Packet::StimulusPage(value as u8)
    } else {
        Packet::Extension {
            hardware,
            bits,
            value,
        }
    };
    Some((packet, length))
}
