//! Answers, in the form that other programs read.

use armsnap_history::recover::{Known, Status};
use armsnap_history::timeline::Position;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// A number that is written in hexadecimal, with 0x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hex(pub u128);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A value with its status: `proved`, `inferred` or `unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Worth {
    /// The value, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Hex>,
    /// How well it is known.
    pub status: &'static str,
}

impl Worth {
    /// A value that is not known.
    pub const UNKNOWN: Self = Self {
        value: None,
        status: "unknown",
    };

    /// A value that is known.
    #[must_use]
    pub fn known(value: u128, status: Status) -> Self {
        Self {
            value: Some(Hex(value)),
            status: status.name(),
        }
    }

    /// Returns the value for an assumption that is not proved.
    #[must_use]
    pub fn assumed(self) -> Self {
        match self.value {
            Some(Hex(value)) => Self::known(value, Status::Inferred),
            None => self,
        }
    }
}

impl<T: Into<u128>> From<Option<Known<T>>> for Worth {
    fn from(known: Option<Known<T>>) -> Self {
        known.map_or(Self::UNKNOWN, |known| {
            Self::known(known.value.into(), known.status)
        })
    }
}

impl fmt::Display for Worth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(f, "{value} ({})", self.status),
            None => f.write_str("unknown"),
        }
    }
}

fn shown<S: Serializer>(position: &Position, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(position)
}

fn maybe_shown<S: Serializer>(
    position: &Option<Position>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match position {
        Some(position) => serializer.collect_str(position),
        None => serializer.serialize_none(),
    }
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Argument {
    /// The name of the parameter; that of the register without debug information.
    pub name: String,
    /// Its value.
    #[serde(flatten)]
    pub worth: Worth,
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Call {
    /// The first instruction of the function.
    #[serde(serialize_with = "shown")]
    pub position: Position,
    /// The thread.
    pub thread: String,
    /// The function.
    pub function: String,
    /// The function that called it, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The arguments.
    pub arguments: Vec<Argument>,
    /// The last instruction of the call; `None` if the call has not ended.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "maybe_shown"
    )]
    pub end: Option<Position>,
    /// What it returned; `None` if it did not return, or returns nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returns: Option<Worth>,
}

/// A load or a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Access {
    /// The instruction.
    #[serde(serialize_with = "shown")]
    pub position: Position,
    /// The thread.
    pub thread: String,
    /// `read` or `write`.
    pub kind: &'static str,
    /// The first address that was accessed.
    pub address: Hex,
    /// The number of bytes.
    pub bytes: u8,
    /// What was read or written.
    #[serde(flatten)]
    pub worth: Worth,
    /// Where the instruction is in the program.
    #[serde(flatten)]
    pub code: CodePlace,
}

/// A change of the value of an expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// From here on it has this value.
    #[serde(serialize_with = "shown")]
    pub position: Position,
    /// The value.
    #[serde(flatten)]
    pub worth: Worth,
    /// The source file of the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// All registers at a position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Values {
    /// By name.
    pub registers: BTreeMap<String, Worth>,
}

/// Memory at a position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Two hexadecimal digits for each byte, `..` where it is unknown.
    pub bytes: String,
    /// The status of the known bytes: `inferred` if one of them is, `unknown` if there are none.
    pub status: &'static str,
}

/// Where an instruction is in the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CodePlace {
    /// Its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pc: Option<Hex>,
    /// Its function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Its source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// An instruction on the path of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// The instruction.
    #[serde(serialize_with = "shown")]
    pub position: Position,
    /// Where the instruction is in the program.
    #[serde(flatten)]
    pub code: CodePlace,
    /// What it did with the value.
    pub what: String,
    /// The value that it left.
    #[serde(flatten)]
    pub worth: Worth,
}

/// The instruction at a position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Whereabouts {
    /// The position.
    #[serde(serialize_with = "shown")]
    pub position: Position,
    /// The thread.
    pub thread: String,
    /// Where the instruction is in the program.
    #[serde(flatten)]
    pub code: CodePlace,
}

/// An answer: one line of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// To `calls`.
    Call(Call),
    /// To `accesses`.
    Access(Access),
    /// To `variable`.
    Change(Change),
    /// To `where`.
    Where(Whereabouts),
    /// To `values`.
    Values(Values),
    /// To `memory`.
    Memory(Memory),
    /// To `why` and `uses`.
    Link(Link),
}
