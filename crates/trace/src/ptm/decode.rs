//! Bytes → PFT packets (ARM IHI 0035B 4.5).
//!
//! The decoder keeps what packets omit: the last address and instruction set, the upper bits of the
//! timestamp.

use super::config::Config;
use super::packet::{Branch, ISync, Information, Packet, Timestamp};
use crate::element::{AtomPacket, Atoms};
use crate::etm::config::AddressEncoding;
use crate::etm::decode::{
    AddressBytes, Addresses, SyncInformation, Synchronisation, Timestamps, context_id,
    little_endian, thumb_address,
};
use crate::protocol::{PacketDecoder, RangeSink};

/// Splits the bytes of one PTM into packets.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Decoder {
    config: Config,
    sync: Synchronisation,
    addresses: Addresses,
    timestamps: Timestamps,
}

/// The atoms in a header outside cycle-accurate mode: bit 7 is 1, and the highest 1 below it marks
/// their number; N is 1, the oldest atom has the highest bit.
const ATOMS: [Atoms; 128] = {
    let mut table = [Atoms { bits: 0, count: 0 }; 128];
    let mut header = 0;
    while header < 128 {
        let mut count = 5;
        while count > 0 && header >> (count + 1) == 0 {
            count -= 1;
        }
        let mut i = 0;
        while i < count {
            if header >> (count - i) & 1 == 0 {
                table[header].bits |= 1 << i;
            }
            i += 1;
        }
        table[header].count = count as u8;
        header += 1;
    }
    table
};

/// Reads the cycle count at the start of `bytes`, which has 1 to 5 bytes. The first byte holds
/// the low bits in \[5:2\]; its bit 6 is set if more bytes follow.
#[inline]
fn cycle_count(bytes: &[u8]) -> Option<(u32, usize)> {
    let first = *bytes.first()?;
    let mut value = u32::from(first >> 2 & 0xf);
    if first & 0x40 == 0 {
        return Some((value, 1));
    }
    let mut shift = 4;
    for (i, &byte) in bytes.iter().enumerate().skip(1).take(4) {
        value |= u32::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 || i == 4 {
            return Some((value, i + 1));
        }
    }
    None
}

impl Decoder {
    /// Creates a decoder for the start of a trace.
    pub fn new(config: &Config) -> Self {
        Self {
            config: *config,
            sync: Synchronisation::default(),
            addresses: Addresses::default(),
            timestamps: Timestamps::default(),
        }
    }

    #[inline]
    fn branch(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let address = AddressBytes::new(bytes, AddressEncoding::Alternative)?;
        if address.is_malformed() {
            return self.sync.bad_sequence(address.length);
        }
        let mut length = address.length;
        let mut information = None;
        let mut alternative = self.addresses.alternative;
        if address.more {
            let first = *bytes.get(length)?;
            length += 1;
            alternative = first & 0x40 != 0;
            let mut exception = u16::from(first >> 1 & 0xf);
            let mut hyp = None;
            if first & 0x80 != 0 {
                let second = *bytes.get(length)?;
                length += 1;
                exception |= u16::from(second & 0x1f) << 4;
                hyp = Some(second & 0x20 != 0);
            }
            information = Some(Information {
                exception,
                non_secure: first & 1 != 0,
                hyp,
            });
        }
        let mut cycles = None;
        if self.config.cycle_accurate {
            let (count, used) = cycle_count(&bytes[length..])?;
            cycles = Some(count);
            length += used;
        }
        self.addresses.alternative = alternative;
        let branch = Branch {
            address: self.addresses.complete(&address),
            information,
            cycles,
        };
        Some((Packet::Branch(branch), length))
    }

    fn waypoint_update(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let address = AddressBytes::new(&bytes[1..], AddressEncoding::Alternative)?;
        if address.is_malformed() {
            return self.sync.bad_sequence(1 + address.length);
        }
        let mut length = 1 + address.length;
        // Only a fifth address byte is followed by an information byte: AltISA (figure 4.36).
        if address.fifth.is_some() && address.more {
            self.addresses.alternative = *bytes.get(length)? & 0x40 != 0;
            length += 1;
        }
        let address = self.addresses.complete(&address);
        Some((Packet::WaypointUpdate { address }, length))
    }

