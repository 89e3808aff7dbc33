//! Notes on the description of a trace file.

/// What cannot be read in a trace file's description, or was inferred.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// A line cannot be read.
    #[error("line {number}: {fault}")]
    Line {
        /// Its number, from 1.
        number: usize,
        /// The fault.
        fault: LineFault,
    },
    /// No line contains the size of register blocks.
    #[error("there is no R line: the size of register blocks is not known, GDB reads no such file")]
    NoRegisterSize,
    /// The frames determined whether the size of register blocks is hexadecimal or decimal.
    #[error(
        "R is read as {}: {bytes} bytes a register block",
        if *.decimal { "decimal, as GDB's manual says" } else { "hex, as GDB writes it" }
    )]
    RegisterSize {
        /// Whether it is decimal.
        decimal: bool,
        /// The size.
        bytes: u32,
    },
}

/// What is wrong with a line of the description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// The size of register blocks is not a number.
    #[error("R: expected a number of bytes, found {found:?}")]
    RegisterSize {
        /// What the line contains instead.
        found: String,
    },
    /// The size of register blocks is repeated.
    #[error("R: repeated; the last one is used")]
    SecondRegisterSize,
    /// The status starts with neither 0 nor 1.
    #[error("status: expected 0 or 1, found {found:?}")]
    Status {
        /// Its first characters.
        found: String,
    },
    /// A field of the status cannot be read.
    #[error("status: {name}: cannot read {value:?}")]
    StatusField {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// The line cannot be read.
    #[error("{kind}: cannot read {rest:?}")]
    Unreadable {
        /// Its first word.
        kind: String,
        /// The rest.
        rest: String,
    },
}
