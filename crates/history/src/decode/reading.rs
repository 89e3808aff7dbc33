//! Estimates whether bytes are trace of a protocol by the share of valid packets.

use armsnap_arch::quantity::BufferOffset;
use armsnap_snapshot::capture::{Config, Visitor};
use armsnap_trace::formatter::Stream;
use armsnap_trace::itm;
use armsnap_trace::protocol::{Describe, ElementDecoder, PacketDecoder};

/// The least number of valid bytes per loss of synchronisation, if nothing else is known.
const FOR_EACH_LOSS: u64 = 128;
/// The least number of packets of a trace with losses.
const LEAST_WITH_LOSSES: u64 = 32;
/// The most packets between an alignment synchronisation and the packet that follows it in each protocol.
const FOLLOWS_WITHIN: u64 = 4;

/// The result of decoding some bytes as the trace of a source.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// The offset of the first recognised packet.
    pub synchronised: Option<BufferOffset>,
    /// The number of valid packets from there on.
    pub packets: u64,
    /// The number of bytes from there on.
    pub bytes: u64,
    /// The number of these bytes outside valid packets.
    pub bad: u64,
    /// Bits of evidence for an ITM, whose packets are valid from any starting point.
    pub bits: u64,
    /// The number of these bytes between a loss and the next synchronisation.
    skipped: u64,
    /// The number of times that valid packets end.
    losses: u64,
    /// Alignment synchronisations, and those that are followed by another synchronisation packet.
    syncs: Syncs,
    itm: Itm,
}

#[derive(Clone, Copy, Debug, Default)]
struct Syncs {
    all: u64,
    followed: u64,
    /// The packets since the last synchronisation that is not followed by another yet.
    since: Option<u64>,
}

/// Whether the bytes are read as an ITM's, and how likely that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Itm {
    #[default]
    No,
    Unlikely,
    Possible,
    Sound,
}

impl Reading {
    /// Whether the bytes may be trace of this kind.
    pub fn is_possible(&self) -> bool {
        match self.itm {
            Itm::No => self.synchronised.is_some() && self.bad * 8 <= self.bytes,
            Itm::Unlikely => false,
            Itm::Possible | Itm::Sound => true,
        }
    }

    /// Whether the bytes are almost certainly trace of this kind.
    pub fn is_sound(&self) -> bool {
        match self.itm {
            Itm::No => self.is_whole(),
            itm => itm == Itm::Sound,
        }
    }

    /// The number of bytes that are valid trace, less a penalty for invalid ones; 0 if too many are
    /// invalid, or if [`bits`](Self::bits) are the only evidence.
    pub fn score(&self) -> u64 {
        let valid = self.bytes.saturating_sub(self.skipped);
        let bad = 8 * (self.bad - self.skipped);
        match self.itm {
            Itm::No if self.is_whole() => self.bytes.saturating_sub(8 * self.bad),
            Itm::No if self.resumes() => valid.saturating_sub(bad),
            Itm::Sound if self.bits == 0 => self.bytes.saturating_sub(8 * self.bad),
            _ => 0,
        }
    }

    /// Whether nearly all bytes are valid.
    fn is_whole(&self) -> bool {
        let enough = self.packets >= 4 || self.synchronised == Some(BufferOffset(0));
        self.synchronised.is_some() && enough && self.bad * 32 <= self.bytes
    }

    /// Whether bytes are valid from each synchronisation on, up to rare losses. Bytes between a
    /// loss and the next synchronisation are no evidence.
    pub fn resumes(&self) -> bool {
        let valid = self.bytes - self.bad;
        self.packets >= LEAST_WITH_LOSSES
            && self.syncs.followed > 0
            && self.syncs.followed * 2 >= self.syncs.all
            && valid >= FOR_EACH_LOSS * self.losses
            && (self.bad - self.skipped) * 32 <= valid
    }

    fn packet(&mut self, at: BufferOffset, name: &str, bytes: u64) {
        let skipped = name == "not_sync";
        let bad = skipped || matches!(name, "bad" | "bad_sequence" | "reserved");
        if self.synchronised.is_none() {
            if bad {
                return;
            }
            self.synchronised = Some(at);
        }
        self.bytes += bytes;
        if bad {
            self.bad += bytes;
            self.skipped += if skipped { bytes } else { 0 };
            self.losses += u64::from(!skipped);
            self.syncs.since = None;
            return;
        }
        self.packets += 1;
        match (name, &mut self.syncs.since) {
            ("async", since) => {
                self.syncs.all += 1;
                *since = Some(0);
            }
            ("i_sync" | "trace_info" | "version", since @ Some(_)) => {
                self.syncs.followed += 1;
                *since = None;
            }
            (_, since) => *since = since.map(|n| n + 1).filter(|n| *n < FOLLOWS_WITHIN),
        }
    }
}

/// Decodes a stream as the trace of a source of this configuration.
pub fn read(config: &Config, stream: &mut Stream) -> Reading {
    match config {
        Config::Itm(config) => read_itm(config, stream),
        config => config.visit(Read(stream)),
    }
}

struct Read<'a>(&'a mut Stream);

impl Visitor for Read<'_> {
    type Output = Reading;

    fn visit<D, E>(self, mut packets: D, _: E) -> Reading
    where
        D: PacketDecoder + Clone + Send + Sync + 'static,
        E: ElementDecoder<Packet = D::Packet> + Clone + Send + Sync + 'static,
    {
        let mut reading = Reading::default();
        self.0.packets(&mut packets, false, |at, packet, bytes| {
            reading.packet(at, packet.name(), bytes.len() as u64);
        });
        reading
    }
}

/// An ITM needs no synchronisation, so all bytes count.
fn read_itm(config: &itm::Config, stream: &mut Stream) -> Reading {
    let mut evidence = itm::Evidence::default();
    let (mut all, mut synchronised) = (Reading::default(), Reading::default());
    stream.packets(&mut itm::Decoder::new(config), true, |at, packet, bytes| {
        evidence.packet(packet, bytes);
        let count = bytes.len() as u64;
        if *packet == itm::Packet::Incomplete {
            return;
        }
        all.packet(at, packet.name(), count);
        if synchronised.synchronised.is_some() || *packet == itm::Packet::Sync {
            synchronised.packet(at, packet.name(), count);
        }
    });
    // From a synchronisation packet on.
    if synchronised.is_whole() {
        return Reading {
            itm: Itm::Sound,
            ..synchronised
        };
    }
    let sound = evidence.sound();
    Reading {
        itm: match (sound, evidence.is_possible()) {
            (Some(_), _) => Itm::Sound,
            (None, true) => Itm::Possible,
            (None, false) => Itm::Unlikely,
        },
        bits: sound.unwrap_or(0),
        ..all
    }
}
