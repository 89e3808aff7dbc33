//! Where decoded trace goes: text is escaped and coloured, records are written as they are.

use super::Format;
use crate::cli::Failure;
use crate::cli::listing::{Colored, Lines};
use crate::cli::output::Output;
use armsnap::text::{Form, PlainStream};
use std::io::{self, Write};

/// The output, with what is done to it on the way.
pub enum Destination {
    /// Text or JSON Lines.
    Text(PlainStream<Colored<Output>>),
    /// Records.
    Binary(Output),
}

impl Destination {
    /// Writes to `out`.
    pub fn new(out: Output, format: Format, lines: Lines) -> Self {
        let form = match format {
            Format::Binary => return Self::Binary(out),
            Format::Jsonl => Form::Json,
            Format::Text | Format::None => Form::Text,
        };
        Self::Text(PlainStream::new(Colored::new(out, lines), form))
    }

    /// Writes an incomplete last line, and returns the output.
    pub fn into_inner(self) -> Result<Output, Failure> {
        match self {
            Self::Text(out) => Ok(out.into_inner().into_inner()?),
            Self::Binary(out) => Ok(out),
        }
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Text(out) => out.write(bytes),
            Self::Binary(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Text(out) => out.flush(),
            Self::Binary(out) => out.flush(),
        }
    }
}
