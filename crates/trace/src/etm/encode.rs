//! The fields that packets of ETMv3 and PTM share → bytes.
//!
//! Written from ARM IHI 0014Q 7.3.5 (branch packets), 7.7 (timestamps) and ARM IHI 0035B 4.5.4
//! (branch address packets), 4.5.9 (timestamp packets), and not from the decoder.

use super::config::{AddressEncoding, TimestampEncoding};
use super::packet::PartAddress;
use crate::element::TraceOnReason;
use crate::protocol::number::to_gray;
use crate::protocol::{Unencodable, Written, require};
use armsnap_arch::quantity::Isa;
use std::fmt::Debug;

/// The configuration of one of the protocols, which writes its packets.
pub trait Protocol: Copy + Debug {
    /// The packets of the protocol.
    type Packet: Debug;

    /// Returns how the address bytes of branches end.
    fn address_encoding(&self) -> AddressEncoding;

    /// Appends the bytes of `packet`.
    ///
    /// # Errors
    ///
    /// Returns an error if no trace unit of this configuration writes it; some of its bytes may have been
    /// appended.
    fn write(
        encoder: &mut Encoder<Self>,
        packet: &Self::Packet,
        out: &mut Vec<u8>,
    ) -> Result<(), Unencodable>;
}

/// Writes the packets of one trace unit.
#[derive(Clone, Debug)]
pub struct Encoder<C> {
    pub(crate) config: C,
    pub(crate) decoder: DecoderState,
}

impl<C: Protocol> Encoder<C> {
    /// Creates an encoder for the start of a trace.
    pub fn new(config: C) -> Self {
        Self {
            config,
            decoder: DecoderState::default(),
        }
    }

    /// Appends the bytes of `packet`, with only as many address bits as [`PartAddress::bits`].
    ///
    /// # Errors
    ///
    /// Returns an error if no trace unit of this configuration writes it; then nothing is appended.
    pub fn packet(&mut self, packet: &C::Packet, out: &mut Vec<u8>) -> Result<(), Unencodable> {
        let begin = out.len();
        let mut next = self.clone();
        let written = C::write(&mut next, packet, out);
        match written {
            Ok(()) => *self = next,
            Err(_) => out.truncate(begin),
        }
        written
    }

    /// Returns `address` in its shortest form after the packets written so far. `information` tells whether
    /// exception information follows.
    pub fn shortest(&self, address: u32, isa: Isa, information: bool) -> PartAddress {
        PartAddress {
            value: address,
            bits: self.decoder.fewest_bits(
                address,
                isa,
                self.config.address_encoding(),
                information,
            ),
            isa,
        }
    }
}

impl AddressEncoding {
    /// The number of address bits in 1 to 4 bytes, not counting the low bits that are always zero.
    const fn capacity(self) -> [u8; 4] {
        match self {
            Self::Original => [6, 13, 20, 27],
            Self::Alternative => [6, 12, 19, 26],
        }
    }

    /// Whether exception information can follow an address of `bytes` bytes.
    const fn has_information(self, bytes: usize) -> bool {
        match self {
            Self::Original => bytes == 5,
            Self::Alternative => bytes > 1,
        }
    }
}

/// The number of low address bits that are not traced.
pub(crate) const fn unused(isa: Isa) -> u8 {
    match isa {
        Isa::A64 | Isa::A32 => 2,
        Isa::T32 | Isa::ThumbEe => 1,
        Isa::Jazelle => 0,
    }
}

/// Refuses an address whose untraced low bits are not zero.
pub(crate) fn require_aligned(address: u32, isa: Isa) -> Written {
    require(isa != Isa::A64 && address & ((1 << unused(isa)) - 1) == 0)
}

/// The state of a decoder after the trace so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DecoderState {
    /// The last address, with its instruction set.
    pub place: Option<(u32, Isa)>,
    /// The last AltISA bit: Thumb means ThumbEE.
    alternative: bool,
    /// The last timestamp, as traced.
    timestamp: Option<u64>,
}

impl DecoderState {
    /// Writes an A-sync, at which a decoder can start.
    pub(crate) fn a_sync(&mut self, out: &mut Vec<u8>) {
        out.extend([0, 0, 0, 0, 0, 0x80]);
        *self = Self::default();
    }

    /// Returns whether AltISA changes, so that only exception information can carry this instruction set.
    pub(crate) fn needs_information(&self, isa: Isa) -> bool {
        match isa {
            Isa::ThumbEe => !self.alternative,
            Isa::T32 => self.alternative,
            Isa::A64 | Isa::A32 | Isa::Jazelle => false,
        }
    }

    /// Records an address that was written, with or without exception information.
    pub(crate) fn set(&mut self, address: u32, isa: Isa, information: bool) {
        self.place = Some((address, isa));
        if information {
            self.alternative = isa == Isa::ThumbEe;
        }
    }

    /// The smallest number of low bits that identifies this address.
    fn fewest_bits(
        &self,
        address: u32,
        isa: Isa,
        encoding: AddressEncoding,
        information: bool,
    ) -> u8 {
        const WHOLE: u8 = 32;
        let Some((known, _)) = self.place.filter(|place| thumb(place.1) == thumb(isa)) else {
            return WHOLE;
        };
        let differs = address ^ known;
        (1..)
            .zip(encoding.capacity())
            .filter(|&(bytes, _)| !information || encoding.has_information(bytes))
            .map(|(_, bits)| bits + unused(isa))
            .find(|&bits| differs >> bits == 0)
            .unwrap_or(WHOLE)
    }

