//! The Micro Trace Buffer (MTB) of Cortex-M0+, M23 and M33: taken branches in a ring of RAM.
//!
//! A packet has two words (ARM DDI 0486B, 2.2.2; ARM 100231, 2.1): the source of a branch with the
//! A bit, and its destination with the S bit. Registers contain the location of the ring and of its
//! next packet.

use crate::import::ImportError;
use crate::import::note::{MtbNote, Note};
use std::path::Path;

/// The size of a packet in bytes.
pub const PACKET: u64 = 8;
/// The maximum number of bytes of trace that are read: a thousand times what an MTB usually has.
const MOST: u64 = 16 << 20;

/// The relevant registers, with their values when the RAM was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    position: Option<u32>,
    master: Option<u32>,
    flow: u32,
    base: Option<u32>,
    /// The address of the exception vectors.
    pub vtor: Option<u32>,
    /// The address where the core halted.
    pub pc: Option<u32>,
}

impl Registers {
    /// Reads the values that the user specifies.
    ///
    /// # Errors
    ///
    /// If a name is not known.
    pub fn of(values: &[(String, u64)]) -> Result<Self, ImportError> {
        let mut out = Self::default();
        for (name, value) in values {
            let Ok(value) = u32::try_from(*value) else {
                let text = format!("--register {name}={value:#x}: expected 32 bits");
                return Err(ImportError::Usage(text));
            };
            let plain = name.to_ascii_uppercase();
            match plain.strip_prefix("MTB_").unwrap_or(&plain) {
                "POSITION" => out.position = Some(value),
                "MASTER" => out.master = Some(value),
                "FLOW" => out.flow = value,
                "BASE" => out.base = Some(value),
                "VTOR" => out.vtor = Some(value),
                "PC" => out.pc = Some(value),
                _ => {
                    return Err(ImportError::Usage(format!(
                        "--register {name}: is no register that --mtb needs: expected POSITION, MASTER, \
                         BASE, FLOW, VTOR or PC"
                    )));
                }
            }
        }
        Ok(out)
    }

    /// Finds the ring; `ram` is the address of the RAM, if the user specifies it.
    ///
    /// # Errors
    ///
    /// If a register is missing.
    pub fn ring(&self, ram: Option<u64>, notes: &mut Vec<Note>) -> Result<Ring, ImportError> {
        let (Some(position), Some(master)) = (self.position, self.master) else {
            return Err(ImportError::Usage(
                "--mtb: expected --register POSITION=VALUE and --register MASTER=VALUE, which say where \
                 in the RAM the trace is"
                    .to_owned(),
            ));
        };
        let base = match (self.base, ram) {
            (Some(base), _) => base.into(),
            (None, Some(ram)) => {
                notes.push(MtbNote::AssumedBase { ram }.into());
                ram
            }
            (None, None) => {
                return Err(ImportError::Usage(
                    "--mtb: expected the address of the RAM after @, or --register BASE=VALUE"
                        .to_owned(),
                ));
            }
        };
        // MASTER.MASK, bits 4:0: POSITION.POINTER, bits 31:3, wraps above its bit MASK.
        let size = 1_u64 << ((master & 0x1F) + 4);
        let pointer = u64::from(position & !7);
        // POINTER is an address modulo the size of the RAM, an unknown power of two.
        let span = (pointer + 1).next_power_of_two();
        let packet = base.wrapping_add(pointer.wrapping_sub(base) & (span - 1));
        let next = pointer & (size - 1);
        // FLOW.AUTOSTOP and AUTOHALT, bits 0 and 1: stop at WATERMARK, bits 31:3.
        let stops = self.flow & 3 != 0 && self.flow & !7 == position & !7;
        Ok(Ring {
            start: packet.wrapping_sub(next),
            size,
            next,
            // POSITION.WRAP, bit 2.
            wrapped: position & 4 != 0,
            // MASTER.EN, bit 31.
            on: master >> 31 == 1 && !stops,
        })
    }
}

