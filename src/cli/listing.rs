//! Listings on a terminal: in colour, and through a pager like git's.
//!
//! Colours are added after untrusted text is escaped, so no text of an input can select them.

use clap::{Args, ColorChoice};
use std::io::{self, IsTerminal, Write};

use super::Failure;
use super::pager::Pager;

/// How a listing appears.
#[derive(Args, Clone, Copy, Debug)]
pub struct ListingArguments {
    /// When to use colours. Auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
    /// Do not show the listing in a pager ($ARMSNAP_PAGER, $PAGER, or less)
    #[arg(long)]
    pub no_pager: bool,
}

/// The form of a listing's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// `armsnap check`: `place: severity (…): text`.
    Findings,
    /// `armsnap decode`: `offset id kind what`, or `kind what`.
    Trace,
    /// No colours, for example for JSON.
    Plain,
}

impl ListingArguments {
    /// Starts the pager, if standard output is a terminal. Colours must have been chosen before.
    pub fn page(&self) -> Result<Option<Pager>, Failure> {
        if self.no_pager {
            return Ok(None);
        }
        Ok(Pager::start()?)
    }

    /// Returns the colours for lines on standard output, or in a file.
    pub fn lines(&self, lines: Lines, in_file: bool) -> Lines {
        let on = match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
                let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
                !in_file && io::stdout().is_terminal() && !set("NO_COLOR") && !dumb
            }
        };
        if on { lines } else { Lines::Plain }
    }
}

const DIM: &str = "\x1b[2m";
const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[33m";
const CYAN: &str = "\x1b[36m";
const END: &str = "\x1b[0m";

/// A writer that colours whole lines.
#[derive(Debug)]
pub struct Colored<W> {
    out: W,
    lines: Lines,
    /// The start of an incomplete line.
    cut: String,
}

impl<W: Write> Colored<W> {
    /// Wraps `out`.
    pub const fn new(out: W, lines: Lines) -> Self {
        Self {
            out,
            lines,
            cut: String::new(),
        }
    }

    /// Writes an incomplete last line, and returns the wrapped writer.
    pub fn into_inner(mut self) -> io::Result<W> {
        let last = std::mem::take(&mut self.cut);
        self.out.write_all(last.as_bytes())?;
        Ok(self.out)
    }
}

impl<W: Write> Write for Colored<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.lines == Lines::Plain {
            return self.out.write(bytes);
        }
        let mut text = std::mem::take(&mut self.cut);
        // After escaping, all text is UTF-8 and consists of whole characters.
        text.push_str(&String::from_utf8_lossy(bytes));
        let mut rest = text.as_str();
        let mut painted = String::new();
        while let Some((line, after)) = rest.split_once('\n') {
            match self.lines {
                Lines::Findings => finding(line, &mut painted),
                _ => trace(line, &mut painted),
            }
            painted.push('\n');
            rest = after;
        }
        self.cut = rest.to_owned();
        self.out.write_all(painted.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn paint(out: &mut String, color: &str, text: &str) {
    if color.is_empty() || text.is_empty() {
        out.push_str(text);
    } else {
        out.push_str(color);
        out.push_str(text);
        out.push_str(END);
    }
}

/// `place: error (…): text`, `place: warning (…): text`.
fn finding(line: &str, out: &mut String) {
    let found = [("error", RED), ("warning", YELLOW)].map(|(word, color)| {
        let at = line.find(&format!(": {word} ("))?;
        Some((at, word, color))
    });
    let Some((at, word, color)) = found.into_iter().flatten().min() else {
        out.push_str(line);
        return;
    };
    paint(out, BOLD, &line[..at]);
    out.push_str(": ");
    paint(out, color, word);
    out.push_str(&line[at + 2 + word.len()..]);
}

/// `offset id kind what`, or `kind what`.
fn trace(line: &str, out: &mut String) {
    let kind = kind_at(line);
    let end = line[kind..].find(' ').map_or(line.len(), |end| kind + end);
    paint(out, DIM, &line[..kind]);
    let word = &line[kind..end];
    paint(out, color_of(word), word);
    out.push_str(&line[end..]);
}

/// Returns where the kind starts: after a decimal offset and a trace ID, if present.
fn kind_at(line: &str) -> usize {
    let start = line.len() - line.trim_start().len();
    let mut words = line.split_ascii_whitespace();
    let offset = words.next().unwrap_or_default();
    if offset.is_empty() || !offset.bytes().all(|byte| byte.is_ascii_digit()) {
        return start;
    }
    let (Some(id), Some(_)) = (words.next(), words.next()) else {
        return start;
    };
    let after = line[start + offset.len()..].find(id).unwrap_or_default();
    let after = start + offset.len() + after + id.len();
    after + (line[after..].len() - line[after..].trim_start().len())
}

/// Executed code has no colour; losses are red.
fn color_of(kind: &str) -> &'static str {
    let lost = [
        "no_sync",
        "missing",
        "bad",
        "overflow",
        "discard",
        "reserved",
        "unknown",
        "incomplete",
    ];
    match kind {
        "range" | "q_range" | "A64" | "A32" | "T32" | "Br" => "",
        "exception" | "exception_return" | "Ex" => YELLOW,
        _ if lost.iter().any(|word| kind.contains(word)) => RED,
        _ => CYAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn colored(lines: Lines, text: &str, size: usize) -> String {
        let mut out = Colored::new(Vec::new(), lines);
        for piece in text.as_bytes().chunks(size) {
            out.write_all(piece).unwrap();
        }
        String::from_utf8(out.into_inner().unwrap()).unwrap()
    }

    #[test]
    fn listings_are_coloured_without_other_changes() {
        let text = "        0  10  no_sync            start\n\
                    \x20      28  10  range              0x40100000-0x4010000c\n\
                    Ts    0x1           0x1\n12 13\n\nend";
        for size in [1, 7, 1000] {
            let found = colored(Lines::Trace, text, size);
            assert!(found.starts_with("\x1b[2m        0  10  \x1b[0m\x1b[1;31mno_sync\x1b[0m   "));
            assert!(
                found.contains("\n\x1b[2m       28  10  \x1b[0mrange   "),
                "{found:?}"
            );
            assert!(found.contains("\n\x1b[36mTs\x1b[0m    0x1"), "{found:?}");
            let mut plain = found;
            for code in [DIM, RED, CYAN, YELLOW, BOLD, END] {
                plain = plain.replace(code, "");
            }
            assert_eq!(plain, text);
        }
        let text = "cpu_1.ini:1: error (required): x\na: warning (y): z: error (b\n";
        assert_eq!(
            colored(Lines::Findings, text, 5),
            "\x1b[1mcpu_1.ini:1\x1b[0m: \x1b[1;31merror\x1b[0m (required): x\n\
             \x1b[1ma\x1b[0m: \x1b[33mwarning\x1b[0m (y): z: error (b\n"
        );
        assert_eq!(colored(Lines::Plain, text, 9), text);
    }
}
