//! `$position` and `$isa`: server-defined registers of cores with a history.
//!
//! `$position` is a number that identifies what the client sees of a core: 0 at the halted state,
//! and a different number for each past position and level of shown values. A client that caches
//! the callers at past positions requests them again when the number changes; GDB may read a
//! register where it may not send a packet.
//!
//! GDB selects the instruction set of 32-bit Arm code by CPSR.T. At past positions the trace
//! contains the instruction set but not the rest of the CPSR; `$isa` reports it.

use std::fmt::Write as _;

use crate::remote_protocol::hex;
use armsnap_arch::arch::{Architecture, TargetDescription};
use armsnap_arch::quantity::Isa;

/// Their numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryRegisters {
    position: u32,
    isa: Option<u32>,
}

/// One of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HistoryRegister {
    Position,
    Isa,
}

impl HistoryRegisters {
    /// Adds the registers to a target description.
    pub fn add_to(
        xml: &mut String,
        description: &TargetDescription,
        architecture: Architecture,
    ) -> Option<Self> {
        const END: &str = "</target>\n";
        let last = description
            .registers()
            .map(|register| register.number)
            .max()?;
        let position = last.checked_add(1)?;
        let start = xml.strip_suffix(END)?.len();
        xml.truncate(start);
        let _ = write!(
            xml,
            "<feature name=\"armsnap.history\">\n\
             <reg name=\"position\" bitsize=\"64\" regnum=\"{position}\" type=\"uint64\" \
             group=\"history\" save-restore=\"no\"/>\n"
        );
        let isa = position
            .checked_add(1)
            .filter(|_| architecture == Architecture::AArch32);
        if let Some(number) = isa {
            let _ = write!(
                xml,
                "<enum id=\"isa_type\" size=\"4\">\
                 <evalue name=\"A32\" value=\"0\"/><evalue name=\"T32\" value=\"1\"/></enum>\n\
                 <reg name=\"isa\" bitsize=\"32\" regnum=\"{number}\" type=\"isa_type\" \
                 group=\"history\" save-restore=\"no\"/>\n"
            );
        }
        let _ = write!(xml, "</feature>\n{END}");
        Some(Self { position, isa })
    }

    /// Returns which register has a number.
    pub fn find(self, number: u32) -> Option<HistoryRegister> {
        if number == self.position {
            Some(HistoryRegister::Position)
        } else {
            (Some(number) == self.isa).then_some(HistoryRegister::Isa)
        }
    }

    /// Returns the numbers and bytes of those with a known value, for a stop reply.
    pub fn expedited(self, position: u64, isa: Option<Isa>, is_big: bool) -> Vec<(u32, Vec<u8>)> {
        let mut all = vec![(self.position, position_bytes(position, is_big).to_vec())];
        if let (Some(number), Some(isa)) = (self.isa, isa) {
            all.extend(isa_bytes(isa, is_big).map(|bytes| (number, bytes.to_vec())));
        }
        all
    }
}

fn position_bytes(position: u64, is_big: bool) -> [u8; 8] {
    match is_big {
        true => position.to_be_bytes(),
        false => position.to_le_bytes(),
    }
}

/// Returns `$position` as sent.
pub(super) fn position_value(position: u64, is_big: bool) -> String {
    hex::encode(position_bytes(position, is_big))
}

fn isa_bytes(isa: Isa, is_big: bool) -> Option<[u8; 4]> {
    let value: u32 = match isa {
        Isa::A32 => 0,
        Isa::T32 => 1,
        Isa::A64 | Isa::ThumbEe | Isa::Jazelle => return None,
    };
    Some(match is_big {
        true => value.to_be_bytes(),
        false => value.to_le_bytes(),
    })
}

/// Returns `$isa` as sent.
pub(super) fn isa_value(isa: Option<Isa>, is_big: bool) -> String {
    let bytes = isa.and_then(|isa| isa_bytes(isa, is_big));
    bytes.map_or_else(|| "x".repeat(8), hex::encode)
}
