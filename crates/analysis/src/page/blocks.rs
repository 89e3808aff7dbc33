//! The executed blocks of a track: all of them, or evenly spaced stretches and the most recent
//! ones.

use super::pack::Packer;
use std::collections::{HashMap, VecDeque};

/// Blocks in a stretch.
const STRETCH: usize = 512;
/// The number of last stretches that are always kept: people look at the end of a trace first.
const RECENT: usize = 32;

/// A block: its first instruction, and the number of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block {
    /// Address of the first instruction.
    pub start: u64,
    /// The number of instructions.
    pub instructions: u32,
}

/// Consecutive blocks, with a few holes. Executed blocks are stored here unprocessed, since most of
/// them are dropped again.
#[derive(Clone, Debug)]
struct BlockSequence {
    number: u64,
    /// Instructions of the track before the stretch.
    place: u64,
    items: Vec<u32>,
    /// Instructions executed in no block: the number of blocks before them, and their number.
    holes: Vec<(usize, u64)>,
}

/// Marks an item of a stretch as the number of a run. Otherwise it is an index into
/// [`BlockStretches::blocks`].
const RUN: u32 = 1 << 31;

/// The blocks of a track.
#[derive(Clone, Debug)]
pub struct BlockStretches {
    kept: Vec<BlockSequence>,
    recent: VecDeque<BlockSequence>,
    current: Option<BlockSequence>,
    /// How many more blocks fit in the current stretch.
    room: usize,
    /// Each stretch whose number is a multiple of this is kept.
    every: u64,
    next: u64,
    most: usize,
    /// All blocks, each once.
    blocks: Vec<Block>,
    indexes: HashMap<Block, u32>,
    /// By the decoder's number of a block: its index plus one; 0 for others.
    numbers: Vec<u32>,
    /// By the number of a run: its first step, and the one after its last.
    runs: Vec<(u32, u32)>,
    /// Indices of blocks.
    steps: Vec<u32>,
}

