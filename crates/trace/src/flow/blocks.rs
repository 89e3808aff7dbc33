//! The cache of blocks: each straight run up to a waypoint is decoded once.
//!
//! The data of a block are split. [`Hot`], of 16 bytes, is read each time the block is executed;
//! [`Cold`] only the first time, and for listings. The cache is independent of atoms and the return
//! stack.

use super::code::{CodeImage, View};
use super::range::{InstructionKind, LastInstruction, Range};
use super::walk::{Stop, Walk, Waypoints};
pub(super) use armsnap_arch::arch::branch::Kind;
use armsnap_arch::quantity::{Address, Isa};

/// A block in [`Blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub(super) u32);

impl BlockId {
    /// Returns its number, for use as an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Block number with the meaning: no address is known, and atoms are dropped.
pub(super) const NOWHERE: u32 = 0;
/// Block number with the meaning: an indirect branch was taken, and its target is needed, from the
/// trace or from the return stack.
pub(super) const AWAIT: u32 = 1;
/// A link for the slow path: it is not resolved yet, or does more than continue at a block.
pub(super) const SLOW: u32 = 0;
/// Bit of a link: the block is pushed on the return stack.
pub(super) const PUSH: u32 = 1 << 31;
/// A link for an indirect branch with link, where the trace unit has a return stack: the target is
/// needed, and the block is pushed after that.
pub(super) const AWAIT_AND_PUSH: u32 = PUSH | AWAIT;

/// Bit of a link, for images that [watch](CodeImage::WATCHES) steps: this one is watched.
pub(super) const WATCHED: u32 = 1 << 30;

/// Returns whether a link does nothing but continue at a block.
#[inline]
pub(super) fn leads_on(link: u32) -> bool {
    link.wrapping_sub(1) < WATCHED - 1
}

/// Returns the block that a link leads to.
#[inline]
pub(super) fn target_of(link: u32) -> u32 {
    link & !(PUSH | WATCHED)
}

/// A block with this many instructions ends at the next multiple of this many words. Long lines
/// without a waypoint (memory that is not code) thus share blocks, wherever they start.
const LONG: u32 = 0x400;

/// What one atom represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub(super) enum AtomUnit {
    /// A block up to the next waypoint.
    Waypoint,
    /// One instruction (ETMv3).
    Instruction,
}

/// Memory and atom unit of a block. In one space, address and instruction set identify a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Space {
    pub view: View,
    pub unit: AtomUnit,
}

impl Space {
    /// The space of a view before the first atom.
    pub(super) fn of(view: View) -> Self {
        Self {
            view,
            unit: AtomUnit::Waypoint,
        }
    }

    fn key(self, isa: Isa) -> u32 {
        self.view.0 << 4 | (self.unit as u32) << 3 | isa as u32
    }
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// At a waypoint, or after one instruction if that is the atom unit.
    Waypoint,
    /// Memory is missing at its end.
    Missing,
    /// Its instruction set is not followed.
    NotFollowed,
    /// At the length limit, without a waypoint. Execution continues in the next block.
    Long,
}

/// The data of a block that are read each time it is executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hot {
    /// The links of an N atom and of an E atom.
    pub links: [u32; 2],
    pub instructions: u32,
    key: u32,
}

impl Hot {
    /// Returns whether the block is in a space.
    #[inline]
    pub(super) fn lies_in(&self, space: Space) -> bool {
        self.key >> 3 == space.key(Isa::A64) >> 3
    }

    /// Returns whether memory is missing at its first instruction.
    #[inline]
    pub(super) fn is_missing(&self) -> bool {
        self.instructions == 0 && self.key & 7 <= Isa::T32 as u32
    }
}

/// The data of a block that are read the first time it is executed, and for listings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cold {
    pub start: Address,
    pub end: Address,
    /// Target of a direct branch.
    pub target: Address,
    pub target_isa: Isa,
    pub isa: Isa,
    pub space: Space,
    pub stop: End,
    pub exception_return: bool,
    pub last: LastInstruction,
}

/// The blocks executed so far.
#[derive(Debug)]
pub struct Blocks {
    pub(super) hot: Vec<Hot>,
    pub(super) cold: Vec<Cold>,
    /// A hash table with open addressing and linear probing, at most a quarter full, so that most
    /// searches end at the first slot.
    index: Vec<Slot>,
}

/// A slot of the index.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    start: Address,
    key: u32,
    /// 0 if the slot is empty. With [`LACKS_CODE`], memory is missing at the block's first
    /// instruction.
    block: u32,
}

/// Bit of [`Slot::block`].
const LACKS_CODE: u32 = 1 << 31;

