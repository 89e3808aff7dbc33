//! Bytes → packets of STPv2.

use super::config::Config;
use super::packet::{Packet, PacketKind, Timestamp, TimestampType};
use crate::protocol::{PacketDecoder, RangeSink};

/// More bytes than the longest packet has, a power of two.
const LONGEST: usize = 32;
/// The number of bytes that holds the longest packet, with room to read 16 bytes from any position
/// in it.
const WINDOW: usize = LONGEST + 16;
/// The number of whole bytes ff in every ASYNC.
const ASYNC_ONES: usize = 10;
/// The same including the byte that contains its last nibble, zero.
const ASYNC_BYTES: usize = ASYNC_ONES + 1;
/// The minimum number of nibbles F in an ASYNC.
const ASYNC_NIBBLES: usize = 21;
/// The maximum number of nibbles F in an ASYNC, which bounds memory.
const MAX_ONES: usize = 1 << 16;

/// Splits the bytes of an STM into packets.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Decoder {
    /// Whether the decoder is synchronised; otherwise it searches for the next ASYNC.
    synced: bool,
    /// The second nibble of the last byte, if it starts the next packet. Without synchronisation,
    /// always the second nibble of the last byte.
    pending: Option<u8>,
    /// The number of nibbles F at the end of the last packet.
    ones: usize,
}

/// The kind of a packet, from its opcode.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Reserved,
    Null,
    Master8,
    Master16,
    Channel8,
    Channel16,
    MasterError,
    GlobalError,
    Data {
        marker: bool,
    },
    Flag,
    Version,
    User,
    Trigger,
    Frequency,
    CrossSync,
    Async,
    /// More nibbles F than an ASYNC needs, which may or may not end as one.
    LongAsync,
    /// The nibbles after the opcode are invalid.
    Bad,
}

/// The packet that an opcode starts.
#[derive(Clone, Copy)]
struct Opcode {
    shape: Shape,
    /// The number of nibbles of the opcode.
    opcode: u8,
    /// The number of nibbles of the payload.
    payload: u8,
    /// Whether a timestamp follows.
    timestamp: bool,
}

const fn op(opcode: u8, shape: Shape, payload: u8, timestamp: bool) -> Opcode {
    Opcode {
        shape,
        opcode,
        payload,
        timestamp,
    }
}

const PLAIN: Shape = Shape::Data { marker: false };
const MARKED: Shape = Shape::Data { marker: true };

/// Opcodes of one nibble, of two (F, n) and of three (F, 0, n).
const OPCODES: [Opcode; 48] = [
    op(1, Shape::Null, 0, false),
    op(1, Shape::Master8, 2, false),
    op(1, Shape::MasterError, 2, false),
    op(1, Shape::Channel8, 2, false),
    op(1, PLAIN, 2, false),
    op(1, PLAIN, 4, false),
    op(1, PLAIN, 8, false),
    op(1, PLAIN, 16, false),
    op(1, MARKED, 2, true),
    op(1, MARKED, 4, true),
    op(1, MARKED, 8, true),
    op(1, MARKED, 16, true),
    op(1, PLAIN, 1, false),
    op(1, MARKED, 1, true),
    op(1, Shape::Flag, 0, true),
    op(1, Shape::Reserved, 0, false), // continues
    op(2, Shape::Reserved, 0, false), // continues
    op(2, Shape::Master16, 4, false),
    op(2, Shape::GlobalError, 2, false),
    op(2, Shape::Channel16, 4, false),
    op(2, PLAIN, 2, true),
    op(2, PLAIN, 4, true),
    op(2, PLAIN, 8, true),
    op(2, PLAIN, 16, true),
    op(2, MARKED, 2, false),
    op(2, MARKED, 4, false),
    op(2, MARKED, 8, false),
    op(2, MARKED, 16, false),
    op(2, PLAIN, 1, true),
    op(2, MARKED, 1, false),
    op(2, Shape::Flag, 0, false),
    op(2, Shape::Async, 0, false),
    op(3, Shape::Version, 1, false),
    op(3, Shape::Null, 0, true),
    op(3, Shape::User, 1, false),
    op(3, Shape::User, 1, true),
    op(3, Shape::Reserved, 0, false), // TIME
    op(3, Shape::Reserved, 0, false), // TIME_TS
    op(3, Shape::Trigger, 2, false),
    op(3, Shape::Trigger, 2, true),
    op(3, Shape::Frequency, 8, false),
    op(3, Shape::Frequency, 8, true),
    op(3, Shape::CrossSync, 2, false),
    op(3, Shape::CrossSync, 2, true),
    op(3, Shape::Reserved, 0, false),
    op(3, Shape::Reserved, 0, false),
    op(3, Shape::Reserved, 0, false),
    op(3, Shape::Reserved, 0, false),
];

