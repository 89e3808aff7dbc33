//! The interface of all trace protocols: bytes → packets, packets → elements.
//!
//! The modules of the protocols have the same structure. Each of [`etmv3`](crate::etmv3),
//! [`ptm`](crate::ptm), [`etmv4`](crate::etmv4), [`itm`](crate::itm) and [`stm`](crate::stm)
//! exports these types; its modules are private:
//!
//! | item | purpose |
//! | --- | --- |
//! | `Registers` | values of the trace unit's registers |
//! | `Config::read(&Registers, Core)` | the settings in them, and `Config::trace_id()` |
//! | `Decoder::new(&Config)` | a [`PacketDecoder`]: bytes → packets |
//! | `Packet` | one packet; it implements [`Describe`] |
//! | `Elements::new(&Config)` | an [`ElementDecoder`]: packets → elements |
//!
//! The program flow protocols also have a `TraceUnit`, which traces a program, and an `Encoder` of
//! packets. `Config` and [`Core`] are parameters even where nothing depends on them, so that
//! `capture::Config` can treat all protocols alike.
//!
//! The differences follow from the protocols:
//!
//! - ETMv3 and PTM compress an address against the previous packet: their decoders keep the last
//!   address, and packets contain whole ones. In ETMv4 and ETE an address refers to one of the last
//!   three that the trace unit sent, and it may be cancelled with the speculative execution that it
//!   belongs to (ARM IHI 0064H, "Cancel" and "Mispredict" packets): packets contain the traced bits,
//!   and `etmv4::Elements` resolves them.
//! - ETE has no module of its own, because it has the packets of ETMv4. [`crate::etmv4::Registers`]
//!   are read for one of the two.
//! - [`crate::etm`] contains what ETMv3 and PTM share.
//!
//! This module is independent of memory, buffers and output formats.

use crate::element::{AtomPacket, Atoms, ElementSink};
use armsnap_arch::quantity::BufferOffset;
use std::ops::Range;

mod core;
pub mod number;

pub use core::{Core, Profile};

/// Splits the bytes of one trace source into packets.
///
/// The caller owns the bytes and calls [`next`](Self::next) repeatedly, each time with all bytes
/// that are not yet consumed.
pub trait PacketDecoder: Clone {
    /// One packet, with only the content of its own bytes.
    type Packet: Describe;

    /// Returns the packet at the start of `bytes` and its length in bytes. The length is 0 if the
    /// packet lies completely in the last byte of the previous packet (STPv2 packets consist of
    /// nibbles); it is never 0 for two packets in a row.
    ///
    /// Returns `None` if `bytes` ends inside the packet. Then call again with more bytes, or call
    /// [`next_at_end`](Self::next_at_end) and [`finish`](Self::finish) at the end of the trace. The
    /// number of bytes needed for a packet is bounded. Bytes before the first synchronisation, and
    /// bytes that no encoder writes, are packets of their own kinds.
    fn next(&mut self, bytes: &[u8]) -> Option<(Self::Packet, usize)>;

    /// Returns the packet of `byte` if it is a complete packet that does not change the decoder's
    /// state. This is a fast path of [`next`](Self::next) for atoms, which fill most of a trace.
    #[inline(always)]
    fn single(&self, byte: u8) -> Option<Self::Packet> {
        let _ = byte;
        None
    }

    /// Returns a function that returns the atoms of a byte if it is a complete packet that contains
    /// nothing else but cycles and does not change the decoder's state. The function is valid until
    /// that state changes.
    #[inline(always)]
    fn atoms(&self) -> impl Fn(u8) -> Option<AtomPacket> + use<Self> {
        |_| None
    }

    /// Decodes packets from index `at` of `bytes` on, as long as a fast path of
    /// [`next`](Self::next) applies, and returns the index after them. The bytes before `at` are
    /// those decoded last.
    #[inline(always)]
    fn several(
        &mut self,
        bytes: &[u8],
        at: usize,
        sink: &mut impl RangeSink<Self::Packet>,
    ) -> usize {
        let _ = (bytes, sink);
        at
    }

