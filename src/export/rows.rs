//! Rows of tables as JSON Lines or CSV (RFC 4180).

use crate::quantity::Address;
use std::fmt::Write as _;

/// The form of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An object for each row.
    Jsonl,
    /// Values separated by commas, with a line of names.
    Csv,
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Not known, or not applicable.
    None,
    /// A number.
    Number(u64),
    /// A number that may be negative.
    Signed(i64),
    /// An address.
    Address(u64),
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

/// Appends a row. CSV has no place for the table's name.
pub fn row(out: &mut String, form: Form, table: &str, values: &[(&str, Value<'_>)]) {
    match form {
        Form::Jsonl => {
            let _ = write!(out, "{{\"table\":\"{table}\"");
            for (name, value) in values {
                let _ = write!(out, ",\"{name}\":");
                json(out, *value);
            }
            out.push_str("}\n");
        }
        Form::Csv => {
            for (index, (_, value)) in values.iter().enumerate() {
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
        Value::Text(text) if text.contains(['"', ',', '\n', '\r']) => {
            write!(out, "\"{}\"", text.replace('"', "\"\""))
        }
        Value::Text(text) => write!(out, "{text}"),
    };
}
