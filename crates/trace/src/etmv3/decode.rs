//! Bytes → ETMv3 packets (ARM IHI 0014Q chapter 7).
//!
//! The decoder keeps what packets omit: the last instruction and data address, the last instruction
//! set, the upper bits of the timestamp.

use super::config::Config;
use super::packet::{
    Branch, DataAddress, DataValue, ISync, Information, Packet, SyncAddress, Timing,
};
use crate::element::{AtomPacket, Atoms};
use crate::etm::decode::{
    AddressBytes, Addresses, SyncInformation, Synchronisation, Timestamps, context_id,
    little_endian, thumb_address,
};
use crate::protocol::PacketDecoder;
use armsnap_arch::quantity::Isa;

/// Splits the bytes of one ETMv3 into packets.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Decoder {
    config: Config,
    sync: Synchronisation,
    addresses: Addresses,
    data_address: u32,
    timestamps: Timestamps,
}

/// Reads a count of 1 to 5 bytes, 7 bits in each; returns it with its length in bytes.
#[inline]
fn count(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut value = 0;
    for (i, &byte) in bytes.iter().enumerate().take(5) {
        value |= u32::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 || i == 4 {
            return Some((value, i + 1));
        }
    }
    None
}

/// The SS field of a data header: the number of bytes of the value.
#[inline]
fn value_bytes(header: u8) -> usize {
    [0, 1, 2, 4][usize::from(header >> 2 & 3)]
}

#[inline]
fn value_at(bytes: &[u8], at: usize, size: usize) -> Option<DataValue> {
    let value = little_endian(bytes.get(at..at + size)?);
    Some(DataValue {
        value,
        bytes: size as u8,
    })
}

/// The atom in a bit that is 1 for N.
const fn executed(header: u8, bit: u8) -> u32 {
    (header >> bit & 1 ^ 1) as u32
}

/// Table 7.2: P-headers when cycles are not traced.
const fn p_header(header: u8) -> Option<(Atoms, Timing)> {
    match header & 0xb3 {
        0x82 if header & 0x40 == 0 => {
            let bits = executed(header, 3) | executed(header, 2) << 1;
            Some((Atoms { bits, count: 2 }, Timing::None))
        }
        _ if header & 3 == 0 => {
            let passed = header >> 2 & 0xf;
            let bits = (1 << passed) - 1;
            let count = passed + (header >> 6 & 1);
            Some((Atoms { bits, count }, Timing::None))
        }
        _ => None,
    }
}

/// Table 7.3: P-headers in cycle-accurate mode.
const fn timed_p_header(header: u8) -> Option<(Atoms, Timing)> {
    let none = Atoms { bits: 0, count: 0 };
    match header & 0xa3 {
        // Deprecated: a single cycle.
        0x80 if header == 0x80 => Some((none, Timing::Before(1))),
        0x80 => {
            let passed = header >> 2 & 7;
            let bits = (1 << passed) - 1;
            let count = passed + (header >> 6 & 1);
            Some((Atoms { bits, count }, Timing::Each))
        }
        0xa0 => {
            let passed = header >> 6 & 1;
            let atoms = Atoms {
                bits: passed as u32,
                count: passed,
            };
            Some((atoms, Timing::Before((header >> 2 & 7) + 1)))
        }
        0x82 if header & 0x50 == 0 => {
            let bits = executed(header, 3) | executed(header, 2) << 1;
            Some((Atoms { bits, count: 2 }, Timing::Before(1)))
        }
        0x82 if header & 0x58 == 0x10 => {
            let bits = executed(header, 2);
            Some((Atoms { bits, count: 1 }, Timing::Before(0)))
        }
        _ => None,
    }
}

/// The content of all P-headers, by bits 6:1: plain and cycle-accurate.
const P_HEADERS: [[Option<(u16, u8, Timing)>; 64]; 2] = {
    let mut tables = [[None; 64]; 2];
    let mut index = 0;
    while index < 64 {
        let header = 0x80 | (index as u8) << 1;
        if let Some((atoms, timing)) = p_header(header) {
            tables[0][index] = Some((atoms.bits as u16, atoms.count, timing));
        }
        if let Some((atoms, timing)) = timed_p_header(header) {
            tables[1][index] = Some((atoms.bits as u16, atoms.count, timing));
        }
        index += 1;
    }
    tables
};

/// A header as [`AtomPacket::Instructions`], in a form that is read without branches.
#[derive(Clone, Copy)]
struct AtomHeader {
    bits: u16,
    count: u8,
    cycles: [u8; 2],
    is_valid: bool,
}

/// No headers.
static NO_ATOMS: [AtomHeader; 256] = [AtomHeader {
    bits: 0,
    count: 0,
    cycles: [0; 2],
    is_valid: false,
}; 256];