/// Looks up the opcode in the first three nibbles, the first one lowest.
#[inline]
fn opcode(head: u16) -> Opcode {
    let index = match (head & 0xf, head >> 4 & 0xf, head >> 8 & 0xf) {
        (0xf, 0, third) => 32 + third,
        (0xf, second, _) => 16 + second,
        (first, ..) => first,
    };
    OPCODES[usize::from(index)]
}

/// The opcode by the first two nibbles of a packet, the first one lowest, if [`Decoder::several`]
/// decodes that packet; otherwise one of [`Shape::Reserved`].
static FREQUENT: [Opcode; 256] = {
    let mut table = [op(1, Shape::Reserved, 0, false); 256];
    let mut head = 0;
    while head < 256 {
        let (first, second) = (head & 0xf, head >> 4);
        let opcode = match first {
            0xf => OPCODES[16 + second],
            _ => OPCODES[first],
        };
        if !matches!(opcode.shape, Shape::Async) {
            table[head] = opcode;
        }
        head += 1;
    }
    table
};

/// Reads nibbles at positions counted from the start of a packet.
struct Nibbles<'a> {
    bytes: &'a [u8; WINDOW],
    /// 1 if the packet's first nibble lies before `bytes`.
    before: usize,
}

impl Nibbles<'_> {
    /// Returns the number of `count` nibbles from `at` on; `at` is at least 1.
    #[inline(always)]
    fn number(&self, at: usize, count: u8) -> u64 {
        let place = at - self.before;
        // Without branches, so that a value that is not used is not computed.
        let Some(bytes) = self.bytes[place / 2 % LONGEST..].first_chunk() else {
            return 0;
        };
        let raw = (u128::from_le_bytes(*bytes) >> (4 * (place & 1))) as u64;
        const LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;
        let swapped = raw.swap_bytes();
        let ordered = (swapped & LOW) << 4 | (swapped >> 4) & LOW;
        ordered.unbounded_shr(64 - 4 * u32::from(count))
    }

    /// Returns the nibble at `at`, which is at least 1.
    #[inline(always)]
    fn nibble(&self, at: usize) -> u8 {
        let place = at - self.before;
        self.bytes[place / 2 % LONGEST] >> (4 * (place & 1)) & 0xf
    }

    /// Returns the payload and the timestamp of a packet that starts at `start`, and the position of
    /// its end; `None` if the length of the timestamp is reserved.
    ///
    /// Each opcode of data and flags has a branch of its own, with constant lengths: the processor
    /// predicts it and goes on with the next packet, which it would otherwise find only after two loads
    /// that wait for each other.
    #[inline(always)]
    fn content(
        &self,
        head: u8,
        opcode: Opcode,
        start: usize,
    ) -> Option<(u64, Option<Timestamp>, usize)> {
        match (head & 0xf, head >> 4) {
            (0x4, _) => self.parts(start, OPCODES[0x4]),
            (0x5, _) => self.parts(start, OPCODES[0x5]),
            (0x6, _) => self.parts(start, OPCODES[0x6]),
            (0x7, _) => self.parts(start, OPCODES[0x7]),
            (0x8, _) => self.parts(start, OPCODES[0x8]),
            (0x9, _) => self.parts(start, OPCODES[0x9]),
            (0xa, _) => self.parts(start, OPCODES[0xa]),
            (0xb, _) => self.parts(start, OPCODES[0xb]),
            (0xe, _) => self.parts(start, OPCODES[0xe]),
            (0xf, 0x4) => self.parts(start, OPCODES[0x14]),
            (0xf, 0x5) => self.parts(start, OPCODES[0x15]),
            (0xf, 0x6) => self.parts(start, OPCODES[0x16]),
            (0xf, 0x7) => self.parts(start, OPCODES[0x17]),
            (0xf, 0x8) => self.parts(start, OPCODES[0x18]),
            (0xf, 0x9) => self.parts(start, OPCODES[0x19]),
            (0xf, 0xa) => self.parts(start, OPCODES[0x1a]),
            (0xf, 0xb) => self.parts(start, OPCODES[0x1b]),
            (0xf, 0xe) => self.parts(start, OPCODES[0x1e]),
            _ => self.parts(start, opcode),
        }
    }

    /// Returns the parts of a packet with this opcode as [`content`](Self::content) does.
    #[inline(always)]
    fn parts(&self, start: usize, opcode: Opcode) -> Option<(u64, Option<Timestamp>, usize)> {
        let at = start + usize::from(opcode.opcode);
        let value = self.number(at, opcode.payload);
        let end = at + usize::from(opcode.payload);
        if !opcode.timestamp {
            return Some((value, None, end));
        }
        let (stamp, end) = self.timestamp(end)?;
        Some((value, Some(stamp), end))
    }

    /// Returns the timestamp at `at`, and the position of its end; `None` if its length is reserved.
    #[inline(always)]
    fn timestamp(&self, at: usize) -> Option<(Timestamp, usize)> {
        let nibbles = match self.nibble(at) {
            0xd => 14,
            0xe => 16,
            0xf => return None,
            count => count,
        };
        let value = self.number(at + 1, nibbles);
        Some((Timestamp { nibbles, value }, at + 1 + usize::from(nibbles)))
    }
}