/// The ring of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Its address.
    pub start: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The offset of the next packet.
    pub next: u64,
    /// Whether packets were overwritten.
    pub wrapped: bool,
    /// Whether the MTB was still tracing.
    pub on: bool,
}

/// A branch, or another change of the PC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The address of the branch; if `atomic`, the return address.
    pub source: u64,
    /// The destination.
    pub destination: u64,
    /// Whether it was not caused by an instruction, but by an exception, an exception return, or a
    /// debugger.
    pub atomic: bool,
    /// Whether it is the first one after tracing started.
    pub starts: bool,
}

impl Packet {
    fn read([source, destination]: [u32; 2]) -> Self {
        Self {
            source: (source & !1).into(),
            destination: (destination & !1).into(),
            atomic: source & 1 == 1,
            starts: destination & 1 == 1,
        }
    }
}

impl Ring {
    /// Reads the packets, the oldest first; `word` reads memory.
    ///
    /// # Errors
    ///
    /// If the memory does not contain them.
    pub fn packets(
        &self,
        path: &Path,
        word: impl Fn(u64) -> Option<u32>,
        notes: &mut Vec<Note>,
    ) -> Result<Vec<Packet>, ImportError> {
        let bytes = if self.wrapped { self.size } else { self.next };
        if bytes > MOST {
            let text = format!(
                "{bytes} bytes of trace, as POSITION and MASTER say: expected at most {MOST}"
            );
            return Err(ImportError::input(path, text));
        }
        let (older, newer) = (self.next..self.size, 0..self.next);
        let older = if self.wrapped { older } else { 0..0 };
        let offsets = older.chain(newer).step_by(PACKET as usize);
        let mut out = Vec::new();
        for offset in offsets {
            let address = self.start.wrapping_add(offset);
            let Some(words) = word(address).zip(word(address.wrapping_add(4))) else {
                return Err(ImportError::input(
                    path,
                    format!(
                        "the RAM has no bytes at {address:#x}: expected the {bytes} bytes of the trace \
                         from {:#x} on, as POSITION, MASTER and BASE say",
                        self.start
                    ),
                ));
            };
            out.push(Packet::read(words.into()));
        }
        let begin = out.iter().position(|packet| packet.starts);
        if let Some(begin) = begin.filter(|&begin| begin > 0 && !self.wrapped) {
            notes.push(MtbNote::OldPackets { count: begin }.into());
            out.drain(..begin);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(values: &[(&str, u64)], ram: Option<u64>) -> Ring {
        let values: Vec<_> = values.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
        let registers = Registers::of(&values).unwrap();
        registers.ring(ram, &mut Vec::new()).unwrap()
    }

    #[test]
    fn the_ring_is_where_position_and_mask_say() {
        // MASK 6: 1 KiB.
        let found = ring(
            &[("POSITION", 0x1234), ("MASTER", 0x8000_0006)],
            Some(0x2000_0000),
        );
        let wanted = Ring {
            start: 0x2000_1000,
            size: 0x400,
            next: 0x230,
            wrapped: true,
            on: true,
        };
        assert_eq!(found, wanted);
        // BASE is not a multiple of the size of the RAM, so POSITION contains its lower bits.
        let values = [
            ("MTB_POSITION", 0x4100),
            ("MTB_MASTER", 8),
            ("BASE", 0x2000_4000),
        ];
        let found = ring(&values, None);
        assert_eq!(
            (found.start, found.next, found.on),
            (0x2000_4000, 0x100, false)
        );
        // Stopped at the watermark.
        let values = [("POSITION", 0x100), ("MASTER", 1 << 31), ("FLOW", 0x101)];
        assert!(!ring(&values, Some(0)).on);
        // An address without RAM: there are no bytes to read, but there is no overflow either.
        let values = [("POSITION", 0x7FFF_FFF8), ("MASTER", 0x8000_001F)];
        ring(&values, Some(u64::MAX));
    }
}
