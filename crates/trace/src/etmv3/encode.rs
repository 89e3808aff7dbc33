//! ETMv3 packets of the instruction trace → bytes.
//!
//! Written from the packet diagrams of ARM IHI 0014Q, chapter 7, and not from the decoder, so that
//! the two cannot share a mistake. The encoder keeps the same state as a decoder. Packets of the
//! data trace are not written.

use super::config::Config;
use super::packet::{Branch, ISync, Information, Packet, PartAddress, Timing};
use crate::element::Atoms;
use crate::etm::config::AddressEncoding;
use crate::etm::encode::{self, Encoder, Protocol};
use crate::protocol::number::leb128;
use crate::protocol::{Unencodable, Written, require};
use armsnap_arch::quantity::Isa;

impl Protocol for Config {
    type Packet = Packet;

    fn address_encoding(&self) -> AddressEncoding {
        Self::address_encoding(self)
    }

    fn write(encoder: &mut Encoder<Self>, packet: &Packet, out: &mut Vec<u8>) -> Written {
        encoder.write(packet, out)
    }
}

impl Encoder<Config> {
    fn write(&mut self, packet: &Packet, out: &mut Vec<u8>) -> Written {
        match *packet {
            Packet::ASync => self.decoder.a_sync(out),
            Packet::ISync(ref sync) => self.i_sync(sync, out)?,
            Packet::PHeader { atoms, timing } => {
                require((timing == Timing::None) != self.config.cycle_accurate)?;
                out.push(p_header(atoms, timing)?);
            }
            Packet::CycleCount(cycles) => {
                out.push(0b0000_0100);
                leb128(cycles, out);
            }
            Packet::Branch(ref branch) => self.branch(branch, out)?,
            Packet::ContextId(id) => {
                out.push(0b0110_1110);
                encode::context_id(id, self.config.context_id_bytes, out)?;
            }
            Packet::Vmid(vmid) => out.extend([0b0011_1100, vmid]),
            Packet::ExceptionEntry => out.push(0b0111_1110),
            Packet::ExceptionExit => out.push(0b0111_0110),
            Packet::Timestamp {
                value,
                frequency_changed,
            } => {
                out.push(0b0100_0010 | u8::from(frequency_changed) << 2);
                self.decoder.timestamp(value, self.config.timestamp, out)?;
            }
            Packet::Trigger => out.push(0b0000_1100),
            Packet::Ignore => out.push(0b0110_0110),
            Packet::NotSync
            | Packet::NormalData { .. }
            | Packet::OutOfOrderData { .. }
            | Packet::OutOfOrderPlaceholder { .. }
            | Packet::ValueNotTraced { .. }
            | Packet::DataSuppressed
            | Packet::StoreFailed
            | Packet::Reserved
            | Packet::BadSequence
            | Packet::Incomplete => return Err(Unencodable),
        }
        Ok(())
    }

    fn branch(&mut self, branch: &Branch, out: &mut Vec<u8>) -> Written {
        let PartAddress { value, bits, isa } = branch.address;
        // An I-sync must come first.
        require(self.decoder.place.is_some())?;
        let info = branch.information.filter(|info| !info.deprecated);
        let encoding = self.config.address_encoding();
        encode::address(branch.address, encoding, info.is_some(), out)?;
        match branch.information {
            Some(ref info) if info.deprecated => {
                // The fifth byte: 1, Can, Exc[2:0], A[31:29].
                let plain = info.non_secure.is_none() && info.hyp.is_none() && info.resume == 0;
                require(plain && isa == Isa::A32 && bits == 32 && info.exception < 8)?;
                out.pop();
                let number = (info.exception as u8) << 3;
                out.push(0x80 | u8::from(info.cancel) << 6 | number | (value >> 29) as u8);
            }
            Some(ref info) => self.information(info, isa, out)?,
            None => require(!self.decoder.needs_information(isa))?,
        }
        self.decoder.set(value, isa, info.is_some());
        Ok(())
    }

