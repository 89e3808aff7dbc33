//! Where packets begin, if no synchronization packet says so: at the start of a trace, and after damage.
//!
//! Many trace ports have no synchronization packets (`ITM_TCR.SYNCENA` is 0). Of all ways to divide the next bytes
//! into packets and bytes to be skipped, the one is taken that costs the fewest bits ([`likely`]), if it is
//! worth more than to skip them all.
//!
//! [`likely`]: super::likely

use super::likely::{BYTE, KNOWN, REPEATED, UNLIKELY, novelty};
use super::parse::parse;

/// The number of bytes that are compared.
const WINDOW: usize = 128;
/// The bytes that are looked at: a packet may begin with the last one of the window, and zeros there are those of
/// a synchronization packet if there are more than any other one has.
const LOOKED_AT: usize = WINDOW + 8;
/// The minimum number of zero bytes before the last byte of a synchronization packet.
pub const SYNC_ZEROS: usize = 5;
/// The last byte of a synchronization packet.
pub const SYNC_END: u8 = 0x80;

/// The bits of a place between packets, and of another one.
const LEAVE: u32 = 4;
const ENTER: u32 = 12;
/// The bits of packets that run into a synchronization packet.
const BROKEN: u32 = 20;

/// How the bytes before are known to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// There are none: the first one is likely to start a packet.
    Nothing,
    /// There was damage, or something unlike trace.
    Damage,
}

impl Before {
    /// The bits by which packets must be more likely than other bytes.
    const fn required(self) -> u32 {
        match self {
            Self::Nothing => 3,
            Self::Damage => ENTER,
        }
    }

    /// The bits of packets that do not begin with the first byte.
    const fn cut(self) -> u32 {
        match self {
            Self::Nothing => 2,
            Self::Damage => 0,
        }
    }
}

/// What is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Packets begin after this number of bytes.
    Packets(usize),
    /// This number of bytes, at least one, is to be skipped.
    Nothing(usize),
    /// More bytes are needed.
    More,
}

/// A set of bytes.
#[derive(Clone, Copy, Default)]
struct Bytes([u64; 4]);

impl Bytes {
    /// Adds a byte; returns whether it was there.
    const fn add(&mut self, byte: u8) -> bool {
        let (word, bit) = ((byte >> 6) as usize, 1 << (byte & 63));
        let had = self.0[word] & bit != 0;
        self.0[word] |= bit;
        had
    }

    /// Adds a byte that is no header; returns its bits.
    const fn other(&mut self, byte: u8) -> u32 {
        if self.add(byte) { REPEATED } else { BYTE }
    }
}

/// The costs from a place to the end of the window, at best.
#[derive(Clone, Copy, Default)]
struct Cost {
    /// In bits.
    bits: u32,
    /// The number of packets, and of different headers among them.
    packets: u32,
    kinds: u32,
    headers: Bytes,
    /// Payload, and bytes that are skipped.
    others: Bytes,
}

impl Cost {
    const fn plus(mut self, bits: u32) -> Self {
        self.bits += bits;
        self
    }

    const fn or(self, other: Self) -> Self {
        if other.bits < self.bits { other } else { self }
    }

    /// With a byte before that is skipped.
    const fn skipping(mut self, byte: u8) -> Self {
        self.bits += self.others.other(byte);
        self
    }

    /// With a packet before.
    fn after(mut self, header: u8, novelty: u32, payload: &[u8]) -> Self {
        let is_known = self.headers.add(header);
        self.bits += match is_known && novelty < UNLIKELY {
            true => KNOWN,
            // The more packets without another kind, the less likely is one.
            false => novelty + (self.packets / self.kinds.max(1)).clamp(1, 16).ilog2(),
        };
        self.packets += 1;
        self.kinds += u32::from(!is_known);
        for &byte in payload {
            self.bits += self.others.other(byte);
        }
        self
    }
}

/// The place of a synchronization packet in the window, and the number of its zeros that are seen.
fn synchronization(bytes: &[u8], is_all: bool) -> Option<(usize, usize)> {
    let mut zeros = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte == 0 {
            zeros += 1;
            continue;
        }
        let begin = at - zeros;
        if begin >= WINDOW {
            return None;
        }
        if byte == SYNC_END && zeros >= SYNC_ZEROS {
            return Some((begin, zeros));
        }
        zeros = 0;
    }
    // Where it ends is not seen.
    let begin = bytes.len() - zeros;
    let is_one = is_all && begin < WINDOW && zeros >= LOOKED_AT - WINDOW;
    is_one.then_some((begin, zeros))
}

/// Finds out where packets begin. `bytes` do not start with zero; they are followed by others unless they are the
/// `last` ones.
pub fn search(bytes: &[u8], before: Before, last: bool) -> Found {
    let is_all = bytes.len() >= LOOKED_AT;
    let bytes = &bytes[..bytes.len().min(LOOKED_AT)];
    let sync = synchronization(bytes, is_all);
    if sync.is_none() && !is_all && !last {
        return Found::More;
    }
    let end = sync.map_or(bytes.len().min(WINDOW), |(begin, _)| begin);
    let furthest = if end < WINDOW { end } else { WINDOW / 2 };
    let nothing = Found::Nothing(furthest.max(1));
    if before == Before::Damage && sync.is_some() {
        // What is certain is near.
        return nothing;
    }
    let (cost, start, all) = cheapest(bytes, end, sync, before.cut());
    match cost + before.required() <= all && start < furthest {
        true => Found::Packets(start),
        false => nothing,
    }
}

/// The cost of the bytes up to `end` if packets begin at the cheapest place; that place; and the cost of all bytes
/// if none of them is a packet. `cut` is that of a place other than the first one.
fn cheapest(bytes: &[u8], end: usize, sync: Option<(usize, usize)>, cut: u32) -> (u32, usize, u32) {
    let mut packets = [Cost::default(); LOOKED_AT + 8];
    if let Some((begin, zeros)) = sync {
        // A payload may end with zeros.
        for (at, place) in packets.iter_mut().enumerate().skip(begin) {
            let left = (begin + zeros).saturating_sub(at);
            place.bits = if left < SYNC_ZEROS { BROKEN } else { 0 };
        }
    }
    let (mut skipped, mut none) = (Cost::default(), Cost::default());
    let (mut first, mut start) = (Cost::default(), end);
    for at in (0..end).rev() {
        none = none.skipping(bytes[at]);
        // Packets after this byte, or later.
        skipped = skipped.or(packets[at + 1].plus(ENTER)).skipping(bytes[at]);
        packets[at] = skipped.plus(LEAVE);
        let (novelty, length) = match parse(&bytes[at..]) {
            Some((packet, length)) => (novelty(&packet), length),
            None => (Some(BYTE), bytes.len() - at),
        };
        if let Some(novelty) = novelty {
            let payload = &bytes[at + 1..(at + length).min(end)];
            let packet = packets[at + length].after(bytes[at], novelty, payload);
            packets[at] = packet.or(packets[at]);
        }
        first = first.skipping(bytes[at]);
        let here = packets[at].plus(if at > 0 { cut } else { 0 });
        if here.bits <= first.bits {
            (first, start) = (here, at);
        }
    }
    (first.bits, start, none.bits)
}
