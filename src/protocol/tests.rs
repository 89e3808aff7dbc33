//! Helpers for the tests of several protocols.

use super::*;
use crate::element::Element;
use proptest::prelude::*;
use std::fmt::Debug;

/// A packet with its offset and its length.
pub(crate) type Located<P> = (usize, P, usize);

/// Decodes `bytes`, offering `piece` more bytes each time that the decoder needs more.
pub(crate) fn packets_in_pieces<D>(
    decoder: &mut D,
    bytes: &[u8],
    piece: usize,
) -> Vec<Located<D::Packet>>
where
    D: PacketDecoder<Packet: Debug>,
{
    let mut packets = Vec::new();
    let (mut at, mut end) = (0, 0);
    while end < bytes.len() {
        end = (end + piece).min(bytes.len());
        while at < end
            && let Some((packet, length)) = decoder.next(&bytes[at..end])
        {
            assert!(length > 0 && at + length <= end, "{packet:?} of {length}");
            packets.push((at, packet, length));
            at += length;
        }
    }
    if at < bytes.len() {
        packets.push((at, decoder.finish(&bytes[at..]), bytes.len() - at));
    }
    packets
}

/// Decodes `bytes`.
pub(crate) fn packets<D>(decoder: &mut D, bytes: &[u8]) -> Vec<Located<D::Packet>>
where
    D: PacketDecoder<Packet: Debug>,
{
    packets_in_pieces(decoder, bytes, bytes.len())
}

/// Decodes `bytes`; the last packet must be complete.
pub(crate) fn whole_packets<D>(decoder: &mut D, bytes: &[u8]) -> Vec<D::Packet>
where
    D: PacketDecoder<Packet: Debug>,
{
    let (mut at, mut packets) = (0, Vec::new());
    while let Some((packet, length)) = decoder.next(&bytes[at..]) {
        packets.push(packet);
        at += length;
    }
    assert_eq!(at, bytes.len(), "the last packet is whole");
    packets
}

/// Decodes `bytes` to elements with their offsets.
pub(crate) fn elements<D, E>(
    decoder: &mut D,
    elements: &mut E,
    bytes: &[u8],
) -> Vec<(BufferOffset, Element)>
where
    D: PacketDecoder<Packet: Debug>,
    E: ElementDecoder<Packet = D::Packet>,
{
    let mut out = Vec::new();
    for (at, packet, _) in packets(decoder, bytes) {
        elements.packet(BufferOffset(at as u64), &packet, &mut out);
    }
    elements.end(BufferOffset(bytes.len() as u64), &mut out);
    out
}

/// Checks that packets cover `bytes` from start to end without gaps.
pub(crate) fn end_to_end<P>(packets: &[Located<P>], bytes: &[u8]) {
    let mut end = 0;
    for (at, _, length) in packets {
        assert_eq!(*at, end);
        end += length;
    }
    assert_eq!(end, bytes.len());
}

/// `bytes` with some bits flipped.
pub(crate) fn flipped(
    bytes: impl Strategy<Value = Vec<u8>>,
    most: usize,
) -> impl Strategy<Value = Vec<u8>> {
    let flips = prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..=most);
    (bytes, flips).prop_map(|(mut bytes, flips)| {
        for (index, bit) in flips {
            if !bytes.is_empty() {
                let at = index.index(bytes.len());
                bytes[at] ^= 1 << (bit & 7);
            }
        }
        bytes
    })
}
