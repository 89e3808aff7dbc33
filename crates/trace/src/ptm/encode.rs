//! PFT packets → bytes.
//!
//! Written from the packet diagrams of ARM IHI 0035B 4.5, and not from the decoder, so that the two
//! cannot share a mistake. The encoder keeps the same state as a decoder.

use super::config::Config;
use super::packet::{Branch, ISync, Information, Packet, PartAddress, Timestamp};
use crate::element::Atoms;
use crate::etm::config::AddressEncoding;
use crate::etm::encode::{self, Encoder, Protocol};
use crate::protocol::number::leb128;
use crate::protocol::{Unencodable, Written, require};
use armsnap_arch::quantity::Isa;

impl Protocol for Config {
    type Packet = Packet;

    fn address_encoding(&self) -> AddressEncoding {
        AddressEncoding::Alternative
    }

    fn write(encoder: &mut Encoder<Self>, packet: &Packet, out: &mut Vec<u8>) -> Written {
        encoder.write(packet, out)
    }
}

impl Encoder<Config> {
    fn write(&mut self, packet: &Packet, out: &mut Vec<u8>) -> Written {
        match *packet {
            Packet::NotSync | Packet::Reserved | Packet::BadSequence | Packet::Incomplete => {
                return Err(Unencodable);
            }
            Packet::ASync => self.decoder.a_sync(out),
            Packet::ISync(ref sync) => self.i_sync(sync, out)?,
            Packet::Atoms(atoms) => {
                require(!self.config.cycle_accurate)?;
                out.push(atom_header(atoms)?);
            }
            Packet::TimedAtom { taken, cycles } => {
                require(self.config.cycle_accurate)?;
                // F: 1 for an N atom.
                cycle_count(0x80 | u8::from(!taken) << 1, cycles, out);
            }
            Packet::Branch(ref branch) => self.branch(branch, out)?,
            Packet::WaypointUpdate { address } => {
                out.push(0b0111_0010);
                let alternative = self.decoder.needs_information(address.isa);
                // Only a whole address can be followed by AltISA.
                let information = alternative && address.bits == 32;
                require(information || !alternative)?;
                self.address(address, information, out)?;
                if information {
                    out.push(u8::from(address.isa == Isa::ThumbEe) << 6);
                }
            }
            Packet::Trigger => out.push(0b0000_1100),
            Packet::ContextId(id) => {
                out.push(0b0110_1110);
                encode::context_id(id, self.config.context_id_bytes, out)?;
            }
            Packet::Vmid(vmid) => out.extend([0b0011_1100, vmid]),
            Packet::Timestamp(ref stamp) => self.timestamp(stamp, out)?,
            Packet::ExceptionReturn => out.push(0b0111_0110),
            Packet::Ignore => out.push(0b0110_0110),
        }
        Ok(())
    }

    fn address(&mut self, address: PartAddress, information: bool, out: &mut Vec<u8>) -> Written {
        let PartAddress { value, isa, .. } = address;
        // An I-sync must come first.
        require(isa != Isa::Jazelle && self.decoder.place.is_some())?;
        encode::address(address, AddressEncoding::Alternative, information, out)?;
        self.decoder.set(value, isa, information);
        Ok(())
    }

    fn branch(&mut self, branch: &Branch, out: &mut Vec<u8>) -> Written {
        let isa = branch.address.isa;
        let information = branch.information;
        require(information.is_some() || !self.decoder.needs_information(isa))?;
        self.address(branch.address, information.is_some(), out)?;
        if let Some(info) = information {
            exception(&info, isa, out)?;
        }
        self.cycles(branch.cycles, self.config.cycle_accurate, out)
    }

    /// An I-sync: the address, information, cycles, context ID.
    fn i_sync(&mut self, sync: &ISync, out: &mut Vec<u8>) -> Written {
        require(sync.isa != Isa::Jazelle)?;
        out.push(0b0000_1000);
        encode::sync_address(sync.address, sync.isa, out)?;
        out.push(encode::sync_information(
            false,
            sync.reason,
            sync.non_secure,
            sync.isa,
            sync.hyp,
        ));
        let counted = self.config.cycle_accurate && sync.reason.is_some();
        self.cycles(sync.cycles, counted, out)?;
        encode::sync_context_id(sync.context_id, self.config.context_id_bytes, out)?;
        self.decoder.set(sync.address, sync.isa, true);
        Ok(())
    }

    fn timestamp(&mut self, stamp: &Timestamp, out: &mut Vec<u8>) -> Written {
        // R: the clock frequency changed.
        out.push(0b0100_0010 | u8::from(stamp.frequency_changed) << 2);
        self.decoder
            .timestamp(stamp.value, self.config.timestamp, out)?;
        self.cycles(stamp.cycles, self.config.cycle_accurate, out)
    }

    /// Writes a cycle count, which must be present if and only if `wanted`.
    fn cycles(&self, cycles: Option<u32>, wanted: bool, out: &mut Vec<u8>) -> Written {
        require(cycles.is_some() == wanted)?;
        if let Some(cycles) = cycles {
            cycle_count(0, cycles, out);
        }
        Ok(())
    }
}

/// A cycle count: the low bits in \[5:2\] of the first byte, whose bit 6 is set if more bytes
/// follow, 7 bits in each. `first` has the other bits of the first byte.
fn cycle_count(first: u8, cycles: u32, out: &mut Vec<u8>) {
    let rest = cycles >> 4;
    out.push(first | u8::from(rest > 0) << 6 | (cycles as u8 & 0xf) << 2);
    if rest > 0 {
        leb128(rest, out);
    }
}

/// An atom header: a 1 above the atoms marks their number; N is 1, the oldest has the highest bit.
fn atom_header(atoms: Atoms) -> Result<u8, Unencodable> {
    require((1..=5).contains(&atoms.count) && atoms.bits >> atoms.count == 0)?;
    let marked = (0..atoms.count).fold(1, |header, i| header << 1 | u8::from(!atoms.is_e(i)));
    Ok(0x80 | marked << 1)
}

/// Exception information: the first byte, without Can; the second: 0, 0, Hyp, Exc\[8:4\].
fn exception(info: &Information, isa: Isa, out: &mut Vec<u8>) -> Written {
    let number = info.exception;
    let more = info.hyp.is_some();
    require(number < 1 << 9 && (number < 16 || more))?;
    out.push(encode::information(
        more,
        isa,
        false,
        number,
        info.non_secure,
    ));
    if let Some(hyp) = info.hyp {
        out.push(u8::from(hyp) << 5 | (number >> 4) as u8);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