/// The parts of a packet. The packet itself is assembled last and in place, because copying it would
/// cost more than decoding it.
struct Found {
    shape: Shape,
    /// Nibbles of the payload.
    payload: u8,
    value: u64,
    timestamp: Option<Timestamp>,
    /// Nibbles of the packet.
    nibbles: usize,
}

impl Found {
    fn bad(self, nibbles: usize) -> Self {
        Self {
            shape: Shape::Bad,
            nibbles,
            ..self
        }
    }

    /// Completes a packet that starts like an ASYNC.
    fn async_of(self, nibbles: &Nibbles<'_>) -> Self {
        let ones = nibbles.number(2, 16).leading_ones() / 4;
        let more = (nibbles.number(18, 4) << 48).leading_ones() / 4;
        let ones = 2 + if ones == 16 { 16 + more.min(3) } else { ones } as usize;
        if ones < ASYNC_NIBBLES {
            self.bad(ones + 1)
        } else {
            match nibbles.number(ASYNC_NIBBLES, 1) {
                0 => Self {
                    nibbles: ASYNC_NIBBLES + 1,
                    ..self
                },
                0xf => Self {
                    shape: Shape::LongAsync,
                    ..self
                },
                _ => self.bad(2),
            }
        }
    }

    /// Returns the packet's kind and content.
    #[inline(always)]
    fn kind(&self) -> PacketKind {
        let Self {
            value, timestamp, ..
        } = *self;
        match self.shape {
            Shape::Data { marker } => PacketKind::Data {
                bits: 4 * self.payload,
                value,
                marker,
                timestamp,
            },
            Shape::Null => PacketKind::Null(timestamp),
            Shape::Master8 => PacketKind::Master8(value as u8),
            Shape::Master16 => PacketKind::Master16(value as u16),
            Shape::Channel8 => PacketKind::Channel8(value as u8),
            Shape::Channel16 => PacketKind::Channel16(value as u16),
            Shape::MasterError => PacketKind::MasterError(value as u8),
            Shape::GlobalError => PacketKind::GlobalError(value as u8),
            Shape::Flag => PacketKind::Flag(timestamp),
            Shape::Version => match TimestampType::new(value as u8) {
                Some(timestamps) => PacketKind::Version(timestamps),
                None => PacketKind::BadSequence,
            },
            Shape::User => PacketKind::User {
                nibbles: self.payload,
                value,
                timestamp,
            },
            Shape::Trigger => PacketKind::Trigger {
                value: value as u8,
                timestamp,
            },
            Shape::Frequency => PacketKind::Frequency {
                hertz: value as u32,
                timestamp,
            },
            Shape::CrossSync => PacketKind::CrossSync {
                value: value as u8,
                timestamp,
            },
            Shape::Async => PacketKind::Async,
            Shape::Reserved => PacketKind::Reserved,
            Shape::Bad | Shape::LongAsync => PacketKind::BadSequence,
        }
    }
}

