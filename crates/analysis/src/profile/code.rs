//! How often code was executed: blocks, parts of blocks, edges between them.

use super::functions::FunctionId;
use armsnap_arch::hash::NumberMap;
use armsnap_arch::quantity::{Address, ExceptionLevel, Isa};
use armsnap_trace::flow::{
    BlockId, Blocks, CodeImage, InstructionKind, LastInstruction, Range, View, next,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A block: a straight line up to a waypoint. With ETMv3, a single instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockCount {
    /// Its first instruction.
    pub start: Address,
    /// The address after its last instruction.
    pub end: Address,
    /// Its last instruction.
    pub last_at: Address,
    /// Instruction set.
    pub isa: Isa,
    /// Number of instructions.
    pub instructions: u32,
    /// The last instruction; `taken` has no meaning.
    pub last: LastInstruction,
    /// Where its last instruction branches to, if that is a direct branch.
    pub target: Option<Address>,
    /// The view of memory that it was executed in.
    pub view: View,
    /// The exception level at which it was first executed, if traced.
    pub el: Option<ExceptionLevel>,
    /// The function of the symbol that contains it; without a symbol, the function that starts
    /// there or that executed it first.
    #[serde(skip)]
    pub function: FunctionId,
    /// How often it was executed with an E atom for its last instruction: a branch was taken.
    pub taken: u64,
    /// How often it was executed with an N atom for its last instruction.
    pub not_taken: u64,
}

impl BlockCount {
    /// A block of the flow, without counts, exception level and function.
    pub(super) fn of(code: &impl CodeImage, blocks: &Blocks, id: BlockId) -> Self {
        let (range, view) = (blocks.range(id, true), blocks.view(id));
        Self {
            start: range.start,
            end: range.end,
            last_at: last_at(code, view, range.isa, range.start, range.end),
            isa: range.isa,
            instructions: range.instructions,
            last: range.last,
            target: blocks.target(id).map(|(target, _)| target),
            view,
            el: None,
            function: FunctionId::UNKNOWN,
            taken: 0,
            not_taken: 0,
        }
    }

    /// Returns how often it was executed.
    pub fn count(&self) -> u64 {
        self.taken.saturating_add(self.not_taken)
    }

    /// Returns its instructions.
    pub fn range(&self) -> Range {
        Range {
            start: self.start,
            end: self.end,
            isa: self.isa,
            instructions: self.instructions,
            last: self.last,
        }
    }
}

/// A straight line that is not a block: up to an exception, to missing code, or to a traced source
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartCount {
    /// The instructions.
    pub range: Range,
    /// The last of them.
    pub last_at: Address,
    /// The function of the symbol that contains it; without a symbol, the function that starts
    /// there or that executed it first.
    pub function: FunctionId,
    /// How often it was executed.
    pub count: u64,
}

/// The kind of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeKind {
    /// A direct branch that was taken.
    Branch,
    /// A direct branch with link.
    Call,
    /// An indirect branch that is neither call nor return.
    Indirect,
    /// An indirect branch with link.
    IndirectCall,
    /// A return, from a function or an exception.
    Return,
    /// A conditional branch that was not taken.
    NotTaken,
}

impl EdgeKind {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::Call => "call",
            Self::Indirect => "indirect",
            Self::IndirectCall => "indirect_call",
            Self::Return => "return",
            Self::NotTaken => "not_taken",
        }
    }

    /// The kind of a taken branch; `None` if the instruction is not a branch.
    pub fn of(last: &LastInstruction) -> Option<Self> {
        match (last.kind, last.link, last.returns) {
            (InstructionKind::Branch, true, _) => Some(Self::Call),
            (InstructionKind::Branch, ..) => Some(Self::Branch),
            (InstructionKind::Indirect, true, _) => Some(Self::IndirectCall),
            (InstructionKind::Indirect, _, true) => Some(Self::Return),
            (InstructionKind::Indirect, ..) => Some(Self::Indirect),
            _ => None,
        }
    }
}

/// A branch instruction, an address where execution continued after it, and the number of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The branch.
    pub from: Address,
    /// Where execution continued.
    pub to: Address,
    /// Its kind.
    pub kind: EdgeKind,
    /// How often.
    pub count: u64,
}

/// All code that one core executed, with counts.
#[derive(Clone, Debug, Default)]
pub struct ExecutedCode {
    pub(super) blocks: NumberMap<(u64, u32), BlockCount>,
    pub(super) parts: NumberMap<(u64, u64, u32), PartCount>,
    /// Edges that the blocks do not imply.
    pub(super) found: NumberMap<(u64, u64, u32), (EdgeKind, u64)>,
}

/// Identifies a block at an address.
pub(super) fn block_key(block: &BlockCount) -> (u64, u32) {
    let single = u32::from(block.instructions == 1) << 31;
    (block.start.0, block.view.0 << 4 | block.isa as u32 | single)
}

impl ExecutedCode {
    pub(super) fn add_block(&mut self, block: &BlockCount) {
        let sum = self.blocks.entry(block_key(block)).or_insert(BlockCount {
            taken: 0,
            not_taken: 0,
            ..*block
        });
        sum.taken = sum.taken.saturating_add(block.taken);
        sum.not_taken = sum.not_taken.saturating_add(block.not_taken);
    }

    pub(super) fn add_edge(&mut self, from: Address, to: Address, kind: EdgeKind, count: u64) {
        let key = (from.0, to.0, kind as u32);
        self.found.entry(key).or_insert((kind, 0)).1 += count;
    }

