//! Trace configuration registers in words: a register's value becomes a list of fields, each with
//! its bits, name, value and meaning.
//!
//! Every register family has a file with its tables, and each table cites the specification's
//! section. Uses only numbers and register names.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

mod common;
mod etm;
mod etmv3;
mod etmv4;
mod etmv4_id;
mod itm;
mod ptm;
mod stm;

use armsnap_snapshot::capture::TraceArchitecture;

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

/// How a field's value is put in words.
#[derive(Clone, Copy)]
enum Words {
    /// A switch: off, on.
    Switch(&'static str, &'static str),
    /// By value; empty texts and values beyond the end are reserved encodings.
    Table(&'static [&'static str]),
    /// By rule.
    Rule(fn(u64) -> Cow<'static, str>),
    /// Reserved, reads as ones; shown only if it does not.
    Ones,
    /// Shown, as forbidden, only if all its bits are set.
    Forbidden(&'static str),
}

/// Meanings of 0 that only say that something is off or absent.
const OFF: [&str; 5] = ["off", "no", "none", "not implemented", "idle"];

/// A row in a register's table.
#[derive(Clone, Copy)]
struct Row {
    bits: Bits,
    name: &'static str,
    words: Words,
    /// The first and the last architecture version that has the field, as
    /// `major << 4 | minor`.
    versions: (u8, u8),
}

impl Row {
    /// The field exists from `version` on.
    const fn since(mut self, version: u8) -> Self {
        self.versions.0 = version;
        self
    }

    /// `version` is the last one that has the field.
    const fn until(mut self, version: u8) -> Self {
        self.versions.1 = version;
        self
    }
}

const fn row(bits: Bits, name: &'static str, words: Words) -> Row {
    Row {
        bits,
        name,
        words,
        versions: (0, u8::MAX),
    }
}

const fn switch(bit: u8, name: &'static str, off: &'static str, on: &'static str) -> Row {
    row(Bits((bit, bit), None), name, Words::Switch(off, on))
}

const fn table(high: u8, low: u8, name: &'static str, words: &'static [&'static str]) -> Row {
    row(Bits((high, low), None), name, Words::Table(words))
}

const fn rule(high: u8, low: u8, name: &'static str, words: fn(u64) -> Cow<'static, str>) -> Row {
    row(Bits((high, low), None), name, Words::Rule(words))
}

const fn read_as_one(high: u8, low: u8) -> Row {
    row(Bits((high, low), None), "reserved", Words::Ones)
}

/// Decodes a register by its table, as of `version`, in the order of the table, most significant
/// fields first; set bits without a row are shown as reserved.
fn read(rows: &[Row], version: u8, register: u64) -> Vec<Field> {
    let mut known = 0;
    let mut fields = Vec::new();
    for row in rows {
        if !(row.versions.0..=row.versions.1).contains(&version) {
            continue;
        }
        known |= row.bits.mask();
        fields.extend(row_in_words(row, row.bits.of(register)));
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

fn row_in_words(row: &Row, value: u64) -> Option<Field> {
    let width = row.bits.mask().count_ones();
    let (meaning, alarm) = match row.words {
        Words::Switch(off, on) => (Cow::Borrowed(if value == 0 { off } else { on }), false),
        Words::Table(words) => {
            let words = usize::try_from(value).ok().and_then(|at| words.get(at));
            let words = words.filter(|words| !words.is_empty());
            (
                Cow::Borrowed(words.copied().unwrap_or("reserved encoding")),
                false,
            )
        }
        Words::Rule(words) => (words(value), false),
        Words::Ones if value == ones(width) => return None,
        Words::Ones => (
            Cow::Borrowed("not all ones, though reserved as ones"),
            false,
        ),
        Words::Forbidden(_) if value != ones(width) => return None,
        Words::Forbidden(words) => (Cow::Borrowed(words), true),
    };
    Some(Field {
        bits: row.bits,
        name: row.name,
        value,
        off: value == 0 && OFF.contains(&&*meaning),
        meaning,
        alarm,
    })
}

/// The fields of a trace configuration register, or `None` if its name is unknown for the
/// architecture. Names are compared without case; `value` may have more than 32 bits.
pub fn describe(architecture: TraceArchitecture, name: &str, value: u64) -> Option<Vec<Field>> {
    let name = name.to_ascii_uppercase();
    let (rows, version): (&[Row], u8) = match architecture {
        TraceArchitecture::Etm { .. } => (etmv3::TABLES.rows(&name)?, architecture.version()),
        TraceArchitecture::Pft { .. } => (ptm::TABLES.rows(&name)?, architecture.version()),
        TraceArchitecture::Etmv4 { .. } | TraceArchitecture::Ete { .. } => {
            let table = etmv4::rows(&name).or_else(|| etmv4_id::rows(&name))?;
            (table, architecture.version())
        }
        TraceArchitecture::Stm => (stm::rows(&name)?, 0),
        TraceArchitecture::Itm => (itm::rows(&name)?, 0),
        TraceArchitecture::Unknown => return None,
    };
    Some(read(rows, version, value))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The only field of that name, as `(value, meaning)`.
    #[track_caller]
    pub(crate) fn field(fields: &[Field], name: &str) -> (u64, String) {
        let mut found = fields.iter().filter(|field| field.name == name);
        let field = found.next().unwrap_or_else(|| panic!("no field {name}"));
        assert!(found.next().is_none(), "two fields {name}");
        (field.value, field.meaning.to_string())
    }

    /// Names of the fields that are not 0.
    pub(crate) fn set(fields: &[Field]) -> Vec<&'static str> {
        let fields = fields.iter().filter(|field| field.value != 0);
        fields.map(|field| field.name).collect()
    }

    #[test]
    fn a_field_in_two_parts_is_combined() {
        let bits = Bits((21, 21), Some((6, 4)));
        assert_eq!(bits.to_string(), "[21,6:4]");
        assert_eq!(bits.of(0x0020_0000), 0b1000);
        assert_eq!(bits.of(0x0000_0050), 0b0101);
        assert_eq!(bits.of(!0x0020_0070), 0);
        assert_eq!(bits.mask(), 0x0020_0070);
    }

    #[test]
    fn a_whole_register_is_a_field() {
        let bits = Bits((31, 0), None);
        assert_eq!(bits.of(0xFFFF_FFFF), 0xFFFF_FFFF);
        assert_eq!(Bits((63, 0), None).of(u64::MAX), u64::MAX);
        assert_eq!(Bits((63, 0), None).mask(), u64::MAX);
    }

    #[test]
    fn bits_outside_of_fields_are_reserved_run_by_run() {
        let rows = [switch(4, "four", "off", "on")];
        let fields = read(&rows, 0, 0x8000_0000_0000_0036);
        let seen: Vec<_> = fields
            .iter()
            .map(|field| (field.bits.to_string(), field.name, field.value))
            .collect();
        assert_eq!(
            seen,
            [
                ("[4]".into(), "four", 1),
                ("[63]".into(), "reserved", 1),
                ("[5]".into(), "reserved", 1),
                ("[2:1]".into(), "reserved", 3),
            ]
        );
    }

    #[test]
    fn no_register_value_panics() {
        let architectures = [
            TraceArchitecture::Etm { major: 1, minor: 0 },
            TraceArchitecture::Etm { major: 3, minor: 5 },
            TraceArchitecture::Pft { major: 1, minor: 1 },
            TraceArchitecture::Etmv4 { minor: 6 },
            TraceArchitecture::Ete { major: 1, minor: 3 },
            TraceArchitecture::Stm,
            TraceArchitecture::Itm,
        ];
        let mut names: Vec<String> = (0..14).map(|n| format!("TRCIDR{n}")).collect();
        let others = "ETMCR ETMCCER ETMIDR ETMTRACEIDR TRCCONFIGR TRCTRACEIDR TRCAUTHSTATUS \
                      TRCDEVARCH STMTCSR ITMTCR";
        names.extend(others.split_whitespace().map(str::to_owned));
        let mut described = 0;
        for architecture in architectures {
            for name in &names {
                for value in (0..64).map(|bit| u64::MAX >> bit).chain([0]) {
                    if let Some(fields) = describe(architecture, name, value) {
                        described += 1;
                        assert!(
                            fields.iter().all(|field| !field.meaning.is_empty()),
                            "{name}"
                        );
                    }
                }
            }
        }
        assert_eq!(described, 65 * (4 + 4 + 4 + 18 + 18 + 1 + 1));
    }
}
