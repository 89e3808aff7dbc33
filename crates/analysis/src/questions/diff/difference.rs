//! Where two courses differ, in the form that other programs read.

use super::super::answer::{CodePlace, Hex, Link};
use armsnap_history::timeline::Position;
use armsnap_snapshot::text::one_line;
use serde::{Serialize, Serializer};
use std::fmt;

/// How two courses differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// They go different ways after the instruction.
    Branch,
    /// They go the same way, with other values.
    Value,
    /// One ends where the other goes on.
    End,
}

/// The instruction at which one course differs from the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Its position.
    #[serde(serialize_with = "shown")]
    pub position: Position,
    /// Where the instruction is in the program.
    #[serde(flatten)]
    pub code: CodePlace,
    /// How the courses differ there.
    pub kind: Kind,
}

fn shown<S: Serializer>(position: &Position, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(position)
}

/// A register or memory that the instruction reads, with both values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Differing {
    /// Its name.
    pub name: String,
    /// The value in the first recording.
    pub a: Hex,
    /// The value in the second one.
    pub b: Hex,
}

/// Where the first of the differing values came from, the oldest first, as `why` answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Causes {
    /// In the first recording.
    pub a: Vec<Link>,
    /// In the second one.
    pub b: Vec<Link>,
}

/// Where two courses first differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The thread, as named in the first recording.
    pub thread: String,
    /// The instruction in the first recording.
    pub a: Place,
    /// The instruction in the second one.
    pub b: Place,
    /// The values that differ there, as far as they are known.
    pub values: Vec<Differing>,
    /// Where the first of them came from.
    pub cause: Causes,
}

impl fmt::Display for Difference {
    /// Several lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.a.kind {
            Kind::Branch => "the courses part after this instruction",
            Kind::Value => "the course is the same, but values differ",
            Kind::End => "one ends where the other goes on",
        };
        writeln!(f, "{}: {how}", one_line(&self.thread))?;
        for (side, place) in [("A", &self.a), ("B", &self.b)] {
            write!(f, "  {side} {:<14}", place.position)?;
            if let Some(pc) = place.code.pc {
                write!(f, " {pc}")?;
            }
            if let Some(function) = &place.code.function {
                write!(f, " in {}", one_line(function))?;
            }
            if let (Some(file), Some(line)) = (&place.code.file, place.code.line) {
                write!(f, ", {}:{line}", one_line(file))?;
            }
            writeln!(f)?;
        }
        for Differing { name, a, b } in &self.values {
            writeln!(f, "  {}: A {a}, B {b}", one_line(name))?;
        }
        for (side, links) in [("A", &self.cause.a), ("B", &self.cause.b)] {
            if !links.is_empty() {
                writeln!(f, "why in {side}:")?;
            }
            for link in links {
                write!(f, "  {}", super::super::Answer::Link(link.clone()))?;
            }
        }
        Ok(())
    }
}
