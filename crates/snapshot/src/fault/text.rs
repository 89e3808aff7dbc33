//! A fault as lines of text.

use super::{Fault, Relation};
use std::fmt;

/// Formats a fault: a line that says it all, then its parts, indented.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(pub &'a Fault);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = self.0;
        writeln!(f, "{}", fault.summary)?;
        if let Some(instruction) = &fault.instruction {
            let what = match instruction.relation {
                Relation::Faulted => "instruction",
                Relation::NotFetched => "not fetched",
                Relation::After => "reported at",
                Relation::Interrupted => "interrupted",
            };
            write!(f, "  {what:<12} {:#x}", instruction.address)?;
            if let Some(place) = &instruction.place {
                write!(f, " {place}")?;
            }
            if let Some(text) = &instruction.text {
                write!(f, ": {text}")?;
            }
            writeln!(f)?;
        }
        if let Some(address) = &fault.address {
            let what = match address.computed {
                true => "accesses",
                false => "address",
            };
            write!(f, "  {what:<12} {:#x}", address.address)?;
            for (number, (name, value)) in address.from.iter().enumerate() {
                let before = if number == 0 { ", from " } else { " and " };
                write!(f, "{before}{name} ({value:#x})")?;
            }
            writeln!(f, ": {}", address.what)?;
        }
        for register in &fault.status {
            let digits = register.bits as usize / 4 + 2;
            write!(f, "  {:<12} {:#0digits$x}", register.name, register.value)?;
            match register.meaning.as_str() {
                "" => writeln!(f)?,
                meaning => writeln!(f, ": {meaning}")?,
            }
        }
        for line in fault.interrupted.chunks(4) {
            let mut before = "  registers   ";
            for register in line {
                write!(f, "{before} {}={:#x}", register.name, register.value)?;
                before = "";
            }
            writeln!(f)?;
        }
        for note in &fault.notes {
            writeln!(f, "  note: {note}")?;
        }
        Ok(())
    }
}
