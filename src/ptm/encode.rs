//! PFT packets → bytes.
//!
//! Written from the packet diagrams of ARM IHI 0035B 4.5, and not from the decoder, so that the
//! two cannot share a mistake. Remembers what a decoder knows; knows no elements and no program.

use super::config::Config;
use super::packet::{Branch, ISync, Information, Packet, PartAddress, Timestamp};
use crate::element::{Atoms, TraceOnReason};
use crate::etmv3::compress::{self, Form, Known, Timestamps, require};
use crate::protocol::Unencodable;
use crate::quantity::Isa;

type Written = Result<(), Unencodable>;

/// Writes the packets of one PTM.
#[derive(Clone, Debug)]
pub struct Encoder {
    config: Config,
    known: Known,
    timestamps: Timestamps,
}

impl Encoder {
    /// For a source with this configuration.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            known: Known::default(),
            timestamps: Timestamps::default(),
        }
    }

    /// Appends the bytes of `packet`; nothing if there are none. Of an address only the bits are
    /// written that it says are told.
    pub fn packet(&mut self, packet: &Packet, out: &mut Vec<u8>) -> Written {
        let begin = out.len();
        let mut next = self.clone();
        let written = next.write(packet, out);
        match written {
            Ok(()) => *self = next,
            Err(_) => out.truncate(begin),
        }
        written
    }

    /// `address` in its shortest form, behind what was written so far. With `information`,
    /// exception information follows.
    pub fn shortest(&self, address: u32, isa: Isa, information: bool) -> PartAddress {
        PartAddress {
            value: address,
            bits: self
                .known
                .shortest(address, isa, Form::Alternative, information),
            isa,
        }
    }

    fn write(&mut self, packet: &Packet, out: &mut Vec<u8>) -> Written {
        match *packet {
            Packet::NotSync | Packet::Reserved | Packet::BadSequence | Packet::Incomplete => {
                return Err(Unencodable);
            }
            Packet::ASync => {
                out.extend([0, 0, 0, 0, 0, 0x80]);
                self.known = Known::default();
                self.timestamps.forget();
            }
            Packet::ISync(ref sync) => self.i_sync(sync, out)?,
            Packet::Atoms(atoms) => {
                require(!self.config.cycle_accurate)?;
                out.push(atom_header(atoms)?);
            }
            Packet::TimedAtom { taken, cycles } => {
                require(self.config.cycle_accurate)?;
                // F: an N atom has a one.
                cycle_count(0x80 | u8::from(!taken) << 1, cycles, out);
            }
            Packet::Branch(ref branch) => self.branch(branch, out)?,
            Packet::WaypointUpdate { address } => {
                out.push(0b0111_0010);
                let alternative = self.known.needs_information(address.isa);
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
                compress::context_id(id, self.config.context_id_bytes, out)?;
            }
            Packet::Vmid(vmid) => out.extend([0b0011_1100, vmid]),
            Packet::Timestamp(ref stamp) => self.timestamp(stamp, out)?,
            Packet::ExceptionReturn => out.push(0b0111_0110),
            Packet::Ignore => out.push(0b0110_0110),
        }
        Ok(())
    }

    fn address(&mut self, address: PartAddress, information: bool, out: &mut Vec<u8>) -> Written {
        let PartAddress { value, bits, isa } = address;
        // An I-sync comes first.
        require(isa != Isa::Jazelle && self.known.place.is_some())?;
        compress::address(value, bits, isa, Form::Alternative, information, out)?;
        self.known.tell(value, isa, information);
        Ok(())
    }

    fn branch(&mut self, branch: &Branch, out: &mut Vec<u8>) -> Written {
        let isa = branch.address.isa;
        let information = branch.information;
        require(information.is_some() || !self.known.needs_information(isa))?;
        self.address(branch.address, information.is_some(), out)?;
        if let Some(told) = information {
            exception(&told, isa, out)?;
        }
        self.cycles(branch.cycles, self.config.cycle_accurate, out)
    }

    /// The whole address, T in its bit 0; then 0, reason, 0, NS, AltISA, Hyp, 1.
    fn i_sync(&mut self, sync: &ISync, out: &mut Vec<u8>) -> Written {
        let thumb = matches!(sync.isa, Isa::T32 | Isa::ThumbEe);
        require(thumb || sync.isa == Isa::A32)?;
        require(sync.address & ((1 << compress::unused(sync.isa)) - 1) == 0)?;
        out.push(0b0000_1000);
        out.extend((sync.address | u32::from(thumb)).to_le_bytes());
        let reason = match sync.reason {
            None => 0,
            Some(TraceOnReason::BeginOrFilter) => 1,
            Some(TraceOnReason::Overflow) => 2,
            Some(TraceOnReason::DebugRestart) => 3,
        };
        out.push(
            reason << 5
                | u8::from(sync.non_secure) << 3
                | u8::from(sync.isa == Isa::ThumbEe) << 2
                | u8::from(sync.hyp) << 1
                | 1,
        );
        let counted = self.config.cycle_accurate && sync.reason.is_some();
        self.cycles(sync.cycles, counted, out)?;
        require(sync.context_id.is_some() == (self.config.context_id_bytes > 0))?;
        if let Some(id) = sync.context_id {
            compress::context_id(id, self.config.context_id_bytes, out)?;
        }
        self.known.tell(sync.address, sync.isa, true);
        Ok(())
    }

    fn timestamp(&mut self, stamp: &Timestamp, out: &mut Vec<u8>) -> Written {
        // R: the clock frequency changed.
        out.push(0b0100_0010 | u8::from(stamp.frequency_changed) << 2);
        self.timestamps
            .write(stamp.value, self.config.timestamp, out)?;
        self.cycles(stamp.cycles, self.config.cycle_accurate, out)
    }

    /// A cycle count where, and only where, there is one.
    fn cycles(&self, cycles: Option<u32>, wanted: bool, out: &mut Vec<u8>) -> Written {
        require(cycles.is_some() == wanted)?;
        if let Some(cycles) = cycles {
            cycle_count(0, cycles, out);
        }
        Ok(())
    }
}

/// Bits \[5:2\] of the first byte are the low ones, its bit 6 says that more bytes follow, of 7
/// bits each. The other bits of the first byte are given.
fn cycle_count(first: u8, cycles: u32, out: &mut Vec<u8>) {
    let rest = cycles >> 4;
    out.push(first | u8::from(rest > 0) << 6 | (cycles as u8 & 0xf) << 2);
    if rest > 0 {
        compress::leb128(rest, out);
    }
}

/// A one above the atoms says how many they are; N is a one, the oldest is on the left.
fn atom_header(atoms: Atoms) -> Result<u8, Unencodable> {
    require((1..=5).contains(&atoms.count) && atoms.bits >> atoms.count == 0)?;
    let marked = (0..atoms.count).fold(1, |header, i| header << 1 | u8::from(!atoms.is_e(i)));
    Ok(0x80 | marked << 1)
}

/// First byte: C, AltISA, 0, Exc\[3:0\], NS; second: 0, 0, Hyp, Exc\[8:4\].
fn exception(told: &Information, isa: Isa, out: &mut Vec<u8>) -> Written {
    let number = told.exception;
    require(number < 1 << 9 && (number < 16 || told.hyp.is_some()))?;
    out.push(
        u8::from(told.hyp.is_some()) << 7
            | u8::from(isa == Isa::ThumbEe) << 6
            | (number as u8 & 0xf) << 1
            | u8::from(told.non_secure),
    );
    if let Some(hyp) = told.hyp {
        out.push(u8::from(hyp) << 5 | (number >> 4) as u8);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
