//! Measures whether bytes are trace of a protocol: how many of them are valid packets.

use crate::capture::Visitor;
use crate::flow::FlowConfig;
use crate::formatter::Stream;
use crate::protocol::{Describe, ElementDecoder, PacketDecoder};
use crate::quantity::BufferOffset;

/// How some bytes decode as the trace of a source.
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
}

impl Reading {
    /// Whether the bytes may be trace of this kind.
    pub fn is_possible(&self) -> bool {
        self.synchronised.is_some() && self.bad * 8 <= self.bytes
    }

    /// Whether the bytes are almost certainly trace of this kind.
    pub fn is_sound(&self) -> bool {
        let enough = self.packets >= 4 || self.synchronised == Some(BufferOffset(0));
        self.synchronised.is_some() && enough && self.bad * 32 <= self.bytes
    }
}

/// Decodes a stream, as a visitor of a configuration.
pub struct Read<'a>(pub &'a mut Stream);

impl Visitor for Read<'_> {
    type Output = Reading;

    fn visit<D, E>(self, mut packets: D, _: E, _: Option<FlowConfig>) -> Reading
    where
        D: PacketDecoder + Clone + Send + Sync + 'static,
        E: ElementDecoder<Packet = D::Packet> + Clone + Send + Sync + 'static,
    {
        let mut reading = Reading::default();
        self.0.packets(&mut packets, false, |at, packet, bytes| {
            let bad = matches!(
                packet.name(),
                "not_sync" | "bad" | "bad_sequence" | "reserved"
            );
            if reading.synchronised.is_none() {
                if bad {
                    return;
                }
                reading.synchronised = Some(at);
            }
            reading.packets += u64::from(!bad);
            reading.bytes += bytes.len() as u64;
            reading.bad += if bad { bytes.len() as u64 } else { 0 };
        });
        reading
    }
}
