//! .ini text ⇄ sections and entries, using rust-ini.
//!
//! rust-ini splits keys at colons, joins lines that end in a backslash or lack a `=`, and does not
//! report line numbers. Each line is therefore examined first: malformed lines are reported, and
//! characters that rust-ini would misread are replaced until it has read them. It keeps the order
//! of lines, so their numbers are stored separately.
//!
//! rust-ini needs about 120 bytes of memory for a line of any length. It is therefore given a
//! limited number of lines at a time, and only [`Document`] grows with the file. This module does
//! not depend on the meaning of snapshots.

use ini::{EscapePolicy, Ini, LineSeparator, ParseOption, Properties, WriteOption};
use std::borrow::Cow;

/// The number of lines that rust-ini reads or writes at a time.
const BATCH: usize = 512;

/// The text of an .ini file, in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Document {
    /// Sections; a name may occur more than once.
    pub sections: Vec<Section>,
}

/// A section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    /// Its name without the brackets.
    pub name: String,
    /// Line of its header, from 1; 0 if it was not read from a file.
    pub line: u32,
    /// Entries; a key may occur more than once.
    pub entries: Vec<KeyValue>,
}

/// `key=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyValue {
    /// The key, without spaces around it.
    pub key: String,
    /// The value, without spaces around it and without a comment after it.
    pub value: String,
    /// Line, from 1; 0 if it was not read from a file.
    pub line: u32,
}

/// A line that is ignored or malformed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Odd {
    /// Line, from 1.
    pub line: u32,
    /// What is wrong.
    pub text: String,
}

/// Precedes a replaced character. It is a private code point, which is itself replaced if the text
/// contains it.
const GUARD: char = '\u{E000}';
/// The difference between a replaced character and the original.
const LIFT: u32 = 0xE100;

/// Returns whether rust-ini keeps `c` unchanged in any position.
fn is_plain(c: char) -> bool {
    match c {
        GUARD | '\\' | ':' | '=' | '#' | ';' | '[' | ']' | '"' | '\'' => false,
        ' ' => true,
        _ => !c.is_control() && !c.is_whitespace(),
    }
}

fn guard(text: &str, out: &mut String) {
    for c in text.chars() {
        if is_plain(c) {
            out.push(c);
        } else {
            out.push(GUARD);
            // Guarded code points end at U+E000, so the sum is a character.
            out.push(char::from_u32(LIFT + u32::from(c)).unwrap_or(GUARD));
        }
    }
}

fn unguard(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let lifted = if c == GUARD { chars.next() } else { None };
        let lowered = lifted.and_then(|c| char::from_u32(u32::from(c).wrapping_sub(LIFT)));
        out.push(lowered.unwrap_or(c));
    }
    out
}

/// Up to [`BATCH`] lines for rust-ini.
#[derive(Default)]
struct Batch {
    /// Headers and entries, guarded.
    text: String,
    /// The line number of each.
    lines: Vec<u32>,
}

impl Batch {
    fn header(&mut self, name: &str, line: u32) {
        self.text.push('[');
        guard(name, &mut self.text);
        self.text.push_str("]\n");
        self.lines.push(line);
    }

    fn entry(&mut self, key: &str, value: &str, line: u32) {
        guard(key, &mut self.text);
        self.text.push('=');
        guard(value, &mut self.text);
        self.text.push('\n');
        self.lines.push(line);
    }

    /// Reads the lines, adds their contents to `sections`, and clears the lines. Entries before the
    /// first header belong to the last existing section.
    fn read_into(&mut self, sections: &mut Vec<Section>, odd: &mut Vec<Odd>) {
        let options = ParseOption {
            enabled_quote: false,
            enabled_escape: false,
            ..ParseOption::default()
        };
        let mut lines = self.lines.drain(..);
        let mut next_line = || lines.next().unwrap_or(0);
        match Ini::load_from_str_opt(&self.text, options) {
            Ok(ini) => {
                for (name, properties) in &ini {
                    if let Some(name) = name {
                        sections.push(Section {
                            name: unguard(name),
                            line: next_line(),
                            entries: Vec::new(),
                        });
                    }
                    let Some(section) = sections.last_mut() else {
                        continue;
                    };
                    let entries = properties.iter().map(|(key, value)| KeyValue {
                        key: unguard(key),
                        value: unguard(value),
                        line: next_line(),
                    });
                    section.entries.extend(entries);
                }
            }
            Err(error) => odd.push(Odd {
                line: next_line(),
                text: format!("cannot be read: {}", error.msg),
            }),
        }
        drop(lines);
        self.text.clear();
    }
}