/// All headers that are packets of atoms or cycles: plain and cycle-accurate.
static ATOMS: [[AtomHeader; 256]; 2] = {
    let mut tables = [NO_ATOMS; 2];
    let mut index = 0;
    while index < 64 {
        let mut timed = 0;
        while timed < 2 {
            if let Some((bits, count, timing)) = P_HEADERS[timed][index] {
                let cycles = match timing {
                    Timing::None => [0, 0],
                    Timing::Each => [1, 1],
                    Timing::Before(cycles) => [cycles, 0],
                };
                tables[timed][0x80 | index << 1] = AtomHeader {
                    bits,
                    count,
                    cycles,
                    is_valid: count > 0 || timed == 1,
                };
            }
            timed += 1;
        }
        index += 1;
    }
    tables
};

impl Decoder {
    /// Creates a decoder for the start of a trace.
    pub fn new(config: &Config) -> Self {
        Self {
            config: *config,
            sync: Synchronisation::default(),
            addresses: Addresses::default(),
            data_address: 0,
            timestamps: Timestamps::default(),
        }
    }

    /// Decodes every packet except P-headers.
    #[inline(never)]
    fn any(&mut self, header: u8, bytes: &[u8]) -> Option<(Packet, usize)> {
        match header {
            _ if !self.sync.is_reached() => self.sync.search(bytes),
            _ if header & 1 == 1 => self.branch(bytes),
            _ if header & 0x80 != 0 => self.sync.reserved(),
            _ => self.other(bytes),
        }
    }

    #[inline]
    fn branch(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let address = AddressBytes::new(bytes, self.config.address_encoding())?;
        if address.is_malformed() {
            return self.sync.bad_sequence(address.length);
        }
        let mut length = address.length;
        let mut information = None;
        if address.more {
            let (info, used) = self.information(&bytes[length..])?;
            information = Some(info);
            self.addresses.alternative = bytes[length] & 0x40 != 0;
            length += used;
        } else if let Some(fifth) = address.fifth.filter(|fifth| fifth & 0x80 != 0) {
            information = Some(Information {
                exception: (fifth >> 3 & 7).into(),
                deprecated: true,
                cancel: fifth & 0x40 != 0,
                non_secure: None,
                hyp: None,
                resume: 0,
            });
        }
        let branch = Branch {
            address: self.addresses.complete(&address),
            information,
        };
        Some((Packet::Branch(branch), length))
    }

    /// One to three exception information bytes (figure 7.2).
    fn information(&self, bytes: &[u8]) -> Option<(Information, usize)> {
        let first = *bytes.first()?;
        let mut info = Information {
            exception: (first >> 1 & 0xf).into(),
            deprecated: false,
            cancel: first & 0x20 != 0,
            non_secure: Some(first & 1 != 0),
            hyp: None,
            resume: 0,
        };
        if first & 0x80 == 0 {
            return Some((info, 1));
        }
        let second = *bytes.get(1)?;
        // Bit 6 distinguishes byte 2 from byte 1, which may be omitted.
        if second & 0x40 != 0 {
            info.resume = second & 0xf;
            return Some((info, 2));
        }
        if self.config.core.is_microcontroller() {
            info.exception |= u16::from(second & 0x1f) << 4;
        }
        info.hyp = Some(second & 0x20 != 0);
        if second & 0x80 == 0 {
            return Some((info, 2));
        }
        info.resume = *bytes.get(2)? & 0xf;
        Some((info, 3))
    }

    fn i_sync(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let mut length = 1;
        let mut cycles = None;
        if bytes[0] == 0x70 {
            let (value, used) = count(&bytes[length..])?;
            cycles = Some(value);
            length += used;
        }
        let (context_id, length) = context_id(bytes, length, self.config.context_id_bytes)?;
        let information = SyncInformation(*bytes.get(length)?);
        let mut length = length + 1;
        let mut place = None;
        if self.config.instructions {
            let address = little_endian(bytes.get(length..length + 4)?);
            length += 4;
            let alternative = self.config.minor_version >= 3 && information.alternative();
            let (address, isa) = if information.jazelle() {
                (address, Isa::Jazelle)
            } else {
                thumb_address(address, alternative)
            };
            let mut addresses = self.addresses;
            addresses.alternative = alternative;
            addresses.set(address, isa);
            let mut next = None;
            if information.lsip() {
                let after = AddressBytes::new(&bytes[length..], self.config.address_encoding())?;
                length += after.length;
                next = Some(addresses.complete(&after).value);
            }
            self.addresses = addresses;
            place = Some(SyncAddress { address, isa, next });
        }
        let sync = ISync {
            place,
            reason: information.reason(),
            non_secure: information.non_secure(),
            hyp: self.config.virtualization && information.hyp(),
            context_id,
            cycles,
        };
        Some((Packet::ISync(sync), length))
    }

