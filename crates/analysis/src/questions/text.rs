//! Answers as lines: text, JSON Lines or CSV (RFC 4180).

use super::answer::{Access, Answer, Call, Change, CodePlace, Link, Memory, Values, Whereabouts};
use super::question::Question;
use armsnap_snapshot::text::one_line;
use serde_json::Value;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

/// The format of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// A JSON object a line.
    Jsonl,
    /// Comma-separated values, with a header line.
    Csv,
}

/// Writes answers as they arrive.
#[derive(Debug)]
pub struct Writer<W> {
    form: Form,
    columns: &'static [&'static str],
    is_begun: bool,
    out: W,
}

impl<W: Write> Writer<W> {
    /// Starts the answers to a question.
    pub fn new(form: Form, question: &Question, out: W) -> Self {
        let columns: &[&str] = match question {
            Question::Calls(_) => &[
                "position",
                "thread",
                "function",
                "caller",
                "arguments",
                "end",
                "returns",
            ],
            Question::Accesses(_) => &[
                "position", "thread", "kind", "address", "bytes", "value", "status", "pc",
                "function", "file", "line",
            ],
            Question::Variable(_) => &["position", "value", "status", "file", "line"],
            Question::Where(_) => &["position", "thread", "pc", "function", "file", "line"],
            Question::Values(_) => &["register", "value", "status"],
            Question::Memory(..) => &["bytes", "status"],
            Question::Why(..) | Question::Uses(..) => &[
                "position", "pc", "function", "file", "line", "what", "value", "status",
            ],
        };
        Self {
            form,
            columns,
            is_begun: false,
            out,
        }
    }

    /// Writes an answer.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn put(&mut self, answer: &Answer) -> io::Result<()> {
        match self.form {
            Form::Text => write!(self.out, "{answer}"),
            Form::Jsonl => {
                serde_json::to_writer(&mut self.out, answer)?;
                writeln!(self.out)
            }
            Form::Csv => {
                if !self.is_begun {
                    self.is_begun = true;
                    writeln!(self.out, "{}", self.columns.join(","))?;
                }
                self.rows(answer)
            }
        }
    }

    /// Hands on what was written.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Returns what it writes to.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn rows(&mut self, answer: &Answer) -> io::Result<()> {
        if let Answer::Values(Values { registers }) = answer {
            for (name, worth) in registers {
                let value = worth
                    .value
                    .map_or_else(String::new, |value| value.to_string());
                writeln!(self.out, "{name},{value},{}", worth.status)?;
            }
            return Ok(());
        }
        let all = serde_json::to_value(answer)?;
        let cells = self.columns.iter().map(|column| match all.get(column) {
            None => String::new(),
            Some(Value::String(text)) => cell(text),
            Some(other) => cell(&other.to_string()),
        });
        let cells: Vec<String> = cells.collect();
        writeln!(self.out, "{}", cells.join(","))
    }
}

/// Quotes a cell if it needs it.
fn cell(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// Describes where an instruction is.
fn place(code: &CodePlace) -> String {
    let mut text = String::new();
    if let Some(pc) = code.pc {
        let _ = write!(text, " at {pc}");
    }
    if let Some(function) = &code.function {
        let _ = write!(text, " in {}", one_line(function));
    }
    text + &line_of(code.file.as_ref().zip(code.line))
}

/// Describes a source line.
fn line_of(line: Option<(&String, u32)>) -> String {
    line.map_or_else(String::new, |(file, line)| {
        format!(", {}:{line}", one_line(file))
    })
}

impl fmt::Display for Answer {
    /// One line or more.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(call) => write!(f, "{call}"),
            Self::Access(access) => write!(f, "{access}"),
            Self::Change(change) => write!(f, "{change}"),
            Self::Where(place) => write!(f, "{place}"),
            Self::Values(Values { registers }) => {
                for (name, worth) in registers {
                    writeln!(f, "{name:<5} {worth}")?;
                }
                Ok(())
            }
            Self::Memory(Memory { bytes, status }) => writeln!(f, "{bytes} ({status})"),
            Self::Link(link) => write!(f, "{link}"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<14} {}(", self.position, one_line(&self.function))?;
        for (number, argument) in self.arguments.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}{}={}", one_line(&argument.name), argument.worth)?;
        }
        write!(f, ")")?;
        if let Some(caller) = &self.caller {
            write!(f, " from {}", one_line(caller))?;
        }
        match self.end {
            Some(end) => write!(f, ", until {end}")?,
            None => write!(f, ", open")?,
        }
        if let Some(returns) = self.returns {
            write!(f, ", returned {returns}")?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            position, thread, ..
        } = self;
        let place = place(&self.code);
        writeln!(f, "{position:<14} {}{place}", one_line(thread))
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            position,
            kind,
            address,
            bytes,
            worth,
            ..
        } = self;
        let place = place(&self.code);
        writeln!(
            f,
            "{position:<14} {kind:<5} {address}+{bytes}: {worth}{place}"
        )
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            position, worth, ..
        } = self;
        let line = self.file.as_ref().zip(self.line);
        let place = line_of(line);
        writeln!(f, "{position:<14} {worth}{place}")
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            position,
            what,
            worth,
            ..
        } = self;
        let place = place(&self.code);
        writeln!(f, "{position:<14} {what}: {worth}{place}")
    }
}