/// Returns the text of a file: UTF-8 with or without byte-order mark, UTF-16 with one (as
/// PowerShell writes it), or else Latin-1. Also returns whether it is Latin-1.
fn text_of(bytes: &[u8]) -> (Cow<'_, str>, bool) {
    let wide: Option<fn([u8; 2]) -> u16> = match bytes {
        [0xff, 0xfe, ..] => Some(u16::from_le_bytes),
        [0xfe, 0xff, ..] => Some(u16::from_be_bytes),
        _ => None,
    };
    if let Some(unit) = wide {
        let units = bytes[2..].chunks_exact(2);
        let units = units.map(|pair| unit([pair[0], pair[1]]));
        let text = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
        return (text.collect::<String>().into(), false);
    }
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.into(), false),
        Err(_) => {
            let text: String = bytes.iter().map(|&b| char::from(b)).collect();
            (text.into(), true)
        }
    }
}

/// Returns the part of a value or section line before the comment: `#` or `;` starts a comment at
/// the start of the text or after a space.
fn without_comment(text: &str) -> &str {
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        if matches!(c, '#' | ';') && matches!(before, ' ' | '\t') {
            return &text[..at];
        }
        before = c;
    }
    text
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// Reads the bytes of an .ini file. Every text is accepted; unrecognised lines are returned as
/// [`Odd`].
pub(crate) fn parse(bytes: &[u8]) -> (Document, Vec<Odd>) {
    let (text, latin1) = text_of(bytes);
    let mut odd = Vec::new();
    if latin1 {
        odd.push(Odd {
            line: 1,
            text: "not UTF-8: read as Latin-1".into(),
        });
    }
    let mut sections: Vec<Section> = Vec::new();
    let mut batch = Batch::default();
    let mut in_section = false;
    for (index, line) in text.split('\n').enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let line = trim(line.strip_suffix('\r').unwrap_or(line));
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if batch.lines.len() == BATCH {
            batch.read_into(&mut sections, &mut odd);
        }
        if let Some(header) = line.strip_prefix('[') {
            let header = trim(without_comment(header));
            let name = header.strip_suffix(']').unwrap_or_else(|| {
                let text = format!("section without its closing bracket: {}", quote(line));
                odd.push(Odd { line: number, text });
                header
            });
            batch.header(trim(name), number);
            in_section = true;
            continue;
        }
        let problem = match line.split_once('=') {
            None => "expected key=value, found",
            Some(("", _)) => "expected a key before the =, found",
            Some(_) if !in_section => "ignored, no section before it:",
            Some((key, value)) => {
                batch.entry(trim(key), trim(without_comment(value)), number);
                continue;
            }
        };
        let text = format!("{problem} {}", quote(line));
        odd.push(Odd { line: number, text });
    }
    batch.read_into(&mut sections, &mut odd);
    (Document { sections }, odd)
}

