//! Notes on the description of a trace file.

use std::fmt;

/// What cannot be read in a trace file's description, or was inferred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A line cannot be read.
    Line {
        /// Its number, from 1.
        number: usize,
        /// The fault.
        fault: LineFault,
    },
    /// No line contains the size of register blocks.
    NoRegisterSize,
    /// The frames determined whether the size of register blocks is hexadecimal or decimal.
    RegisterSize {
        /// Whether it is decimal.
        decimal: bool,
        /// The size.
        bytes: u32,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { number, fault } => write!(f, "line {number}: {fault}"),
            Self::NoRegisterSize => f.write_str(
                "there is no R line: the size of register blocks is not known, GDB reads no such \
                 file",
            ),
            Self::RegisterSize { decimal, bytes } => {
                let form = match decimal {
                    true => "decimal, as GDB's manual says",
                    false => "hex, as GDB writes it",
                };
                write!(f, "R is read as {form}: {bytes} bytes a register block")
            }
        }
    }
}

/// What is wrong with a line of the description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineFault {
    /// The size of register blocks is not a number.
    RegisterSize {
        /// What the line contains instead.
        found: String,
    },
    /// The size of register blocks is repeated; the last one is used.
    SecondRegisterSize,
    /// The status starts with neither 0 nor 1.
    Status {
        /// Its first characters.
        found: String,
    },
    /// A field of the status cannot be read.
    StatusField {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// The line cannot be read.
    Unreadable {
        /// Its first word.
        kind: String,
        /// The rest.
        rest: String,
    },
}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RegisterSize { found } => {
                write!(f, "R: expected a number of bytes, found {found:?}")
            }
            Self::SecondRegisterSize => f.write_str("R: repeated; the last one is used"),
            Self::Status { found } => write!(f, "status: expected 0 or 1, found {found:?}"),
            Self::StatusField { name, value } => {
                write!(f, "status: {name}: cannot read {value:?}")
            }
            Self::Unreadable { kind, rest } => write!(f, "{kind}: cannot read {rest:?}"),
        }
    }
}