impl BlockStretches {
    /// Keeps at most about `most` blocks.
    pub fn new(most: usize) -> Self {
        Self {
            kept: Vec::new(),
            recent: VecDeque::new(),
            current: None,
            room: 0,
            every: 1,
            next: 0,
            most: most / STRETCH,
            blocks: Vec::new(),
            indexes: HashMap::new(),
            numbers: Vec::new(),
            runs: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Adds the next block, before which the track has executed `place` instructions.
    pub fn add(&mut self, place: u64, block: Block) {
        let index = self.meet(block);
        self.push(place, index);
    }

    /// Adds the next block, to which the decoder gave a number.
    #[inline]
    pub fn add_numbered(&mut self, place: u64, number: usize, block: impl FnOnce() -> Block) {
        let index = match self.numbers.get(number) {
            Some(&known) if known > 0 => known - 1,
            _ => {
                let index = self.meet(block());
                fill(&mut self.numbers, number, index + 1);
                index
            }
        };
        self.push(place, index);
    }

    #[inline(never)]
    fn meet(&mut self, block: Block) -> u32 {
        let next = self.blocks.len() as u32;
        let index = *self.indexes.entry(block).or_insert(next);
        if index == next {
            self.blocks.push(block);
        }
        index
    }

    #[inline]
    fn push(&mut self, place: u64, item: u32) {
        if self.room == 0 {
            self.start(place);
        }
        self.room -= 1;
        if let Some(current) = &mut self.current {
            current.items.push(item);
        }
    }

    /// Defines a run: a number that stands for blocks already added, given by the decoder's
    /// numbers.
    pub fn learn_run(&mut self, number: usize, blocks: impl Iterator<Item = usize>) {
        let first = self.steps.len() as u32;
        let numbers = &self.numbers;
        let known = blocks.filter_map(|block| numbers.get(block)?.checked_sub(1));
        self.steps.extend(known);
        fill(&mut self.runs, number, (first, self.steps.len() as u32));
    }

    /// Notes that instructions of no known block are executed next.
    pub fn skip(&mut self, instructions: u64) {
        let Some(current) = &mut self.current else {
            return;
        };
        let blocks = STRETCH - self.room;
        match current.holes.last_mut() {
            Some((before, hole)) if *before == blocks => *hole += instructions,
            _ => current.holes.push((blocks, instructions)),
        }
    }

    /// Adds the blocks of a run.
    #[inline]
    pub fn add_run(&mut self, place: u64, number: usize, blocks: usize) {
        match &mut self.current {
            Some(current) if blocks <= self.room => {
                current.items.push(RUN | number as u32);
                self.room -= blocks;
            }
            _ => self.add_each(place, number),
        }
    }

    /// Adds the blocks of a run one by one.
    #[inline(never)]
    fn add_each(&mut self, place: u64, number: usize) {
        let mut place = place;
        let (first, end) = self.runs.get(number).copied().unwrap_or_default();
        for step in first..end {
            let index = self.steps[step as usize];
            self.push(place, index);
            place += u64::from(self.blocks[index as usize].instructions);
        }
    }

    /// Invalidates the decoder's numbers.
    pub fn forget_runs(&mut self) {
        for mut stretch in std::mem::take(&mut self.recent) {
            self.expand(&mut stretch);
            self.recent.push_back(stretch);
        }
        if let Some(mut current) = self.current.take() {
            self.expand(&mut current);
            self.current = Some(current);
        }
        self.numbers.clear();
        self.runs.clear();
        self.steps.clear();
    }

    /// Replaces the runs of a stretch by their blocks.
    fn expand(&self, stretch: &mut BlockSequence) {
        let items = self.indexes_in(stretch).collect();
        stretch.items = items;
    }

    /// The indices of the blocks in a stretch.
    fn indexes_in(&self, stretch: &BlockSequence) -> impl Iterator<Item = u32> {
        stretch.items.iter().flat_map(|&item| {
            let (one, steps) = match item & RUN {
                0 => (Some(item), (0, 0)),
                _ => (None, self.runs[(item & !RUN) as usize]),
            };
            let steps = &self.steps[steps.0 as usize..steps.1 as usize];
            one.into_iter().chain(steps.iter().copied())
        })
    }

    #[inline(never)]
    fn start(&mut self, place: u64) {
        self.room = STRETCH;
        let stretch = BlockSequence {
            number: self.next,
            place,
            items: Vec::new(),
            holes: Vec::new(),
        };
        self.next += 1;
        let Some(full) = self.current.replace(stretch) else {
            return;
        };
        self.recent.push_back(full);
        if self.recent.len() <= RECENT {
            return;
        }
        let Some(mut old) = self.recent.pop_front() else {
            return;
        };
        if old.number.is_multiple_of(self.every) {
            self.expand(&mut old);
            self.kept.push(old);
        } else if let Some(current) = &mut self.current {
            // Its allocation is reused.
            old.items.clear();
            current.items = old.items;
        }
        if self.kept.len() > self.most {
            self.every *= 2;
            let every = self.every;
            self.kept
                .retain(|stretch| stretch.number.is_multiple_of(every));
        }
    }

    fn stretches(&self) -> impl Iterator<Item = &BlockSequence> {
        self.kept.iter().chain(&self.recent).chain(&self.current)
    }

    /// Whether all blocks were kept.
    pub fn complete(&self) -> bool {
        self.every == 1
    }

    /// The blocks as text, with indices into `table`.
    pub fn pack(&self, table: &BlockTable) -> String {
        let indexes: Vec<u64> = self.blocks.iter().map(|block| table.index(block)).collect();
        let mut packer = Packer::default();
        let mut at = 0;
        for stretch in self.stretches() {
            let blocks: Vec<u32> = self.indexes_in(stretch).collect();
            let (mut place, mut first) = (stretch.place, 0);
            for &(end, hole) in stretch.holes.iter().chain(&[(blocks.len(), 0)]) {
                packer.number(place - at);
                packer.number((end - first) as u64);
                at = place;
                for &block in &blocks[first..end] {
                    packer.number(indexes[block as usize]);
                    at += u64::from(self.blocks[block as usize].instructions);
                }
                (place, first) = (at + hole, end);
            }
        }
        packer.text()
    }
}

/// Sets an element of a table that grows as needed.
fn fill<T: Copy + Default>(table: &mut Vec<T>, index: usize, value: T) {
    if index >= table.len() {
        table.resize((index + 1).next_power_of_two(), T::default());
    }
    table[index] = value;
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
        for track in tracks {
            let mut own = vec![0; track.blocks.len()];
            for stretch in track.stretches() {
                for block in track.indexes_in(stretch) {
                    own[block as usize] += 1;
                }
            }
            let shown = track.blocks.iter().zip(own).filter(|(_, count)| *count > 0);
            for (block, count) in shown {
                *counts.entry(*block).or_default() += count;
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

    /// The blocks in the order of their indices.
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
        let blocks: usize = all
            .stretches()
            .map(|stretch| all.indexes_in(stretch).count())
            .sum();
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
        assert_eq!(
            last.place + all.indexes_in(last).count() as u64 * 4,
            40_000_000
        );
        let blocks: usize = all
            .stretches()
            .map(|stretch| all.indexes_in(stretch).count())
            .sum();
        assert!((50_000..130_000).contains(&blocks), "{blocks}");
    }

    #[test]
    fn blocks_after_an_unknown_path_are_in_their_place() {
        let mut all = BlockStretches::new(40_000);
        let block = Block {
            start: 16,
            instructions: 4,
        };
        let mut wanted = Packer::default();
        // Distances from the end of the last block, and counts.
        all.skip(3);
        for (skipped, place) in [(3, 3), (5, 16), (7, 31)] {
            let count = if place == 31 { STRETCH as u64 } else { 2 };
            for index in 0..count {
                all.add(place + index * 4, block);
            }
            all.skip(4);
            all.skip(if place == 3 { 1 } else { 3 });
            let left = STRETCH as u64 - 4;
            let stretches: &[(u64, u64)] = match place {
                31 => &[(skipped, left), (0, 4)],
                _ => &[(skipped, count)],
            };
            for &(skipped, count) in stretches {
                wanted.number(skipped);
                wanted.number(count);
                (0..count).for_each(|_| wanted.number(0));
            }
        }
        // After the last hole.
        wanted.number(7);
        wanted.number(0);
        let table = BlockTable::of([&all].into_iter());
        assert_eq!(all.pack(&table), wanted.text());
    }

    #[test]
    fn runs_are_the_same_as_their_blocks() {
        let block = |index: usize| Block {
            start: index as u64 * 16,
            instructions: index as u32 + 1,
        };
        let mut runs = BlockStretches::new(40_000);
        let mut each = runs.clone();
        let mut at = 0;
        for round in 0..100_000_usize {
            let blocks: Vec<usize> = (0..=round % 5).map(|step| (round + step) % 11).collect();
            // The numbers of runs, and thus their meaning, change now and then.
            let number = round % 55 + round / 20_000;
            let known = runs.runs.get(number).is_some_and(|run| run.1 > 0);
            if known {
                runs.add_run(at, number, blocks.len());
            }
            for &index in &blocks {
                if !known {
                    runs.add_numbered(at, index, || block(index));
                }
                each.add(at, block(index));
                at += u64::from(block(index).instructions);
            }
            if !known {
                runs.learn_run(number, blocks.into_iter());
            }
            if round % 20_000 == 19_999 {
                runs.forget_runs();
            }
        }
        assert!(!runs.complete());
        let table = BlockTable::of([&each].into_iter());
        assert_eq!(table.blocks(), BlockTable::of([&runs].into_iter()).blocks());
        assert_eq!(runs.pack(&table), each.pack(&table));
    }
}