    /// Exception information: the first byte, then if needed C, 0, Hyp, Exc\[8:4\], and 0, 1, 0, 0,
    /// Resume\[3:0\].
    fn information(&self, info: &Information, isa: Isa, out: &mut Vec<u8>) -> Written {
        let non_secure = info.non_secure.ok_or(Unencodable)?;
        let (second, third) = (info.hyp.is_some(), info.resume > 0);
        let microcontroller = self.config.core.is_microcontroller();
        let limit = 1 << if microcontroller && second { 9 } else { 4 };
        require(info.exception < limit && info.resume < 16)?;
        let more = second || third;
        let number = info.exception;
        out.push(encode::information(
            more,
            isa,
            info.cancel,
            number,
            non_secure,
        ));
        if let Some(hyp) = info.hyp {
            let high = (number >> 4) as u8;
            out.push(u8::from(third) << 7 | u8::from(hyp) << 5 | high);
        }
        if third {
            out.push(0x40 | info.resume);
        }
        Ok(())
    }

    /// Cycles, context ID, information, the address; with LSiP also the next address, compressed.
    fn i_sync(&mut self, sync: &ISync, out: &mut Vec<u8>) -> Written {
        let config = self.config;
        match sync.cycles {
            None => out.push(0b0000_1000),
            Some(cycles) => {
                out.push(0b0111_0000);
                leb128(cycles, out);
            }
        }
        encode::sync_context_id(sync.context_id, config.context_id_bytes, out)?;
        require(config.virtualization || !sync.hyp)?;
        require(config.instructions == sync.place.is_some())?;
        let isa = sync.place.map_or(Isa::A32, |place| place.isa);
        let next = sync.place.and_then(|place| place.next);
        out.push(encode::sync_information(
            next.is_some(),
            sync.reason,
            sync.non_secure,
            isa,
            sync.hyp,
        ));
        let Some(place) = sync.place else {
            return Ok(());
        };
        require(isa != Isa::ThumbEe || config.minor_version >= 3)?;
        encode::sync_address(place.address, isa, out)?;
        self.decoder.set(place.address, isa, true);
        if let Some(next) = next {
            let address = self.shortest(next, isa, false);
            encode::address(address, config.address_encoding(), false, out)?;
            self.decoder.set(next, isa, false);
        }
        Ok(())
    }
}

/// A P-header (ARM IHI 0014Q, tables 7.2 and 7.3).
fn p_header(atoms: Atoms, timing: Timing) -> Result<u8, Unencodable> {
    let Atoms { bits, count } = atoms;
    require(count <= 16 && bits >> count == 0)?;
    let n = |index: u8| u8::from(!atoms.is_e(index));
    let passed = bits.trailing_ones() as u8;
    // E atoms, then an N or nothing.
    let straight = passed == count || passed + 1 == count;
    let failed = count - passed.min(count);
    let header = match timing {
        // 1 N EEEE 00
        Timing::None if straight && count > 0 && passed < 16 => 0x80 | failed << 6 | passed << 2,
        // 1000 FF 10
        Timing::None if count == 2 => 0b1000_0010 | n(0) << 3 | n(1) << 2,
        // 1 N 0 EEE 00
        Timing::Each if straight && count > 0 && passed < 8 => 0x80 | failed << 6 | passed << 2,
        // 1000 FF 10: W, then two atoms
        Timing::Before(1) if count == 2 => 0b1000_0010 | n(0) << 3 | n(1) << 2,
        // 1 E 1 WWW 00
        Timing::Before(cycles @ 1..=8) if count == passed && count < 2 => {
            0b1010_0000 | count << 6 | (cycles - 1) << 2
        }
        // 1001 0 F 10: an atom without a cycle
        Timing::Before(0) if count == 1 => 0b1001_0010 | n(0) << 2,
        _ => return Err(Unencodable),
    };
    Ok(header)
}

#[cfg(test)]
mod tests;