impl Decoder {
    /// Creates a decoder for the start of a trace, which may be anywhere in a packet.
    pub const fn new(_config: &Config) -> Self {
        Self::unsynchronised()
    }

    const fn unsynchronised() -> Self {
        Self {
            synced: false,
            pending: None,
            ones: 0,
        }
    }

    /// The first three nibbles, the first lowest.
    #[inline]
    fn head(&self, bytes: &[u8; WINDOW]) -> u16 {
        let low = u16::from_le_bytes([bytes[0], bytes[1]]);
        match self.pending {
            Some(nibble) => low << 4 | u16::from(nibble),
            None => low,
        }
    }

    /// Parses the packet at the start of `bytes`, which may be padded with zeros after the end of the
    /// trace.
    #[inline]
    fn parse(&self, bytes: &[u8; WINDOW]) -> Found {
        let before = usize::from(self.pending.is_some());
        let head = self.head(bytes);
        let opcode = opcode(head);
        let nibbles = Nibbles { bytes, before };
        let mut at = usize::from(opcode.opcode);
        let mut payload = opcode.payload;
        let mut value = nibbles.number(at, payload);
        at += usize::from(payload);
        if let Shape::User = opcode.shape {
            payload = value as u8 + 1;
            value = nibbles.number(at, payload);
            at += usize::from(payload);
        }
        let mut found = Found {
            shape: opcode.shape,
            payload,
            value,
            timestamp: None,
            nibbles: at,
        };
        if opcode.timestamp {
            let Some((stamp, after)) = nibbles.timestamp(at) else {
                return found.bad(at + 1);
            };
            found.timestamp = Some(stamp);
            found.nibbles = after;
        }
        match opcode.shape {
            Shape::Async => found.async_of(&nibbles),
            Shape::Version if TimestampType::new(value as u8).is_none() => found.bad(at),
            _ => found,
        }
    }

    /// Returns a nibble, counted from the start of the packet.
    fn nibble(&self, bytes: &[u8], at: usize) -> Option<u8> {
        let place = match (self.pending, at) {
            (Some(nibble), 0) => return Some(nibble),
            (Some(_), at) => at - 1,
            (None, at) => at,
        };
        let byte = *bytes.get(place / 2)?;
        Some(byte >> (4 * (place % 2)) & 0xf)
    }

    /// Returns the number of remaining nibbles of an ASYNC whose first ones were decoded as part of the
    /// previous packet. No valid packet has that many nibbles F, so the previous one was corrupt.
    #[cold]
    fn rest_of_async(&self, bytes: &[u8]) -> Option<usize> {
        let ones = (0..ASYNC_NIBBLES)
            .take_while(|&at| self.nibble(bytes, at) == Some(0xf))
            .count();
        let cut = ones > 0 && ones < ASYNC_NIBBLES && self.ones + ones >= ASYNC_NIBBLES;
        (cut && self.nibble(bytes, ones) == Some(0)).then_some(ones + 1)
    }

