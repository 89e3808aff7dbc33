//! The page's contents, in the form that its script reads.

use serde::Serialize;
use serde::ser::{SerializeTuple, Serializer};
use std::collections::BTreeMap;

/// The contents of a page.
#[derive(Debug, Serialize)]
pub struct PageData {
    /// The title.
    #[serde(skip)]
    pub title: String,
    /// The program that made the page.
    pub made_by: String,
    /// Totals: a name, the value, and a title for people.
    pub totals: Vec<(&'static str, u64, &'static str)>,
    /// Instructions of all tracks.
    pub instructions: u64,
    /// Functions; the other fields refer to them by index.
    pub functions: Vec<FunctionRow>,
    /// Source files.
    pub files: Vec<FileRow>,
    /// Instructions of functions, by the function's index.
    pub code: BTreeMap<u32, Vec<CodeRow>>,
    /// Blocks: address, instructions, and the function's index or -1.
    pub blocks: Vec<(String, u32, i64)>,
    /// Texts of exceptions and marks.
    pub texts: Vec<String>,
    /// The first timestamp, which is the zero of the clocks.
    pub time_base: String,
    /// Timelines.
    pub tracks: Vec<TrackData>,
    /// Exceptions with their latency.
    pub exceptions: Vec<ExceptionRow>,
    /// Gaps.
    pub gaps: Vec<GapRow>,
    /// What is missing, and what was assumed.
    pub notes: Vec<String>,
}

/// A function.
#[derive(Clone, Debug, Default)]
pub struct FunctionRow {
    /// Its name.
    pub name: String,
    /// Its first instruction.
    pub start: u64,
    /// Its source file.
    pub file: Option<u32>,
    /// Its source line.
    pub line: Option<u32>,
    /// Instructions executed in it.
    pub own: u64,
    /// Instructions executed in it and in what it calls.
    pub total: u64,
    /// Calls.
    pub calls: u64,
    /// The number of its instructions that were executed at least once.
    pub executed: u64,
    /// The number of its instructions; 0 if unknown.
    pub size: u64,
}

impl Serialize for FunctionRow {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_tuple(9)?;
        fields.serialize_element(&self.name)?;
        fields.serialize_element(&format_args!("{:#x}", self.start))?;
        fields.serialize_element(&self.file)?;
        fields.serialize_element(&self.line)?;
        for count in [self.own, self.total, self.calls, self.executed, self.size] {
            fields.serialize_element(&count)?;
        }
        fields.end()
    }
}

/// A source file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FileRow {
    /// Its name, as in the debug information.
    pub name: String,
    /// Lines with code, each followed by its execution count.
    pub lines: Vec<u64>,
    /// Lines that were executed.
    pub covered: u64,
    /// Lines with code.
    pub known: u64,
    /// Its text, in pieces with the number of their first line; `None` if it was not found.
    pub text: Option<Vec<(u32, String)>>,
    /// Why the text is missing or doubtful.
    pub note: Option<String>,
}

/// An instruction: offset in bytes from the function's start, execution count, disassembly, source
/// line and file.
pub type CodeRow = (u64, u64, String, Option<u32>, Option<u32>);

/// A timeline.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TrackData {
    /// The core, thread or source.
    pub name: String,
    /// What is not shown.
    pub note: Option<String>,
    /// The first instruction or message shown.
    pub first: u64,
    /// The number after the last instruction or message shown.
    pub length: u64,
    /// What `length` counts: "instruction" or "message".
    pub unit: &'static str,
    /// Slices by depth ([`super::slices::Slices::pack`]).
    pub rows: Vec<String>,
    /// Blocks ([`super::blocks::BlockStretches::pack`]).
    pub blocks: String,
    /// Marks ([`super::marks::Marks::pack`]).
    pub marks: String,
    /// Timestamps ([`super::clock::Clock::pack`]).
    pub time: String,
    /// Cycles.
    pub cycles: String,
}

/// Minimum, median and maximum.
pub type Spread = [u64; 3];

/// Exceptions of one name on one track.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExceptionRow {
    /// The name.
    pub name: String,
    /// The track's name.
    pub track: String,
    /// How often it was taken.
    pub taken: u64,
    /// How often its return is in the trace.
    pub returned: u64,
    /// Instructions from entry to return.
    pub instructions: Option<Spread>,
    /// Cycles from entry to return.
    pub cycles: Option<Spread>,
    /// Timestamps from entry to return.
    pub time: Option<Spread>,
}

/// Gaps with one reason on one track.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GapRow {
    /// The reason.
    pub reason: String,
    /// The track's index.
    pub track: usize,
    /// The number of gaps.
    pub count: u64,
    /// Instructions of the track before the first one.
    pub place: u64,
}