    /// Returns the data address after a header, if it is `present` and addresses are traced, and the
    /// offset of its end.
    #[inline]
    fn data_address(
        &mut self,
        bytes: &[u8],
        present: bool,
        value_bytes: usize,
    ) -> Option<(Option<DataAddress>, usize)> {
        if !present || !self.config.data_addresses {
            return Some((None, 1));
        }
        let (value, used) = count(&bytes[1..])?;
        // The state changes only once the packet is complete.
        if bytes.len() < 1 + used + value_bytes {
            return None;
        }
        let fifth = (used == 5).then(|| bytes[5]);
        let bits = if used == 5 { 32 } else { 7 * used as u8 };
        let known = u32::MAX >> (32 - bits);
        self.data_address = self.data_address & !known | value & known;
        let address = DataAddress {
            value: self.data_address,
            bits,
            big_endian: fifth.map(|byte| byte & 0x10 != 0),
        };
        Some((Some(address), 1 + used))
    }

    fn normal_data(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let size = if self.config.data_values {
            value_bytes(bytes[0])
        } else {
            0
        };
        let (address, mut length) = self.data_address(bytes, bytes[0] & 0x20 != 0, size)?;
        let mut value = None;
        if self.config.data_values {
            value = Some(value_at(bytes, length, size)?);
            length += size;
        }
        Some((Packet::NormalData { address, value }, length))
    }

    /// Decodes headers other than branches and P-headers.
    fn other(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let header = bytes[0];
        match header {
            0x00 => self.sync.zeros(bytes),
            0x04 => {
                let (cycles, used) = count(&bytes[1..])?;
                Some((Packet::CycleCount(cycles), 1 + used))
            }
            0x08 | 0x70 => self.i_sync(bytes),
            0x0c => Some((Packet::Trigger, 1)),
            0x3c => Some((Packet::Vmid(*bytes.get(1)?), 2)),
            0x42 | 0x46 => {
                let (value, used) = self.timestamps.next(&bytes[1..], self.config.timestamp)?;
                let frequency_changed = header & 4 != 0;
                Some((
                    Packet::Timestamp {
                        value,
                        frequency_changed,
                    },
                    1 + used,
                ))
            }
            0x66 => Some((Packet::Ignore, 1)),
            0x6e => {
                let length = 1 + usize::from(self.config.context_id_bytes);
                let id = little_endian(bytes.get(1..length)?);
                Some((Packet::ContextId(id), length))
            }
            0x76 => Some((Packet::ExceptionExit, 1)),
            0x7e => Some((Packet::ExceptionEntry, 1)),
            _ if self.config.data() => self.data(bytes),
            _ => self.sync.reserved(),
        }
    }

    /// Decodes headers of the data trace.
    fn data(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let header = bytes[0];
        match header {
            0x50 => Some((Packet::StoreFailed, 1)),
            0x62 => Some((Packet::DataSuppressed, 1)),
            0x6a | 0x7a => {
                let (address, length) = self.data_address(bytes, header & 0x10 != 0, 0)?;
                Some((Packet::ValueNotTraced { address }, length))
            }
            // 0b00A0SS10
            _ if header & 0xd3 == 0x02 => self.normal_data(bytes),
            // 0b0TT0SS00
            _ if header & 0x93 == 0x00 && self.config.data_values => {
                let size = value_bytes(header);
                let value = value_at(bytes, 1, size)?;
                let tag = header >> 5 & 3;
                Some((Packet::OutOfOrderData { tag, value }, 1 + size))
            }
            // 0b01A1TT00
            _ if header & 0xd3 == 0x50 => {
                let (address, length) = self.data_address(bytes, header & 0x20 != 0, 0)?;
                let tag = header >> 2 & 3;
                Some((Packet::OutOfOrderPlaceholder { tag, address }, length))
            }
            _ => self.sync.reserved(),
        }
    }
}

impl PacketDecoder for Decoder {
    type Packet = Packet;

    #[inline(always)]
    fn atoms(&self) -> impl Fn(u8) -> Option<AtomPacket> + use<> {
        let is_timed = self.config.cycle_accurate;
        let table = match self.sync.is_reached() {
            true => &ATOMS[usize::from(is_timed)],
            false => &NO_ATOMS,
        };
        move |byte| {
            let header = &table[usize::from(byte)];
            let atoms = Atoms {
                bits: u32::from(header.bits),
                count: header.count,
            };
            header.is_valid.then_some(AtomPacket::Instructions(
                atoms,
                is_timed.then_some(header.cycles),
            ))
        }
    }

    #[inline(always)]
    fn single(&self, byte: u8) -> Option<Packet> {
        if byte & 0x81 != 0x80 || !self.sync.is_reached() {
            return None;
        }
        let table = &P_HEADERS[usize::from(self.config.cycle_accurate)];
        let (bits, count, timing) = table[usize::from(byte >> 1 & 0x3f)]?;
        let atoms = Atoms {
            bits: u32::from(bits),
            count,
        };
        Some(Packet::PHeader { atoms, timing })
    }

    #[inline(always)]
    fn next(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let header = *bytes.first()?;
        match self.single(header) {
            Some(packet) => Some((packet, 1)),
            None => self.any(header, bytes),
        }
    }

    fn finish(&mut self, bytes: &[u8]) -> Packet {
        self.sync.rest(bytes)
    }

    fn lost(&mut self) {
        self.sync.lose();
    }

    fn is_synchronised(&self) -> bool {
        self.sync.is_reached()
    }
}
