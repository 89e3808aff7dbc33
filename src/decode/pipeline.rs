//! One trace source: its bytes, in pieces of any size, through its packet decoder.
//!
//! Bytes are taken where they lie. Only a packet that is cut by the end of a piece is copied.

use crate::protocol::{Describe, PacketDecoder};
use crate::quantity::BufferOffset;

/// How many bytes of a new piece are joined to a packet cut by the end of the piece before.
/// Longer packets take several rounds.
const JOIN: usize = 256;

/// Tells where in the buffer a byte of a source lies.
pub trait Locate {
    /// The place of the byte at `position` of the source's own stream. Positions never go back.
    fn locate(&mut self, position: u64) -> BufferOffset;
}

/// An unformatted buffer: the stream is the buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unformatted;

impl Locate for Unformatted {
    #[inline]
    fn locate(&mut self, position: u64) -> BufferOffset {
        BufferOffset(position)
    }
}

/// Takes the packets of one source.
pub trait PacketSink<D: PacketDecoder> {
    /// The next packet, its place in the buffer and its bytes. `decoder` is the one that made it.
    fn packet(&mut self, decoder: &D, at: BufferOffset, packet: &D::Packet, bytes: &[u8]);

    /// The source ends at `at`.
    fn end(&mut self, at: BufferOffset);
}

/// A source on its way through its decoder.
#[derive(Clone, Debug)]
pub struct Pipeline<D> {
    decoder: D,
    /// Position in the stream of the first byte not consumed.
    position: u64,
    /// The bytes not consumed: the begin of a packet.
    carry: Vec<u8>,
}

impl<D: PacketDecoder> Pipeline<D> {
    /// A source at its begin.
    pub fn new(decoder: D) -> Self {
        Self {
            decoder,
            position: 0,
            carry: Vec::new(),
        }
    }

    /// Position in the stream of the first byte not consumed.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Decodes the next piece of the stream.
    pub fn feed(&mut self, bytes: &[u8], locate: &mut impl Locate, sink: &mut impl PacketSink<D>) {
        let mut rest = bytes;
        while !self.carry.is_empty() {
            let old = self.carry.len();
            let joined = rest.len().min(JOIN);
            self.carry.extend_from_slice(&rest[..joined]);
            let carry = std::mem::take(&mut self.carry);
            let used = self.packets(&carry, old, locate, sink);
            self.carry = carry;
            if used >= old {
                rest = &rest[used - old..];
                self.carry.clear();
            } else {
                self.carry.drain(..used);
                rest = &rest[joined..];
                if rest.is_empty() {
                    return;
                }
            }
        }
        let used = self.packets(rest, usize::MAX, locate, sink);
        self.carry.extend_from_slice(&rest[used..]);
    }

    /// Bytes were lost at this place of the stream.
    pub fn lost(&mut self, locate: &mut impl Locate, sink: &mut impl PacketSink<D>) {
        self.flush(locate, sink);
        self.decoder.lost();
    }

    /// The stream ends.
    pub fn end(&mut self, locate: &mut impl Locate, sink: &mut impl PacketSink<D>) {
        self.flush(locate, sink);
        sink.end(locate.locate(self.position));
    }

    /// Decodes whole packets that begin before `limit`; returns how many bytes they have.
    #[inline]
    fn packets(
        &mut self,
        bytes: &[u8],
        limit: usize,
        locate: &mut impl Locate,
        sink: &mut impl PacketSink<D>,
    ) -> usize {
        let mut used = 0;
        let limit = limit.min(bytes.len());
        while used < limit {
            let Some((packet, length)) = self.decoder.next(&bytes[used..]) else {
                break;
            };
            let at = self.place(&packet, locate);
            sink.packet(&self.decoder, at, &packet, &bytes[used..used + length]);
            used += length;
            self.position += length as u64;
        }
        used
    }

    /// The place of a packet: that of its first byte, or the one after the byte that it shares
    /// with the packet before.
    #[inline]
    fn place(&self, packet: &D::Packet, locate: &mut impl Locate) -> BufferOffset {
        if packet.shared_byte().is_some() && self.position > 0 {
            BufferOffset(locate.locate(self.position - 1).0.wrapping_add(1))
        } else {
            locate.locate(self.position)
        }
    }

    fn flush(&mut self, locate: &mut impl Locate, sink: &mut impl PacketSink<D>) {
        let carry = std::mem::take(&mut self.carry);
        if !carry.is_empty() {
            let packet = self.decoder.finish(&carry);
            let at = self.place(&packet, locate);
            sink.packet(&self.decoder, at, &packet, &carry);
            self.position += carry.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Field;
    use proptest::prelude::*;

    /// A protocol whose header byte is the number of bytes that follow it.
    #[derive(Clone, Debug)]
    struct Counted;

    #[derive(Debug, PartialEq)]
    struct Packet(bool);

    impl Describe for Packet {
        fn name(&self) -> &'static str {
            "counted"
        }
        fn fields(&self, each: &mut dyn FnMut(&'static str, Field)) {
            each("whole", Field::Flag(self.0));
        }
    }

    impl PacketDecoder for Counted {
        type Packet = Packet;
        fn next(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
            let length = 1 + usize::from(bytes[0]);
            (bytes.len() >= length).then_some((Packet(true), length))
        }
        fn finish(&mut self, _: &[u8]) -> Packet {
            Packet(false)
        }
        fn lost(&mut self) {}
    }

    #[derive(Default, Debug, PartialEq)]
    struct Log(Vec<(u64, bool, Vec<u8>)>, u64);

    impl PacketSink<Counted> for Log {
        fn packet(&mut self, _: &Counted, at: BufferOffset, packet: &Packet, bytes: &[u8]) {
            self.0.push((at.0, packet.0, bytes.to_vec()));
        }
        fn end(&mut self, at: BufferOffset) {
            self.1 = at.0;
        }
    }

    fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Log {
        let mut log = Log::default();
        let mut pipeline = Pipeline::new(Counted);
        for piece in pieces {
            pipeline.feed(piece, &mut Unformatted, &mut log);
        }
        pipeline.end(&mut Unformatted, &mut log);
        log
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_packets(
            bytes in prop::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..2000),
            size in 1usize..700,
        ) {
            let whole = decode(std::iter::once(&bytes[..]));
            prop_assert_eq!(&decode(bytes.chunks(size)), &whole);
            prop_assert_eq!(whole.1, bytes.len() as u64);
            let joined: Vec<u8> = whole.0.iter().flat_map(|(_, _, b)| b.clone()).collect();
            prop_assert_eq!(joined, bytes);
        }
    }
}
