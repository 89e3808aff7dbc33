//! Finds where packets begin without a synchronization packet: at the start of a trace, and after
//! damage.
//!
//! Many trace ports have no synchronization packets (`ITM_TCR.SYNCENA` is 0). Of all ways to divide
//! the next bytes into packets and skipped bytes, the one with the lowest cost in bits ([`likely`])
//! is chosen, if it is sufficiently cheaper than skipping them all.
//!
//! [`likely`]: super::likely

use super::likely::{BYTE, KNOWN, REPEATED, UNLIKELY, novelty};
use super::parse::parse;

/// The number of bytes over which costs are compared.
const WINDOW: usize = 128;
/// The number of bytes that are examined: a packet may begin with the last byte of the window, and
/// a run of zeros there belongs to a synchronization packet if it is longer than in any other
/// packet.
const LOOKED_AT: usize = WINDOW + 8;
/// The minimum number of zero bytes before the last byte of a synchronization packet.
pub(super) const SYNC_ZEROS: usize = 5;
/// The last byte of a synchronization packet.
pub(super) const SYNC_END: u8 = 0x80;

/// The cost of skipped bytes after a packet, and of a packet after skipped bytes.
const LEAVE: u32 = 4;
const ENTER: u32 = 12;
/// The cost of packets that run into a synchronization packet.
const BROKEN: u32 = 20;

/// What is known about the bytes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// There are none: the first byte is likely to start a packet.
    Nothing,
    /// They were damaged, or unlike trace.
    Damage,
}

impl Before {
    /// The number of bits by which packets must be cheaper than skipped bytes.
    const fn required(self) -> u32 {
        match self {
            Self::Nothing => 3,
            Self::Damage => ENTER,
        }
    }

    /// The additional cost of packets that do not begin with the first byte.
    const fn cut(self) -> u32 {
        match self {
            Self::Nothing => 2,
            Self::Damage => 0,
        }
    }
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
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
    /// Adds a byte; returns whether it was already present.
    const fn add(&mut self, byte: u8) -> bool {
        let (word, bit) = ((byte >> 6) as usize, 1 << (byte & 63));
        let had = self.0[word] & bit != 0;
        self.0[word] |= bit;
        had
    }

    /// Adds a byte that is not a header; returns its cost.
    const fn other(&mut self, byte: u8) -> u32 {
        if self.add(byte) { REPEATED } else { BYTE }
    }
}

/// The lowest cost from a position to the end of the window.
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

    /// Returns the cost with a skipped byte in front.
    const fn skipping(mut self, byte: u8) -> Self {
        self.bits += self.others.other(byte);
        self
    }

    /// Returns the cost with a packet in front.
    fn after(mut self, header: u8, novelty: u32, payload: &[u8]) -> Self {
        let is_known = self.headers.add(header);
        self.bits += match is_known && novelty < UNLIKELY {
            true => KNOWN,
            // The more packets per kind of header, the less likely is a new kind.
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

/// The position of a synchronization packet in the window, and the number of its zeros in view.
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
    // Its end is not in view.
    let begin = bytes.len() - zeros;
    let is_one = is_all && begin < WINDOW && zeros >= LOOKED_AT - WINDOW;
    is_one.then_some((begin, zeros))
}

/// Finds out where packets begin. `bytes` do not start with zero; `last`: no more bytes follow.
pub(super) fn search(bytes: &[u8], before: Before, last: bool) -> Found {
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
        // The synchronization packet is near, and certain.
        return nothing;
    }
    let (cost, start, all) = cheapest(bytes, end, sync, before.cut());
    match cost + before.required() <= all && start < furthest {
        true => Found::Packets(start),
        false => nothing,
    }
}

/// The cost of the bytes up to `end` if packets begin at the cheapest position; that position; and
/// the cost of all bytes if none of them is a packet. `cut` is the additional cost of a position
/// other than the first.
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
        // Packets start after this byte, or later.
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
