//! Helpers for the tests of several protocols.

use super::*;
use crate::element::Element;
use crate::formatter::Demux;
use armsnap_arch::quantity::TraceId;
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
    while at < bytes.len() {
        let rest = &bytes[at..];
        let next = decoder.next_at_end(rest);
        let (packet, length) = next.unwrap_or_else(|| (decoder.finish(rest), rest.len()));
        packets.push((at, packet, length));
        at += length;
    }
    packets
}

/// Checks that a stream, which uses the decoder's fast paths, has the packets that
/// [`PacketDecoder::next`] returns one by one. `bytes` are fed in pieces.
pub(crate) fn fast_paths_agree<D>(new: impl Fn() -> D, bytes: &[u8], piece: usize)
where
    D: PacketDecoder<Packet: Debug + Clone + PartialEq>,
{
    let (mut one_by_one, mut decoder) = (new(), new());
    let (mut demux, id) = (Demux::new(), TraceId(1));
    let (mut at, mut end) = (0, 0);
    while end < bytes.len() {
        let begin = end;
        end = (end + piece).min(bytes.len());
        let offset = BufferOffset(begin as u64);
        demux.unformatted(id, offset, &bytes[begin..end]);
        let stream = demux.stream_mut(id);
        stream.packets(&mut decoder, false, |_, packet, taken| {
            let (wanted, length) = one_by_one.next(&bytes[at..end]).expect("a packet");
            assert_eq!(*packet, wanted, "at {at}");
            assert_eq!(taken, &bytes[at..at + length], "at {at}");
            at += length;
        });
        assert!(at == end || one_by_one.next(&bytes[at..end]).is_none());
    }
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
