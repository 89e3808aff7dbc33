//! Compressed instruction addresses of branch packets.
//!
//! ARM IHI 0014Q 7.3.5 "Branch Packets" (original and alternative encoding of the address bytes) and
//! ARM IHI 0035B 4.5.4, Branch address packet, which has only the alternative encoding.

use crate::etm::config::AddressEncoding;
use crate::etm::packet::PartAddress;
use armsnap_arch::quantity::Isa;

/// One to five address bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressBytes {
    /// The bits of the first four bytes.
    value: u32,
    /// The number of these bits.
    bits: u8,
    /// The fifth byte.
    pub fifth: Option<u8>,
    /// Whether exception information follows.
    pub more: bool,
    /// The number of bytes.
    pub length: usize,
}

impl AddressBytes {
    /// Reads the address bytes at the start of `bytes`; `None` if `bytes` ends inside them.
    #[inline]
    pub(crate) fn new(bytes: &[u8], encoding: AddressEncoding) -> Option<Self> {
        let first = *bytes.first()?;
        let mut address = Self {
            value: u32::from(first >> 1 & 0x3f),
            bits: 6,
            fifth: None,
            more: false,
            length: 1,
        };
        if first & 0x80 == 0 {
            return Some(address);
        }
        for &byte in bytes.iter().skip(1).take(3) {
            address.length += 1;
            let last = byte & 0x80 == 0;
            if last && encoding == AddressEncoding::Alternative {
                address.value |= u32::from(byte & 0x3f) << address.bits;
                address.bits += 6;
                address.more = byte & 0x40 != 0;
                return Some(address);
            }
            address.value |= u32::from(byte & 0x7f) << address.bits;
            address.bits += 7;
            if last {
                return Some(address);
            }
        }
        let fifth = *bytes.get(4)?;
        address.length = 5;
        address.more = fifth & 0xc0 == 0x40;
        address.fifth = Some(fifth);
        Some(address)
    }

    /// Returns whether bits \[5:3\] of the fifth byte select no instruction set.
    #[inline]
    pub(crate) fn is_malformed(&self) -> bool {
        self.fifth
            .is_some_and(|fifth| fifth & 0x80 == 0 && fifth & 0x38 == 0)
    }
}

/// The address and instruction set of the last packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Addresses {
    pub address: u32,
    pub isa: Isa,
    /// The last AltISA bit: Thumb means ThumbEE.
    pub alternative: bool,
}

impl Addresses {
    /// Sets a complete address with its instruction set.
    pub(crate) fn set(&mut self, address: u32, isa: Isa) {
        self.address = address;
        self.isa = isa;
    }

    /// Completes an address. The first byte holds bits \[7:2\] of an A32 address, \[6:1\] of a
    /// T32 one, \[5:0\] of a Jazelle one.
    #[inline]
    pub(crate) fn complete(&mut self, bytes: &AddressBytes) -> PartAddress {
        if let Some(fifth) = bytes.fifth {
            self.isa = match fifth & 0xb0 {
                // The deprecated form of an exception, always to A32.
                fifth if fifth & 0x80 != 0 => Isa::A32,
                fifth if fifth & 0x20 != 0 => Isa::Jazelle,
                0x10 => Isa::T32,
                _ => Isa::A32,
            };
        }
        self.isa = match self.isa {
            Isa::T32 | Isa::ThumbEe if self.alternative => Isa::ThumbEe,
            Isa::T32 | Isa::ThumbEe => Isa::T32,
            other => other,
        };
        let (shift, width) = match self.isa {
            Isa::A64 | Isa::A32 => (2, 3),
            Isa::T32 | Isa::ThumbEe => (1, 4),
            Isa::Jazelle => (0, 5),
        };
        let (mut value, mut bits) = (bytes.value, bytes.bits);
        if let Some(fifth) = bytes.fifth {
            value |= u32::from(fifth & ((1 << width) - 1)) << bits;
            bits += width;
        }
        let value = value << shift;
        let bits = bits + shift;
        let mask = u32::MAX >> (32 - bits);
        self.address = self.address & !mask | value;
        PartAddress {
            value: self.address,
            bits,
            isa: self.isa,
        }
    }
}
