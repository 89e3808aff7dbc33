//! Remembers where a string of atoms led from a block, so that it is followed at once.
//!
//! An entry holds the blocks executed, the callers pushed, and the next block. It ends where the
//! return stack is popped, because the caller differs from time to time. It stays true as long as
//! the table of blocks does: links, once resolved, never change.

use super::blocks::BlockId;
use crate::element::Atoms;

/// Blocks executed one after another, each with its last instruction's atom.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    steps: &'a [Step],
    instructions: u32,
}

impl Run<'_> {
    /// Returns the number of blocks.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns whether there are no blocks; never so in a sink.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the number of instructions in all blocks.
    #[inline]
    #[must_use]
    pub fn instructions(&self) -> u32 {
        self.instructions
    }

    /// Returns the blocks, and whether the last instruction of each had an E atom.
    #[inline]
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = (BlockId, bool)> + '_ {
        self.steps
            .iter()
            .map(|step| (BlockId(step.0 >> 1), step.0 & 1 == 1))
    }
}

/// A block and the atom of its last instruction (bit 0).
#[derive(Clone, Copy, Debug)]
struct Step(u32);

/// The number of entries: 128 KiB.
const ENTRIES: usize = 1 << 12;
/// The number of steps at which the memo is emptied: 4 MiB.
const MOST_STEPS: usize = 1 << 20;
/// Callers that one entry may push.
pub(super) const MOST_PUSHES: usize = 2;

/// What a string of atoms leads to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    /// The first block and the atoms; 0 if empty.
    key: u64,
    first: u32,
    /// Blocks executed: the number of atoms consumed.
    pub count: u8,
    pub pushes: u8,
    instructions: u32,
    /// The block after the run.
    pub next: u32,
    pub pushed: [u32; MOST_PUSHES],
}

/// Entries by first block and atoms; a new entry replaces an old one in its place.
#[derive(Clone, Debug)]
pub(super) struct Memo {
    entries: Box<[Entry; ENTRIES]>,
    steps: Vec<Step>,
}

/// The longest string of atoms with a key of its own.
const MOST_ATOMS: u8 = 31;

/// The block and the atoms, with a one above the newest atom. The key of 32 atoms is never stored.
#[inline]
fn key(block: u32, atoms: Atoms) -> u64 {
    u64::from(block) << 32 | u64::from(atoms.bits) | 1 << atoms.count
}

/// The place of a key. The block, which the entry before supplies, takes the shortest way: its
/// number alone spreads well.
#[inline]
fn place(block: u32, atoms: Atoms) -> usize {
    let marked = atoms.bits | 1_u32.unbounded_shl(atoms.count.into());
    // The upper bits of a product with the golden ratio.
    let spread = marked.wrapping_mul(0x9e37_79b9) >> (32 - ENTRIES.trailing_zeros());
    (block ^ spread) as usize % ENTRIES
}

impl Default for Memo {
    fn default() -> Self {
        let entries = vec![Entry::default(); ENTRIES].into_boxed_slice();
        Self {
            entries: entries.try_into().expect("ENTRIES of them"),
            steps: Vec::new(),
        }
    }
}

impl Memo {
    /// Looks up what `atoms` lead to from `block`.
    #[inline(always)]
    pub fn find(&self, block: u32, atoms: Atoms) -> Option<&Entry> {
        let entry = &self.entries[place(block, atoms)];
        (entry.key == key(block, atoms)).then_some(entry)
    }

    /// Returns the run of an entry.
    #[inline(always)]
    pub fn run(&self, entry: &Entry) -> Run<'_> {
        let first = entry.first as usize;
        Run {
            steps: &self.steps[first..first + usize::from(entry.count)],
            instructions: entry.instructions,
        }
    }

    /// Returns the last block of an entry.
    #[inline(always)]
    pub fn last(&self, entry: &Entry) -> u32 {
        let last = entry.first as usize + usize::from(entry.count) - 1;
        self.steps[last].0 >> 1
    }

    /// Starts an entry.
    pub fn begin(&mut self) -> Draft {
        if self.steps.len() >= MOST_STEPS {
            self.clear();
        }
        Draft {
            entry: Entry {
                first: self.steps.len() as u32,
                ..Entry::default()
            },
            overflow: false,
        }
    }

    /// Stores the entry for `atoms` from `block` on; `next` is the block after it, or
    /// `None` if the entry may not be kept.
    pub fn finish(&mut self, block: u32, atoms: Atoms, draft: Draft, next: Option<u32>) {
        match next {
            Some(next) if !draft.overflow && draft.entry.count > 0 && atoms.count <= MOST_ATOMS => {
                self.entries[place(block, atoms)] = Entry {
                    key: key(block, atoms),
                    next,
                    ..draft.entry
                };
            }
            _ => self.steps.truncate(draft.entry.first as usize),
        }
    }

    /// Appends a step to the entry that was begun last.
    pub fn step(&mut self, draft: &mut Draft, block: u32, taken: bool, instructions: u32) {
        self.steps.push(Step(block << 1 | u32::from(taken)));
        draft.entry.count += 1;
        match draft.entry.instructions.checked_add(instructions) {
            Some(sum) => draft.entry.instructions = sum,
            None => draft.overflow = true,
        }
    }

    /// Forgets everything: the table of blocks is emptied.
    pub fn clear(&mut self) {
        self.entries.fill(Entry::default());
        self.steps.clear();
    }
}

/// An entry being made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft {
    entry: Entry,
    overflow: bool,
}

impl Draft {
    /// Adds a caller that the run pushes.
    pub fn push(&mut self, caller: u32) {
        match self.entry.pushed.get_mut(usize::from(self.entry.pushes)) {
            Some(place) => {
                *place = caller;
                self.entry.pushes += 1;
            }
            None => self.overflow = true,
        }
    }
}
