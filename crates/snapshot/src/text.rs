//! Escapes untrusted text for terminals.
//!
//! Used for all printed text. Escapes control characters (C0, DEL, C1), characters that change the
//! text direction or have no width, and line separators.

use std::borrow::Cow;
use std::fmt;
use std::io;

/// Returns whether a character is visible (or a space) and has no other effect.
pub fn is_plain(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    // Checked after a letter, where the standard library does not escape accents.
    let mut bytes = [b'x', 0, 0, 0, 0];
    let length = 1 + c.encode_utf8(&mut bytes[1..]).len();
    let pair = std::str::from_utf8(&bytes[..length]).unwrap_or_default();
    pair.escape_debug().nth(1) == Some(c)
}

/// Escapes all characters of a text that are not plain, except line ends.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n' || is_plain(c))
}

/// Escapes all characters of a name that are not plain, including line ends.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_plain)
}

/// Escapes text for XML; replaces characters that are not plain, some of which XML forbids, by `?`.
pub fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if !is_plain(c) => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// Returns a count with its noun: `1 core`, `2 cores`, `2 processes`.
pub fn count(number: u64, one: &str) -> String {
    let end = match number {
        1 => "",
        _ if one.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {one}{end}")
}

/// Returns whether a name matches a pattern with `*` and `?`, or contains a pattern without them.
/// Ignores case.
#[must_use]
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_ascii_lowercase(), name.to_ascii_lowercase());
    if !pattern.contains(['*', '?']) {
        return name.contains(&pattern);
    }
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // The index after the last `*`, and the end of what it matches.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                star = Some((p, n));
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((after, covered)) => {
                    p = after;
                    n = covered + 1;
                    star = Some((after, n));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&stays) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if stays(c) {
            out.push(c);
        } else {
            out.extend(c.escape_default());
        }
    }
    Cow::Owned(out)
}

/// A [`fmt::Write`] adapter that applies [`lines`].
#[derive(Debug)]
pub struct Plain<W>(pub W);

impl<W: fmt::Write> fmt::Write for Plain<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(&lines(text))
    }
}

/// The format of escapes in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `\u{202e}`.
    Text,
    /// `\u202e`: decodes to the same JSON string.
    Json,
}

/// An [`io::Write`] adapter that escapes UTF-8 text or JSON.
#[derive(Debug)]
pub struct PlainStream<W> {
    out: W,
    form: Form,
    /// The start of an incomplete character.
    cut: Vec<u8>,
}

impl<W: io::Write> PlainStream<W> {
    /// Wraps `out`.
    pub fn new(out: W, form: Form) -> Self {
        Self {
            out,
            form,
            cut: Vec::new(),
        }
    }

    /// Returns the wrapped writer.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Writes text, and keeps an incomplete character at the end for the next write.
    fn text(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match std::str::from_utf8(bytes) {
                Ok(text) => return self.characters(text),
                Err(error) => {
                    let (text, rest) = bytes.split_at(error.valid_up_to());
                    self.characters(std::str::from_utf8(text).unwrap_or_default())?;
                    let Some(wrong) = error.error_len() else {
                        self.cut = rest.to_vec();
                        return Ok(());
                    };
                    self.characters("\u{fffd}")?;
                    bytes = &rest[wrong..];
                }
            }
        }
        Ok(())
    }

    fn characters(&mut self, text: &str) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(|c| c != '\n' && !is_plain(c)) {
            let (plain, other) = rest.split_at(at);
            self.out.write_all(plain.as_bytes())?;
            let mut characters = other.chars();
            if let Some(c) = characters.next() {
                match self.form {
                    Form::Text => write!(self.out, "{}", c.escape_default())?,
                    Form::Json => {
                        for unit in c.encode_utf16(&mut [0; 2]) {
                            write!(self.out, "\\u{unit:04x}")?;
                        }
                    }
                }
            }
            rest = characters.as_str();
        }
        self.out.write_all(rest.as_bytes())
    }
}

impl<W: io::Write> io::Write for PlainStream<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let ascii = |byte: &u8| (b' '..0x7f).contains(byte) | (*byte == b'\n');
        // A chunk is never left early, so that the compiler can compare many bytes at once.
        let all_ascii = |chunk: &[u8]| chunk.iter().fold(true, |all, byte| all & ascii(byte));
        if self.cut.is_empty() && bytes.chunks(64).all(all_ascii) {
            self.out.write_all(bytes)?;
        } else {
            let mut whole = std::mem::take(&mut self.cut);
            whole.extend_from_slice(bytes);
            self.text(&whole)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const HOSTILE: &str =
        "a\x1b[31m\r\t\u{7f}\u{9b}2J\u{202e}\u{2066}\u{200b}\u{2028}\u{e0001}é\u{301}ü漢\n";

    #[test]
    fn patterns() {
        for (pattern, name, wanted) in [
            ("", "x0", true),
            ("ttbr", "S_TTBR0", true),
            ("TTBR0*", "ttbr0_el1", true),
            ("ttbr0*", "S_TTBR0", false),
            ("*el?", "TTBR0_EL1", true),
            ("*el?", "TTBR0_EL12", false),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
            ("?", "", false),
            ("*", "", true),
        ] {
            assert_eq!(matches_pattern(pattern, name), wanted, "{pattern} {name}");
        }
    }

    #[test]
    fn characters_that_are_not_plain_are_escaped() {
        let plain = "a\\u{1b}[31m\\r\\t\\u{7f}\\u{9b}2J\\u{202e}\\u{2066}\\u{200b}\\u{2028}\
                     \\u{e0001}é\u{301}ü漢";
        assert_eq!(lines(HOSTILE), format!("{plain}\n"));
        assert_eq!(one_line(HOSTILE), format!("{plain}\\n"));
        let mut out = String::new();
        fmt::Write::write_str(&mut Plain(&mut out), HOSTILE).unwrap();
        assert_eq!(out, format!("{plain}\n"));
        assert!(matches!(lines("x é\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn streams_can_be_split_anywhere() {
        for size in 1..HOSTILE.len() {
            let mut text = PlainStream::new(Vec::new(), Form::Text);
            for piece in HOSTILE.as_bytes().chunks(size) {
                text.write_all(piece).unwrap();
            }
            let text = String::from_utf8(text.into_inner()).unwrap();
            assert_eq!(text, lines(HOSTILE), "{size}");
        }
    }

    #[test]
    fn escaped_json_decodes_to_the_same_string() {
        let mut out = PlainStream::new(Vec::new(), Form::Json);
        serde_json::to_writer(&mut out, HOSTILE).unwrap();
        let json = String::from_utf8(out.into_inner()).unwrap();
        assert!(json.chars().all(is_plain), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), HOSTILE);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let mut out = PlainStream::new(Vec::new(), Form::Text);
        out.write_all(b"a\xff\xc3").unwrap();
        out.write_all(b"(b").unwrap();
        assert_eq!(out.into_inner(), "a\u{fffd}\u{fffd}(b".as_bytes());
    }
}
