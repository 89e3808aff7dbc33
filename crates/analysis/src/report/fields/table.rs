//! Reads the table of registers and their fields, `fields.txt`, which describes its own format.

use super::Bits;
use super::rules::{self, Rule};
use armsnap_snapshot::capture::TraceArchitecture;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem::discriminant;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

static TABLE: LazyLock<Vec<Register>> = LazyLock::new(|| {
    parse(include_str!("fields.txt")).expect("fields.txt is parsed in the tests too")
});

/// The rows of a register, by its name in capitals; `None` if the architecture has none of that
/// name.
pub(super) fn rows(
    architecture: TraceArchitecture,
    name: &str,
) -> Option<impl Iterator<Item = &'static Row> + use<>> {
    let mut registers = TABLE.iter();
    let register = registers.find(|register| {
        register.names.contains(&name) && has(&register.architectures, architecture)
    })?;
    let rows = register.rows.iter();
    Some(rows.filter(move |row| has(&row.architectures, architecture)))
}

/// A register.
struct Register {
    names: Vec<&'static str>,
    architectures: Vec<Versions>,
    rows: Vec<Row>,
}

/// A field, or a combination of bits of several fields.
pub(super) struct Row {
    pub bits: Bits,
    pub name: &'static str,
    pub words: Words,
    is_combination: bool,
    architectures: Vec<Versions>,
}

/// How a field's value is put in words.
#[derive(Clone)]
pub(super) enum Words {
    /// By value; others are reserved encodings.
    Values(Vec<(RangeInclusive<u64>, Text)>),
    /// By rule.
    Rule(Rule),
    /// Reserved, reads as ones; shown only if it does not.
    Ones,
    /// Shown, as forbidden, only if all its bits are set.
    Forbidden(&'static str),
}

/// A text with at most one number in it.
#[derive(Clone, Copy)]
pub(super) struct Text {
    before: &'static str,
    number: Option<(Form, &'static str)>,
}

/// How a field's value is shown in a text.
#[derive(Clone, Copy)]
enum Form {
    Plus(u64),
    Times(u64),
    /// In hexadecimal, with at least this many digits.
    Hexadecimal(usize),
}

impl Text {
    fn parse(text: &'static str) -> Option<Self> {
        let Some((before, rest)) = text.split_once('{') else {
            return Some(Self {
                before: text,
                number: None,
            });
        };
        let (form, after) = rest.split_once('}')?;
        let form = match form.split_at(form.find(char::is_numeric).unwrap_or(form.len())) {
            ("", "") => Form::Plus(0),
            ("+", number) => Form::Plus(number.parse().ok()?),
            ("*", number) => Form::Times(number.parse().ok()?),
            _ => Form::Hexadecimal(form.strip_prefix("0x")?.parse().ok()?),
        };
        Some(Self {
            before,
            number: Some((form, after)),
        })
    }

    /// The text for a value.
    pub(super) fn of(self, value: u64) -> Cow<'static, str> {
        let before = self.before;
        match self.number {
            None => before.into(),
            Some((Form::Plus(more), after)) => {
                format!("{before}{}{after}", value.saturating_add(more)).into()
            }
            Some((Form::Times(factor), after)) => {
                format!("{before}{}{after}", value.saturating_mul(factor)).into()
            }
            Some((Form::Hexadecimal(digits), after)) => {
                format!("{before}0x{value:0digits$x}{after}").into()
            }
        }
    }
}

/// The versions of an architecture from one on, up to the one before `end` if there is one.
#[derive(Clone, Copy)]
struct Versions {
    first: TraceArchitecture,
    end: Option<u8>,
}

impl Versions {
    fn parse(text: &str) -> Option<Self> {
        let (first, end) = match text.split_once('<') {
            None => (text, None),
            Some((first, end)) => (first, Some(end)),
        };
        let family = first.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let known = |text: &str| match TraceArchitecture::from_type(text) {
            TraceArchitecture::Unknown => None,
            known => Some(known),
        };
        let end = match end {
            None => None,
            Some(end) => Some(known(&format!("{family}{end}"))?.version()),
        };
        let first = known(first)?;
        Some(Self { first, end })
    }

