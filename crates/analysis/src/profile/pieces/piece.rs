//! What is known of the execution of a track in a page of a buffer without what came before.

use super::super::clock::Moment;
use super::super::code::{BlockCount, Edge};
use super::super::stack::CallKind;
use armsnap_arch::quantity::{Address, BufferOffset};
use armsnap_trace::element::{Context, Exception, Mark};
use armsnap_trace::flow::{Gap, QRange, Range};
use serde::{Deserialize, Serialize};

/// The maximum number of bytes of code in a straight line: the flow follows at most 0x4000
/// instructions.
const LONGEST: u64 = 1 << 16;
/// The limit for the steps of a bounded piece, in bytes. Only hostile traces reach it.
const FULL: usize = 64 << 20;
/// A count that no piece reaches; low enough that sums of counts do not overflow.
const ABSURD: u64 = 1 << 40;

/// The part of a page that belongs to one track. All clocks start at 0.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Piece {
    /// The executed blocks, in the order of their first execution, with counts.
    pub(in super::super) blocks: Vec<BlockCount>,
    pub(in super::super) steps: Vec<Step>,
    /// Execution after the last step.
    pub(in super::super) after: Advance,
    /// The offset of the last packet.
    pub(in super::super) last_at: BufferOffset,
    /// Elements that are not among the steps.
    pub(in super::super) elements: u64,
    pub(in super::super) packets: u64,
    /// The number of straight lines.
    pub(in super::super) lines: u64,
    /// Edges after indirect branches that are not among the steps.
    #[serde(skip)]
    pub(in super::super) edges: Vec<Edge>,
    /// The assumptions made.
    #[serde(skip)]
    pub(in super::super) assumed: Assumed,
    /// Whether instructions and cycles between steps are included in those of [`What::Calls`].
    #[serde(skip)]
    pub(in super::super) covered: bool,
    /// Bytes of steps.
    #[serde(skip)]
    pub(in super::super) held: usize,
    /// The straight lines, if they are wanted.
    #[serde(skip)]
    pub straight: Vec<Line>,
    /// The number of its shard, and the offset of its page in the buffer; `None` if it was decoded
    /// while joining the shards.
    #[serde(skip)]
    pub from: Option<(u32, u64)>,
}

/// Execution between two steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Advance {
    pub instructions: u64,
    pub cycles: Option<u64>,
}

/// Something that depends on what was executed before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in super::super) struct Step {
    pub at: BufferOffset,
    pub before: Advance,
    pub what: What,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in super::super) enum What {
    /// A block, by its index in the piece.
    Block {
        block: u32,
        taken: bool,
        cycles: Option<u32>,
    },
    /// A straight line that is not a block.
    Range {
        range: Range,
        cycles: Option<u32>,
    },
    UnknownPath(QRange),
    Exception(Exception),
    Gap(Gap),
    Mark(Mark),
    /// Calls that began and returned since the previous step.
    #[serde(skip)]
    Calls(Box<Calls>),
    /// A function was called, or replaced one that was called since the previous step.
    #[serde(skip)]
    Enter {
        /// Its first instruction, or where it was entered if no symbol names it.
        function: Address,
        kind: CallKind,
        returns_to: Address,
    },
    /// The innermost call returned.
    #[serde(skip)]
    Return,
}

/// A piece's assumptions about earlier execution.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Assumed {
    /// Branch targets to which no open call returns.
    pub targets: Vec<(Address, Target)>,
    /// The maximum number of calls that the piece has open at once.
    pub depth: usize,
}

/// What else is assumed about a branch target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum Target {
    /// Nothing.
    Any,
    /// A function without a symbol starts there.
    Start,
    /// No function without a symbol starts there.
    Within,
}

/// The executions of calls that began and returned, and of the call around them.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Calls {
    /// A tree: callers precede their callees, and the first node is the call around all.
    pub nodes: Vec<Called>,
    /// Return addresses in code without symbols, and the calling functions; `None` for the call
    /// around all.
    pub returns: Vec<(Address, Option<Address>)>,
    /// Blocks in code without symbols that were executed for the first time, by their index in the
    /// piece, and the functions that executed them.
    pub owners: Vec<(u32, Option<Address>)>,
}

/// A node of [`Calls`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Called {
    /// The index of its caller.
    pub parent: u32,
    /// Its first instruction.
    pub function: Address,
    pub returns_to: Option<Address>,
    /// How often it was called and returned.
    pub calls: u64,
    pub instructions: u64,
    pub cycles: u64,
}

/// What is executed in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Straight {
    /// Instructions in a straight line.
    Line(Range),
    /// A number of instructions on an unknown path.
    Unknown(u32),
}

/// One execution of a straight line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The moment, counted from the start of the piece.
    pub moment: Moment,
    /// What is executed.
    pub straight: Straight,
    /// The state of the core.
    pub context: Option<Context>,
}

impl Piece {
    /// The number of executed straight lines.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The approximate size in bytes.
    pub(in super::super) fn size(&self) -> usize {
        self.held
            + size_of_val(&*self.blocks)
            + size_of_val(&*self.edges)
            + size_of_val(&*self.assumed.targets)
            + size_of::<Self>()
    }

    /// The first instruction, if anything is executed.
    pub(in super::super) fn first(&self) -> Option<Address> {
        self.steps.iter().find_map(|step| match &step.what {
            What::Block { block, .. } => Some(self.blocks[*block as usize].start),
            What::Range { range, .. } => Some(range.start),
            _ => None,
        })
    }

    /// Whether it has no space for all its steps, which makes it useless.
    pub(in super::super) fn is_full(&self) -> bool {
        self.held > FULL
    }

    /// Adds a step. If it is `bounded`, it may become [full](Self::is_full).
    pub(super) fn add(&mut self, step: Step, bounded: bool) {
        if bounded && self.is_full() {
            return;
        }
        let calls = match &step.what {
            What::Calls(calls) => {
                size_of_val(&*calls.nodes)
                    + size_of_val(&*calls.returns)
                    + size_of_val(&*calls.owners)
            }
            _ => 0,
        };
        self.held += calls + size_of::<Step>();
        self.steps.push(step);
    }

    /// Returns whether it can be a piece of a trace: data read from a file may be anything.
    pub(in super::super) fn is_sound(&self) -> bool {
        let sound = |range: &Range| {
            let bytes = range.end.0.wrapping_sub(range.start.0);
            bytes <= LONGEST && u64::from(range.instructions) <= bytes / 2
        };
        let steps = self.steps.iter().all(|step| match &step.what {
            What::Block { block, .. } => (*block as usize) < self.blocks.len(),
            What::Range { range, .. } => sound(range),
            What::Calls(_) | What::Enter { .. } | What::Return => false,
            _ => true,
        });
        let counts = [
            self.after.instructions,
            self.elements,
            self.packets,
            self.lines,
        ];
        let steps_before = self.steps.iter().map(|step| step.before.instructions);
        let small = counts
            .into_iter()
            .chain(steps_before)
            .all(|count| count < ABSURD);
        steps && small && self.blocks.iter().all(|block| sound(&block.range()))
    }
}

impl Line {
    /// Returns the moment of the line, if its piece starts at `begin`.
    pub fn after(&self, begin: &Moment) -> Moment {
        let own = &self.moment;
        let cycles = match (begin.cycles, own.cycles) {
            (Some(before), Some(own)) => Some(before.saturating_add(own)),
            (before, own) => own.or(before),
        };
        Moment {
            instructions: begin.instructions.saturating_add(own.instructions),
            cycles,
            time: own.time.or(begin.time),
            buffer: begin.buffer,
            at: own.at,
        }
    }
}