/// Quotes text from a file for a message: shortened, without control characters.
pub(crate) fn quote(text: &str) -> String {
    const MOST: usize = 60;
    let mut out = String::from("\"");
    for (count, c) in text.chars().enumerate() {
        if count == MOST {
            out.push('…');
            break;
        }
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            _ if c.is_control() => out.extend(c.escape_default()),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Writes a document.
///
/// # Errors
///
/// Returns a name or value that an .ini file cannot represent.
pub(crate) fn write(document: &Document) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    for section in &document.sections {
        if !fits(&section.name, &[']']) {
            return Err(section.name.clone());
        }
        if !out.is_empty() {
            out.push(b'\n');
        }
        let mut ini = Ini::new();
        let _ = ini
            .entry(Some(section.name.clone()))
            .or_insert_with(Properties::new);
        append(&ini, &mut out)?;
        for entries in section.entries.chunks(BATCH) {
            let mut ini = Ini::new();
            let properties = ini.general_section_mut();
            for entry in entries {
                let bad_key = entry.key.is_empty() || entry.key.starts_with('[');
                if bad_key || !fits(&entry.key, &['=']) {
                    return Err(entry.key.clone());
                }
                if !fits(&entry.value, &[]) {
                    return Err(entry.value.clone());
                }
                properties.append(&*entry.key, &*entry.value);
            }
            append(&ini, &mut out)?;
        }
    }
    Ok(out)
}

/// Writes without escapes, which texts that satisfy [`fits`] do not need.
fn append(ini: &Ini, out: &mut Vec<u8>) -> Result<(), String> {
    let options = WriteOption {
        escape_policy: EscapePolicy::Nothing,
        // rust-ini's name for a line feed.
        line_separator: LineSeparator::CR,
        kv_separator: "=",
    };
    ini.write_to_opt(out, options)
        .map_err(|error| error.to_string())
}

/// Whether `text` survives writing and reading unchanged.
fn fits(text: &str, never: &[char]) -> bool {
    trim(text) == text
        && without_comment(text) == text
        && !text.contains(['\n', '\r'])
        && !text.starts_with('\u{FEFF}')
        && !text.contains(never)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Checks the section, line, key and value of each entry.
    #[track_caller]
    fn reads(text: &[u8], entries: &[(&str, u32, &str, &str)]) {
        let (document, _) = parse(text);
        let mut found = Vec::new();
        for section in &document.sections {
            for entry in &section.entries {
                found.push((&*section.name, entry.line, &*entry.key, &*entry.value));
            }
        }
        assert_eq!(found, entries);
    }

    #[test]
    fn files_in_utf_16() {
        let text = "[snapshot]\r\nversion=1.0\r\ndescription=\u{e9}\u{1f600}\r\n";
        for unit in [u16::to_le_bytes, u16::to_be_bytes] {
            let units = std::iter::once(0xfeff).chain(text.encode_utf16());
            let bytes: Vec<u8> = units.flat_map(unit).collect();
            assert_eq!(parse(&bytes), parse(text.as_bytes()));
        }
    }

    #[test]
    fn colons_backslashes_and_quotes_are_text() {
        let text =
            b"[regs]\nREG_C(id:0x80,size:64) = 0x12\nfile=C:\\new\\x.bin\nlast=dir\\\nq='a\" b'\n";
        reads(
            text,
            &[
                ("regs", 2, "REG_C(id:0x80,size:64)", "0x12"),
                ("regs", 3, "file", "C:\\new\\x.bin"),
                ("regs", 4, "last", "dir\\"),
                ("regs", 5, "q", "'a\" b'"),
            ],
        );
    }

    #[test]
    fn comments_at_starts_and_after_values() {
        let text = b"; DS-5\n[a] ; section\n # indented\nk=v ; comment\nl=x#y;z # c\nm=;none\n";
        reads(
            text,
            &[
                ("a", 4, "k", "v"),
                ("a", 5, "l", "x#y;z"),
                ("a", 6, "m", ""),
            ],
        );
    }

    #[test]
    fn byte_order_mark_latin1_carriage_returns_no_last_newline() {
        reads(
            b"\xEF\xBB\xBF[a]\r\nk=v\r\n\r\nl=w",
            &[("a", 2, "k", "v"), ("a", 4, "l", "w")],
        );
        let (_, odd) = parse(b"[a]\nk=M\xFCller");
        assert_eq!(odd.len(), 1);
        reads(b"[a]\nk=M\xFCller", &[("a", 2, "k", "Müller")]);
    }

    #[test]
    fn repeated_sections_and_keys_keep_their_order() {
        let text = b"[b]\nk=1\n[a]\nk=2\nk=1\n[b]\nk=0\n[empty]\n";
        reads(
            text,
            &[
                ("b", 2, "k", "1"),
                ("a", 4, "k", "2"),
                ("a", 5, "k", "1"),
                ("b", 7, "k", "0"),
            ],
        );
        assert_eq!(parse(text).0.sections.len(), 4);
    }

    #[test]
    fn odd_lines_are_reported_and_do_not_affect_others() {
        let (document, odd) = parse(b"k=v\n[a]\nno equals\nk=v\n=x\n[open\nl=w");
        let lines: Vec<u32> = odd.iter().map(|odd| odd.line).collect();
        assert_eq!(lines, [1, 3, 5, 6]);
        assert_eq!(odd[1].text, "expected key=value, found \"no equals\"");
        assert_eq!(document.sections[0].entries.len(), 1);
        assert_eq!(document.sections[1].name, "open");
    }

    #[test]
    fn text_that_a_file_cannot_represent_is_rejected() {
        for (key, value) in [
            ("", "v"),
            ("a=b", "v"),
            ("[a", "v"),
            ("#a", "v"),
            ("k", "a\nb"),
            ("k", " v"),
            ("k", "a ;b"),
        ] {
            let entry = KeyValue {
                key: key.into(),
                value: value.into(),
                line: 0,
            };
            let document = Document {
                sections: vec![Section {
                    name: "a".into(),
                    line: 0,
                    entries: vec![entry],
                }],
            };
            assert!(write(&document).is_err(), "{key:?} {value:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse(&bytes);
        }

        #[test]
        fn written_is_read_back(
            sections in proptest::collection::vec(
                (".{0,8}", proptest::collection::vec((".{1,8}", ".{0,12}"), 0..4)),
                0..5,
            )
        ) {
            let document = Document {
                sections: sections
                    .into_iter()
                    .map(|(name, entries)| Section {
                        name,
                        line: 0,
                        entries: entries
                            .into_iter()
                            .map(|(key, value)| KeyValue { key, value, line: 0 })
                            .collect(),
                    })
                    .collect(),
            };
            if let Ok(bytes) = write(&document) {
                let (mut back, odd) = parse(&bytes);
                prop_assert!(odd.is_empty(), "{odd:?}");
                for section in &mut back.sections {
                    section.line = 0;
                    for entry in &mut section.entries {
                        entry.line = 0;
                    }
                }
                prop_assert_eq!(back, document);
            }
        }
    }
}
