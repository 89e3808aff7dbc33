//! Compressed addresses and timestamps as ETMv3 and PTM write them.
//!
//! Written from ARM IHI 0014Q 7.3.5, 7.7 and ARM IHI 0035B 4.5.4, 4.5.9, and not from the
//! decoder. Knows no headers.

use super::timestamp::Encoding as TimestampEncoding;
use crate::protocol::Unencodable;
use crate::quantity::Isa;

type Written = Result<(), Unencodable>;

pub(crate) fn require(condition: bool) -> Written {
    if condition { Ok(()) } else { Err(Unencodable) }
}

/// How the bytes of an address end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Only an address of five bytes has exception information behind it.
    Original,
    /// Bit 6 of the last of two bytes or more says whether exception information follows.
    Alternative,
}

impl Form {
    /// How many bits of the address, without those that are always zero, 1 to 4 bytes hold.
    const fn capacity(self) -> [u8; 4] {
        match self {
            Self::Original => [6, 13, 20, 27],
            Self::Alternative => [6, 12, 19, 26],
        }
    }

    /// Exception information can follow so many bytes.
    const fn has_information(self, bytes: usize) -> bool {
        match self {
            Self::Original => bytes == 5,
            Self::Alternative => bytes > 1,
        }
    }
}

/// How many low bits of an address are not traced.
pub(crate) const fn unused(isa: Isa) -> u8 {
    match isa {
        Isa::A64 | Isa::A32 => 2,
        Isa::T32 | Isa::ThumbEe => 1,
        Isa::Jazelle => 0,
    }
}

/// What the trace told before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// The last address, with its instruction set, if a decoder knows it.
    pub place: Option<(u32, Isa)>,
    /// AltISA as told last: Thumb means ThumbEE.
    pub alternative: bool,
}

impl Known {
    /// Only exception information can tell this instruction set: AltISA changes.
    pub fn needs_information(&self, isa: Isa) -> bool {
        match isa {
            Isa::ThumbEe => !self.alternative,
            Isa::T32 => self.alternative,
            Isa::A64 | Isa::A32 | Isa::Jazelle => false,
        }
    }

    /// Takes a place that was told, with exception information or without.
    pub fn tell(&mut self, address: u32, isa: Isa, information: bool) {
        self.place = Some((address, isa));
        if information {
            self.alternative = isa == Isa::ThumbEe;
        }
    }

    /// The fewest low bits that tell this address.
    pub fn shortest(&self, address: u32, isa: Isa, form: Form, information: bool) -> u8 {
        const WHOLE: u8 = 32;
        let Some((known, _)) = self.place.filter(|place| thumb(place.1) == thumb(isa)) else {
            return WHOLE;
        };
        let differs = address ^ known;
        (1..)
            .zip(form.capacity())
            .filter(|&(bytes, _)| !information || form.has_information(bytes))
            .map(|(_, bits)| bits + unused(isa))
            .find(|&bits| differs >> bits == 0)
            .unwrap_or(WHOLE)
    }
}

/// What the fifth byte of an address tells of the instruction set.
const fn thumb(isa: Isa) -> Isa {
    match isa {
        Isa::ThumbEe => Isa::T32,
        other => other,
    }
}

/// The low `bits` bits of an address; with `information`, exception information follows.
pub(crate) fn address(
    value: u32,
    bits: u8,
    isa: Isa,
    form: Form,
    information: bool,
    out: &mut Vec<u8>,
) -> Written {
    let skip = unused(isa);
    require(isa != Isa::A64 && bits > skip && bits <= 32)?;
    require(value & ((1 << skip) - 1) == 0)?;
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
    let bytes = 1 + form
        .capacity()
        .iter()
        .position(|&c| c == bits - skip)
        .ok_or(Unencodable)?;
    require(!information || form.has_information(bytes))?;
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
    out.push(match form {
        Form::Original => last & 0x7f,
        Form::Alternative => more | last & 0x3f,
    });
    Ok(())
}

/// Writes timestamps in turn: the bits up to the highest that changed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timestamps {
    /// As traced, where a decoder knows it.
    traced: Option<u64>,
}

impl Timestamps {
    /// A decoder may begin here.
    pub fn forget(&mut self) {
        self.traced = None;
    }

    pub fn write(&mut self, value: u64, encoding: TimestampEncoding, out: &mut Vec<u8>) -> Written {
        require(encoding.wide || value >> 48 == 0)?;
        let traced = if encoding.gray {
            value ^ value >> 1
        } else {
            value
        };
        let differs = self.traced.map_or(u64::MAX, |before| traced ^ before);
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
        self.traced = Some(traced);
        Ok(())
    }
}

/// 7 bits a byte, the lowest first; bit 7 says that one more follows.
pub(crate) fn leb128(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A context ID of so many bytes.
pub(crate) fn context_id(id: u32, bytes: u8, out: &mut Vec<u8>) -> Written {
    require(bytes >= 4 || id >> (8 * bytes) == 0)?;
    out.extend(&id.to_le_bytes()[..bytes.min(4).into()]);
    Ok(())
}
