//! Table rows, and their formatting as JSON Lines or CSV (RFC 4180).

use super::columns::{Column, Table};
use super::spool::Spool;
use armsnap_arch::quantity::Address;
use std::fmt::Write as _;
use std::io::{self, Write};

/// The format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An object for each row.
    Jsonl,
    /// Comma-separated values, with a header line.
    Csv,
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Unknown, or not applicable.
    None,
    /// A number.
    Number(u64),
    /// A number that may be negative.
    Signed(i64),
    /// An address.
    Address(u64),
    /// A number with decimal places, as text.
    Decimal(&'a str),
    /// Yes or no.
    Flag(bool),
    /// Text.
    Text(&'a str),
}

impl From<Option<u64>> for Value<'_> {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Self::None, Self::Number)
    }
}

impl From<Option<Address>> for Value<'_> {
    fn from(address: Option<Address>) -> Self {
        address.map_or(Self::None, |address| Self::Address(address.0))
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.map_or(Self::None, Self::Text)
    }
}

/// Receives the rows of a track.
pub trait Sink {
    /// Returns whether a table is wanted.
    fn wants(&self, table: Table) -> bool;

    /// Accepts a row of a wanted table: the values of its columns. Errors are kept until the end.
    fn put(&mut self, table: Table, values: &[Value<'_>]);
}

/// Rows as lines of text.
#[derive(Debug)]
pub struct Lines {
    form: Form,
    tables: Vec<Table>,
    text: String,
    spool: Spool,
}

impl Lines {
    /// Starts the rows of a track.
    pub fn new(form: Form, tables: &[Table]) -> Self {
        Self {
            form,
            tables: tables.to_vec(),
            text: String::new(),
            spool: Spool::new(),
        }
    }
}

impl Sink for Lines {
    fn wants(&self, table: Table) -> bool {
        self.tables.contains(&table)
    }

    fn put(&mut self, table: Table, values: &[Value<'_>]) {
        self.text.clear();
        row(&mut self.text, self.form, table, values);
        self.spool.put(self.text.as_bytes());
    }
}

/// Writes the rows of all tracks.
///
/// # Errors
///
/// If the output cannot be written.
pub fn write(
    form: Form,
    tables: &[Table],
    tracks: Vec<Lines>,
    out: &mut impl Write,
) -> io::Result<()> {
    if form == Form::Csv {
        for table in tables {
            let names: Vec<&str> = table.columns().iter().map(|column| column.name).collect();
            writeln!(out, "{}", names.join(","))?;
        }
    }
    for track in tracks {
        track.spool.copy_to(out)?;
    }
    Ok(())
}

/// Appends a row. CSV does not contain the table's name.
fn row(out: &mut String, form: Form, table: Table, values: &[Value<'_>]) {
    let columns = table.columns();
    debug_assert_eq!(columns.len(), values.len());
    let names = columns.iter().map(|Column { name, .. }| *name);
    line(out, form, table.name(), names, values);
}

/// Appends a row of a table with these columns. CSV does not contain the table's name.
pub fn line<'n>(
    out: &mut String,
    form: Form,
    table: &str,
    columns: impl Iterator<Item = &'n str>,
    values: &[Value<'_>],
) {
    match form {
        Form::Jsonl => {
            let _ = write!(out, "{{\"table\":\"{table}\"");
            for (name, value) in columns.zip(values) {
                let _ = write!(out, ",\"{name}\":");
                json(out, *value);
            }
            out.push_str("}\n");
        }
        Form::Csv => {
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                csv(out, *value);
            }
            out.push('\n');
        }
    }
}

fn json(out: &mut String, value: Value<'_>) {
    let _ = match value {
        Value::None => write!(out, "null"),
        Value::Number(number) => write!(out, "{number}"),
        Value::Signed(number) => write!(out, "{number}"),
        Value::Address(address) => write!(out, "\"{address:#x}\""),
        Value::Decimal(number) => write!(out, "{number}"),
        Value::Flag(flag) => write!(out, "{flag}"),
        Value::Text(text) => {
            let text = serde_json::Value::from(text);
            write!(out, "{text}")
        }
    };
}

fn csv(out: &mut String, value: Value<'_>) {
    let _ = match value {
        Value::None => Ok(()),
        Value::Number(number) => write!(out, "{number}"),
        Value::Signed(number) => write!(out, "{number}"),
        Value::Address(address) => write!(out, "{address:#x}"),
        Value::Decimal(number) => write!(out, "{number}"),
        Value::Flag(flag) => write!(out, "{flag}"),
        Value::Text(text) => {
            // A spreadsheet would treat such a cell as a formula, which may run a command, and
            // names come from untrusted files. A leading apostrophe makes it text.
            let apostrophe = match text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
                true => "'",
                false => "",
            };
            match text.contains(['"', ',', '\n', '\r']) {
                true => write!(out, "\"{apostrophe}{}\"", text.replace('"', "\"\"")),
                false => write!(out, "{apostrophe}{text}"),
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_csv_are_no_formulas() {
        for (text, cell) in [
            ("main", "main"),
            ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
            ("+1", "'+1"),
            ("-[Shop open]", "'-[Shop open]"),
            ("@x,\"y\"", "\"'@x,\"\"y\"\"\""),
            ("\tx", "'\tx"),
            ("a=b", "a=b"),
            ("", ""),
        ] {
            let mut out = String::new();
            csv(&mut out, Value::Text(text));
            assert_eq!(out, cell);
        }
        let mut out = String::new();
        csv(&mut out, Value::Signed(-5));
        assert_eq!(out, "-5");
    }
}
