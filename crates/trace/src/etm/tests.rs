//! Shared parts of the tests of ETMv3 and PTM: bytes that look like trace, random packets.

use super::Tracing;
use super::encode::{self, Encoder};
use super::packet::PartAddress;
use crate::element::{Element, TraceOnReason};
use crate::protocol::tests::{end_to_end, packets, whole_packets};
use crate::protocol::{ElementDecoder, PacketDecoder};
use armsnap_arch::quantity::{Address, BufferOffset, Isa};
use proptest::prelude::*;
use std::fmt::Debug;

/// Alignment synchronisation.
pub(crate) const A_SYNC: [u8; 6] = [0, 0, 0, 0, 0, 0x80];

pub(crate) fn address(address: u64, isa: Isa) -> Element {
    Element::Address {
        address: Address(address),
        isa,
    }
}

/// Bytes that look like a trace: `start`, then headers with payloads cut and mixed.
pub(crate) fn traces(
    start: Vec<u8>,
    headers: &'static [u8],
) -> impl Strategy<Value = Vec<u8>> + Clone {
    let piece = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..12),
        2 => Just(start),
        1 => prop::collection::vec(Just(0u8), 0..40),
        3 => prop::sample::select(headers).prop_map(|header| vec![header]),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// Checks that any bytes are packets from end to end, that no packet needs many bytes, and that a
/// packet yields at most `most` elements.
pub(crate) fn any_bytes_are_packets<D, E>(
    mut decoder: D,
    mut elements: E,
    bytes: &[u8],
    most: usize,
) where
    D: PacketDecoder<Packet: Debug>,
    E: ElementDecoder<Packet = D::Packet>,
{
    let found = packets(&mut decoder, bytes);
    end_to_end(&found, bytes);
    if let Some((_, packet, length)) = found.last() {
        // Zeros to the end are one packet, whatever their number.
        let zeros = bytes[bytes.len() - length..].iter().all(|&byte| byte == 0);
        assert!(zeros || *length <= 64, "{packet:?} of {length}");
    }
    // The first packet also reports missing synchronisation.
    let mut allowed = 1;
    let mut out: Vec<(BufferOffset, Element)> = Vec::new();
    for (at, packet, _) in &found {
        elements.packet(BufferOffset(*at as u64), packet, &mut out);
        allowed += most;
        assert!(out.len() <= allowed, "{packet:?}");
    }
}

/// Random numbers for one packet.
pub(crate) type Numbers = (u8, u64, u32);

/// Random numbers for the packets of a trace.
pub(crate) fn numbers() -> impl Strategy<Value = Vec<Numbers>> {
    prop::collection::vec(any::<Numbers>(), 0..60)
}

/// The content of a random packet after those written before.
pub(crate) struct Choice<'a, C> {
    encoder: &'a Encoder<C>,
    /// Which packet: 0 is A-sync, 1 I-sync.
    pub packet: u8,
    pub value: u64,
    more: u32,
    /// An address near the last one.
    pub address: u32,
    pub isa: Isa,
    /// The bits of an address that are traced.
    pub mask: u32,
    /// A context ID, if it is traced.
    pub context_id: Option<u32>,
    /// A timestamp.
    pub time: u64,
}

impl<'a, C: Tracing> Choice<'a, C> {
    pub fn new(encoder: &'a Encoder<C>, sets: [Isa; 4], (packet, value, more): Numbers) -> Self {
        let settings = encoder.config.settings();
        let (near, before) = encoder.decoder.place.unwrap_or_default();
        let isa = if more & 2 == 0 && packet != 1 {
            before
        } else {
            sets[(more >> 30) as usize]
        };
        let mask = !((1_u32 << encode::unused(isa)) - 1);
        let id_bits = 8 * u32::from(settings.context_id_bytes);
        let id = u32::try_from(value & ((1 << id_bits) - 1)).unwrap();
        Self {
            encoder,
            packet: packet % 16,
            value,
            more,
            address: (near ^ ((value as u32) >> (more >> 8 & 31))) & mask,
            isa,
            mask,
            context_id: (id_bits > 0).then_some(id),
            time: value >> (more & 63) & settings.timestamp.mask(),
        }
    }

    /// A random bit, by its number.
    pub fn flag(&self, bit: u32) -> bool {
        self.bits(bit) & 1 == 1
    }

    /// Random bits from this one on.
    pub fn bits(&self, from: u32) -> u32 {
        self.more >> from
    }

    /// A number of cycles.
    pub fn cycles(&self) -> u32 {
        self.more >> (self.more & 31)
    }

    pub fn reason(&self) -> Option<TraceOnReason> {
        [
            None,
            Some(TraceOnReason::BeginOrFilter),
            Some(TraceOnReason::Overflow),
            Some(TraceOnReason::DebugRestart),
        ][(self.bits(4) & 3) as usize]
    }

    /// Returns whether addresses can be written: only after an earlier one.
    pub fn is_placed(&self) -> bool {
        self.encoder.decoder.place.is_some()
    }

    /// Returns whether only exception information determines the instruction set.
    pub fn needs_information(&self) -> bool {
        self.encoder.decoder.needs_information(self.isa)
    }

    /// The address in its shortest form or whole.
    pub fn part(&self, information: bool) -> PartAddress {
        let (address, isa) = (self.address, self.isa);
        let part = self.encoder.shortest(address, isa, information);
        PartAddress {
            bits: if self.flag(3) { 32 } else { part.bits },
            ..part
        }
    }
}

/// Checks that packets made of random numbers, written after an I-sync, decode to the same packets.
pub(crate) fn decoding_reverses_encoding<C, D>(
    config: C,
    mut decoder: D,
    numbers: &[Numbers],
    packet: impl Fn(&Encoder<C>, Numbers) -> Option<C::Packet>,
) where
    C: Tracing<Packet: PartialEq>,
    D: PacketDecoder<Packet = C::Packet>,
{
    let mut encoder = Encoder::new(config);
    let (mut written, mut bytes) = (Vec::new(), Vec::new());
    let begin = [(0, 0, 0), (1, 0x1000, 0)];
    for &numbers in begin.iter().chain(numbers) {
        let Some(packet) = packet(&encoder, numbers) else {
            continue;
        };
        let length = bytes.len();
        let fits = encoder.packet(&packet, &mut bytes);
        assert!(fits.is_ok() && bytes.len() > length, "{packet:?}");
        written.push(packet);
    }
    assert_eq!(whole_packets(&mut decoder, &bytes), written);
}