    /// Returns the blocks, by address.
    pub fn blocks(&self) -> Vec<BlockCount> {
        let mut blocks: Vec<_> = self.blocks.values().copied().collect();
        blocks.retain(|block| block.count() > 0);
        blocks.sort_by_key(|block| (block.start, block.view, block.isa as u8, block.end));
        blocks
    }

    /// Returns the parts of blocks, by address.
    pub fn parts(&self) -> Vec<PartCount> {
        let mut parts: Vec<_> = self.parts.values().copied().collect();
        parts.retain(|part| part.count > 0);
        parts.sort_by_key(|part| (part.range.start, part.range.end, part.range.isa as u8));
        parts
    }

    /// Returns the edges, by address. An indirect branch whose target is unknown, because a gap
    /// follows it, has none.
    pub fn edges(&self) -> Vec<Edge> {
        let mut sums: BTreeMap<(Address, Address, EdgeKind), u64> = BTreeMap::new();
        let mut add = |from, to, kind, count: u64| {
            if count > 0 {
                let sum = sums.entry((from, to, kind)).or_insert(0);
                *sum = sum.saturating_add(count);
            }
        };
        for block in self.blocks.values() {
            let kind = EdgeKind::of(&block.last);
            if let (Some(target), Some(kind)) = (block.target, kind) {
                add(block.last_at, target, kind, block.taken);
            }
            if kind.is_some() {
                add(
                    block.last_at,
                    block.end,
                    EdgeKind::NotTaken,
                    block.not_taken,
                );
            }
        }
        for (&(from, to, _), &(kind, count)) in &self.found {
            add(Address(from), Address(to), kind, count);
        }
        let edges = sums.into_iter();
        edges
            .map(|((from, to, kind), count)| Edge {
                from,
                to,
                kind,
                count,
            })
            .collect()
    }

    /// Returns how often each instruction was executed, by function and address. `code` is the
    /// memory that the instructions were decoded from.
    pub fn instructions(&self, code: &impl CodeImage) -> BTreeMap<(FunctionId, Address), u64> {
        let mut sums = BTreeMap::new();
        let mut add = |function, view, range: &Range, count: u64| {
            let mut here = range.start;
            for _ in 0..range.instructions {
                let sum = sums.entry((function, here)).or_insert(0_u64);
                *sum = sum.saturating_add(count);
                here = next(code, view, range.isa, here);
            }
        };
        for block in self.blocks() {
            add(block.function, block.view, &block.range(), block.count());
        }
        for part in self.parts() {
            add(part.function, View::default(), &part.range, part.count);
        }
        sums
    }

    /// Returns the instructions executed in each function.
    pub fn by_function(&self) -> BTreeMap<FunctionId, u64> {
        let mut sums = BTreeMap::new();
        let mut add = |function, instructions: u32, count: u64| {
            let sum = sums.entry(function).or_insert(0_u64);
            *sum = sum.saturating_add(count.saturating_mul(instructions.into()));
        };
        for block in self.blocks.values() {
            add(block.function, block.instructions, block.count());
        }
        for part in self.parts.values() {
            add(part.function, part.range.instructions, part.count);
        }
        sums
    }

    /// Returns how often each instruction was executed, by address.
    pub fn spans(&self) -> Spans {
        let mut changes: BTreeMap<u64, i128> = BTreeMap::new();
        let mut add = |start: Address, end: Address, count: u64| {
            if count > 0 && start < end {
                *changes.entry(start.0).or_default() += i128::from(count);
                *changes.entry(end.0).or_default() -= i128::from(count);
            }
        };
        for block in self.blocks.values() {
            add(block.start, block.end, block.count());
        }
        for part in self.parts.values() {
            add(part.range.start, part.range.end, part.count);
        }
        let mut sum = 0;
        let spans = changes.into_iter().map(|(address, change)| {
            sum += change;
            (address, u64::try_from(sum).unwrap_or(0))
        });
        Spans(spans.collect())
    }
}

/// How often each address was executed, whatever the context.
#[derive(Clone, Debug, Default)]
pub struct Spans(Vec<(u64, u64)>);

impl Spans {
    /// Returns how often the instruction at an address was executed.
    pub fn at(&self, address: u64) -> u64 {
        let after = self.0.partition_point(|(start, _)| *start <= address);
        after.checked_sub(1).map_or(0, |index| self.0[index].1)
    }

    /// Returns the highest count within a range of addresses.
    pub fn most(&self, range: std::ops::Range<u64>) -> u64 {
        let after = self.0.partition_point(|(start, _)| *start <= range.start);
        let inside = self.0[after..].iter();
        let inside = inside.take_while(|(start, _)| *start < range.end);
        let highest = inside.map(|(_, count)| *count).max().unwrap_or(0);
        highest.max(self.at(range.start))
    }

    /// Returns the ranges of addresses that were executed, each with its count.
    pub fn iter(&self) -> impl Iterator<Item = (std::ops::Range<u64>, u64)> {
        let pairs = self.0.windows(2);
        let all = pairs.map(|pair| (pair[0].0..pair[1].0, pair[0].1));
        all.filter(|(_, count)| *count > 0)
    }
}

/// Returns the address of the last instruction of a straight line.
pub fn last_at(
    code: &impl CodeImage,
    view: View,
    isa: Isa,
    start: Address,
    end: Address,
) -> Address {
    if isa != Isa::T32 {
        return Address(end.0.wrapping_sub(4)).max(start);
    }
    let mut here = start;
    loop {
        let after = next(code, view, isa, here);
        if after >= end || after <= here {
            return here;
        }
        here = after;
    }
}
