//! How blocks lead to each other: learned when they are first executed, then only looked up.
//!
//! Holds no state of a core.

use super::blocks::{Block, BlockTable};
use super::flow;
use armsnap_arch::arch::branch::Kind;
use armsnap_arch::quantity::Isa;
use armsnap_trace::encode::{CodeAddress, Edge, Line, Options};

/// Not the ID of any block: IDs in events are below `0x8000_0000`.
const NONE: u32 = u32::MAX;

/// A block, and its most recent successors.
#[derive(Clone, Copy, Debug)]
struct KnownBlock {
    line: Line,
    /// The block to which its last instruction last fell through, and the one to which it last
    /// branched.
    next: [u32; 2],
    edges: [Edge; 2],
    /// Whether it leads to any block by the same kind of edge.
    anywhere: bool,
}

/// The most recent step of a core: it executed `before`, and went by `edge` to `here`.
#[derive(Clone, Copy, Debug)]
pub struct Transition {
    /// The previous block.
    pub before: u32,
    /// The edge from the previous block.
    pub edge: Edge,
    /// The block that was entered last.
    pub here: u32,
}

/// The blocks with the edges between them.
#[derive(Debug)]
pub struct Lines {
    options: Options,
    /// By ID; `None` if the tracer has to examine each instruction.
    known: Vec<Option<KnownBlock>>,
}

impl Lines {
    /// Creates an empty table for trace units with these settings.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            known: Vec::new(),
        }
    }

    /// Adds the next block.
    pub fn add(&mut self, block: &Block) {
        let line = Line::new(&self.options, block.start, &block.instructions);
        let anywhere = block.start.isa == Isa::A64
            && block.last().kind == Kind::Indirect
            && self.edge(block, block.start) == Some(Edge::Traced);
        self.known.push(line.map(|line| KnownBlock {
            line,
            next: [NONE; 2],
            edges: [Edge::Onward; 2],
            anywhere,
        }));
    }

    /// Returns the edge from the end of a block to `next`.
    fn edge(&self, block: &Block, next: CodeAddress) -> Option<Edge> {
        let after = CodeAddress {
            address: block.end(),
            isa: block.start.isa,
        };
        let edge = Edge::of(&self.options, block.last(), after, next);
        edge.filter(|_| flow::leads(block, next))
    }

    /// Learns that `before`, executed completely, led to `here`. Returns this step if the core can be
    /// followed from here on.
    pub fn learn(&mut self, before: u32, here: u32, blocks: &BlockTable) -> Option<Transition> {
        let known = self.known.get(before as usize)?.as_ref()?;
        let edge = match self.edge_of(known, here) {
            Some(edge) => edge,
            None => {
                let next = blocks.get(here)?.start;
                let edge = self.edge(blocks.get(before)?, next)?;
                let known = self.known.get_mut(before as usize)?.as_mut()?;
                let slot = usize::from(matches!(edge, Edge::Taken | Edge::Traced));
                known.next[slot] = here;
                known.edges[slot] = edge;
                edge
            }
        };
        Some(Transition { before, edge, here })
    }

    #[inline]
    fn edge_of(&self, known: &KnownBlock, next: u32) -> Option<Edge> {
        let branched = known.next[1] == next;
        if branched | (known.next[0] == next) {
            // Which of the two is chosen cannot be predicted, so this avoids a branch.
            Some(known.edges[usize::from(branched)])
        } else if known.anywhere && (next as usize) < self.known.len() {
            Some(Edge::Traced)
        } else {
            None
        }
    }

    /// Returns the line of a block, and the edge to the block `next`, if both are known.
    #[inline]
    pub fn step(&self, here: u32, next: u32) -> Option<(&Line, Edge)> {
        let known = self.known.get(here as usize)?.as_ref()?;
        Some((&known.line, self.edge_of(known, next)?))
    }
}
