//! .ini text ⇄ sections and entries, by way of rust-ini.
//!
//! rust-ini cuts keys at colons, joins lines that end in a backslash or lack a `=`, and does not
//! tell lines. So each line is looked at first, and the parts that rust-ini would trip over are
//! guarded: characters with a meaning are replaced, and every key and section carries its line.
//! What comes back is freed of the guards. Knows nothing of snapshots.

use ini::{EscapePolicy, Ini, LineSeparator, ParseOption, WriteOption};

/// The text of an .ini file, in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// Sections; a name may come more than once.
    pub sections: Vec<Section>,
}

/// A section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Its name without the brackets.
    pub name: String,
    /// Line of its header, from 1; 0 if made by the program.
    pub line: u32,
    /// Entries; a key may come more than once.
    pub entries: Vec<Entry>,
}

/// `key=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The key, without spaces around it.
    pub key: String,
    /// The value, without spaces around it and without a comment after it.
    pub value: String,
    /// Line, from 1; 0 if made by the program.
    pub line: u32,
}

/// A line that says nothing, or not what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Odd {
    /// Line, from 1.
    pub line: u32,
    /// What is wrong.
    pub text: String,
}

/// Begins a guarded character. A private code point; where the text holds it, it is guarded too.
const GUARD: char = '\u{E000}';
/// A guarded character is this much higher.
const LIFT: u32 = 0xE100;
/// Stands between the line number and the name.
const MARK: char = '\u{E001}';

/// Whether rust-ini passes `c` through untouched wherever it stands.
fn is_plain(c: char) -> bool {
    match c {
        GUARD | MARK | '\\' | ':' | '=' | '#' | ';' | '[' | ']' | '"' | '\'' => false,
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
            // Guarded code points end at U+E001, so the sum is a character.
            out.push(char::from_u32(LIFT + u32::from(c)).unwrap_or(GUARD));
        }
    }
}

fn unguard(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != GUARD {
            out.push(c);
        } else if let Some(c) = chars
            .next()
            .and_then(|c| char::from_u32(u32::from(c).wrapping_sub(LIFT)))
        {
            out.push(c);
        }
    }
    out
}

/// `line`, the mark and the guarded name.
fn marked(line: u32, name: &str) -> String {
    let mut out = line.to_string();
    out.push(MARK);
    guard(name, &mut out);
    out
}

fn unmarked(text: &str) -> (u32, String) {
    let (line, name) = text.split_once(MARK).unwrap_or(("0", text));
    (line.parse().unwrap_or(0), unguard(name))
}

/// The text of a file: UTF-8 with or without byte-order mark, or else Latin-1.
fn text_of(bytes: &[u8]) -> (String, bool) {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), false),
        Err(_) => (bytes.iter().map(|&b| char::from(b)).collect(), true),
    }
}

/// The part of a value, or of a section line, that is not comment: a `#` or `;` begins a comment
/// at its start or after a space.
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

