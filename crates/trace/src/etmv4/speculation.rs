//! Entries that were traced and are not yet committed.
//!
//! They form a queue in the order of the trace. Commits take the oldest P0 elements, cancels remove
//! the newest, mispredicts correct the newest atom (IHI 0064, Commit, Cancel and Mispredict
//! packets). The queue itself emits nothing.

use std::collections::VecDeque;

use super::packet::{ContextInfo, InstructionSet};
use crate::element::Atoms;
use armsnap_arch::quantity::{BufferOffset, ExceptionLevel};

/// An entry that waits for the P0 elements before or after it.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) enum Held {
    /// P0 elements that were traced before the start of the trace.
    Unseen(u32),
    /// P0: atoms.
    Atoms(Atoms),
    /// P0: an exception, whose return address comes next.
    Exception {
        number: u16,
        /// The return address is the target of the branch before it.
        target: bool,
    },
    /// P0: the core was reset.
    PeReset,
    /// P0: a Q element, whose end address comes next.
    Q {
        count: Option<u32>,
    },
    /// P0: the core executed up to this address and branched there.
    Source {
        address: u64,
        is: InstructionSet,
    },
    /// P0 in M-profile.
    ExceptionReturn {
        p0: bool,
    },
    /// P0.
    FunctionReturn,
    /// P0 if TRCIDR0.COMMTRANS is 0.
    TransactionStart {
        p0: bool,
    },
    /// The trace starts inside a transaction.
    TransactionInit,
    TransactionCommit,
    TransactionFailure,
    TraceOn,
    Address {
        address: u64,
        is: InstructionSet,
    },
    Context {
        info: ContextInfo,
        is: InstructionSet,
    },
    /// The same context again.
    SameContext {
        is: InstructionSet,
    },
    /// Not speculative.
    Event(u8),
    /// Not speculative.
    Cycles(u32),
    /// Not speculative; cycles are emitted where they are counted.
    Timestamp {
        value: u64,
        cycles: u32,
    },
    /// Not speculative.
    TimestampMarker,
    /// Not speculative.
    Instrumentation {
        el: ExceptionLevel,
        value: u64,
    },
}

impl Held {
    /// The number of P0 elements in it.
    pub(super) fn p0(&self) -> u32 {
        match *self {
            Self::Unseen(count) => count,
            Self::Atoms(atoms) => atoms.count.into(),
            Self::Exception { .. }
            | Self::PeReset
            | Self::Q { .. }
            | Self::Source { .. }
            | Self::FunctionReturn => 1,
            Self::ExceptionReturn { p0 } | Self::TransactionStart { p0 } => p0.into(),
            Self::TransactionInit
            | Self::TransactionCommit
            | Self::TransactionFailure
            | Self::TraceOn
            | Self::Address { .. }
            | Self::Context { .. }
            | Self::SameContext { .. }
            | Self::Event(_)
            | Self::Cycles(_)
            | Self::Timestamp { .. }
            | Self::TimestampMarker
            | Self::Instrumentation { .. } => 0,
        }
    }

    /// Returns whether it stays when the P0 elements before it are cancelled or discarded.
    pub(super) fn outlives_cancel(&self) -> bool {
        matches!(
            self,
            Self::Event(_)
                | Self::Cycles(_)
                | Self::Timestamp { .. }
                | Self::TimestampMarker
                | Self::Instrumentation { .. }
        )
    }
}

/// An entry and the offset of its packet.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Entry {
    pub at: BufferOffset,
    pub held: Held,
}

const _: () = assert!(size_of::<Entry>() <= 24);

/// The number of steps through the queue that cancels and mispredicts may take for each entry pushed. In
/// the trace of a real unit they concern the newest few entries; in a corrupt trace, each could scan the
/// whole queue.
const STEPS_PER_ENTRY: u64 = 512;

/// The queue.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "SavedQueue", into = "SavedQueue")]
pub(super) struct Queue {
    /// Oldest first.
    entries: VecDeque<Entry>,
    /// The number of P0 elements in it.
    p0: u64,
    /// Entries that survive the cancel in progress, newest first.
    kept: Vec<Entry>,
    /// Remaining steps.
    steps: u64,
}

/// The saved form of a queue, which is equal for queues that behave in the same way.
#[derive(serde::Serialize, serde::Deserialize)]
struct SavedQueue {
    entries: VecDeque<Entry>,
    steps: u64,
}

impl From<Queue> for SavedQueue {
    fn from(queue: Queue) -> Self {
        Self {
            steps: queue.steps.min(queue.most_steps()),
            entries: queue.entries,
        }
    }
}

