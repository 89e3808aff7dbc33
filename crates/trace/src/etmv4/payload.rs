//! The fields of the payloads of ETMv4 and ETE packets.
//!
//! Headers are read in `decode`.

use super::config::Config;
use super::packet::{AddressBits, ContextInfo, InstructionSet, KeyedResult};

/// Why a payload cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The bytes end inside the packet.
    More,
    /// No trace unit writes these bytes.
    Bad,
}

/// Returns IS1 if `is1`, else IS0.
pub(super) fn select(is1: bool) -> InstructionSet {
    if is1 {
        InstructionSet::Is1
    } else {
        InstructionSet::Is0
    }
}

/// The address in the 4 or 8 bytes of a long address (IHI 0064, Long Address packets): 7 bits in
/// the first byte, and in the second if IS0; the lowest bits are zero.
#[inline]
pub(super) fn address(raw: u64, is: InstructionSet) -> u64 {
    let high = raw & !0xffff;
    match is {
        InstructionSet::Is0 => high | (raw & 0x7f) << 2 | (raw & 0x7f00) << 1,
        InstructionSet::Is1 => high | (raw & 0x7f) << 1 | raw & 0xff00,
    }
}

/// The bytes after a header.
pub(super) struct Payload<'a> {
    bytes: &'a [u8],
    used: usize,
}

impl<'a> Payload<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, used: 0 }
    }

    /// The number of bytes read.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.bytes.get(self.used).ok_or(Stop::More)?;
        self.used += 1;
        Ok(byte)
    }

    /// `N` bytes.
    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let array = *self
            .bytes
            .get(self.used..)
            .and_then(|rest| rest.first_chunk::<N>())
            .ok_or(Stop::More)?;
        self.used += N;
        Ok(array)
    }

    /// A number of `count` bytes, 0 to 8, least significant first.
    pub(super) fn little_endian(&mut self, count: u8) -> Result<u64, Stop> {
        let mut value = 0;
        for index in 0..count.min(8) {
            value |= u64::from(self.byte()?) << (8 * index);
        }
        Ok(value)
    }

    /// A number of at most 5 bytes, 7 bits in each; bit 7 is set if another byte follows.
    #[inline]
    pub(super) fn field(&mut self) -> Result<u32, Stop> {
        let mut value = 0;
        for index in 0..5 {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Stop::Bad)
    }

    /// A cycle count: at most 20 bits, so only the first three bytes count.
    #[inline]
    pub(super) fn count(&mut self) -> Result<u32, Stop> {
        Ok(self.field()? & 0x1f_ffff)
    }

    /// A timestamp and its number of bits: 7 bits per byte, 8 in the ninth byte (IHI 0064,
    /// Timestamp packet).
    #[inline]
    pub(super) fn timestamp(&mut self) -> Result<(u64, u8), Stop> {
        let mut value = 0;
        for index in 0..8 {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok((value, 7 * (index + 1)));
            }
        }
        Ok((value | u64::from(self.byte()?) << 56, 64))
    }

    /// A short address (IHI 0064, Short Address packets).
    #[inline]
    pub(super) fn short(&mut self, is: InstructionSet) -> Result<AddressBits, Stop> {
        let shift = match is {
            InstructionSet::Is0 => 2,
            InstructionSet::Is1 => 1,
        };
        let first = self.byte()?;
        let mut value = u64::from(first & 0x7f);
        let mut bits = 7;
        if first & 0x80 != 0 {
            value |= u64::from(self.byte()?) << 7;
            bits = 15;
        }
        Ok(AddressBits::Low {
            value: value << shift,
            bits: bits + shift,
            is,
        })
    }

    /// The 4 or 8 bytes of a long address.
    #[inline]
    pub(super) fn long_address(&mut self, long: bool, is: InstructionSet) -> Result<u64, Stop> {
        let raw = if long {
            u64::from_le_bytes(self.array()?)
        } else {
            u64::from(u32::from_le_bytes(self.array()?))
        };
        Ok(address(raw, is))
    }

    /// A long address.
    #[inline]
    pub(super) fn long(&mut self, long: bool, is: InstructionSet) -> Result<AddressBits, Stop> {
        Ok(AddressBits::Low {
            value: self.long_address(long, is)?,
            bits: if long { 64 } else { 32 },
            is,
        })
    }

    /// Context information (IHI 0064, Context packet).
    pub(super) fn context(&mut self, config: &Config) -> Result<ContextInfo, Stop> {
        let info = self.byte()?;
        let mut id = |flag: u8, bytes: u8| -> Result<Option<u32>, Stop> {
            if info & flag == 0 || bytes == 0 {
                return Ok(None);
            }
            Ok(Some(self.little_endian(bytes)? as u32))
        };
        let vmid = id(0x40, config.vmid_bytes)?;
        let context_id = id(0x80, config.context_id_bytes)?;
        Ok(ContextInfo::new(info, vmid, context_id))
    }

    /// A result with its key (IHI 0064, Conditional Result packet, format 1): 4 bits of result and
    /// 3 of the key, then 7 bits of the key per byte, at most 6 bytes.
    pub(super) fn keyed_result(&mut self, cancelled: bool) -> Result<KeyedResult, Stop> {
        let first = self.byte()?;
        let mut key = u32::from(first >> 4 & 7);
        let mut more = first & 0x80 != 0;
        let mut shift = 3;
        while more {
            if shift > 31 {
                return Err(Stop::Bad);
            }
            let byte = self.byte()?;
            key |= u32::from(byte & 0x7f) << shift;
            more = byte & 0x80 != 0;
            shift += 7;
        }
        Ok(KeyedResult {
            key,
            result: first & 0xf,
            cancelled,
        })
    }
}
