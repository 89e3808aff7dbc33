//! Remembers where a sequence of atoms led from a block, so that it is followed in one step the next
//! time.
//!
//! An entry holds the blocks executed, the callers pushed, and the next block. It may consume fewer
//! atoms than the sequence has: it ends where the return stack is popped, because the caller varies, and
//! where code is missing. It is valid until the table of blocks is emptied: links, once resolved, never
//! change.

use super::blocks::BlockId;
use crate::element::Atoms;

/// Blocks executed one after another, each with its last instruction's atom.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    steps: &'a [Step],
    /// The index of the first step.
    first: u32,
    /// The number of steps.
    count: u8,
    instructions: u16,
    generation: u32,
}

impl Run<'_> {
    /// Returns the number of blocks.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.into()
    }

    /// Returns whether there are no blocks; always `false` for a run that a sink receives.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of instructions in all blocks.
    #[inline]
    #[must_use]
    pub fn instructions(&self) -> u32 {
        self.instructions.into()
    }

    /// Returns a number that identifies the blocks, for use as an index, and a generation. Numbers of
    /// different generations are not related.
    #[inline]
    #[must_use]
    pub fn number(&self) -> (usize, u32) {
        (self.first as usize, self.generation)
    }

    /// Returns the blocks, and whether the last instruction of each had an E atom.
    #[inline]
    pub fn blocks(
        &self,
    ) -> impl DoubleEndedIterator<Item = (BlockId, bool)> + ExactSizeIterator + '_ {
        let first = self.first as usize;
        self.steps[first..first + self.len()]
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
const MAX_STEPS: usize = 1 << 20;
/// The maximum number of callers that one entry pushes.
pub(super) const MAX_PUSHES: usize = 2;

/// The result of following a sequence of atoms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    /// The first block and the atoms; 0 if empty. With [`SEEN`], the atoms occurred once.
    key: u64,
    /// The index of its first step.
    first: u32,
    /// The last block executed.
    pub left: u32,
    /// The block after the run.
    pub next: u32,
    pub pushed: [u32; MAX_PUSHES],
    pub instructions: u16,
    /// Blocks executed: the number of atoms consumed.
    pub count: u8,
    pub pushes: u8,
}

impl Entry {
    /// The number of the run, as in [`Run::number`].
    #[inline(always)]
    pub(super) fn number(&self) -> usize {
        self.first as usize
    }
}

/// Bit of a key: the entry only records that its atoms occurred once. Most sequences do not recur,
/// and remembering costs more than following.
const SEEN: u64 = 1 << 63;

/// Entries by first block and atoms; a new entry replaces the old one in its slot.
#[derive(Clone, Debug)]
pub(super) struct Memo {
    entries: Box<[Entry; ENTRIES]>,
    steps: Vec<Step>,
    /// How often it was emptied.
    generation: u32,
}

/// The length of the longest sequence of atoms that is remembered.
pub(super) const MAX_ATOMS: u8 = 31;

/// The block and the atoms, with a one above the newest atom. The key of 32 atoms is never stored.
#[inline]
fn key(block: u32, atoms: Atoms) -> u64 {
    u64::from(block) << 32 | u64::from(atoms.bits) | 1 << atoms.count
}

/// The index of the entry for a key. The block is not mixed, because its number spreads well and is
/// known last: the previous entry supplies it.
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
            generation: 0,
        }
    }
}

impl Memo {
    /// Looks up the entry for `atoms` from `block` on.
    #[inline(always)]
    pub(super) fn find(&self, block: u32, atoms: Atoms) -> Option<&Entry> {
        let entry = &self.entries[place(block, atoms)];
        (entry.key == key(block, atoms)).then_some(entry)
    }

    /// Returns the run of an entry.
    #[inline(always)]
    pub(super) fn run(&self, entry: &Entry) -> Run<'_> {
        Run {
            steps: &self.steps,
            first: entry.first,
            count: entry.count,
            instructions: entry.instructions,
            generation: self.generation,
        }
    }

    /// Whether the memo must be emptied before a run is added.
    pub(super) fn is_full(&self) -> bool {
        self.steps.len() >= MAX_STEPS
    }

    /// Records that `atoms`, which have no entry, occurred from `block` on; returns whether they
    /// had occurred before.
    pub(super) fn came(&mut self, block: u32, atoms: Atoms) -> bool {
        if atoms.count > MAX_ATOMS {
            return false;
        }
        let seen = key(block, atoms) | SEEN;
        let entry = &mut self.entries[place(block, atoms)];
        std::mem::replace(&mut entry.key, seen) == seen
    }

    /// Starts an entry for `atoms` from `block` on; `None` the first time they occur.
    pub(super) fn begin(&mut self, block: u32, atoms: Atoms) -> Option<Draft> {
        if !self.came(block, atoms) {
            return None;
        }
        let (place, key) = (place(block, atoms), key(block, atoms));
        Some(Draft {
            place,
            entry: Entry {
                key,
                first: self.steps.len() as u32,
                ..Entry::default()
            },
            overflow: false,
        })
    }

    /// Stores an entry with at least one step; `next` is the block after it.
    pub(super) fn finish(&mut self, draft: Draft, next: u32) {
        if draft.overflow {
            self.steps.truncate(draft.entry.first as usize);
        } else {
            self.entries[draft.place] = Entry {
                next,
                ..draft.entry
            };
        }
    }

    /// Appends a step to the entry that was started last.
    pub(super) fn step(&mut self, draft: &mut Draft, block: u32, taken: bool, instructions: u32) {
        self.steps.push(Step(block << 1 | u32::from(taken)));
        let entry = &mut draft.entry;
        entry.count += 1;
        entry.left = block;
        let sum = u32::from(entry.instructions).saturating_add(instructions);
        match u16::try_from(sum) {
            Ok(sum) => entry.instructions = sum,
            Err(_) => draft.overflow = true,
        }
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        self.entries.fill(Entry::default());
        self.steps.clear();
        self.generation = self.generation.wrapping_add(1);
    }
}

/// An entry that is not finished.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft {
    place: usize,
    entry: Entry,
    /// Whether the run has too many instructions for an entry.
    overflow: bool,
}

impl Draft {
    /// Returns whether no further caller can be added.
    pub(super) fn is_full(&self) -> bool {
        usize::from(self.entry.pushes) == MAX_PUSHES
    }

    /// Adds a caller that the run pushes, if it is not [full](Self::is_full).
    pub(super) fn push(&mut self, caller: u32) {
        if let Some(place) = self.entry.pushed.get_mut(usize::from(self.entry.pushes)) {
            *place = caller;
            self.entry.pushes += 1;
        }
    }
}