    /// Returns whether [`next`](Self::next) would skip bytes up to the end of `bytes` in search of a
    /// synchronisation point, so that more bytes change the length of the packet.
    #[cold]
    #[inline(never)]
    fn skips_all(&self, bytes: &[u8]) -> bool {
        let mut ahead = self.clone();
        let mut at = 0;
        while !ahead.is_synchronised() {
            let Some((_, length)) = ahead.next(&bytes[at..]) else {
                return true;
            };
            at += length;
        }
        false
    }

    /// Same as [`next`](Self::next) at the end of the trace: nothing follows `bytes`, which must
    /// not be empty. Returns `None` if they end inside a packet.
    fn next_at_end(&mut self, bytes: &[u8]) -> Option<(Self::Packet, usize)> {
        self.next(bytes)
    }

    /// Returns the rest of the trace as one packet. `bytes` is not empty.
    fn finish(&mut self, bytes: &[u8]) -> Self::Packet;

    /// Reports that bytes were lost here: decoding needs a new synchronisation point.
    fn lost(&mut self);

    /// Returns whether the start of the next packet is known.
    fn is_synchronised(&self) -> bool;

    /// Returns whether [`ElementDecoder::targets`] may decode the next bytes.
    #[inline(always)]
    fn permits_targets(&self) -> bool {
        false
    }
}

/// Receives the packets of [`PacketDecoder::several`]. (A closure that is called in two places is not
/// inlined.)
pub trait RangeSink<P> {
    /// Receives the next packet, with the range of its bytes.
    fn packet(&mut self, packet: &P, range: Range<usize>);
}

/// The error of an encoder for a packet that has no encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no trace unit of this configuration writes such a packet")]
pub struct Unencodable;

/// The result of encoding a packet.
pub(crate) type Written = Result<(), Unencodable>;

/// Refuses a packet that does not meet a condition.
pub(crate) fn require(condition: bool) -> Written {
    if condition { Ok(()) } else { Err(Unencodable) }
}

/// Turns packets into elements.
///
/// [`packet`](Self::packet) is compiled for each sink, and passes the packets that fill most of a
/// trace on without a call. Everything else is compiled once and calls `dyn ElementSink`.
pub trait ElementDecoder {
    /// The packet of the matching [`PacketDecoder`].
    type Packet: Copy;

    /// Processes a packet that starts at `at`, and emits its elements.
    fn packet(&mut self, at: BufferOffset, packet: &Self::Packet, out: &mut impl ElementSink);

    /// Reports that bytes were lost before the next packet: nothing is known until the trace
    /// synchronises again.
    fn lost(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        let _ = (at, out);
    }

    /// Returns whether later elements are independent of packets before the last synchronisation
    /// point. Always `false` for a source that follows no core.
    fn is_settled(&self) -> bool {
        false
    }

    /// Returns whether packets of [atoms](PacketDecoder::atoms) translate directly into elements,
    /// up to the next packet of another kind.
    fn passes_atoms(&self) -> bool;

    /// Decodes the packets at the start of `bytes` that are atoms, addresses and cycle counts, for
    /// a sink that [ignores atoms](crate::element::AtomSink::IGNORES_WAYPOINT_ATOMS), as long as
    /// this is faster than [`packet`](Self::packet). They do not change the state of the
    /// [`PacketDecoder`]. `locate` returns the offset of a byte, in ascending order. Returns their
    /// length in bytes, and their number: 0 of each if it never is. (No default: a decoder that
    /// wraps another one would silently lose the fast path.)
    fn targets(
        &mut self,
        bytes: &[u8],
        locate: impl FnMut(usize) -> BufferOffset,
        out: &mut impl ElementSink,
    ) -> (usize, usize);

