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

    /// Formats the known values for a stop reply.
    pub fn expedited(self, position: u64, isa: Option<Isa>, is_big: bool) -> String {
        let position = position_value(position, is_big);
        let mut text = format!("{:x}:{position};", self.position);
        if let (Some(number), Some(_)) = (self.isa, isa) {
            let _ = write!(text, "{number:x}:{};", isa_value(isa, is_big));
        }
        text
    }
}

/// Returns `$position` as sent.
pub(super) fn position_value(position: u64, is_big: bool) -> String {
    match is_big {
        true => format!("{position:016x}"),
        false => format!("{:016x}", position.swap_bytes()),
    }
}

/// Returns `$isa` as sent.
pub(super) fn isa_value(isa: Option<Isa>, is_big: bool) -> &'static str {
    match isa {
        Some(Isa::A32) => "00000000",
        Some(Isa::T32) if is_big => "00000001",
        Some(Isa::T32) => "01000000",
        Some(Isa::A64 | Isa::ThumbEe | Isa::Jazelle) | None => "xxxxxxxx",
    }
}
