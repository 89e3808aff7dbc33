//! Trace configuration registers in words: a register's value becomes a list of fields, each with
//! its bits, name, value and meaning.
//!
//! The fields are a table of text, `fields.txt`, which cites the specifications' sections. Uses only
//! numbers and register names.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

mod rules;
mod table;
#[cfg(test)]
mod tests;

use armsnap_snapshot::capture::TraceArchitecture;
use table::{Row, Words};

/// A field of a register, with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// Its location in the register.
    pub bits: Bits,
    /// The specification's name, or `reserved` for bits that must be 0 and are not.
    pub name: &'static str,
    /// Its value; for a field in two parts, the parts combined.
    pub value: u64,
    /// The meaning of the value.
    pub meaning: Cow<'static, str>,
    /// Whether the specification forbids the value.
    pub alarm: bool,
    /// Whether the value is 0 and only means that something is off or absent; listings for people
    /// may group these.
    #[serde(skip)]
    pub off: bool,
}

/// The location of a field: one or two runs of bits `(high, low)`, the more significant part of the
/// value first. Displayed as in the specifications: `[6:4]`, `[21,6:4]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits(pub (u8, u8), pub Option<(u8, u8)>);

impl Bits {
    fn parts(self) -> impl Iterator<Item = (u8, u8)> {
        std::iter::once(self.0).chain(self.1)
    }

    /// The value of the field in `register`.
    fn of(self, register: u64) -> u64 {
        self.parts().fold(0, |value, (high, low)| {
            let width = u32::from(high - low) + 1;
            value.checked_shl(width).unwrap_or(0) | ((register >> low) & ones(width))
        })
    }

    /// The bits of the field, set in a register.
    fn mask(self) -> u64 {
        self.parts().fold(0, |mask, (high, low)| {
            mask | (ones(u32::from(high - low) + 1) << low)
        })
    }
}

/// A number with its low `width` bits set.
const fn ones(width: u32) -> u64 {
    match 1u64.checked_shl(width) {
        Some(bit) => bit - 1,
        None => u64::MAX,
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (place, (high, low)) in self.parts().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            if high == low {
                write!(f, "{comma}{high}")?;
            } else {
                write!(f, "{comma}{high}:{low}")?;
            }
        }
        f.write_str("]")
    }
}

impl Serialize for Bits {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Meanings of 0 that only say that something is off or absent.
const OFF: [&str; 5] = ["off", "no", "none", "not implemented", "idle"];

/// Decodes a register by its rows, in their order; set bits without a row are shown as reserved.
fn read<'a>(rows: impl Iterator<Item = &'a Row>, register: u64) -> Vec<Field> {
    let mut known = 0;
    let mut fields = Vec::new();
    for row in rows {
        known |= row.bits.mask();
        fields.extend(in_words(row, row.bits.of(register)));
    }
    let mut rest = register & !known;
    while rest != 0 {
        let high = 63 - rest.leading_zeros() as u8;
        let run = (rest << (63 - high)).leading_ones() as u8;
        let bits = Bits((high, high + 1 - run), None);
        fields.push(Field {
            bits,
            name: "reserved",
            value: bits.of(register),
            meaning: Cow::Borrowed("not zero, though reserved in this version"),
            alarm: false,
            off: false,
        });
        rest &= !bits.mask();
    }
    fields
}

fn in_words(row: &Row, value: u64) -> Option<Field> {
    let all = value == ones(row.bits.mask().count_ones());
    let meaning = match &row.words {
        Words::Values(values) => match values.iter().find(|(at, _)| at.contains(&value)) {
            Some((_, text)) => text.of(value),
            None => "reserved encoding".into(),
        },
        Words::Rule(words) => words(value),
        Words::Ones if all => return None,
        Words::Ones => "not all ones, though reserved as ones".into(),
        Words::Forbidden(text) if all => (*text).into(),
        Words::Forbidden(_) => return None,
    };
    Some(Field {
        bits: row.bits,
        name: row.name,
        value,
        off: value == 0 && OFF.contains(&&*meaning),
        meaning,
        alarm: matches!(row.words, Words::Forbidden(_)),
    })
}

/// The fields of a trace configuration register, or `None` if its name is unknown for the
/// architecture. Names are compared without case; `value` may have more than 32 bits.
pub fn describe(architecture: TraceArchitecture, name: &str, value: u64) -> Option<Vec<Field>> {
    let rows = table::rows(architecture, &name.to_ascii_uppercase())?;
    Some(read(rows, value))
}
