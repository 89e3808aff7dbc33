//! The tables and their columns, the same in all formats; `docs/tables.md` describes them.

/// What a column contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
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
    pub kind: ColumnType,
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

const fn column(name: &'static str, kind: ColumnType) -> Column {
    Column { name, kind }
}

const TRACK: Column = column("track", ColumnType::Text);
const BEGIN_INSTRUCTION: Column = column("begin_instruction", ColumnType::Clock);
const END_INSTRUCTION: Column = column("end_instruction", ColumnType::Clock);
const BEGIN_CYCLE: Column = column("begin_cycle", ColumnType::Clock);
const END_CYCLE: Column = column("end_cycle", ColumnType::Clock);
const BEGIN_TIME: Column = column("begin_time", ColumnType::Time);
const END_TIME: Column = column("end_time", ColumnType::Time);
const BUFFER: Column = column("buffer", ColumnType::Count);
const OFFSET: Column = column("offset", ColumnType::Clock);
const SHARD: Column = column("shard", ColumnType::Count);
const PAGE: Column = column("page", ColumnType::Clock);

const CALLS: &[Column] = &[
    TRACK,
    column("function", ColumnType::Text),
    column("address", ColumnType::Address),
    column("kind", ColumnType::Text),
    column("depth", ColumnType::Signed),
    column("ended", ColumnType::Text),
    BEGIN_INSTRUCTION,
    END_INSTRUCTION,
    BEGIN_CYCLE,
    END_CYCLE,
    BEGIN_TIME,
    END_TIME,
    BUFFER,
    OFFSET,
    column("returns_to", ColumnType::Address),
];

const EXCEPTIONS: &[Column] = &[
    TRACK,
    column("name", ColumnType::Text),
    column("number", ColumnType::Count),
    column("return_address", ColumnType::Address),
    column("returned", ColumnType::Flag),
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
    column("kind", ColumnType::Text),
    BEGIN_INSTRUCTION,
    BEGIN_CYCLE,
    END_CYCLE,
    BEGIN_TIME,
    END_TIME,
    BUFFER,
    OFFSET,
    column("resumes_at", ColumnType::Address),
];

const EVENTS: &[Column] = &[
    TRACK,
    column("kind", ColumnType::Text),
    column("master", ColumnType::Count),
    column("channel", ColumnType::Count),
    column("bits", ColumnType::Count),
    column("value", ColumnType::Number),
    column("instruction", ColumnType::Clock),
    column("cycle", ColumnType::Clock),
    column("time", ColumnType::Time),
    BUFFER,
    OFFSET,
];

const FUNCTIONS: &[Column] = &[
    TRACK,
    column("function", ColumnType::Text),
    column("address", ColumnType::Address),
    column("end", ColumnType::Address),
    column("kind", ColumnType::Text),
    column("el", ColumnType::Count),
    column("calls", ColumnType::Count),
    column("instructions", ColumnType::Count),
    column("total_instructions", ColumnType::Count),
    column("cycles", ColumnType::Count),
    column("total_cycles", ColumnType::Count),
];

const EDGES: &[Column] = &[
    TRACK,
    column("from", ColumnType::Address),
    column("to", ColumnType::Address),
    column("kind", ColumnType::Text),
    column("count", ColumnType::Count),
    column("from_function", ColumnType::Text),
    column("to_function", ColumnType::Text),
    column("build_id", ColumnType::Text),
    column("from_in_file", ColumnType::Address),
    column("to_build_id", ColumnType::Text),
    column("to_in_file", ColumnType::Address),
];

const LINES: &[Column] = &[
    column("file", ColumnType::Text),
    column("line", ColumnType::Count),
    column("count", ColumnType::Count),
];

const BLOCKS: &[Column] = &[
    column("block", ColumnType::Count),
    column("image", ColumnType::Text),
    column("build_id", ColumnType::Text),
    column("start", ColumnType::Address),
    column("end", ColumnType::Address),
    column("start_in_file", ColumnType::Address),
    column("isa", ColumnType::Text),
    column("instructions", ColumnType::Count),
    column("function", ColumnType::Text),
    column("last", ColumnType::Address),
    column("last_kind", ColumnType::Text),
    column("conditional", ColumnType::Flag),
];

/// The last two columns identify the page from whose start the rows are counted.
const SHARD_EXEC: &[Column] = &[
    TRACK,
    column("sequence", ColumnType::Clock),
    BUFFER,
    OFFSET,
    column("block", ColumnType::Count),
    column("taken", ColumnType::Flag),
    column("instructions", ColumnType::Count),
    column("time", ColumnType::Time),
    column("cycle", ColumnType::Clock),
    column("el", ColumnType::Count),
    column("context_id", ColumnType::Count),
    column("vmid", ColumnType::Count),
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
    column("rows", ColumnType::Count),
    column("sequence", ColumnType::Clock),
    column("cycle", ColumnType::Clock),
    column("time", ColumnType::Time),
];
