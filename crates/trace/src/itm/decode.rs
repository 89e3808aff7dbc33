//! Bytes → packets of ITM and DWT.

use super::config::Config;
use super::packet::Packet;
use super::parse::parse;
use super::search::{Before, Found, SYNC_END, SYNC_ZEROS, search};
use crate::protocol::PacketDecoder;

/// The maximum number of zeros in one packet, which bounds memory. A synchronization packet may
/// have any number of them: a longer one is listed as several packets.
const MAX_ZEROS: usize = 1 << 16;

/// Whether the decoder is synchronised with the start of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum Sync {
    /// At the start of a trace, which may be anywhere in a packet.
    #[default]
    Start,
    /// Looking for a synchronization packet, or for other packets that are likely.
    No,
    /// At the start of a packet.
    Yes,
    /// After zeros of a synchronization packet that continues.
    Zeros,
}

/// Splits the bytes of an ITM into packets.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Decoder {
    sync: Sync,
}

impl Decoder {
    /// Creates a decoder for the start of a trace, which may be anywhere in a packet.
    pub const fn new(_config: &Config) -> Self {
        Self { sync: Sync::Start }
    }

    /// Looks for the next synchronization packet, or for other packets that are likely. `last`: no
    /// more bytes follow.
    fn search(&mut self, bytes: &[u8], last: bool) -> Option<(Packet, usize)> {
        if bytes.first() == Some(&0) {
            return self.search_zeros(bytes, last);
        }
        let before = match self.sync {
            Sync::Start => Before::Nothing,
            _ => Before::Damage,
        };
        match search(bytes, before, last) {
            Found::More => None,
            Found::Nothing(skipped) => {
                self.sync = Sync::No;
                Some((Packet::NotSync, skipped))
            }
            Found::Packets(skipped) => {
                self.sync = Sync::Yes;
                match skipped {
                    0 => self.synchronised(bytes),
                    _ => Some((Packet::NotSync, skipped)),
                }
            }
        }
    }

    /// Zeros, which may be those of a synchronization packet.
    fn search_zeros(&mut self, bytes: &[u8], last: bool) -> Option<(Packet, usize)> {
        let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
        let Some(&end) = bytes.get(zeros) else {
            let skipped = zeros - if last { 0 } else { zeros.min(MAX_ZEROS) };
            return (skipped > 0).then_some((Packet::NotSync, skipped));
        };
        if end != SYNC_END || zeros < SYNC_ZEROS {
            return Some((Packet::NotSync, zeros));
        }
        if zeros > MAX_ZEROS {
            return Some((Packet::NotSync, zeros - MAX_ZEROS));
        }
        self.sync = Sync::Yes;
        Some((Packet::Sync, zeros + 1))
    }

    /// The packet at the start of `bytes`, where one is known to begin.
    #[inline]
    fn synchronised(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        if self.sync == Sync::Zeros || bytes.first() == Some(&0) {
            return self.zeros(bytes);
        }
        let found = parse(bytes);
        if let Some((Packet::Reserved | Packet::BadSequence, _)) = found {
            self.sync = Sync::No;
        }
        found
    }

    /// A synchronization packet, or its continuation.
    fn zeros(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let run = bytes.iter().take(MAX_ZEROS);
        let zeros = run.take_while(|&&byte| byte == 0).count();
        if zeros == MAX_ZEROS {
            self.sync = Sync::Zeros;
            return Some((Packet::Sync, zeros));
        }
        let end = *bytes.get(zeros)?;
        let enough = zeros >= SYNC_ZEROS || self.sync == Sync::Zeros;
        if end == SYNC_END && enough {
            self.sync = Sync::Yes;
            Some((Packet::Sync, zeros + 1))
        } else {
            self.sync = Sync::No;
            Some((Packet::BadSequence, zeros + 1))
        }
    }
}

impl PacketDecoder for Decoder {
    type Packet = Packet;

    #[inline]
    fn next(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        match self.sync {
            Sync::Start | Sync::No => self.search(bytes, false),
            Sync::Yes | Sync::Zeros => self.synchronised(bytes),
        }
    }

    /// A search examines a limited number of bytes.
    fn skips_all(&self, _bytes: &[u8]) -> bool {
        false
    }

    fn next_at_end(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        match self.sync {
            Sync::Start | Sync::No => self.search(bytes, true),
            Sync::Yes | Sync::Zeros => self.synchronised(bytes),
        }
    }

    fn finish(&mut self, _bytes: &[u8]) -> Packet {
        let packet = match self.sync {
            Sync::Start | Sync::No => Packet::NotSync,
            Sync::Yes | Sync::Zeros => Packet::Incomplete,
        };
        self.lost();
        packet
    }

    fn lost(&mut self) {
        self.sync = Sync::No;
    }

    fn is_synchronised(&self) -> bool {
        matches!(self.sync, Sync::Yes | Sync::Zeros)
    }
}