/// Reads the bytes of an .ini file. Every text is an .ini file; lines that are none come as
/// [`Odd`].
pub fn parse(bytes: &[u8]) -> (Document, Vec<Odd>) {
    let (text, latin1) = text_of(bytes);
    let mut odd = Vec::new();
    if latin1 {
        odd.push(Odd {
            line: 1,
            text: "not UTF-8: read as Latin-1".into(),
        });
    }
    let mut guarded = String::with_capacity(text.len() + text.len() / 2);
    let mut in_section = false;
    for (index, line) in text.split('\n').enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let line = trim(line.strip_suffix('\r').unwrap_or(line));
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let header = trim(without_comment(header));
            let name = header.strip_suffix(']').unwrap_or_else(|| {
                let text = format!("section without its closing bracket: {}", quote(line));
                odd.push(Odd { line: number, text });
                header
            });
            guarded.push('[');
            guarded.push_str(&marked(number, trim(name)));
            guarded.push_str("]\n");
            in_section = true;
            continue;
        }
        let problem = match line.split_once('=') {
            None => "expected key=value, found",
            Some(("", _)) => "expected a key before the =, found",
            Some(_) if !in_section => "ignored, no section before it:",
            Some((key, value)) => {
                guarded.push_str(&marked(number, trim(key)));
                guarded.push('=');
                guard(trim(without_comment(value)), &mut guarded);
                guarded.push('\n');
                continue;
            }
        };
        let text = format!("{problem} {}", quote(line));
        odd.push(Odd { line: number, text });
    }
    let options = ParseOption {
        enabled_quote: false,
        enabled_escape: false,
        ..ParseOption::default()
    };
    let ini = Ini::load_from_str_opt(&guarded, options).unwrap_or_else(|error| {
        odd.push(Odd {
            line: 1,
            text: format!("cannot be read: {}", error.msg),
        });
        Ini::new()
    });
    let sections = ini
        .iter()
        .filter_map(|(name, properties)| Some((name?, properties)))
        .map(|(name, properties)| {
            let (line, name) = unmarked(name);
            let entries = properties.iter().map(|(key, value)| {
                let (line, key) = unmarked(key);
                Entry {
                    key,
                    value: unguard(value),
                    line,
                }
            });
            Section {
                name,
                line,
                entries: entries.collect(),
            }
        })
        .collect();
    (Document { sections }, odd)
}

/// A text of a file for a message: in quotes, short, without control characters.
pub fn quote(text: &str) -> String {
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

/// Writes a document. The error is the text that an .ini file cannot hold.
pub fn write(document: &Document) -> Result<Vec<u8>, String> {
    let mut ini = Ini::new();
    for (index, section) in document.sections.iter().enumerate() {
        if !fits(&section.name, &[']']) {
            return Err(section.name.clone());
        }
        // The number keeps sections of one name apart and in their order.
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let name = marked(number, &section.name);
        let properties = ini.entry(Some(name)).or_insert_with(Default::default);
        for entry in &section.entries {
            let bad_key = entry.key.is_empty() || entry.key.starts_with('[');
            if bad_key || !fits(&entry.key, &['=']) {
                return Err(entry.key.clone());
            }
            if !fits(&entry.value, &[]) {
                return Err(entry.value.clone());
            }
            let mut key = String::new();
            guard(&entry.key, &mut key);
            let mut value = String::new();
            guard(&entry.value, &mut value);
            properties.append(key, value);
        }
    }
    let mut out = Vec::new();
    let options = WriteOption {
        escape_policy: EscapePolicy::Nothing,
        line_separator: LineSeparator::CR,
        kv_separator: "=",
    };
    ini.write_to_opt(&mut out, options)
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8(out).map_err(|error| error.to_string())?;
    let lines = text.lines().map(|line| match line.strip_prefix('[') {
        Some(header) => format!("[{}\n", unmarked(header).1),
        None => unguard(line) + "\n",
    });
    Ok(lines.collect::<String>().into_bytes())
}

/// Whether `text` comes back from a file as it is.
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

    /// The section, line, key and value of each entry.
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
    fn odd_lines_are_told_with_their_line_and_harm_no_other() {
        let (document, odd) = parse(b"k=v\n[a]\nno equals\nk=v\n=x\n[open\nl=w");
        let lines: Vec<u32> = odd.iter().map(|odd| odd.line).collect();
        assert_eq!(lines, [1, 3, 5, 6]);
        assert_eq!(odd[1].text, "expected key=value, found \"no equals\"");
        assert_eq!(document.sections[0].entries.len(), 1);
        assert_eq!(document.sections[1].name, "open");
    }

    #[test]
    fn what_a_file_cannot_hold_is_refused() {
        for (key, value) in [
            ("", "v"),
            ("a=b", "v"),
            ("[a", "v"),
            ("#a", "v"),
            ("k", "a\nb"),
            ("k", " v"),
            ("k", "a ;b"),
        ] {
            let entry = Entry {
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
                            .map(|(key, value)| Entry { key, value, line: 0 })
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