    fn contains(self, architecture: TraceArchitecture) -> bool {
        let version = architecture.version();
        discriminant(&self.first) == discriminant(&architecture)
            && self.first.version() <= version
            && self.end.is_none_or(|end| version < end)
    }

    /// Whether a version is in both.
    fn meet(self, other: Self) -> bool {
        self.contains(other.first) || other.contains(self.first)
    }
}

fn has(all: &[Versions], architecture: TraceArchitecture) -> bool {
    all.iter().any(|versions| versions.contains(architecture))
}

/// Parses a table; an error is a text with the line that is wrong.
fn parse(text: &'static str) -> Result<Vec<Register>, String> {
    let mut registers: Vec<Register> = Vec::new();
    let mut lists = BTreeMap::new();
    for columns in lines(text) {
        let wrong = |what: &str| format!("{what}: {}", columns.join(" | "));
        match columns[..] {
            [list, meaning] if list.starts_with('@') => {
                let words = words(meaning, &lists).ok_or_else(|| wrong("unknown meaning"))?;
                lists.insert(list, words);
            }
            [names, architectures] => {
                let names = names.strip_prefix('[');
                let architectures = architectures.strip_suffix(']');
                let (Some(names), Some(architectures)) = (names, architectures) else {
                    return Err(wrong("neither a register nor a list"));
                };
                registers.push(Register {
                    names: names.split_whitespace().collect(),
                    architectures: versions(architectures)
                        .ok_or_else(|| wrong("unknown architecture"))?,
                    rows: Vec::new(),
                });
            }
            [bits, name, architectures, meaning] => {
                let register = registers.last_mut();
                let register = register.ok_or_else(|| wrong("a field without a register"))?;
                let single = bits.trim_start_matches('&');
                let row = Row {
                    bits: self::bits(single).ok_or_else(|| wrong("no bits"))?,
                    name,
                    words: words(meaning, &lists).ok_or_else(|| wrong("unknown meaning"))?,
                    is_combination: single != bits,
                    architectures: match versions(architectures) {
                        None => return Err(wrong("unknown architecture")),
                        Some(all) if all.is_empty() => register.architectures.clone(),
                        Some(some) => some,
                    },
                };
                if register.rows.iter().any(|other| row.overlaps(other)) {
                    return Err(wrong("bits of another field"));
                }
                register.rows.push(row);
            }
            _ => return Err(wrong("another number of columns")),
        }
    }
    Ok(registers)
}

impl Row {
    fn overlaps(&self, other: &Self) -> bool {
        let mut all = self.architectures.iter();
        !self.is_combination
            && !other.is_combination
            && self.bits.mask() & other.bits.mask() != 0
            && all.any(|a| other.architectures.iter().any(|b| a.meet(*b)))
    }
}

/// The columns of each line that is not a comment, with the lines that continue it.
fn lines(text: &'static str) -> Vec<Vec<&'static str>> {
    let mut lines: Vec<Vec<&str>> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let ends = rest.match_indices('\n').map(|(at, _)| at);
        let mut ends = ends.filter(|at| !rest[at + 1..].starts_with(' '));
        let (line, next) = rest.split_at(ends.next().map_or(rest.len(), |at| at + 1));
        if !line.starts_with('#') && !line.trim().is_empty() {
            lines.push(line.split('|').map(str::trim).collect());
        }
        rest = next;
    }
    lines
}

fn versions(text: &str) -> Option<Vec<Versions>> {
    text.split_whitespace().map(Versions::parse).collect()
}

fn bits(text: &str) -> Option<Bits> {
    let part = |text: &str| {
        let (high, low) = text.split_once(':').unwrap_or((text, text));
        let (high, low) = (high.parse().ok()?, low.parse().ok()?);
        (low <= high && high < 64).then_some((high, low))
    };
    match text.split_once(',') {
        None => Some(Bits(part(text)?, None)),
        Some((first, second)) => Some(Bits(part(first)?, Some(part(second)?))),
    }
}

fn words(text: &'static str, lists: &BTreeMap<&str, Words>) -> Option<Words> {
    if text.starts_with('@') {
        return lists.get(text).cloned();
    }
    if text == "ones" {
        return Some(Words::Ones);
    }
    if let Some(text) = text.strip_prefix("alarm ") {
        return Some(Words::Forbidden(text));
    }
    if let Some(name) = text.strip_prefix("rule ") {
        return rules::named(name).map(Words::Rule);
    }
    let values = text.split(';').map(|meaning| {
        let (values, text) = meaning.split_once(" = ")?;
        let values = match values.trim() {
            "else" => 0..=u64::MAX,
            values => {
                let (first, last) = values.split_once("..").unwrap_or((values, values));
                number(first)?..=number(last)?
            }
        };
        Some((values, Text::parse(text.trim())?))
    });
    values.collect::<Option<_>>().map(Words::Values)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        None => text.parse().ok(),
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use armsnap_snapshot::capture::registers;

    #[test]
    fn the_whole_table_is_well_formed() {
        let table = parse(include_str!("fields.txt")).unwrap_or_else(|error| panic!("{error}"));
        let mut names: Vec<&str> = table.iter().flat_map(|r| r.names.iter().copied()).collect();
        for name in &names {
            assert!(registers::id_of(name).is_some(), "{name}");
        }
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "two registers of the same name");
        for register in &table {
            for row in &register.rows {
                let name = format!("{} {}", register.names[0], row.name);
                assert!(
                    row.architectures
                        .iter()
                        .all(|v| has(&register.architectures, v.first)),
                    "{name}"
                );
                let largest = u64::MAX >> (64 - row.bits.mask().count_ones());
                if let Words::Values(values) = &row.words {
                    for (at, (range, _)) in values.iter().enumerate() {
                        assert!(!range.is_empty() && *range.start() <= largest, "{name}");
                        assert!(
                            *range.end() <= largest
                                || *range == (0..=u64::MAX) && at + 1 == values.len(),
                            "{name}: {range:?}"
                        );
                        let earlier = &values[..at];
                        assert!(
                            earlier.iter().all(|(other, _)| range.start() > other.end())
                                || *range == (0..=u64::MAX),
                            "{name}: {range:?}"
                        );
                    }
                }
            }
        }
    }