    /// Returns the kind of a packet with more nibbles F than an ASYNC needs, and its number of nibbles.
    /// `None` if it does not end in `bytes`.
    #[cold]
    fn long_async(&self, bytes: &[u8]) -> Option<(Shape, usize)> {
        let ones = (0..MAX_ONES)
            .take_while(|&at| self.nibble(bytes, at) == Some(0xf))
            .count();
        if ones < MAX_ONES && self.nibble(bytes, ones)? == 0 {
            Some((Shape::Async, ones + 1))
        } else {
            Some((Shape::Bad, 2))
        }
    }

    /// Searches for the next ASYNC.
    fn search(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let mut from = 0;
        loop {
            let run = next_run(bytes, from);
            let Some(&after) = bytes.get(run.end) else {
                // The last bytes may start an ASYNC.
                let skipped = run.end - run.len().min(ASYNC_ONES);
                return (skipped > 0).then(|| (self.skip(bytes, skipped), skipped));
            };
            let preceding = match run.start {
                0 => self.pending,
                start => bytes.get(start - 1).map(|byte| byte >> 4),
            };
            let half = after & 0xf == 0 && (run.len() > ASYNC_ONES || preceding == Some(0xf));
            if run.len() >= ASYNC_ONES && (after == 0x0f || half) {
                let start = run.end - ASYNC_ONES;
                if start > 0 {
                    return Some((self.skip(bytes, start), start));
                }
                self.synced = true;
                self.pending = half.then_some(after >> 4);
                let packet = Packet {
                    shared: half.then_some(0xf0),
                    kind: PacketKind::Async,
                };
                return Some((packet, ASYNC_BYTES));
            }
            from = run.end + 1;
        }
    }

    fn skip(&mut self, bytes: &[u8], count: usize) -> Packet {
        self.pending = bytes[..count].last().map(|byte| byte >> 4);
        Packet {
            shared: None,
            kind: PacketKind::NotSync,
        }
    }
}

/// Returns the number of nibbles F before nibble `end` of `bytes`, at the end of a packet of
/// `nibbles`.
fn ones_before(bytes: &[u8], end: usize, nibbles: usize) -> usize {
    let is_one = |&at: &usize| bytes[at / 2] >> (4 * (at % 2)) & 0xf == 0xf;
    (end - (nibbles - 1)..end).rev().take_while(is_one).count()
}

/// Returns the first run of bytes ff from `from` on that is long enough for an ASYNC or reaches the end
/// of `bytes`; an empty one at the end if there is none.
fn next_run(bytes: &[u8], from: usize) -> std::ops::Range<usize> {
    let mut start = from;
    loop {
        let end = (start + ASYNC_ONES).min(bytes.len());
        let window = bytes.get(start..end).unwrap_or_default();
        if let Some(last) = window.iter().rposition(|&byte| byte != 0xff) {
            start += last + 1;
            continue;
        }
        let start = start.min(bytes.len());
        let more = bytes[end..].iter().position(|&byte| byte != 0xff);
        return start..more.map_or(bytes.len(), |more| end + more);
    }
}

impl PacketDecoder for Decoder {
    type Packet = Packet;

