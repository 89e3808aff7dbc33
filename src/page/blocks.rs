//! The executed blocks of a track: all of them, or evenly spaced stretches and the last ones.

use super::pack::Packer;
use std::collections::{HashMap, VecDeque};

/// Blocks in a stretch.
const STRETCH: usize = 512;
/// The last stretches, which stay: people look at the end of a trace first.
const RECENT: usize = 32;

/// A block: its first instruction, and the number of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block {
    /// Address of the first instruction.
    pub start: u64,
    /// Instructions.
    pub instructions: u32,
}

#[derive(Clone, Debug)]
struct Stretch {
    number: u64,
    /// Instructions of the track before it.
    place: u64,
    blocks: Vec<Block>,
}

/// The blocks of a track.
#[derive(Clone, Debug)]
pub struct BlockStretches {
    kept: Vec<Stretch>,
    recent: VecDeque<Stretch>,
    current: Option<Stretch>,
    /// Each stretch whose number is a multiple of this is kept.
    every: u64,
    next: u64,
    most: usize,
}

impl BlockStretches {
    /// Keeps at most about `most` blocks.
    pub fn new(most: usize) -> Self {
        Self {
            kept: Vec::new(),
            recent: VecDeque::new(),
            current: None,
            every: 1,
            next: 0,
            most: most / STRETCH,
        }
    }

    /// Adds the next block, before which the track has executed `place` instructions.
    #[inline]
    pub fn add(&mut self, place: u64, block: Block) {
        match &mut self.current {
            Some(current) if current.blocks.len() < STRETCH => current.blocks.push(block),
            _ => self.start(place, block),
        }
    }

    fn start(&mut self, place: u64, block: Block) {
        let mut blocks = Vec::with_capacity(STRETCH);
        blocks.push(block);
        let stretch = Stretch {
            number: self.next,
            place,
            blocks,
        };
        self.next += 1;
        let Some(full) = self.current.replace(stretch) else {
            return;
        };
        self.recent.push_back(full);
        if self.recent.len() <= RECENT {
            return;
        }
        let Some(old) = self.recent.pop_front() else {
            return;
        };
        if old.number.is_multiple_of(self.every) {
            self.kept.push(old);
        }
        if self.kept.len() > self.most {
            self.every *= 2;
            let every = self.every;
            self.kept
                .retain(|stretch| stretch.number.is_multiple_of(every));
        }
    }

    fn stretches(&self) -> impl Iterator<Item = &Stretch> {
        self.kept.iter().chain(&self.recent).chain(&self.current)
    }

    /// Whether all blocks were kept.
    pub fn complete(&self) -> bool {
        self.every == 1
    }

    /// The blocks as text, with indexes into `table`.
    pub fn pack(&self, table: &BlockTable) -> String {
        let mut packer = Packer::default();
        let mut at = 0;
        for stretch in self.stretches() {
            packer.number(stretch.place - at);
            packer.number(stretch.blocks.len() as u64);
            at = stretch.place;
            for block in &stretch.blocks {
                packer.number(table.index(block));
                at += u64::from(block.instructions);
            }
        }
        packer.text()
    }
}

/// All blocks of a page, each once, the most frequent first.
#[derive(Debug, Default)]
pub struct BlockTable {
    blocks: Vec<Block>,
    indexes: HashMap<Block, u64>,
}

impl BlockTable {
    /// The blocks of all tracks.
    pub fn of<'a>(tracks: impl Iterator<Item = &'a BlockStretches>) -> Self {
        let mut counts: HashMap<Block, u64> = HashMap::new();
        for stretch in tracks.flat_map(BlockStretches::stretches) {
            for block in &stretch.blocks {
                *counts.entry(*block).or_default() += 1;
            }
        }
        let mut all: Vec<_> = counts.into_iter().collect();
        all.sort_unstable_by_key(|(block, count)| (std::cmp::Reverse(*count), *block));
        let blocks: Vec<Block> = all.into_iter().map(|(block, _)| block).collect();
        let indexes = blocks.iter().enumerate();
        Self {
            indexes: indexes
                .map(|(index, block)| (*block, index as u64))
                .collect(),
            blocks,
        }
    }

    fn index(&self, block: &Block) -> u64 {
        self.indexes.get(block).copied().unwrap_or_default()
    }

    /// The blocks in the order of their indexes.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: u64, most: usize) -> BlockStretches {
        let mut all = BlockStretches::new(most);
        for index in 0..count {
            let block = Block {
                start: index % 7 * 16,
                instructions: 4,
            };
            all.add(index * 4, block);
        }
        all
    }

    #[test]
    fn a_short_trace_has_all_its_blocks() {
        let all = filled(100_000, 200_000);
        assert!(all.complete());
        let blocks: usize = all.stretches().map(|stretch| stretch.blocks.len()).sum();
        assert_eq!(blocks, 100_000);
        let table = BlockTable::of([&all].into_iter());
        assert_eq!(table.blocks().len(), 7);
    }

    #[test]
    fn a_long_trace_has_its_start_its_end_and_stretches_between() {
        let all = filled(10_000_000, 100_000);
        assert!(!all.complete());
        let places: Vec<u64> = all.stretches().map(|stretch| stretch.place).collect();
        assert!(places.is_sorted() && places[0] == 0);
        let last = all.stretches().last().unwrap();
        assert_eq!(last.place + last.blocks.len() as u64 * 4, 40_000_000);
        let blocks: usize = all.stretches().map(|stretch| stretch.blocks.len()).sum();
        assert!((50_000..130_000).contains(&blocks), "{blocks}");
    }
}