    #[track_caller]
    fn refused(text: &'static str, why: &str) {
        let error = parse(text).err().expect("the table is wrong");
        assert!(error.starts_with(why), "{error}");
    }

    #[test]
    fn malformed_tables_are_refused() {
        refused("7 | a | | else = {}\n", "a field without a register");
        refused("[R | ETM9]\n", "unknown architecture");
        refused(
            "[R | ETM1]\n7 | a | XTM | else = {}\n",
            "unknown architecture",
        );
        refused("[R | ETM1]\n64 | a | | else = {}\n", "no bits");
        refused("[R | ETM1]\n2:3 | a | | else = {}\n", "no bits");
        for meaning in [
            "else = {-1}",
            "else = {",
            "0 off",
            "x = on",
            "rule none",
            "@none",
        ] {
            let text = format!("[R | ETM1]\n7 | a | | {meaning}\n");
            refused(text.leak(), "unknown meaning");
        }
        refused(
            "[R | ETM1]\n7 | a | else = {}\n",
            "another number of columns",
        );
        refused("R | ETM1\n", "neither a register nor a list");
    }

    #[test]
    fn fields_of_a_version_do_not_overlap() {
        let why = "bits of another field";
        refused(
            "[R | ETM1 PTM]\n7:4 | a | | ones\n5 | b | PTM | ones\n",
            why,
        );
        refused(
            "[R | ETM1]\n7 | a | ETM1.2<3.0 | ones\n7 | b | ETM2.1 | ones\n",
            why,
        );
        for table in [
            "[R | ETM1]\n7 | a | ETM1.2<3.0 | ones\n7 | b | ETM3.0 | ones\n",
            "[R | ETM1 PTM]\n7 | a | ETM1 | ones\n7 | b | PTM | ones\n",
            "[R | ETM1]\n7 | a | | ones\n&8:7 | b | | ones\n8 | c | | ones\n",
        ] {
            assert_eq!(
                parse(table).unwrap()[0].rows.len(),
                table.matches("ones").count()
            );
        }
    }
}
