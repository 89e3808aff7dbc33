//! Decides whether bytes are trace of an ITM when no synchronization packet proves it.

use super::likely::{UNLIKELY, novelty};
use super::packet::Packet;

/// The cost in bits of a run of bytes that are not packets.
const DAMAGE: f64 = 16.0;
/// The number of bits that packets must save for bytes to count as trace: in total, and per byte.
const LEAST: f64 = 4.0;
const EACH: f64 = 0.15;
/// The same for bytes that may be text.
const LEAST_OF_TEXT: f64 = 32.0;
const EACH_OF_TEXT: f64 = 0.75;

/// How often each byte occurred, which determines the cost of the next one in bits.
#[derive(Clone, Debug)]
struct Counts {
    all: u64,
    kinds: u64,
    of: [u32; 256],
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            all: 0,
            kinds: 0,
            of: [0; 256],
        }
    }
}

impl Counts {
    /// Returns the cost of a byte in bits, and counts it; `novelty` is the cost of a byte not seen before.
    fn bits(&mut self, byte: u8, novelty: f64) -> f64 {
        let count = &mut self.of[usize::from(byte)];
        let total = (self.all + self.kinds) as f64;
        let bits = match (*count, self.all) {
            (0, 0) => novelty,
            (0, _) => novelty + (total / self.kinds as f64).log2(),
            (count, _) => (total / f64::from(count)).log2(),
        };
        self.kinds += u64::from(*count == 0);
        *count = count.saturating_add(1);
        self.all += 1;
        bits
    }
}

/// Compares two encodings of the bytes: as packets, whose headers repeat, and as independent bytes.
/// Only a trace is shorter as packets.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    bytes: Counts,
    headers: Counts,
    payload: Counts,
    /// The number of bits that the encoding as packets saves.
    saved: f64,
    is_damaged: bool,
    /// Bytes that do not occur in text.
    controls: u64,
    /// Bytes outside packets.
    skipped: u64,
}

impl Evidence {
    /// Adds the next packet.
    pub fn packet(&mut self, packet: &Packet, bytes: &[u8]) {
        for &byte in bytes {
            self.saved += self.bytes.bits(byte, 8.0);
            self.controls += u64::from(is_control(byte));
        }
        let header = match packet {
            Packet::Sync | Packet::Incomplete => None,
            packet => Some(novelty(packet)),
        };
        let (first, payload) = match (header, bytes) {
            (Some(Some(novelty)), [first, payload @ ..]) => {
                self.is_damaged = false;
                let bits = self.headers.bits(*first, f64::from(novelty));
                let least = if novelty < UNLIKELY { 0 } else { UNLIKELY };
                (bits.max(f64::from(least)), payload)
            }
            (Some(_), bytes) => {
                self.skipped += bytes.len() as u64;
                let is_new = !std::mem::replace(&mut self.is_damaged, true);
                (if is_new { DAMAGE } else { 0.0 }, bytes)
            }
            // No header: all bytes count as payload.
            (None, bytes) => (0.0, bytes),
        };
        self.saved -= first;
        for &byte in payload {
            self.saved -= self.payload.bits(byte, 8.0);
        }
    }

    /// The number of bits that packets save, if the bytes are almost certainly trace.
    pub fn sound(&self) -> Option<u64> {
        let all = self.bytes.all as f64;
        let required = match self.controls {
            0 => LEAST_OF_TEXT.max(EACH_OF_TEXT * all),
            _ => LEAST.max(EACH * all),
        };
        // Headers seldom repeat in bytes that are not trace.
        let repeats = 2 * self.headers.all >= 3 * self.headers.kinds;
        let is_sound = repeats && self.saved >= required && 2 * self.skipped <= self.bytes.all;
        is_sound.then_some(self.saved as u64)
    }

    /// Whether the bytes may be trace, provided that they are declared as trace.
    pub fn is_possible(&self) -> bool {
        self.saved > 0.0 && 2 * self.skipped <= self.bytes.all
    }
}

/// Whether a byte never occurs in text, whatever the encoding of the text.
const fn is_control(byte: u8) -> bool {
    matches!(byte, 0..=6 | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f)
}
