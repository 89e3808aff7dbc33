//! The cache of blocks: each straight run up to a waypoint is decoded once.
//!
//! A block has 16 bytes that following needs (links to its successors, its instruction count)
//! and others beside them that only listings and first visits need. Knows no atoms and no
//! return stack.

use super::code::{CodeImage, View};
use super::sink::{Last, Range};
use super::walk::{LONGEST, Stop, Walk, Waypoints};
use crate::arch::branch::Kind;
use crate::quantity::{Address, Isa};

/// A block in [`Blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub(super) u32);

impl BlockId {
    /// Its number, small enough to index a table.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// No address is known: atoms are swallowed.
pub(super) const NOWHERE: u32 = 0;
/// After an indirect branch: an address, or the return stack, tells where.
pub(super) const AWAIT: u32 = 1;
/// A link that needs [`super::follow`] to think: not resolved yet, or it does more than go on.
pub(super) const SLOW: u32 = 0;
/// In a link: its block pushes on the return stack.
pub(super) const PUSH: u32 = 1 << 31;

/// What one atom leads over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unit {
    /// A block up to the next waypoint.
    Waypoint,
    /// One instruction (ETMv3).
    Instruction,
}

/// Where blocks are equal if their addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    pub view: View,
    pub unit: Unit,
}

impl Space {
    fn key(self, isa: Isa) -> u32 {
        u32::from(self.view.0) << 4 | (self.unit as u32) << 3 | isa as u32
    }
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// At a waypoint (or after one instruction, where that is the unit).
    Waypoint,
    /// Memory is missing at its end.
    Missing,
    /// Its instruction set is not followed.
    NotFollowed,
    /// It goes on in the next block: no waypoint was found for very long.
    Long,
}

/// What is needed at each visit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hot {
    /// Where an N atom and an E atom lead to.
    pub links: [u32; 2],
    pub instructions: u32,
    key: u32,
}

/// What is needed at the first visit, and in listings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cold {
    pub start: Address,
    pub end: Address,
    /// Of a direct branch.
    pub target: Address,
    pub target_isa: Isa,
    pub isa: Isa,
    pub space: Space,
    pub stop: End,
    pub exception_return: bool,
    pub last: Last,
}

/// All blocks that were executed so far.
#[derive(Debug)]
pub struct Blocks {
    pub(super) hot: Vec<Hot>,
    pub(super) cold: Vec<Cold>,
    /// Open addressing: the upper half of an entry is a part of the hash, the lower half a
    /// block; 0 is empty.
    index: Vec<u64>,
}

impl Blocks {
    pub(super) fn new() -> Self {
        let mut blocks = Self {
            hot: Vec::new(),
            cold: Vec::new(),
            index: Vec::new(),
        };
        blocks.clear();
        blocks
    }

    pub(super) fn clear(&mut self) {
        let nowhere = Cold {
            start: Address(0),
            end: Address(0),
            target: Address(0),
            target_isa: Isa::A32,
            isa: Isa::A32,
            space: Space {
                view: View(0),
                unit: Unit::Waypoint,
            },
            stop: End::Missing,
            exception_return: false,
            last: Last::default(),
        };
        let none = Hot {
            links: [SLOW; 2],
            instructions: 0,
            key: u32::MAX,
        };
        self.hot = vec![none; 2];
        self.cold = vec![nowhere; 2];
        self.index = vec![0; 1 << 10];
    }

    /// How many there are, with two that stand for no address.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hot.len()
    }

    /// Whether no block was executed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hot.len() == 2
    }

    /// How many instructions a block has.
    #[inline]
    #[must_use]
    pub fn instructions(&self, id: BlockId) -> u32 {
        self.hot[id.index()].instructions
    }

    /// What is in a block.
    #[must_use]
    pub fn range(&self, id: BlockId, taken: bool) -> Range {
        let cold = &self.cold[id.index()];
        Range {
            start: cold.start,
            end: cold.end,
            isa: cold.isa,
            instructions: self.instructions(id),
            last: Last { taken, ..cold.last },
        }
    }

    /// The block at `start`; decodes it if it is new.
    pub(super) fn at(
        &mut self,
        code: &impl CodeImage,
        waypoints: Waypoints,
        space: Space,
        isa: Isa,
        start: Address,
    ) -> u32 {
        let key = space.key(isa);
        let hash = hash(start, key);
        let mask = self.index.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let entry = self.index[slot];
            if entry == 0 {
                break;
            }
            let id = entry as u32;
            if entry >> 32 == hash >> 32
                && self.cold[id as usize].start == start
                && self.hot[id as usize].key == key
            {
                return id;
            }
            slot = (slot + 1) & mask;
        }
        let id = self.hot.len() as u32;
        let (hot, cold) = decode(code, waypoints, space, isa, start);
        self.hot.push(hot);
        self.cold.push(cold);
        self.index[slot] = hash >> 32 << 32 | u64::from(id);
        if self.hot.len() * 2 > self.index.len() {
            self.grow();
        }
        id
    }

    fn grow(&mut self) {
        let mask = self.index.len() * 2 - 1;
        let mut index = vec![0; mask + 1];
        for id in 2..self.hot.len() {
            let hash = hash(self.cold[id].start, self.hot[id].key);
            let mut slot = hash as usize & mask;
            while index[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            index[slot] = hash >> 32 << 32 | id as u64;
        }
        self.index = index;
    }
}

/// A hash whose both halves depend on all bits (the finalizer of a multiply-xorshift mixer).
fn hash(start: Address, key: u32) -> u64 {
    let mixed = (start.0 ^ u64::from(key).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32))
        .wrapping_mul(0xd6e8_feb8_6659_fd93)
        .rotate_left(32)
}

fn decode(
    code: &impl CodeImage,
    waypoints: Waypoints,
    space: Space,
    isa: Isa,
    start: Address,
) -> (Hot, Cold) {
    let mut walk = Walk::new(code, space.view, isa, start);
    let mut found = None;
    let stop = loop {
        if walk.instructions() == LONGEST {
            break End::Long;
        }
        match walk.step() {
            Ok(instruction) => {
                if waypoints.contain(instruction.kind) || space.unit == Unit::Instruction {
                    found = Some(instruction);
                    break End::Waypoint;
                }
            }
            Err(Stop::Missing) => break End::Missing,
            Err(Stop::NotFollowed) => break End::NotFollowed,
        }
    };
    let (target, target_isa) = match found.map(|found| found.kind) {
        Some(Kind::Branch { target, isa }) => (target, isa),
        _ => (Address(0), isa),
    };
    let range = walk.range(waypoints, true);
    let cold = Cold {
        start,
        end: range.end,
        target,
        target_isa,
        isa,
        space,
        stop,
        exception_return: found.is_some_and(|found| found.exception_return),
        last: range.last,
    };
    let hot = Hot {
        links: [SLOW; 2],
        instructions: range.instructions,
        key: space.key(isa),
    };
    (hot, cold)
}