    /// Ends the trace: emits the elements held back, then [`crate::element::Mark::End`].
    fn end(&mut self, at: BufferOffset, out: &mut dyn ElementSink);
}

impl<E: ElementDecoder> ElementDecoder for &mut E {
    type Packet = E::Packet;

    #[inline(always)]
    fn packet(&mut self, at: BufferOffset, packet: &Self::Packet, out: &mut impl ElementSink) {
        (**self).packet(at, packet, out);
    }

    fn lost(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        (**self).lost(at, out);
    }

    fn is_settled(&self) -> bool {
        (**self).is_settled()
    }

    #[inline(always)]
    fn passes_atoms(&self) -> bool {
        (**self).passes_atoms()
    }

    #[inline(always)]
    fn targets(
        &mut self,
        bytes: &[u8],
        locate: impl FnMut(usize) -> BufferOffset,
        out: &mut impl ElementSink,
    ) -> (usize, usize) {
        (**self).targets(bytes, locate, out)
    }

    fn end(&mut self, at: BufferOffset, out: &mut dyn ElementSink) {
        (**self).end(at, out);
    }
}

/// Receives the packets of one source.
pub trait PacketSink<P> {
    /// Whether the sink uses the offsets of packets: if not, arbitrary offsets are passed to
    /// [`packet`](Self::packet), because locating packets takes time.
    const LOCATES: bool = true;

    /// Whether the sink has [`targets`](Self::targets).
    const TAKES_TARGETS: bool = false;

    /// Receives the next packet, with its offset in the buffer and its bytes.
    fn packet(&mut self, at: BufferOffset, packet: &P, bytes: &[u8]);

    /// Receives packets of atoms at the start of `bytes`, one byte each, as long as this is faster
    /// than [`packet`](Self::packet), and returns their number. `atoms` is
    /// [`PacketDecoder::atoms`]; `locate` returns the offset of a byte, in ascending order.
    #[inline(always)]
    fn atoms(
        &mut self,
        bytes: &[u8],
        atoms: impl Fn(u8) -> Option<AtomPacket>,
        locate: impl FnMut(usize) -> BufferOffset,
    ) -> usize {
        let _ = (bytes, atoms, locate);
        0
    }

    /// Receives packets at the start of `bytes`: see [`ElementDecoder::targets`].
    #[inline(always)]
    fn targets(
        &mut self,
        bytes: &[u8],
        locate: impl FnMut(usize) -> BufferOffset,
    ) -> (usize, usize) {
        let _ = (bytes, locate);
        (0, 0)
    }

    /// Reports that bytes were lost before the next packet.
    fn lost(&mut self, at: BufferOffset);
}

/// A closure receives packets and ignores losses.
impl<P, F: FnMut(BufferOffset, &P, &[u8])> PacketSink<P> for F {
    #[inline]
    fn packet(&mut self, at: BufferOffset, packet: &P, bytes: &[u8]) {
        self(at, packet, bytes);
    }

    fn lost(&mut self, _: BufferOffset) {}
}

/// The value of a packet's field in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// A small count, printed in decimal.
    Count(u64),
    /// An address or another value, printed in hex.
    Hex(u64),
    /// A truth value.
    Flag(bool),
    /// A name.
    Name(&'static str),
    /// Atoms, oldest first, printed as E and N.
    Atoms(Atoms),
}

/// The names of a packet and of its fields, for listings.
pub trait Describe {
    /// Returns the specification's name in snake case; `not_sync` for bytes before synchronisation.
    fn name(&self) -> &'static str;

    /// Returns a byte that a listing shows before the packet's own bytes: the nibble of the packet
    /// in the last byte of the previous packet (STPv2), other bits zero.
    fn shared_byte(&self) -> Option<u8> {
        None
    }

    /// Calls `each` with the name and value of every field of the packet.
    fn fields(&self, each: &mut dyn FnMut(&'static str, Field));
}

#[cfg(test)]
pub(crate) mod tests;
