//! What a `monitor` command prints: text for a user, and the same lines as JSON for a program.

use std::fmt::Display;

use serde::{Serialize, Serializer};

use armsnap_snapshot::text::{lines, one_line};

/// The lines that a command prints.
#[derive(Debug, Default)]
pub(super) struct Output(Vec<Line>);

/// A line of text. The fields name what it says, so that a program need not parse it.
#[derive(Debug)]
struct Line {
    text: String,
    fields: Vec<(&'static str, String)>,
}

/// What a client has cached and must read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stale {
    /// Everything: the thread is at another position.
    Position,
    /// Registers and memory.
    Values,
    /// Memory.
    Memory,
}

impl Output {
    /// Adds a line with the named fields.
    pub fn line<const N: usize>(&mut self, text: String, fields: [(&'static str, String); N]) {
        let fields = fields.into();
        self.0.push(Line { text, fields });
    }

    /// Adds a line with a name and its value, in two columns.
    pub fn fact(&mut self, name: &'static str, value: impl Display) {
        let value = value.to_string();
        self.line(format!("  {name:<10}{value}"), [(name, value)]);
    }

    /// Adds a note.
    pub fn note(&mut self, value: impl Display) {
        let value = value.to_string();
        self.line(format!("  note: {value}"), [("note", value)]);
    }

    /// Adds a hint on how a user makes GDB read again what is stale; programs skip the line.
    pub fn stale(&mut self, what: Stale, hint: &str) {
        let name = match what {
            Stale::Position => "position",
            Stale::Values => "values",
            Stale::Memory => "memory",
        };
        self.line(hint.to_owned(), [("stale", name.to_owned())]);
    }

    /// Adds the lines of a text.
    pub fn text(&mut self, text: &str) {
        for line in text.split_terminator('\n') {
            self.line(line.to_owned(), []);
        }
    }

    /// Formats the lines for the terminal of a user.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for line in &self.0 {
            text += &lines(&line.text);
            text.push('\n');
        }
        text
    }

    /// Formats each line as a JSON object: its `text`, and its fields, all as strings.
    pub fn to_json(&self) -> String {
        let mut text = String::new();
        for line in &self.0 {
            // Strings can always be serialized.
            text += &serde_json::to_string(line).unwrap_or_default();
            text.push('\n');
        }
        text
    }
}

impl From<String> for Output {
    fn from(text: String) -> Self {
        let mut output = Self::default();
        output.text(&text);
        output
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.fields.iter().map(|(name, value)| (*name, value));
        let all = std::iter::once(("text", &self.text)).chain(fields);
        serializer.collect_map(all.map(|(name, value)| (name, one_line(value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_the_lines_of_a_user_and_their_fields() {
        let mut output = Output::from("one\n\ntwo\u{1b}\n".to_owned());
        output.fact("pc", "0x40");
        output.stale(Stale::Position, "read again");
        let user = "one\n\ntwo\\u{1b}\n  pc        0x40\nread again\n";
        assert_eq!(output.to_text(), user);
        let json: Vec<serde_json::Value> = output
            .to_json()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let texts: Vec<_> = json
            .iter()
            .map(|line| line["text"].as_str().unwrap())
            .collect();
        assert_eq!(texts, user.lines().collect::<Vec<_>>());
        assert_eq!(json[3]["pc"], "0x40");
        assert_eq!(json[4]["stale"], "position");
    }
}