    /// Writes a timestamp: the bits up to the highest one that changed.
    pub(crate) fn timestamp(
        &mut self,
        value: u64,
        encoding: TimestampEncoding,
        out: &mut Vec<u8>,
    ) -> Written {
        require(encoding.wide || value >> 48 == 0)?;
        let traced = if encoding.gray { to_gray(value) } else { value };
        let differs = self.timestamp.map_or(u64::MAX, |before| traced ^ before);
        let most = encoding.max_bytes();
        let bytes = (1..most)
            .find(|bytes| differs >> (7 * bytes) == 0)
            .unwrap_or(most);
        for index in 0..bytes {
            let byte = (traced >> (7 * index)) as u8;
            out.push(match (index + 1 == bytes, bytes == most) {
                (false, _) => 0x80 | byte,
                (true, false) => byte & 0x7f,
                (true, true) if encoding.wide => byte,
                (true, true) => byte & 0x3f,
            });
        }
        self.timestamp = Some(traced);
        Ok(())
    }
}

/// The instruction set as the fifth byte of an address distinguishes it.
const fn thumb(isa: Isa) -> Isa {
    match isa {
        Isa::ThumbEe => Isa::T32,
        other => other,
    }
}

/// Writes the traced bits of an address; `information` tells whether exception information follows.
pub(crate) fn address(
    address: PartAddress,
    encoding: AddressEncoding,
    information: bool,
    out: &mut Vec<u8>,
) -> Written {
    let PartAddress { value, bits, isa } = address;
    let skip = unused(isa);
    require_aligned(value, isa)?;
    require(bits > skip && bits <= 32)?;
    let field = value >> skip;
    let more = if information { 0x40 } else { 0 };
    let first = (field as u8 & 0x3f) << 1 | 1;
    if bits == 32 {
        // Seven bits in each of three bytes; in the last, the instruction set and the rest.
        out.push(0x80 | first);
        out.extend([6, 13, 20].map(|shift| 0x80 | (field >> shift) as u8));
        let set = match thumb(isa) {
            Isa::Jazelle => 0b10_0000,
            Isa::T32 => 0b01_0000,
            _ => 0b00_1000,
        };
        out.push(more | set | (field >> 27) as u8);
        return Ok(());
    }
    let bytes = 1 + encoding
        .capacity()
        .iter()
        .position(|&c| c == bits - skip)
        .ok_or(Unencodable)?;
    require(!information || encoding.has_information(bytes))?;
    if bytes == 1 {
        out.push(first);
        return Ok(());
    }
    out.push(0x80 | first);
    let mut shift = 6;
    for _ in 2..bytes {
        out.push(0x80 | (field >> shift) as u8);
        shift += 7;
    }
    let last = (field >> shift) as u8;
    out.push(match encoding {
        AddressEncoding::Original => last & 0x7f,
        AddressEncoding::Alternative => more | last & 0x3f,
    });
    Ok(())
}

/// The first byte of exception information: C, AltISA, Can, Exc\[3:0\], NS. `more` tells whether another
/// byte follows.
pub(crate) fn information(
    more: bool,
    isa: Isa,
    cancel: bool,
    exception: u16,
    non_secure: bool,
) -> u8 {
    u8::from(more) << 7
        | u8::from(isa == Isa::ThumbEe) << 6
        | u8::from(cancel) << 5
        | (exception as u8 & 0xf) << 1
        | u8::from(non_secure)
}

/// The information byte of an I-sync: LSiP, reason, J, NS, AltISA, Hyp, 1. Only ETMv3 has LSiP
/// and J.
pub(crate) fn sync_information(
    lsip: bool,
    reason: Option<TraceOnReason>,
    non_secure: bool,
    isa: Isa,
    hyp: bool,
) -> u8 {
    let reason = match reason {
        None => 0,
        Some(TraceOnReason::BeginOrFilter) => 1,
        Some(TraceOnReason::Overflow) => 2,
        Some(TraceOnReason::DebugRestart) => 3,
    };
    u8::from(lsip) << 7
        | reason << 5
        | u8::from(isa == Isa::Jazelle) << 4
        | u8::from(non_secure) << 3
        | u8::from(isa == Isa::ThumbEe) << 2
        | u8::from(hyp) << 1
        | 1
}

/// The address of an I-sync, T in its bit 0.
pub(crate) fn sync_address(address: u32, isa: Isa, out: &mut Vec<u8>) -> Written {
    require_aligned(address, isa)?;
    let thumb = matches!(isa, Isa::T32 | Isa::ThumbEe);
    out.extend((address | u32::from(thumb)).to_le_bytes());
    Ok(())
}

/// A context ID of `bytes` bytes.
pub(crate) fn context_id(id: u32, bytes: u8, out: &mut Vec<u8>) -> Written {
    require(bytes >= 4 || id >> (8 * bytes) == 0)?;
    out.extend(&id.to_le_bytes()[..bytes.min(4).into()]);
    Ok(())
}

/// The context ID of an I-sync, if it is traced.
pub(crate) fn sync_context_id(id: Option<u32>, bytes: u8, out: &mut Vec<u8>) -> Written {
    require(id.is_some() == (bytes > 0))?;
    id.map_or(Ok(()), |id| context_id(id, bytes, out))
}
