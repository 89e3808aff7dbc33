//! What every trace protocol offers: bytes → packets, packets → elements.
//!
//! The folders of the protocols are parallel. Each of [`etmv3`](crate::etmv3),
//! [`ptm`](crate::ptm), [`etmv4`](crate::etmv4), [`itm`](crate::itm) and [`stm`](crate::stm)
//! exports these types; its modules are private:
//!
//! | item | purpose |
//! | --- | --- |
//! | `Registers` | values of the trace unit's registers |
//! | `Config::read(&Registers, Core)` | their meaning, and `Config::trace_id()` |
//! | `Decoder::new(&Config)` | a [`PacketDecoder`]: bytes → packets |
//! | `Packet` | one packet; it implements [`Describe`] |
//! | `Elements::new(&Config)` | an [`ElementDecoder`]: packets → elements |
//!
//! The program flow protocols also have a `TraceUnit`, which traces a program, and an `Encoder`
//! of packets. `Config` and [`Core`] are parameters everywhere, also where nothing depends on
//! them: [`crate::capture::Config`] then treats all protocols in the same way.
//!
//! They differ where the protocols do:
//!
//! - ETMv3 and PTM compress an address against the packet before: their decoders keep the last
//!   address, and packets carry whole ones. In ETMv4 and ETE an address refers to one of the last
//!   three that a trace unit sent, and it may be undone with the speculative execution that it
//!   belongs to (IHI 0064, Cancel and Mispredict packets): packets carry the bits that were
//!   traced, and `etmv4::Elements` resolves them.
//! - ETE is not a folder of its own: it has the packets of ETMv4. [`crate::etmv4::Registers`]
//!   are read for one of the two.
//! - [`crate::etm`] is what ETMv3 and PTM share.
//!
//! Nothing here knows memory, buffers or output formats.

use crate::element::ElementSink;
use crate::quantity::BufferOffset;

mod core;
pub(crate) mod number;

pub use core::{Core, Profile};

/// Splits the bytes of one trace source into packets.
///
/// The caller owns the bytes and calls [`next`](Self::next) again and again, each time with
/// everything that is not yet consumed.
pub trait PacketDecoder {
    /// One packet: the content of its bytes, and no more.
    type Packet: Describe;

    /// The packet at the start of `bytes` and its length: at least one byte, or 0 if it lies
    /// completely in the last byte of the packet before (STPv2 counts in nibbles), which never
    /// happens twice in a row.
    ///
    /// `None`: `bytes` ends inside the packet; call again with more, or call
    /// [`finish`](Self::finish) at the end of the trace. A decoder asks for a bounded number of
    /// bytes only. Bytes before the first synchronisation, and bytes that no encoder writes,
    /// are packets of their own kinds.
    fn next(&mut self, bytes: &[u8]) -> Option<(Self::Packet, usize)>;

    /// The packet of `byte`, if it is a complete packet that does not change the decoder's state: a
    /// shortcut of [`next`](Self::next) for the atoms that fill most of a trace.
    #[inline(always)]
    fn single(&self, byte: u8) -> Option<Self::Packet> {
        let _ = byte;
        None
    }

    /// The rest of the trace, which is not empty, as one packet.
    fn finish(&mut self, bytes: &[u8]) -> Self::Packet;

    /// Bytes were lost here: decoding needs a new synchronisation point.
    fn lost(&mut self);
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
pub trait ElementDecoder {
    /// The packet of the matching [`PacketDecoder`].
    type Packet;

    /// Takes a packet that starts at `at`.
    fn packet(&mut self, at: BufferOffset, packet: &Self::Packet, out: &mut impl ElementSink);

    /// Bytes were lost before the next packet: nothing is known until the trace synchronises
    /// again.
    fn lost(&mut self, at: BufferOffset, out: &mut impl ElementSink) {
        let _ = (at, out);
    }

    /// Whether later elements do not depend on packets before the last synchronisation point.
    /// Always `false` for a source that follows no core.
    fn is_settled(&self) -> bool {
        false
    }

    /// The end of the trace: emits everything held back, then [`crate::element::Mark::End`].
    fn end(&mut self, at: BufferOffset, out: &mut impl ElementSink);
}

/// Takes the packets of one source, each with its offset and its bytes.
pub trait PacketSink<P> {
    /// The next packet.
    fn packet(&mut self, at: BufferOffset, packet: &P, bytes: &[u8]);

    /// Bytes were lost before the next packet.
    fn lost(&mut self, at: BufferOffset);
}

/// A closure takes packets and ignores losses.
impl<P, F: FnMut(BufferOffset, &P, &[u8])> PacketSink<P> for F {
    #[inline]
    fn packet(&mut self, at: BufferOffset, packet: &P, bytes: &[u8]) {
        self(at, packet, bytes);
    }

    fn lost(&mut self, _: BufferOffset) {}
}

/// The value of a packet's field in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// A small count, printed in decimal.
    Count(u64),
    /// An address or another value, printed in hex.
    Hex(u64),
    /// Yes or no.
    Flag(bool),
    /// A name.
    Name(&'static str),
    /// Atoms, oldest first, printed as E and N.
    Atoms(crate::element::Atoms),
}

/// The names of a packet and of its fields, for listings.
pub trait Describe {
    /// The specification's name in snake case; `not_sync` for bytes before synchronisation.
    fn name(&self) -> &'static str;

    /// A byte that a listing shows before the packet's own bytes: the start of a packet in the
    /// last byte of the packet before (STPv2 counts in nibbles), other bits zero.
    fn shared_byte(&self) -> Option<u8> {
        None
    }

    /// Calls `each` with the name and value of every field that the packet carries.
    fn fields(&self, each: &mut dyn FnMut(&'static str, Field));
}

#[cfg(test)]
pub(crate) mod tests;