impl From<SavedQueue> for Queue {
    fn from(saved: SavedQueue) -> Self {
        let p0 = |entry: &Entry| u64::from(entry.held.p0());
        Self {
            p0: saved.entries.iter().map(p0).sum(),
            entries: saved.entries,
            kept: Vec::new(),
            steps: saved.steps,
        }
    }
}

/// Queues that behave in the same way are equal.
impl PartialEq for Queue {
    fn eq(&self, other: &Self) -> bool {
        let steps = |queue: &Self| queue.steps.min(queue.most_steps());
        self.entries == other.entries && steps(self) == steps(other)
    }
}

impl Queue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether it contains P0 elements from before the start of the trace, which are the oldest.
    pub(super) fn has_unseen(&self) -> bool {
        if self.p0 == 0 {
            return false;
        }
        let oldest = self.entries.iter().find(|entry| entry.held.p0() > 0);
        oldest.is_some_and(|entry| matches!(entry.held, Held::Unseen(_)))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of P0 elements in the oldest entry that has any; 0 if none has.
    pub(super) fn oldest_p0(&self) -> u32 {
        let mut counts = self.entries.iter().map(|entry| entry.held.p0());
        counts.find(|count| *count > 0).unwrap_or(0)
    }

    /// The number of P0 elements held.
    pub(super) fn p0(&self) -> u64 {
        self.p0
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.kept.clear();
        self.p0 = 0;
    }

    #[inline]
    pub(super) fn push(&mut self, at: BufferOffset, held: Held) {
        self.p0 += u64::from(held.p0());
        self.steps = self.steps.saturating_add(STEPS_PER_ENTRY);
        self.entries.push_back(Entry { at, held });
    }

    /// The entry at `index`, counted from the oldest.
    pub(super) fn peek(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index)
    }

    /// Takes the oldest entry.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.p0 -= u64::from(entry.held.p0());
        Some(entry)
    }

    /// Takes up to `most` atoms or unseen elements from the oldest entry, which must be one of
    /// these. The rest stays.
    pub(super) fn split(&mut self, most: u32) -> Option<Entry> {
        let entry = self.entries.front_mut()?;
        let at = entry.at;
        let taken = match &mut entry.held {
            Held::Atoms(atoms) if u32::from(atoms.count) > most => {
                let taken = Atoms {
                    bits: atoms.bits & ((1 << most) - 1),
                    count: most as u8,
                };
                atoms.bits >>= most;
                atoms.count -= taken.count;
                Held::Atoms(taken)
            }
            Held::Unseen(count) if *count > most => {
                *count -= most;
                Held::Unseen(most)
            }
            _ => return self.pop(),
        };
        self.p0 -= u64::from(most);
        Some(Entry { at, held: taken })
    }

    fn most_steps(&self) -> u64 {
        STEPS_PER_ENTRY * (self.entries.len() + self.kept.len()) as u64
    }

    /// Uses `count` steps; `false` if fewer remain. Steps of entries that left the queue are lost.
    fn step(&mut self, count: usize) -> bool {
        let left = self.steps.min(self.most_steps());
        let left = left.checked_sub(count as u64);
        self.steps = left.unwrap_or(0);
        left.is_some()
    }

    /// Removes the newest `count` P0 elements and the entries that depend on them; `false` if there
    /// are fewer, or if they are too many steps away.
    #[must_use]
    pub(super) fn cancel(&mut self, count: u32) -> bool {
        let cancelled = self.cancel_newest(count);
        self.entries.extend(self.kept.drain(..).rev());
        cancelled
    }

    /// Moves entries that survive the cancel to `kept`.
    fn cancel_newest(&mut self, mut count: u32) -> bool {
        if u64::from(count) > self.p0 {
            return false;
        }
        while count > 0
            && let Some(entry) = self.entries.back_mut()
        {
            let p0 = entry.held.p0();
            match &mut entry.held {
                Held::Atoms(atoms) if p0 > count => {
                    atoms.count -= count as u8;
                    atoms.bits &= (1 << atoms.count) - 1;
                    self.p0 -= u64::from(count);
                    break;
                }
                Held::Unseen(unseen) if p0 > count => {
                    *unseen -= count;
                    self.p0 -= u64::from(count);
                    break;
                }
                _ => {
                    if !self.step(1) {
                        return false;
                    }
                    self.kept
                        .extend(self.entries.pop_back().filter(|e| e.held.outlives_cancel()));
                    self.p0 -= u64::from(p0);
                    count -= p0;
                }
            }
        }
        true
    }

    /// Inverts the newest atom and removes the addresses after it; `false` if there is no atom, or
    /// if it is too many steps away.
    #[must_use]
    pub(super) fn mispredict(&mut self) -> bool {
        let mut index = self.entries.len();
        while let Some(before) = index.checked_sub(1) {
            if !self.step(1) {
                return false;
            }
            index = before;
            match &mut self.entries[index].held {
                Held::Atoms(atoms) => {
                    atoms.bits ^= 1 << (atoms.count - 1);
                    return true;
                }
                // Before the start of the trace.
                Held::Unseen(_) => return true,
                Held::Address { .. } => {
                    self.entries.remove(index);
                    if !self.step(self.entries.len() - index) {
                        return false;
                    }
                }
                _ => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: BufferOffset = BufferOffset(0);

    fn atoms(text: &str) -> Held {
        let bits = text
            .bytes()
            .rev()
            .fold(0, |b, c| b << 1 | u32::from(c == b'E'));
        Held::Atoms(Atoms {
            bits,
            count: text.len() as u8,
        })
    }

    fn address(address: u64) -> Held {
        Held::Address {
            address,
            is: InstructionSet::Is0,
        }
    }

    fn queue(held: &[Held]) -> Queue {
        let mut queue = Queue::default();
        for &held in held {
            queue.push(AT, held);
        }
        queue
    }

    fn left(queue: &mut Queue) -> Vec<Held> {
        std::iter::from_fn(|| queue.pop()).map(|e| e.held).collect()
    }

    #[test]
    fn commits_split_atoms() {
        let mut q = queue(&[atoms("ENE"), address(4), atoms("N")]);
        assert_eq!(q.p0(), 4);
        assert_eq!(q.split(2).unwrap().held, atoms("EN"));
        assert_eq!(q.p0(), 2);
        assert_eq!(left(&mut q), [atoms("E"), address(4), atoms("N")]);
    }

    #[test]
    fn a_cancel_removes_atoms_and_the_addresses_after_them() {
        let mut q = queue(&[atoms("EE"), address(4), atoms("EN"), address(8)]);
        assert!(q.cancel(1));
        assert_eq!(left(&mut q), [atoms("EE"), address(4), atoms("E")]);
        let mut q = queue(&[atoms("EE"), address(4), atoms("EN"), address(8)]);
        assert!(q.cancel(3));
        assert_eq!(left(&mut q), [atoms("E")]);
    }

    #[test]
    fn a_cancel_keeps_marks_that_are_not_speculative() {
        let time = Held::Timestamp {
            value: 1,
            cycles: 0,
        };
        let mut q = queue(&[
            atoms("E"),
            Held::Event(1),
            atoms("E"),
            time,
            address(4),
            Held::Event(2),
        ]);
        assert!(q.cancel(2));
        assert_eq!(left(&mut q), [Held::Event(1), time, Held::Event(2)]);
    }

    #[test]
    fn a_cancel_of_everything_leaves_nothing() {
        let mut q = queue(&[Held::Unseen(3), atoms("EEEE")]);
        assert!(!q.cancel(8));
        assert!(q.cancel(5));
        assert_eq!(left(&mut q), [Held::Unseen(2)]);
    }

    #[test]
    fn a_mispredict_corrects_the_newest_atom() {
        let mut q = queue(&[atoms("EE"), atoms("NE"), address(4), Held::Event(1)]);
        assert!(q.mispredict());
        assert_eq!(left(&mut q), [atoms("EE"), atoms("NN"), Held::Event(1)]);
    }

    #[test]
    fn a_mispredict_before_the_start_of_trace_changes_nothing() {
        assert!(queue(&[Held::Unseen(1)]).mispredict());
        assert!(!queue(&[address(4)]).mispredict());
    }

    #[test]
    fn deep_speculation_is_cancelled_one_by_one() {
        let mut q = Queue::default();
        for _ in 0..256 {
            q.push(AT, atoms("E"));
            q.push(AT, address(4));
            q.push(AT, Held::Event(1));
        }
        for _ in 0..256 {
            assert!(q.mispredict() && q.cancel(1));
        }
        assert_eq!(left(&mut q), [Held::Event(1); 256]);
    }

    /// How often `turn` finds its P0 element below `events` events.
    fn turns_over(events: usize, turn: fn(&mut Queue) -> bool) -> usize {
        let mut q = queue(&[Held::Unseen(u32::MAX)]);
        for _ in 0..events {
            q.push(AT, Held::Event(1));
        }
        (0..1_000_000).take_while(|_| turn(&mut q)).count()
    }

    #[test]
    fn cancels_do_not_scan_the_whole_queue_each_time() {
        for turn in [|q: &mut Queue| q.cancel(1), Queue::mispredict] {
            for events in [100, 10_000] {
                let turns = turns_over(events, turn);
                assert!((400..=600).contains(&turns), "{turns} over {events}");
            }
        }
    }
}
