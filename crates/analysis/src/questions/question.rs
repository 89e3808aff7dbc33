//! Questions, as they are written.

use super::note::NoQuestion;
use armsnap_history::timeline::Position;
use std::ops::Range;

/// The most bytes of memory in one answer.
const MOST_MEMORY: usize = 1 << 16;

/// What a question is about: an address range, or something with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Memory.
    Range(Range<u64>),
    /// A register, or an expression over variables.
    Expression(String),
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The calls of a function.
    Calls(String),
    /// The loads and stores of a range.
    Accesses(Subject),
    /// The changes of the value of an expression.
    Variable(String),
    /// The instruction at a position.
    Where(Position),
    /// The registers at a position.
    Values(Position),
    /// Memory at a position: the first address, and the number of bytes.
    Memory(Position, u64, usize),
    /// Where a value at a position came from.
    Why(Position, Subject),
    /// Which instructions used a value at a position.
    Uses(Position, Subject),
}

impl Question {
    /// Reads a question from its words.
    ///
    /// # Errors
    ///
    /// If they are not a question.
    pub fn parse(words: &[&str]) -> Result<Self, NoQuestion> {
        let (name, arguments) = match words {
            [name, arguments @ ..] => (*name, arguments),
            [] => ("", &[][..]),
        };
        match (name, arguments) {
            ("calls", [function]) => Ok(Self::Calls((*function).to_owned())),
            ("calls", _) => Err(NoQuestion::Arguments("calls FUNCTION")),
            ("accesses", [_, ..]) => Ok(Self::Accesses(subject(&arguments.join(" "))?)),
            ("accesses", _) => Err(NoQuestion::Arguments(
                "accesses ADDRESS[+LENGTH]|EXPRESSION",
            )),
            ("variable", [_, ..]) => Ok(Self::Variable(arguments.join(" "))),
            ("variable", _) => Err(NoQuestion::Arguments("variable EXPRESSION")),
            ("where", [at]) => Ok(Self::Where(position(at)?)),
            ("where", _) => Err(NoQuestion::Arguments("where POSITION")),
            ("values", [at]) => Ok(Self::Values(position(at)?)),
            ("values", _) => Err(NoQuestion::Arguments("values POSITION")),
            ("memory", [at, from, length]) => {
                let at = position(at)?;
                let from = number(from).ok_or_else(|| expected("an address", from))?;
                let wanted = number(length).and_then(|length| usize::try_from(length).ok());
                let wanted = wanted.filter(|length| (1..=MOST_MEMORY).contains(length));
                let length =
                    wanted.ok_or_else(|| expected("a length of 1 to 65536 bytes", length))?;
                Ok(Self::Memory(at, from, length))
            }
            ("memory", _) => Err(NoQuestion::Arguments("memory POSITION ADDRESS LENGTH")),
            ("why", [at, _, ..]) => Ok(Self::Why(
                position(at)?,
                subject(&arguments[1..].join(" "))?,
            )),
            ("uses", [at, _, ..]) => Ok(Self::Uses(
                position(at)?,
                subject(&arguments[1..].join(" "))?,
            )),
            ("uses", _) => Err(NoQuestion::Arguments("uses POSITION EXPRESSION")),
            ("why", _) => Err(NoQuestion::Arguments("why POSITION EXPRESSION")),
            (other, _) => Err(NoQuestion::Unknown(other.to_owned())),
        }
    }
}

fn expected(expected: &'static str, found: &str) -> NoQuestion {
    NoQuestion::Argument {
        expected,
        found: found.to_owned(),
    }
}

fn position(text: &str) -> Result<Position, NoQuestion> {
    text.parse()
        .map_err(|_| expected("a position as of `monitor where`", text))
}

/// A number, decimal or hexadecimal with 0x.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Reads `ADDRESS`, `ADDRESS+LENGTH`, or an expression.
fn subject(text: &str) -> Result<Subject, NoQuestion> {
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(Subject::Expression(text.to_owned()));
    }
    let (address, length) = text.split_once('+').unwrap_or((text, "1"));
    let wanted = || {
        let (address, length) = (number(address.trim())?, number(length.trim())?);
        let end = address.checked_add(length).filter(|_| length > 0)?;
        Some(Subject::Range(address..end))
    };
    wanted().ok_or_else(|| expected("ADDRESS or ADDRESS+LENGTH", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Question, NoQuestion> {
        Question::parse(&text.split(' ').collect::<Vec<_>>())
    }

    #[test]
    fn questions_are_read() {
        let at: Position = "0+12".parse().unwrap();
        for (text, wanted) in [
            ("calls main", Question::Calls("main".to_owned())),
            ("values 0+12", Question::Values(at)),
            ("where 0+12", Question::Where(at)),
            ("memory 0+12 0x10 16", Question::Memory(at, 16, 16)),
            ("accesses 0x10", Question::Accesses(Subject::Range(16..17))),
            (
                "accesses 0x10+8",
                Question::Accesses(Subject::Range(16..24)),
            ),
            (
                "why 0+12 x1",
                Question::Why(at, Subject::Expression("x1".to_owned())),
            ),
            (
                "uses 0+12 0x10+4",
                Question::Uses(at, Subject::Range(16..20)),
            ),
        ] {
            assert_eq!(parse(text), Ok(wanted), "{text}");
        }
        for text in [
            "",
            "call main",
            "calls",
            "calls a b",
            "values 12",
            "memory 0+12 0x10",
            "memory 0+12 0x10 0",
            "memory 0+12 0x10 65537",
            "accesses 0xffffffffffffffff+2",
            "accesses 0x10+0",
            "why 0+12",
            "uses 0+12",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
