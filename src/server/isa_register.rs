//! `$isa`: a server-defined register with the instruction set.
//!
//! GDB selects the instruction set of 32-bit Arm code by CPSR.T. At past positions the trace
//! contains the instruction set but not the rest of the CPSR; this register reports it.

use std::fmt::Write as _;

use crate::arch::TargetDescription;
use crate::quantity::Isa;

/// Adds the register to a target description. Returns its number.
pub(super) fn add_to(xml: &mut String, description: &TargetDescription) -> Option<u32> {
    const END: &str = "</target>\n";
    let last = description
        .registers()
        .map(|register| register.number)
        .max()?;
    let number = last.checked_add(1)?;
    let start = xml.strip_suffix(END)?.len();
    xml.truncate(start);
    let _ = write!(
        xml,
        "<feature name=\"armsnap.history\">\n\
         <enum id=\"isa_type\" size=\"4\">\
         <evalue name=\"A32\" value=\"0\"/><evalue name=\"T32\" value=\"1\"/></enum>\n\
         <reg name=\"isa\" bitsize=\"32\" regnum=\"{number}\" type=\"isa_type\" \
         group=\"history\" save-restore=\"no\"/>\n</feature>\n{END}"
    );
    Some(number)
}

/// Returns its value as sent.
pub(super) fn value(isa: Option<Isa>) -> &'static str {
    match isa {
        Some(Isa::A32) => "00000000",
        Some(Isa::T32) => "01000000",
        Some(Isa::A64 | Isa::ThumbEe | Isa::Jazelle) | None => "xxxxxxxx",
    }
}
