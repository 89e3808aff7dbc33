//! The tables and their columns, the same in all formats; `docs/tables.md` describes them.

/// What a column contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// Yes or no.
    Flag,
    /// A count of things, a small number, or an identifier.
    Count,
    /// A number that may be negative.
    Signed,
    /// A 64-bit number.
    Number,
    /// An address.
    Address,
    /// Instructions, cycles or bytes up to a position; mostly increasing.
    Clock,
    /// A timestamp.
    Time,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it contains.
    pub kind: Kind,
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Calls, in the order of their ends.
    Calls,
    /// Exceptions, in the order of their ends.
    Exceptions,
    /// Gaps.
    Gaps,
    /// Events, and messages of ITM and STM.
    Events,
    /// Functions.
    Functions,
    /// Branches with their targets.
    Edges,
    /// Source lines with code.
    Lines,
    /// Straight lines of instructions that were executed, each once.
    Blocks,
    /// Each execution of a block.
    Exec,
    /// The executions of blocks in a shard, counted from the start of each page.
    ShardExec,
    /// The pages that shards decoded.
    Pages,
}

impl Table {
    /// All tables of a trace.
    pub const ALL: [Self; 9] = [
        Self::Calls,
        Self::Exceptions,
        Self::Gaps,
        Self::Events,
        Self::Functions,
        Self::Edges,
        Self::Lines,
        Self::Blocks,
        Self::Exec,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Exceptions => "exceptions",
            Self::Gaps => "gaps",
            Self::Events => "events",
            Self::Functions => "functions",
            Self::Edges => "edges",
            Self::Lines => "lines",
            Self::Blocks => "blocks",
            Self::Exec | Self::ShardExec => "exec",
            Self::Pages => "pages",
        }
    }

    /// Its columns.
    pub const fn columns(self) -> &'static [Column] {
        match self {
            Self::Calls => CALLS,
            Self::Exceptions => EXCEPTIONS,
            Self::Gaps => GAPS,
            Self::Events => EVENTS,
            Self::Functions => FUNCTIONS,
            Self::Edges => EDGES,
            Self::Lines => LINES,
            Self::Blocks => BLOCKS,
            Self::Exec => EXEC,
            Self::ShardExec => SHARD_EXEC,
            Self::Pages => PAGES,
        }
    }
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind }
}

const TRACK: Column = column("track", Kind::Text);
const BEGIN_INSTRUCTION: Column = column("begin_instruction", Kind::Clock);
const END_INSTRUCTION: Column = column("end_instruction", Kind::Clock);
const BEGIN_CYCLE: Column = column("begin_cycle", Kind::Clock);
const END_CYCLE: Column = column("end_cycle", Kind::Clock);
const BEGIN_TIME: Column = column("begin_time", Kind::Time);
const END_TIME: Column = column("end_time", Kind::Time);
const BUFFER: Column = column("buffer", Kind::Count);
const OFFSET: Column = column("offset", Kind::Clock);
const SHARD: Column = column("shard", Kind::Count);
const PAGE: Column = column("page", Kind::Clock);

const CALLS: &[Column] = &[
    TRACK,
    column("function", Kind::Text),
    column("address", Kind::Address),
    column("kind", Kind::Text),
    column("depth", Kind::Signed),
    column("ended", Kind::Text),
    BEGIN_INSTRUCTION,
    END_INSTRUCTION,
    BEGIN_CYCLE,
    END_CYCLE,
    BEGIN_TIME,
    END_TIME,
    BUFFER,
    OFFSET,
    column("returns_to", Kind::Address),
];

const EXCEPTIONS: &[Column] = &[
    TRACK,
    column("name", Kind::Text),
    column("number", Kind::Count),
    column("return_address", Kind::Address),
    column("returned", Kind::Flag),
    BEGIN_INSTRUCTION,
    END_INSTRUCTION,
    BEGIN_CYCLE,
    END_CYCLE,
    BEGIN_TIME,
    END_TIME,
    BUFFER,
    OFFSET,
];

const GAPS: &[Column] = &[
    TRACK,
    column("kind", Kind::Text),
    BEGIN_INSTRUCTION,
    BEGIN_CYCLE,
    END_CYCLE,
    BEGIN_TIME,
    END_TIME,
    BUFFER,
    OFFSET,
    column("resumes_at", Kind::Address),
];

const EVENTS: &[Column] = &[
    TRACK,
    column("kind", Kind::Text),
    column("master", Kind::Count),
    column("channel", Kind::Count),
    column("bits", Kind::Count),
    column("value", Kind::Number),
    column("instruction", Kind::Clock),
    column("cycle", Kind::Clock),
    column("time", Kind::Time),
    BUFFER,
    OFFSET,
];

const FUNCTIONS: &[Column] = &[
    TRACK,
    column("function", Kind::Text),
    column("address", Kind::Address),
    column("end", Kind::Address),
    column("kind", Kind::Text),
    column("el", Kind::Count),
    column("calls", Kind::Count),
    column("instructions", Kind::Count),
    column("total_instructions", Kind::Count),
    column("cycles", Kind::Count),
    column("total_cycles", Kind::Count),
];

const EDGES: &[Column] = &[
    TRACK,
    column("from", Kind::Address),
    column("to", Kind::Address),
    column("kind", Kind::Text),
    column("count", Kind::Count),
    column("from_function", Kind::Text),
    column("to_function", Kind::Text),
    column("build_id", Kind::Text),
    column("from_in_file", Kind::Address),
    column("to_build_id", Kind::Text),
    column("to_in_file", Kind::Address),
];

const LINES: &[Column] = &[
    column("file", Kind::Text),
    column("line", Kind::Count),
    column("count", Kind::Count),
];

const BLOCKS: &[Column] = &[
    column("block", Kind::Count),
    column("image", Kind::Text),
    column("build_id", Kind::Text),
    column("start", Kind::Address),
    column("end", Kind::Address),
    column("start_in_file", Kind::Address),
    column("isa", Kind::Text),
    column("instructions", Kind::Count),
    column("function", Kind::Text),
    column("last", Kind::Address),
    column("last_kind", Kind::Text),
    column("conditional", Kind::Flag),
];

/// The last two columns identify the page from whose start the rows are counted.
const SHARD_EXEC: &[Column] = &[
    TRACK,
    column("sequence", Kind::Clock),
    BUFFER,
    OFFSET,
    column("block", Kind::Count),
    column("taken", Kind::Flag),
    column("instructions", Kind::Count),
    column("time", Kind::Time),
    column("cycle", Kind::Clock),
    column("el", Kind::Count),
    column("context_id", Kind::Count),
    column("vmid", Kind::Count),
    SHARD,
    PAGE,
];

/// Like [`SHARD_EXEC`], without those two columns.
const EXEC: &[Column] = SHARD_EXEC.split_at(SHARD_EXEC.len() - 2).0;

const PAGES: &[Column] = &[
    TRACK,
    BUFFER,
    PAGE,
    SHARD,
    column("rows", Kind::Count),
    column("sequence", Kind::Clock),
    column("cycle", Kind::Clock),
    column("time", Kind::Time),
];