impl Blocks {
    /// Creates a table with the entries for [`NOWHERE`] and [`AWAIT`].
    pub(super) fn new() -> Self {
        let nowhere = Cold {
            start: Address(0),
            end: Address(0),
            target: Address(0),
            target_isa: Isa::A32,
            isa: Isa::A32,
            space: Space::of(View(0)),
            stop: End::Missing,
            exception_return: false,
            last: LastInstruction::default(),
        };
        let none = Hot {
            links: [SLOW; 2],
            instructions: 0,
            key: u32::MAX,
        };
        Self {
            hot: vec![none; 2],
            cold: vec![nowhere; 2],
            index: vec![Slot::default(); 1 << 10],
        }
    }

    /// Returns the number of entries: the blocks and two for unknown addresses. Every
    /// [`BlockId::index`] is less.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hot.len()
    }

    /// Returns all entries.
    pub fn ids(&self) -> impl Iterator<Item = BlockId> + use<> {
        (0..self.hot.len() as u32).map(BlockId)
    }

    /// Returns whether no block was executed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hot.len() == 2
    }

    /// Returns the link of an E (`taken`) or N atom.
    #[inline]
    pub(super) fn link(&self, block: u32, taken: bool) -> u32 {
        self.hot[block as usize].links[usize::from(taken)]
    }

    /// Returns the number of instructions of a block.
    #[inline]
    #[must_use]
    pub fn instructions(&self, id: BlockId) -> u32 {
        self.hot[id.index()].instructions
    }

    /// Returns the instructions of a block; `taken` is the atom of the last one.
    #[must_use]
    pub fn range(&self, id: BlockId, taken: bool) -> Range {
        let cold = &self.cold[id.index()];
        Range {
            start: cold.start,
            end: cold.end,
            isa: cold.isa,
            instructions: self.instructions(id),
            last: LastInstruction { taken, ..cold.last },
        }
    }

    /// Returns the target of the direct branch at the end of a block.
    #[must_use]
    pub fn target(&self, id: BlockId) -> Option<(Address, Isa)> {
        let cold = &self.cold[id.index()];
        (cold.last.kind == InstructionKind::Branch).then_some((cold.target, cold.target_isa))
    }

    /// Returns the view of memory that contains a block.
    #[must_use]
    pub fn view(&self, id: BlockId) -> View {
        self.cold[id.index()].space.view
    }

    /// Returns the block at `start`, and whether memory is missing at its first instruction; decodes
    /// it if it is new.
    #[inline]
    pub(super) fn at(
        &mut self,
        code: &impl CodeImage,
        waypoints: Waypoints,
        space: Space,
        isa: Isa,
        start: Address,
    ) -> (u32, bool) {
        let key = space.key(isa);
        let slot = &self.index[hash(start, key) & (self.index.len() - 1)];
        let block = if slot.block != 0 && slot.start == start && slot.key == key {
            slot.block
        } else {
            self.search_or_decode(code, waypoints, space, isa, start)
        };
        (block & !LACKS_CODE, block & LACKS_CODE != 0)
    }

    #[inline(never)]
    fn search_or_decode(
        &mut self,
        code: &impl CodeImage,
        waypoints: Waypoints,
        space: Space,
        isa: Isa,
        start: Address,
    ) -> u32 {
        self.search(space.key(isa), start).unwrap_or_else(|place| {
            let (hot, cold) = decode(code, waypoints, space, isa, start);
            self.add(place, start, hot, cold)
        })
    }

    /// Looks up a block; fails with the empty slot where it belongs.
    fn search(&self, key: u32, start: Address) -> Result<u32, usize> {
        let mask = self.index.len() - 1;
        let mut place = hash(start, key) & mask;
        loop {
            let slot = &self.index[place];
            if slot.block == 0 {
                return Err(place);
            }
            if slot.start == start && slot.key == key {
                return Ok(slot.block);
            }
            place = (place + 1) & mask;
        }
    }

    fn add(&mut self, place: usize, start: Address, hot: Hot, cold: Cold) -> u32 {
        let lacks_code = if hot.is_missing() { LACKS_CODE } else { 0 };
        let block = self.hot.len() as u32 | lacks_code;
        let key = hot.key;
        self.hot.push(hot);
        self.cold.push(cold);
        self.index[place] = Slot { start, key, block };
        if self.hot.len() * 4 > self.index.len() {
            self.grow();
        }
        block
    }

    fn grow(&mut self) {
        let mask = self.index.len() * 2 - 1;
        let old = std::mem::replace(&mut self.index, vec![Slot::default(); mask + 1]);
        for slot in old.into_iter().filter(|slot| slot.block != 0) {
            let mut place = hash(slot.start, slot.key) & mask;
            while self.index[place].block != 0 {
                place = (place + 1) & mask;
            }
            self.index[place] = slot;
        }
    }
}

/// Spreads neighbouring addresses: the upper half of a product with the golden ratio.
fn hash(start: Address, key: u32) -> usize {
    let mixed = (start.0 ^ u64::from(key).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)) as usize
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
        if walk.instructions() >= LONG && walk.here().0 % u64::from(LONG * 4) < 4 {
            break End::Long;
        }
        match walk.step() {
            Ok(instruction) => {
                if waypoints.contain(instruction.kind) || space.unit == AtomUnit::Instruction {
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