    #[inline]
    fn next(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        if !self.synced {
            return self.search(bytes);
        }
        let mut padded = [0; WINDOW];
        let window = match bytes.first_chunk() {
            Some(window) => window,
            None => {
                padded[..bytes.len()].copy_from_slice(bytes);
                &padded
            }
        };
        let mut found = self.parse(window);
        if self.ones > 0
            && let Some(rest) = self.rest_of_async(bytes)
        {
            (found.shape, found.nibbles) = (Shape::Async, rest);
        }
        if found.shape == Shape::LongAsync {
            (found.shape, found.nibbles) = self.long_async(bytes)?;
        }
        let mut nibbles = found.nibbles;
        let shared = self.pending;
        let before = usize::from(shared.is_some());
        if (nibbles - before).div_ceil(2) > bytes.len() {
            return None;
        }
        let bad = matches!(found.shape, Shape::Reserved | Shape::Bad);
        self.ones = 0;
        if self.nibble(bytes, nibbles - 1) == Some(0xf) {
            while self.nibble(bytes, nibbles - 1 - self.ones) == Some(0xf)
                && self.ones + 1 < nibbles
            {
                self.ones += 1;
            }
            if bad {
                // They may start an ASYNC.
                nibbles -= self.ones;
            }
        }
        let taken = nibbles - before;
        let length = taken.div_ceil(2);
        if bad {
            self.synced = false;
            if let Some(byte) = bytes[..length].last() {
                self.pending = Some(byte >> 4);
            }
        } else {
            self.pending = (taken % 2 == 1).then(|| bytes[length - 1] >> 4);
        }
        let packet = Packet {
            shared: shared.map(|nibble| nibble << 4),
            kind: found.kind(),
        };
        Some((packet, length))
    }

    /// Decodes packets with one or two nibbles of opcode. Positions are counted in nibbles, which
    /// avoids a branch on the half of a byte in which a packet starts.
    #[inline(always)]
    fn several(&mut self, bytes: &[u8], at: usize, sink: &mut impl RangeSink<Packet>) -> usize {
        // The first nibble of the next packet.
        let Some(mut next) = (2 * at).checked_sub(usize::from(self.pending.is_some())) else {
            return at;
        };
        if !self.synced {
            return at;
        }
        // The nibbles of the last packet.
        let mut nibbles = 0;
        while let Some(window) = bytes.get(next / 2..).and_then(|rest| rest.first_chunk()) {
            let odd = next % 2;
            let head = (u16::from_le_bytes([window[0], window[1]]) >> (4 * odd)) as u8;
            let opcode = FREQUENT[usize::from(head)];
            // Other packets cannot be the rest of an ASYNC: they have no nibble F before a 0.
            if opcode.shape == Shape::Reserved {
                break;
            }
            let source = Nibbles {
                bytes: window,
                before: 0,
            };
            let Some((value, timestamp, end)) = source.content(head, opcode, odd) else {
                break;
            };
            let shared = (odd == 1).then_some(window[0] & 0xf0);
            let first = next.div_ceil(2);
            nibbles = end - odd;
            next += nibbles;
            let range = first..next.div_ceil(2);
            // Data are passed on with their kind known, so that an inlined sink takes the fields that
            // it needs.
            if let Shape::Data { marker } = opcode.shape {
                let kind = PacketKind::Data {
                    bits: 4 * opcode.payload,
                    value,
                    marker,
                    timestamp,
                };
                sink.packet(&Packet { shared, kind }, range);
            } else {
                let found = Found {
                    shape: opcode.shape,
                    payload: opcode.payload,
                    value,
                    timestamp,
                    nibbles,
                };
                let kind = found.kind();
                sink.packet(&Packet { shared, kind }, range);
            }
        }
        if nibbles > 0 {
            let after = next.div_ceil(2);
            let known = &bytes[..after];
            self.pending = (next % 2 == 1).then(|| known[after - 1] >> 4);
            self.ones = ones_before(known, next, nibbles);
        }
        next.div_ceil(2)
    }

    fn finish(&mut self, _bytes: &[u8]) -> Packet {
        let shared = self.pending.filter(|_| self.synced);
        let kind = if self.synced {
            PacketKind::Incomplete
        } else {
            PacketKind::NotSync
        };
        self.lost();
        Packet {
            shared: shared.map(|nibble| nibble << 4),
            kind,
        }
    }

    fn lost(&mut self) {
        *self = Self::unsynchronised();
    }

    fn is_synchronised(&self) -> bool {
        self.synced
    }
}