    fn i_sync(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let address = little_endian(bytes.get(1..5)?);
        let information = SyncInformation(*bytes.get(5)?);
        let mut length = 6;
        let reason = information.reason();
        let mut cycles = None;
        if self.config.cycle_accurate && reason.is_some() {
            let (count, used) = cycle_count(&bytes[length..])?;
            cycles = Some(count);
            length += used;
        }
        let (context_id, length) = context_id(bytes, length, self.config.context_id_bytes)?;
        let alternative = information.alternative();
        let (address, isa) = thumb_address(address, alternative);
        self.addresses.alternative = alternative;
        self.addresses.set(address, isa);
        let sync = ISync {
            address,
            isa,
            reason,
            non_secure: information.non_secure(),
            hyp: information.hyp(),
            context_id,
            cycles,
        };
        Some((Packet::ISync(sync), length))
    }

    fn timestamp(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let mut timestamps = self.timestamps;
        let (value, used) = timestamps.next(&bytes[1..], self.config.timestamp)?;
        let mut length = 1 + used;
        let mut cycles = None;
        if self.config.cycle_accurate {
            let (count, used) = cycle_count(&bytes[length..])?;
            cycles = Some(count);
            length += used;
        }
        self.timestamps = timestamps;
        let stamp = Timestamp {
            value,
            frequency_changed: bytes[0] & 4 != 0,
            cycles,
        };
        Some((Packet::Timestamp(stamp), length))
    }

    /// Returns a mask for bytes: a masked byte is 0x80 if it is a packet of atoms without cycle
    /// count. The mask is 0 if no byte can be one.
    #[inline(always)]
    fn atom_bits(&self) -> u8 {
        match self.sync.is_reached() && !self.config.cycle_accurate {
            true => 0x81,
            false => 0,
        }
    }
}

/// Returns the atoms of a packet without cycle count.
#[inline(always)]
fn plain_atoms(byte: u8, atom_bits: u8) -> Option<Atoms> {
    if byte & atom_bits != 0x80 {
        return None;
    }
    let atoms = ATOMS[usize::from(byte & 0x7f)];
    (atoms.count > 0).then_some(atoms)
}

impl PacketDecoder for Decoder {
    type Packet = Packet;

    #[inline(always)]
    fn single(&self, byte: u8) -> Option<Packet> {
        plain_atoms(byte, self.atom_bits()).map(Packet::Atoms)
    }

    #[inline(always)]
    fn atoms(&self) -> impl Fn(u8) -> Option<AtomPacket> + use<> {
        let atom_bits = self.atom_bits();
        move |byte| plain_atoms(byte, atom_bits).map(AtomPacket::Waypoints)
    }

    /// Decodes one branch without further information, without a copy of its packet.
    #[inline(always)]
    fn several(&mut self, bytes: &[u8], at: usize, sink: &mut impl RangeSink<Packet>) -> usize {
        if let Some(window) = bytes.get(at..).and_then(|rest| rest.first_chunk::<5>())
            && window[0] & 1 == 1
            && self.sync.is_reached()
            && !self.config.cycle_accurate
            && let Some(address) = AddressBytes::new(window, AddressEncoding::Alternative)
            && !address.more
            && !address.is_malformed()
        {
            let branch = Branch {
                address: self.addresses.complete(&address),
                information: None,
                cycles: None,
            };
            let after = at + address.length;
            sink.packet(&Packet::Branch(branch), at..after);
            return after;
        }
        at
    }

    #[inline]
    fn next(&mut self, bytes: &[u8]) -> Option<(Packet, usize)> {
        let header = *bytes.first()?;
        if !self.sync.is_reached() {
            return self.sync.search(bytes);
        }
        if header & 1 == 1 {
            return self.branch(bytes);
        }
        if header & 0x80 != 0 {
            if self.config.cycle_accurate {
                let (cycles, length) = cycle_count(bytes)?;
                let taken = header & 2 == 0;
                return Some((Packet::TimedAtom { taken, cycles }, length));
            }
            return match self.single(header) {
                Some(packet) => Some((packet, 1)),
                None => self.sync.reserved(),
            };
        }
        match header {
            0x00 => self.sync.zeros(bytes),
            0x08 => self.i_sync(bytes),
            0x0c => Some((Packet::Trigger, 1)),
            0x3c => Some((Packet::Vmid(*bytes.get(1)?), 2)),
            0x42 | 0x46 => self.timestamp(bytes),
            0x66 => Some((Packet::Ignore, 1)),
            0x6e => {
                let length = 1 + usize::from(self.config.context_id_bytes);
                let id = little_endian(bytes.get(1..length)?);
                Some((Packet::ContextId(id), length))
            }
            0x72 => self.waypoint_update(bytes),
            0x76 => Some((Packet::ExceptionReturn, 1)),
            _ => self.sync.reserved(),
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
